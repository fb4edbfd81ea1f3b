"""The life of one tick, in order: read this file and you have seen the product.

accepted input -> event tick or telemetry tick -> detectors judge -> fuse -> correlate -> incidents, saved with the
event cursor in one transaction. What is then done about an incident stands in ``orders``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

from sqlmodel import Session

from backend import telling
from backend.clock import unix, utc
from backend.facts import Batch, RawEvent
from backend.feed import Place
from backend.incidents import lifecycle
from backend.incidents.correlate import correlate
from backend.incidents.record import Delta, frozen_keys, record
from backend.ingest.base import SourceError
from backend.ingest.training import canonical, events_of, fed, only_new
from backend.inventory.spoken import attrs_of, versions_said
from backend.model.events import Event as EventRow
from backend.ring import fit
from backend.store import events, incidents, marks, reports, system
from backend.watch import TICKS, Watch
from detectors.fuse import Suspicion, fuse
from detectors.model import BoolArray, Entity, Event, Finding, Fleet, Judged, Tick
from detectors.places import hosts_of
from detectors.shadow import parted

#: Events judged in one tick at most: a storm makes a few large ticks, not thousands of small ones.
EVENTS_A_TICK = 500
#: And rows of training: at 1,000 ranks and a row a step from each, some ten seconds of them.
ROWS_A_TICK = 2_000
#: An event this much older than its arrival opens nothing by itself: old kernel lines get replayed (contracts.md).
LATE_S = 3600.0
#: What a sample that came after its tick had closed is dropped for.
LATE = "after their tick had closed"
#: How often the pulse of a source is written, in seconds.
HEARD_EVERY_S = 5.0
#: Pushed telemetry that was not heard for this long, and for two intervals, is dark, as a pull that fails is.
SILENT_S = 60.0
#: The name under which System shows the 48 h of numbers.
HISTORY = "history"


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a 2xx promises: events and records are committed, samples are in the ring."""

    events: int = 0
    duplicates: int = 0
    records: int = 0
    samples: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)


def accept(watch: Watch, batch: Batch, *, pushed: bool = True) -> Accepted:
    """Take one batch in: identity resolved, events and records committed, samples in the ring, the loop woken.

    pushed False: a loop of ours read it, and beats for it.
    """
    now = watch.clock.now()
    if pushed and only_samples(batch) and not beat_due(watch, batch.source):
        with watch.lock:
            if watch.inventory.hear(batch, now):
                return take_samples(watch, batch)
    trained = 0
    if watch.verdicts is not None and (printed := watch.verdicts.steps(batch)):
        batch = replace(batch, steps=batch.steps + printed)
    if batch.steps or batch.checkpoints or batch.told:
        batch, trained = train(watch, batch, unix(now))
        if (
            pushed
            and only_samples(replace(batch, steps=(), checkpoints=(), told=()))
            and not beat_due(watch, batch.source)
        ):
            with watch.lock:
                into_ring(watch, batch)
            count(watch, batch)
            return Accepted(0, trained, rows_of_training(batch), dropped=batch.dropped)
    if watch.verdicts is not None:
        batch = replace(batch, events=batch.events + watch.verdicts.take(batch, unix(now)), printed=())
    batch = replace(batch, versions=(*batch.versions, *versions_said(batch.events)))
    with watch.lock:
        with watch.store.write() as session:
            watch.inventory.absorb(session, batch, now)
            rows = [event_row(watch, raw, batch.source) for raw in batch.events]
            rows += [left_row(session, watch, node, batch.source) for node in watch.inventory.take_left()]
            taken, duplicates = events.append_events(session, watch.cluster, rows)
            marks.keep_marks(session, watch.cluster, batch.source, batch.marks, now)
            duplicates += len(batch.reports) - reports.put_reports(session, watch.cluster, batch.reports, now)
            if pushed:
                hear(session, watch, batch)
        lost = into_ring(watch, batch)
    if watch.verdicts is not None and batch.events:
        watch.verdicts.saved(batch.events)
    if taken:
        watch.reached("line committed")
        watch.wake.set()
    samples = samples_of(batch) - lost.total()
    records = records_of(batch) + rows_of_training(batch)
    return Accepted(taken, duplicates + trained, records, samples, Counter(batch.dropped) + lost)


