"""When things run: one thread a loop, each a step that says whether there may be more to do."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy.exc import SQLAlchemyError

from backend import joining, learn, orders, owners, pipeline, proposals, returns, sweeps, telling
from backend.archive import archive_day
from backend.backtest.running import EVERY_S as EVERY_RUN_S
from backend.backtest.running import Runner
from backend.clock import Clock, unix
from backend.facts import Batch
from backend.ingest.base import Follows, Source, SourceError
from backend.leading import EVERY_S, Lead, replica
from backend.notify import heartbeat, lost
from backend.notify.alertmanager import AlertmanagerNotifier, keep_alive
from backend.notify.base import NotifyError
from backend.notify.outbox import deliver_one, drop_unserved
from backend.registry import Parts, commands_of
from backend.rollups.keep import Keeper
from backend.rollups.storage import nothing_moved
from backend.rollups.weekly import send_weekly
from backend.store import events, marks, system
from backend.store.engine import Store, StoreError
from backend.tracing import Trace, untraced
from backend.watch import Watch

log = logging.getLogger("watchkeeper.loops")

#: A healthy loop writes its beat this often at most; System calls it late after three times its own interval.
BEAT_EVERY = timedelta(seconds=5)
#: How often each channel looks for what it has to send; a look that finds nothing only reads.
DELIVER_EVERY_S = 0.2
#: How long a pull may reach back when its source was dark; older gaps are for range back-fill.
REACH_BACK_S = 300.0


@dataclass(frozen=True, slots=True)
class Loop:
    """``step`` does one thing and says whether there may be more at once; ``pause`` waits, and may wake early."""

    cluster: str
    kind: str
    name: str
    every_s: float
    step: Callable[[], bool]
    pause: Callable[[float], object]
    counts: Callable[[], Mapping[str, float]] = field(default=dict)
    beats: Callable[[], bool] = field(default=lambda: True)


def run_every(loop: Loop, store: Store, clock: Clock, stop: threading.Event, trace: Trace = untraced) -> None:
    """Run one loop until ``stop``. A step that fails is shown on System and tried again after the pause."""
    beaten: datetime | None = None
    while not stop.is_set():
        began, began_ns = time.perf_counter(), time.time_ns()
        more, error = False, ""
        try:
            more = loop.step()
        except Exception as raised:  # bulkhead: a loop survives whatever one step meets; it is logged and shown
            error = f"{type(raised).__name__}: {raised}"
            level = logging.WARNING if isinstance(raised, SourceError | NotifyError) else logging.ERROR
            whose = f"{loop.cluster}: " if loop.cluster else ""
            log.log(level, "%s%s %s failed: %s", whose, loop.kind, loop.name, error, exc_info=level == logging.ERROR)
        if more or error:
            trace(f"{loop.kind} {loop.name}", began_ns, {"cluster": loop.cluster, "error": error})
        now = clock.now()
        due = beaten is None or abs(now - beaten) >= BEAT_EVERY  # abs: clocks step back
        if error or (due and loop.beats()):
            beaten = now
            _beat(loop, store, now, time.perf_counter() - began, error)
        if not more:
            loop.pause(loop.every_s)


def _beat(loop: Loop, store: Store, now: datetime, took_s: float, error: str) -> None:
    """A beat that cannot be written (the database is away) is only logged: the step itself will say so next."""
    try:
        with store.write() as session:
            if error:
                system.beat_failed(session, loop.cluster, loop.kind, loop.name, now, error, every_s=loop.every_s)
            else:
                counts = dict(loop.counts())
                system.beat_ok(session, loop.cluster, loop.kind, loop.name, now, took_s, counts, every_s=loop.every_s)
    except Exception as raised:  # noqa: BLE001 - part of the same bulkhead: the pulse must not stop the heart
        log.error("the beat of %s could not be written: %s", loop.name, raised)


class Crew:
    """Loops that start and stop together; they may start again. ``hire`` makes them, ending with the given event."""

    def __init__(self, parts: Parts, hire: Callable[[threading.Event], Sequence[Loop]], wake: Callable[[], object]):
        self._parts = parts
        self._hire = hire
        self._wake = wake
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        self._stop = threading.Event()
        for loop in self._hire(self._stop):
            arguments = (loop, self._parts.store, self._parts.clock, self._stop, self._parts.trace)
            thread = threading.Thread(target=run_every, args=arguments, name=f"{loop.cluster}:{loop.name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Ask every loop to end after its step, and wait for them."""
        self._stop.set()
        self._wake()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._threads = [thread for thread in self._threads if thread.is_alive()]


