"""Reports of the ranks of one attempt become one verdict: when all of them are there, or after a while."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from backend import pipeline
from backend.clock import unix
from backend.facts import AttemptFacts, Batch, RawEvent
from backend.ingest.job_verdicts import WELL, verdict_event
from backend.ingest.wrap import facts_from, sheet_of
from backend.model.reports import WrapReport
from backend.reported import ReportFacts
from backend.store import cluster as cluster_rows
from backend.store import reports
from backend.store.engine import Store
from backend.store.merging import OVER, key_of
from backend.store.reports import Group, Waiting
from backend.watch import Watch
from detectors.joblog.ends import end_of
from detectors.joblog.reading import Rules, Sheet
from detectors.joblog.rules import UNKNOWN
from detectors.joblog.verdict import judge

#: How long the first report of an attempt waits for those of its other ranks, for its scheduler to tell of the attempt,
#: and for a launcher that may start the ranks again, in seconds.
RANKS_S, SCHEDULER_S, LAUNCHER_S = 30.0, 45.0, 300.0
#: Reports are kept this long after their verdict, and looked through for older ones this often, in seconds: 90 days,
#: as long as schedulers keep their own records by custom.
KEPT_S, LOOK_S = 7_776_000.0, 3_600.0
_SWEPT = "reports swept"
#: A report belongs to an attempt that began this much later at most: clocks of nodes differ. Seconds.
SKEW_S = 60.0


@dataclass(slots=True)
class Joined:
    """What the reports of one attempt come to. ``worst``: the first that failed, and not because it was told to end."""

    sheets: list[Sheet] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    start: float = 0.0
    end: float = 0.0
    run: str = ""
    worst: ReportFacts | None = None
    more_launches: bool = False
    oom: bool = False

    def take(self, rules: Rules, report: ReportFacts) -> None:
        self.sheets.append(sheet_of(rules, report))
        if report.host not in self.hosts:
            self.hosts.append(report.host)
        self.start = min(self.start or report.start, report.start)
        self.end = max(self.end, report.at)
        self.run = self.run or report.name
        if report.failed:
            self.more_launches = self.more_launches or report.more_launches
            self.oom = self.oom or (report.oom_kills > 0)
            if self.worst is None or _order(report) < _order(self.worst):
                self.worst = report


def _order(report: ReportFacts) -> tuple[bool, float, int]:
    return (report.asked_to_end, report.at, report.task or 0)


def join(watch: Watch) -> bool:
    """One turn of the loop: every attempt whose reports are due. False: there is nothing more to do at once."""
    with watch.store.read() as session:
        groups = reports.waiting(session, watch.cluster)
    for group, rows in groups.items():
        _join(watch, group, rows)
    return _sweep(watch)


def _sweep(watch: Watch) -> bool:
    """Now and then forget the reports that are old. True: there are more."""
    now = watch.clock.now()
    last = watch.heard.get(_SWEPT)
    if last is not None and 0 <= (now - last).total_seconds() < LOOK_S:
        return False
    with watch.store.write() as session:
        gone = reports.forget(session, watch.cluster, now - timedelta(seconds=KEPT_S))
    if not gone:
        watch.heard[_SWEPT] = now
    return gone > 0


def _join(watch: Watch, group: Group, rows: Sequence[Waiting]) -> None:
    waited_s = unix(watch.clock.now()) - min(row.received_at for row in rows).timestamp()
    if not complete(rows) and waited_s < RANKS_S:
        return
    known = attempt_of(watch, group, max(row.at for row in rows).timestamp()) if group[0] else None
    if known is None and waited_s < SCHEDULER_S and group[0] and has_scheduler(watch):
        return
    assert watch.verdicts is not None
    found = joined(watch.store, watch.cluster, watch.verdicts.rules, group, known)
    if found.more_launches and waited_s < LAUNCHER_S and (known is None or known.state not in OVER):
        return
    batch = batch_of(watch, group, known, found)
    if batch is not None:
        pipeline.accept(watch, batch, pushed=False)
    with watch.store.write() as session:
        reports.tick_off(session, watch.cluster, [row.id for row in rows])


def complete(rows: Sequence[Waiting]) -> bool:
    """Every wrapper of the attempt has told."""
    tasks = {row.tasks for row in rows}
    if tasks == {None}:
        return all(row.task is None for row in rows)
    return len({row.task for row in rows}) >= max(many for many in tasks if many is not None)


def has_scheduler(watch: Watch) -> bool:
    """Whether somebody else tells of attempts here: then ours is the one that they call by this id."""
    return watch.backend is not None or (watch.verdicts is not None and watch.verdicts.files)


def attempt_of(watch: Watch, group: Group, at: float) -> AttemptFacts | None:
    """The attempt that ran at ``at`` (unix s), as its scheduler tells it; None where nobody told of it. Its number may
    be another than the job knows: who tells of restarts late, or not at all, is counted on."""
    with watch.store.read() as session:
        rows = cluster_rows.attempts(session, watch.cluster, {group[0]})
        facts = [cluster_rows.attempt_facts(row) for row in rows]
        ran = [one for one in facts if _ran(one, at)]
        if not ran:
            return None
        mine = max(ran, key=lambda one: (one.restart == group[1], one.start or 0.0))
        spans = cluster_rows.allocations(session, watch.cluster, {group[0]})
        nodes = {span.node for span in spans if key_of(span) == key_of(mine)}
        return replace(mine, nodes=tuple(sorted(nodes)))


def _ran(attempt: AttemptFacts, at: float) -> bool:
    begun = attempt.start is not None and attempt.start <= at + SKEW_S
    return begun and (attempt.end is None or attempt.end >= at - SKEW_S)


def joined(store: Store, cluster: str, rules: Rules, group: Group, attempt: AttemptFacts | None) -> Joined:
    """The reports of an attempt, of its last launch alone."""
    found = Joined()
    with store.read() as session:
        for report in _lately(map(_facts, reports.of_attempt(session, cluster, group)), attempt):
            found.take(rules, report)
    return found


def _facts(row: WrapReport) -> ReportFacts:
    return facts_from(row.report)


def _lately(told: Iterable[ReportFacts], attempt: AttemptFacts | None) -> Iterable[ReportFacts]:
    """Without those of an earlier job with the same id."""
    began = attempt.start if attempt is not None and attempt.start is not None else 0.0
    return (report for report in told if report.at >= began - SKEW_S)


def sheets_of(store: Store, cluster: str, rules: Rules, attempt: AttemptFacts) -> Sequence[Sheet]:
    """What wrappers told of an attempt, for the verdict that is drawn at its end."""
    return joined(store, cluster, rules, (attempt.job, attempt.restart, ""), attempt).sheets


def batch_of(watch: Watch, group: Group, known: AttemptFacts | None, found: Joined) -> Batch | None:
    """The verdict, and what the reports tell of the attempt that its scheduler did not; None where neither is new."""
    now = unix(watch.clock.now())
    attempt = _ended(group, known, found)
    event = _verdict(watch, group, attempt, found, now)
    tells = group[0] and (known is None or (known.exit_code is None and found.worst is not None))
    told: tuple[AttemptFacts, ...] = ()
    if tells:
        told = (attempt if known is None else replace(known, exit_code=attempt.exit_code, signal=attempt.signal),)
    if event is None and not told:
        return None
    return Batch("wrap", now, now, events=(event,) if event is not None else (), attempts=told)


def _ended(group: Group, known: AttemptFacts | None, found: Joined) -> AttemptFacts:
    """The attempt as the reports say that it ended; as its scheduler says, where it does."""
    worst = found.worst
    state = "COMPLETED" if worst is None else "OUT_OF_MEMORY" if found.oom else "FAILED"
    if worst is not None and worst.asked_to_end:
        state = "CANCELLED"
    code, signal = (worst.exit_code, worst.signal) if worst is not None else (0, None)
    if known is None:
        return AttemptFacts(
            job=group[0] or group[2],
            restart=group[1],
            run=found.run,
            state=state,
            start=found.start,
            end=found.end,
            nodes=tuple(sorted(found.hosts)),
            exit_code=code,
            signal=signal,
            source="wrap",
        )
    if known.state in OVER:
        return known
    return replace(known, state=state, end=found.end, exit_code=code, signal=signal)


def _verdict(watch: Watch, group: Group, attempt: AttemptFacts, found: Joined, now: float) -> RawEvent | None:
    """One that was told to end before anything failed is its scheduler's to explain."""
    assert watch.verdicts is not None
    rules = watch.verdicts.rules
    if found.worst is None:
        return None
    if attempt.state == "CANCELLED" and found.worst.asked_to_end:
        alone = judge(rules.table, found.sheets, end_of("", attempt.exit_code, attempt.signal))
        if alone.log_class == UNKNOWN or alone.first is None:
            return None
        attempt = replace(attempt, state="FAILED")
    if attempt.state in WELL:
        return None
    event = verdict_event(rules, attempt, found.sheets, now, learned=watch.verdicts.learned)
    return replace(event, job=group[0]) if event is not None and not group[0] else event