def train(watch: Watch, batch: Batch, now: float) -> tuple[Batch, int]:
    """Keep the rows of training and hand them to the next ticks; those that were sent before are left out and counted.
    ``now`` in unix s. Raises SourceError where the disk takes no more: nothing of the batch is kept then."""
    came = rows_of_training(batch)
    batch = replace(batch, steps=tuple(canonical(row, watch.signals) for row in batch.steps))
    if watch.feed is None:
        return batch, 0
    batch, fresh = only_new(batch, watch.feed.fresh)
    try:
        if watch.trained is not None:
            watch.trained.append(batch.steps, batch.checkpoints)
        watch.feed.append(fed(batch, now, LATE_S))
    except SourceError:
        watch.feed.forget(fresh)
        raise
    if rows_of_training(batch):
        with watch.lock:
            watch.ring.live(now)
        watch.wake.set()
    return batch, came - rows_of_training(batch)


def into_ring(watch: Watch, batch: Batch) -> Counter[str]:
    """Samples that the ring did not take, by reason. The caller holds the lock."""
    before = watch.ring.dropped + Counter({LATE: watch.ring.late})
    watch.ring.accept(batch, watch.inventory.slot, unix(watch.clock.now()))
    lost = watch.ring.dropped + Counter({LATE: watch.ring.late}) - before
    watch.taken(batch)
    return lost


def take_samples(watch: Watch, batch: Batch) -> Accepted:
    """A push of samples of devices that are known as it tells them: nothing is to be committed but the samples' place
    in the ring. The caller holds the lock."""
    lost = into_ring(watch, batch)
    count(watch, batch)
    return Accepted(0, 0, 0, samples_of(batch) - lost.total(), Counter(batch.dropped) + lost)


def only_samples(batch: Batch) -> bool:
    """Whether a batch holds nothing but samples."""
    told = (batch.events, batch.marks, batch.steps, batch.checkpoints, batch.told, batch.printed)
    return records_of(batch) == 0 and not any(told) and batch.dark is None and batch.listing is None


def beat_due(watch: Watch, source: str) -> bool:
    """Whether the pulse of a source is to be written."""
    last = watch.heard.get(source)
    return last is None or abs((watch.clock.now() - last).total_seconds()) >= HEARD_EVERY_S


def count(watch: Watch, batch: Batch) -> None:
    """Add what a batch brought to what its source brought before."""
    counts = watch.brought.setdefault(batch.source, Counter())
    counts["events"] += len(batch.events)
    counts["records"] += records_of(batch) + rows_of_training(batch)
    counts["samples"] += samples_of(batch)
    counts["dropped"] += sum(batch.dropped.values())
    if batch.series or batch.columns:
        watch.scraped[batch.source] = watch.clock.now()


def records_of(batch: Batch) -> int:
    """How much a batch tells of the cluster that is no event and no sample."""
    told = (batch.nodes, batch.attempts, batch.versions, batch.outages, batch.maintenances, batch.cables, batch.reports)
    return sum(len(rows) for rows in told)


def rows_of_training(batch: Batch) -> int:
    return len(batch.steps) + len(batch.checkpoints) + len(batch.told)


def samples_of(batch: Batch) -> int:
    """How many samples a batch holds, one by one and by number."""
    by_number = len(batch.columns) if batch.columns is not None else 0
    return by_number + sum(len(series.times) for series in batch.series)


def hear(session: Session, watch: Watch, batch: Batch) -> None:
    """Every source that brings something has a pulse, pushed ones too; written now and then, not with each body.

    Pushed telemetry is expected every interval. Lines and jobs come when there are any: no pulse is no silence.
    """
    now = watch.clock.now()
    count(watch, batch)
    if beat_due(watch, batch.source):
        watch.heard[batch.source] = now
        every_s = watch.ring.interval_s if batch.series or batch.columns else 0.0
        system.beat_ok(
            session, watch.cluster, "source", batch.source, now, 0.0, watch.brought[batch.source], every_s=every_s
        )


def darken_silent(watch: Watch) -> None:
    """Pushed telemetry that stopped is dark until it comes again. Lines and jobs come when there are any."""
    now, longest_s = watch.clock.now(), max(SILENT_S, 2 * watch.ring.interval_s)
    with watch.lock:
        for name, last in watch.scraped.items():
            watch.darken(name, (now - last).total_seconds() > longest_s)


def event_row(watch: Watch, raw: RawEvent, source: str) -> EventRow:
    """A raw event with its identity resolved as far as it is known now."""
    now = watch.clock.now()
    entity = watch.inventory.entity(raw.host, raw.pci, raw.job)
    attrs = attrs_of(watch.inventory, raw) | ({"pci": raw.pci} if raw.pci else {})
    return EventRow(
        cluster=watch.cluster,
        at=utc(raw.at),
        received_at=now,
        namespace=raw.namespace,
        code=raw.code,
        node=raw.host,
        entity_kind=entity.kind,
        entity_id=entity.id,
        entity_name=str(entity),
        job=raw.job or watch.inventory.fleet.job_of(entity),
        text=raw.text,
        source=source,
        late=unix(now) - raw.at > LATE_S,
        dedupe=raw.dedupe,
        attrs=attrs,
    )