class Loops:
    """All loops of this process. Those that watch a cluster run while this process holds its lease."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._leads = {} if parts.role == "api" else {name: lead_of(parts, w) for name, w in parts.watches.items()}
        self._crew = Crew(parts, self._hire, parts.changes.nudge)

    def start(self) -> None:
        self._crew.start()

    def stop(self) -> None:
        self._crew.stop()
        for lead in self._leads.values():
            _end(lead)
        for watch in self._parts.watches.values():
            if watch.history is not None:
                watch.history.close()

    def _hire(self, stop: threading.Event) -> list[Loop]:
        leads = [
            Loop(name, "loop", "lead", EVERY_S, lead.step, stop.wait, beats=partial(leads_now, lead))
            for name, lead in self._leads.items()
        ]
        return all_loops(self._parts, stop) + leads


def lead_of(parts: Parts, watch: Watch) -> Lead:
    crew = Crew(parts, partial(watch_loops, parts, watch), watch.wake.set)
    return Lead(watch, replica(parts.store.folder), parts.settings.store.lease_s, crew.start, crew.stop)


def leads_now(lead: Lead) -> bool:
    """One that stands by has no pulse of its own: when it ends nothing is late."""
    return bool(lead.term)


def _end(lead: Lead) -> None:
    """A lease that cannot be given up (the database is away) runs out by itself."""
    try:
        lead.give_up()
    except (StoreError, SQLAlchemyError) as error:
        log.warning("the lease could not be given up: %s", error)


def all_loops(parts: Parts, stop: threading.Event) -> list[Loop]:
    """The loops that this role runs, lease or not: an API process only follows what others commit, and reads what
    they learnt; others tell people, too."""
    mark = " (api)" if parts.role == "api" else ""  # two processes on one database have two pulses
    found = [Loop("", "loop", f"follow{mark}", 0.5, lambda: follow(parts), parts.changes.until_nudged)]
    if parts.role != "all":
        names = parts.watches.items()
        found += [
            Loop(name, "loop", f"inventory{mark}", 5.0, partial(reread, watch), stop.wait) for name, watch in names
        ]
    if parts.role == "api":
        return found
    with parts.store.write() as session:
        drop_unserved(session, set(parts.notifiers))
    found += [Loop("", "loop", "reach", 60.0, partial(reach, parts), stop.wait)] if parts.notifiers else []
    if (address := parts.settings.alerts.heartbeat_url) is not None:
        step = partial(pulse_out, parts, address.get_secret_value())
        found.append(Loop("", "loop", "heartbeat", parts.settings.alerts.heartbeat_every_s, step, stop.wait))
    return found + [deliver_loop(parts, channel, stop) for channel in parts.notifiers]


def watch_loops(parts: Parts, watch: Watch, stop: threading.Event) -> list[Loop]:
    """What only the process does that holds the lease of the cluster."""
    name = watch.cluster
    found = [
        *alertmanager_loops(parts, name, stop),
        *owner_loops(parts, watch, stop),
        Loop(name, "loop", "observe", 0.25, lambda: pipeline.observe(watch), waker(watch.wake), lambda: pulse(watch)),
        Loop(name, "loop", "decide", 0.5, lambda: proposals.propose(watch), waker(watch.undecided)),
        Loop(name, "loop", "alerts", 0.2, lambda: telling.tell_due(watch), stop.wait),
        Loop(name, "loop", "act", 0.5, lambda: orders.act(watch), stop.wait),
        Loop(name, "loop", "check", 2.0, lambda: orders.check(watch), stop.wait),
        Loop(name, "loop", "backtest", EVERY_RUN_S, Runner(watch, parts.settings, parts.catalogue).step, stop.wait),
        Loop(name, "loop", "sweep", 15.0, lambda: sweeps.sweep(watch), stop.wait),
        Loop(name, "loop", "join", 1.0, lambda: joining.join(watch), stop.wait),
        Loop(name, "loop", "return", 1.0, lambda: returns.settle_returns(watch), stop.wait),
        Loop(name, "loop", "learn", learn.EVERY_S, lambda: relearn(watch), stop.wait),
        Loop(name, "loop", "report", 60.0, lambda: tell_weekly(parts, watch), stop.wait),
        Loop(name, "loop", "archive", 300.0, lambda: put_away(parts, watch), stop.wait),
        Loop(name, "loop", "account", parts.settings.reliability.every_s, keeper_of(parts, watch).step, stop.wait),
    ]
    for source, every_s in parts.sources.get(name, ()):
        pause = on_the_beat(parts.clock, stop)
        counts = source.counts if isinstance(source, Follows) else dict
        found.append(Loop(name, "source", source.name, every_s, Pull(watch, source, every_s), pause, counts))
    return found


def keeper_of(parts: Parts, watch: Watch) -> Keeper:
    """What counts the cost of failures of one cluster."""
    told = parts.settings.reliability
    price = told.gpu_hour_price or None
    trained = parts.trained[watch.cluster].read
    store, clock, currency = parts.store, parts.clock, told.currency
    phases = watch.moved.phases if watch.moved is not None else nothing_moved
    return Keeper(store, clock, watch.cluster, told.days, told.most_attempts, price, currency, trained, phases)


def tell_weekly(parts: Parts, watch: Watch) -> bool:
    """The weekly report, where one is wanted and due."""
    report, rules = parts.settings.report, watch.rules
    if report.weekly:
        send_weekly(
            parts.store, parts.clock, watch.cluster, report, rules.channels, rules.url, simulated=rules.simulated
        )
    return False


def put_away(parts: Parts, watch: Watch) -> bool:
    """Move one old day into the archive; and forget steps that are older than what is counted."""
    settings, now = parts.settings, parts.clock.now()
    kept = max(settings.reliability.days, settings.archive.keep_days)
    parts.trained[watch.cluster].drop_before(unix(now) - (kept + 1) * 86_400.0)
    if settings.archive.folder is None or not settings.archive.keep_days:
        return False
    before = now - timedelta(days=settings.archive.keep_days)
    return bool(archive_day(parts.store, watch.cluster, settings.archive.folder, before))


def on_the_beat(clock: Clock, stop: threading.Event) -> Callable[[float], object]:
    """Wait until the next multiple of the interval: reads neither drift nor fall behind the ticks, which stand on
    multiples too and close one lateness after."""

    def pause(every_s: float) -> None:
        now = unix(clock.now())
        stop.wait(every_s - now % every_s)

    return pause


def reread(watch: Watch) -> bool:
    """What other processes learnt of nodes and jobs: those that observe judge by it, the API names devices by it."""
    with watch.lock, watch.store.read() as session:
        watch.inventory.load(session)
    if watch.verdicts is not None:
        learn.take_up(watch.store, watch.cluster, watch.verdicts)
    return False


def relearn(watch: Watch) -> bool:
    """What people said since is learnt; where no job's logs are judged there is nothing to learn."""
    if watch.verdicts is None:
        return False
    return learn.step(watch.store, watch.clock, watch.cluster, watch.verdicts, learn.kinds_of(watch.catalogue.kinds))