def left_row(session: Session, watch: Watch, node: str, source: str) -> EventRow:
    """A node left the fleet: its incidents say so, and codes that would hold until a boot let go of it."""
    now, text = watch.clock.now(), f"{node} left the fleet: {source} names it no more, and nothing was heard of it."
    for incident in incidents.live_on(session, watch.cluster, node):
        incidents.tell(session, incident, now, "left", text)
    dedupe = f"left {node} {unix(now):.0f}"
    raw = RawEvent(unix(now), node, "mended", "left", text, dedupe, attrs={"source": source})
    return event_row(watch, raw, source)


def observe(watch: Watch) -> bool:
    """One turn of the observe loop: the events that came, then the telemetry ticks that are due. After a commit that
    failed, the ticks that the saved states have not seen come first."""
    if watch.stale or watch.tuned is not None:
        watch.load()
    darken_silent(watch)
    judged = take_ticks(watch) if watch.coming else []
    worked = take_events(watch)
    worked = take_training(watch) or worked
    while ticks := take_ticks(watch):
        judged += ticks
    for tick in judged:
        keep(watch, tick)
    return worked or bool(judged)


def take_ticks(watch: Watch) -> list[Tick]:
    """Judge the telemetry ticks at hand; where there are none, the next one that is due. Returns them."""
    if not watch.coming:
        with watch.lock:
            watch.coming.extend(islice(watch.ring.due(unix(watch.clock.now())), 1))
    judged: list[Tick] = []
    while watch.coming:
        step(watch, watch.coming[0], watch.cursor, telemetry=True)
        judged.append(watch.coming.popleft())
    return judged


def keep(watch: Watch, tick: Tick) -> None:
    """The numbers of a judged tick go into the history. A disk that takes none costs pages their lines, and is shown
    as a source that fails; the watch goes on."""
    if watch.moved is not None and watch.fleet is not None:
        watch.moved.add(fit(tick, watch.fleet), watch.fleet)
    if watch.history is None or watch.fleet is None:
        return
    now, error, before = watch.clock.now(), "", watch.heard.get(HISTORY)
    try:
        watch.history.add(fit(tick, watch.fleet), watch.fleet)
    except OSError as raised:
        error = str(raised)
    if not error and before is not None and (now - before).total_seconds() < HEARD_EVERY_S:
        return
    with watch.store.write() as session:
        if error:
            system.beat_failed(session, watch.cluster, "source", HISTORY, now, error, every_s=watch.ring.interval_s)
        else:
            system.beat_ok(session, watch.cluster, "source", HISTORY, now, 0.0, {}, every_s=watch.ring.interval_s)
            watch.heard[HISTORY] = now


def take_events(watch: Watch) -> bool:
    """Make one event-only tick of what was accepted since the cursor. False when there was nothing."""
    with watch.store.read() as session:
        rows = events.events_after(session, watch.cluster, watch.cursor, EVENTS_A_TICK)
        found = [(row.id or 0, event_of(watch, row)) for row in rows]
    if not found:
        return False
    newest = max(event.at for _, event in found)
    tick = Tick(at=max(newest, watch.last_at), events=tuple(event for _, event in found))
    step(watch, tick, found[-1][0], telemetry=False)
    return True


def take_training(watch: Watch) -> bool:
    """Make one event-only tick of the rows of training behind the watch's place. False when there was nothing."""
    if watch.feed is None:
        return False
    rows, place = watch.feed.read(watch.place, ROWS_A_TICK)
    if place == watch.place:
        return False
    found = tuple(events_of(rows, watch.cluster))
    if not found:
        watch.place = place
        return bool(rows)
    tick = Tick(at=max(watch.last_at, *(event.at for event in found)), events=found)
    step(watch, tick, watch.cursor, telemetry=False, place=place)
    return True


def event_of(watch: Watch, row: EventRow) -> Event:
    """A stored event as detectors see it; a PCI address that was unknown at arrival is looked up once more."""
    entity = Entity(row.cluster, row.entity_kind, row.entity_id, row.entity_name, row.node)
    pci = str(row.attrs.get("pci", ""))
    if pci and row.entity_kind == "node":
        entity = watch.inventory.entity(row.node, pci, "")
    attrs = {key: str(value) for key, value in row.attrs.items()}
    return Event(unix(row.at), entity, row.namespace, row.code, row.text, row.id or 0, row.late, attrs)


def step(watch: Watch, tick: Tick, cursor: int, *, telemetry: bool, place: Place | None = None) -> Delta:
    """Judge one tick and commit all that follows from it, with the event cursor, or with the ``place`` up to which rows
    of training were read. A failed commit is taken up again from the store, so that no event is judged twice and none
    is left out."""
    watch.stale = True
    fleet = watch.follow_fleet()
    tick = fit(tick, fleet)
    made = watch.learn(tick) if telemetry else []
    judged, broken = judge(watch, tick, fleet)
    found = (finding for verdict in judged.values() for finding in verdict.findings)
    counting, shadows = parted(found, watch.rules.shadow)
    findings, suspicions = [*counting, *shadows], fuse(counting, fleet, watch.catalogue)
    watch.cursor, watch.last_at, watch.place = cursor, max(tick.at, watch.last_at), place or watch.place
    with watch.turn() as session:
        watch.fence(session)
        delta = conclude(session, watch, tick, fleet, judged, findings, suspicions, telemetry=telemetry)
        report(session, watch, judged, broken)
        watch.keep(session, made)
        saves = bool(made) or not (telemetry or place) or not delta.empty or watch.must_save(tick)
        if saves:
            watch.save(session, utc(tick.at))
    watch.committed(tick, saved=saves, telemetry=telemetry)
    if not delta.empty:
        watch.undecided.set()
        watch.reached("incident committed")
    watch.stepped(tick, delta)
    watch.changes.nudge()
    return delta


def judge(watch: Watch, tick: Tick, fleet: Fleet) -> tuple[dict[str, Judged], dict[str, str]]:
    """Every detector's word on one tick. One that raises costs its own findings of this tick, and is shown."""
    judged: dict[str, Judged] = {}
    broken: dict[str, str] = {}
    for detector in watch.detectors:
        try:
            judged[detector.name] = detector.step(watch.states[detector.name], tick, fleet)
        except Exception as error:  # noqa: BLE001 - bulkhead: one detector never costs the others
            broken[detector.name] = f"{type(error).__name__}: {error}"
    return judged, broken


def conclude(
    session: Session,
    watch: Watch,
    tick: Tick,
    fleet: Fleet,
    judged: Mapping[str, Judged],
    findings: Sequence[Finding],
    suspicions: Sequence[Suspicion],
    *,
    telemetry: bool,
) -> Delta:
    """Findings, incidents and the time they have been clear, written in the caller's transaction."""
    at = utc(tick.at)
    frozen = frozen_keys(watch.ledger, judged, fleet, {f.key for f in findings})
    delta = record(session, watch.ledger, findings, frozen, at, watch.clock.now())
    linked = lifecycle.keys_by_incident(watch.ledger)
    rows = incidents.foldable(session, watch.cluster, utc(tick.at - watch.rules.fold_s))
    facts = [lifecycle.facts_of(row, linked.get(row.id or 0, ())) for row in rows]
    folds = correlate(suspicions, facts, tick.at, watch.rules.fold_s, hosts=partial(hosts_of, fleet))
    telling.expect(session, watch, lifecycle.apply(session, folds, watch.ledger, fleet, at, watch.dark))
    elapsed_s = 0.0
    if telemetry:
        elapsed_s = _elapsed_s(watch, tick)
        system.set_cursor(session, watch.cluster, TICKS, int(tick.at), utc(watch.last_telemetry_at or tick.at))
    live = incidents.live(session, watch.cluster)
    lifecycle.watch_clear(session, live, watch.ledger, frozen, blind_rows(judged), fleet, elapsed_s, at)
    lifecycle.shade(session, live, watch.dark)
    return delta


def _elapsed_s(watch: Watch, tick: Tick) -> float:
    """Telemetry time since the last telemetry tick; a gap counts as one interval, for nobody looked in it, and a tick
    that is judged again after a restart counts nothing."""
    before = watch.last_telemetry_at
    watch.last_telemetry_at = max(tick.at, before) if before is not None else tick.at
    gap = tick.at - before if before is not None else 0.0
    return min(max(gap, 0.0), watch.ring.interval_s)


def blind_rows(judged: Mapping[str, Judged]) -> dict[str, BoolArray]:
    """Rows that at least one detector could not judge."""
    union: dict[str, BoolArray] = {}
    for verdict in judged.values():
        for axis, mask in verdict.blind.items():
            union[axis] = union[axis] | mask if axis in union and len(union[axis]) == len(mask) else mask.copy()
    return union


def report(session: Session, watch: Watch, judged: Mapping[str, Judged], broken: Mapping[str, str]) -> None:
    """One beat per detector: what it could not do shows on System."""
    now = watch.clock.now()
    for name, error in broken.items():
        system.beat_failed(session, watch.cluster, "detector", name, now, error)
    for name in judged:
        if name in watch.broken:
            system.beat_ok(session, watch.cluster, "detector", name, now, 0.0, {})
    watch.broken = frozenset(broken)