def waker(news: threading.Event) -> Callable[[float], object]:
    """Wait until there is news in this process (an accepted event, an incident), or until the time is up."""

    def pause(timeout_s: float) -> None:
        news.wait(timeout_s)
        news.clear()

    return pause


def pulse(watch: Watch) -> dict[str, float]:
    """What the observe loop shows of itself: newest tick, events judged and waiting, late samples, open levels."""
    with watch.store.read() as session:
        backlog = events.count_after(session, watch.cluster, watch.cursor)
    return {
        "tick_at": watch.last_at,
        "events": watch.cursor,
        "backlog": backlog,
        "late": watch.ring.late,
        "dropped": sum(watch.ring.dropped.values()),
        "findings": len(watch.ledger),
    }


def follow(parts: Parts) -> bool:
    with parts.store.read() as session:
        parts.changes.follow(session)
    return False


def reach(parts: Parts) -> bool:
    """A channel that takes nothing is told of on the others."""
    for name, watch in parts.watches.items():
        with parts.store.write() as session:
            now, rules = parts.clock.now(), watch.rules
            lost.tell_lost(session, name, rules.channels, now, rules.url, simulated=rules.simulated)
    return False


def pulse_out(parts: Parts, address: str) -> bool:
    """Ask the address outside, unless something is wrong: then it hears nothing, and warns. Raises NotifyError."""
    with parts.store.read() as session:
        wrong = heartbeat.why_not(session, tuple(parts.watches), parts.clock.now())
    if wrong:
        raise NotifyError(f"the heartbeat is withheld: {wrong}")
    heartbeat.ask(address)
    return False


def deliver_loop(parts: Parts, channel: str, stop: threading.Event) -> Loop:
    """One loop a channel: a slow one holds nobody else up."""
    only = {channel: parts.notifiers[channel]}
    step = partial(deliver_one, parts.store, only, parts.clock, parts.who)
    return Loop("", "loop", f"notify {channel}", DELIVER_EVERY_S, step, stop.wait)


def alertmanager_loops(parts: Parts, cluster: str, stop: threading.Event) -> list[Loop]:
    """Alerts that stand are told again, or Alertmanager would end them."""
    told = parts.notifiers.get("alertmanager")
    if not isinstance(told, AlertmanagerNotifier) or parts.settings.alertmanager is None:
        return []
    step = partial(keep_alive, parts.store, told, cluster)
    return [Loop(cluster, "loop", "alertmanager", parts.settings.alertmanager.repeat_s, step, stop.wait)]


def owner_loops(parts: Parts, watch: Watch, stop: threading.Event) -> list[Loop]:
    """Owners of dead jobs are told; a note at the job is a write, and so for mode act alone."""
    told, settings = parts.settings.owners, parts.settings
    if not (told.mail or told.notes):
        return []
    one = next(one for one in settings.cluster if one.name == watch.cluster)
    slurm = commands_of(one) if told.notes and settings.mode == "act" else None
    step = partial(owners.tell, watch, told, tuple(parts.notifiers), slurm.note if slurm is not None else None)
    return [Loop(watch.cluster, "loop", "owners", 10.0, step, stop.wait)]


class Pull:
    """Reads one source from where it last came to until now, after a restart from where the saved ring had seen all;
    while it fails, it counts as dark. A source that follows goes on from what was committed last."""

    def __init__(self, watch: Watch, source: Source, every_s: float) -> None:
        self._watch = watch
        self._source = source
        self._every_s = every_s
        self._needs = frozenset(need for detector in watch.detectors for need in detector.needs)
        self._read_to: float | None = None
        self._resumed = False

    def __call__(self) -> bool:
        end = unix(self._watch.clock.now())
        known = self._read_to if self._read_to is not None else self._watch.ring.behind_since()
        start = known if known is not None and known < end else end - self._every_s
        answered = False
        try:
            batch = self._read(max(start, end - REACH_BACK_S), end)
            answered = True
        finally:  # whatever it raised: what cannot be read is dark
            self._watch.darken(self._source.name, not answered)
        if not (isinstance(self._source, Follows) and quiet(batch)):
            pipeline.accept(self._watch, batch, pushed=False)
        self._resumed = True
        self._read_to = end
        return batch.more

    def _read(self, start: float, end: float) -> Batch:
        """One read. Until its batch is taken, what the source remembers of it counts for nothing."""
        if not self._resumed and isinstance(self._source, Follows):
            with self._watch.store.read() as session:
                known = marks.marks(session, self._watch.cluster, self._source.name)
            self._source.resume(known)
        self._resumed = False
        return self._source.read(self._needs, start, end)


def quiet(batch: Batch) -> bool:
    """Whether a batch brought nothing that would have to be written down."""
    return not (batch.events or batch.marks or batch.attempts or batch.nodes or batch.series)
