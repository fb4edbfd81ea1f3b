"""Random lives of a Slurm cluster with a Watchkeeper beside it that restarts, fails to commit and is late."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from zoneinfo import ZoneInfo

from sqlmodel import Session, select

from backend.clients.slurm import SlurmCli
from backend.clients.slurm_accounting import Accounting
from backend.clock import unix, utc
from backend.facts import AttemptFacts, Batch
from backend.ingest.slurm_accounting import SlurmAccountingSource
from backend.model.work import Attempt
from backend.store import marks
from backend.store.attempts import record_attempts
from backend.store.engine import Store
from tests.fakes.slurmdbd import FORMS, NEW, OLD, Row, Slurmdbd

#: Beginnings: an hour before clocks went back in Berlin (2026-10-25 01:00 UTC), before they went forward, and a plain
#: day.
BEGINNINGS = (1_792_886_400, 1_774_738_800, 1_780_000_000)
ENDS = ("COMPLETED", "FAILED", "CANCELLED by 1000", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL")


@dataclass
class Story:
    """One interleaving, drawn from one seed."""

    seed: int
    store: Store
    cluster: str = "main"
    dbd: Slurmdbd = field(init=False)
    live: dict[int, Row] = field(default_factory=dict)
    next_job: int = 1

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        draw = self.random
        self.dbd = Slurmdbd(now=draw.choice(BEGINNINGS) + draw.randrange(7200))
        self.dbd.columns, self.dbd.form = draw.choice((OLD, NEW)), draw.choice(FORMS)
        self.begun = self.dbd.now
        self.source = self._source()
        self.resumed = False

    # --- what the cluster does --------------------------------------------------------------------------------------

    def submit(self) -> None:
        ended = sorted({r.job for r in self.dbd.rows} - set(self.live))
        job, life = self.next_job, 0
        old = [j for j in ended if max(r.end for r in self.dbd.rows if r.job == j) < self.dbd.now - 86_400]
        if old and self.random.random() < 0.3:  # an id that is given anew, long after
            job = self.random.choice(old)
            life = max(r.life for r in self.dbd.rows if r.job == job) + 1
        else:
            self.next_job += 1
        user = f"user{self.random.randrange(3)}" if not life else f"user{self.random.randrange(3, 6)}"
        comment = self.random.choice(["", "two\nlines", "pipe | and \\ more", "7|x", "caf\ufffd"])
        row = Row(job, self.dbd.now, 0, user, f"train {job}|{life}", f"n{self.random.randrange(1, 7)}", life)
        row.comment, row.held = comment, self.random.random() < 0.2
        self.dbd.rows.append(row)
        self.live[job] = row

    def start(self) -> None:
        waiting = [row for row in self.live.values() if not row.start and row.submit < self.dbd.now]
        if waiting:
            row = self.random.choice(waiting)
            row.start, row.state, row.held = self.dbd.now, "RUNNING", False

    def give_up(self) -> None:
        """A job that waits, or is held, is cancelled: Slurm gives it a start and an end of the same moment."""
        waiting = [row for row in self.live.values() if not row.start and row.submit < self.dbd.now]
        if waiting:
            row = self.random.choice(waiting)
            row.start = row.end = self.dbd.now
            row.state = "CANCELLED by 1000"
            del self.live[row.job]

    def end(self) -> None:
        running = [row for row in self.live.values() if row.start and row.start < self.dbd.now]
        if running:
            row = self.random.choice(running)
            row.end, row.state = self.dbd.now, self.random.choice(ENDS)
            del self.live[row.job]

    def requeue(self) -> None:
        running = [row for row in self.live.values() if row.start and row.start < self.dbd.now]
        if running:
            row = self.random.choice(running)
            row.end, row.state = self.dbd.now, self.random.choice(["REQUEUED", "NODE_FAIL", "PREEMPTED"])
            again = Row(row.job, self.dbd.now, row.restart + 1, row.user, row.name, row.nodes, row.life)
            self.dbd.rows.append(again)
            self.live[row.job] = again

    def wait(self) -> None:
        self.dbd.now += self.random.choice([1, 1, 5, 30, 60, 600, 3600, 90_000])

    def part(self) -> None:
        """slurmdbd goes away, or comes back."""
        self.dbd.away = not self.dbd.away

    # --- what Watchkeeper does --------------------------------------------------------------------------------------

    def _source(self) -> SlurmAccountingSource:
        zone = ZoneInfo(self.dbd.zone) if self.dbd.form == "iso local" else ZoneInfo("UTC")
        return SlurmAccountingSource(
            Accounting(SlurmCli(run=self.dbd.run, now=lambda: float(self.dbd.now)), zone=zone), reach_s=30 * 86_400
        )

    def restart(self) -> None:
        self.source, self.resumed = self._source(), False

    def read(self, *, commits: bool = True) -> Batch:
        if not self.resumed:
            with self.store.read() as session:
                self.source.resume(marks.marks(session, self.cluster, self.source.name))
        self.resumed = False
        batch = self.source.read(frozenset(), self.dbd.now - 60, float(self.dbd.now))
        if commits:
            with self.store.write() as session:
                self._take(session, batch)
            self.resumed = True
        return batch

    def look(self) -> None:
        """squeue tells what slurmctld holds: each job as it is now, and for 300 s after it ended.

        Not beside a sacct that shows local times without an offset: in the hour that a clock shows twice, the two
        would speak of different moments.
        """
        if self.dbd.form == "iso local":
            return
        held = [row for row in self.live.values()]
        held += [r for r in self.dbd.rows if r.end and self.dbd.now - 300 < r.end and r.state in ENDS and self._last(r)]
        told = [
            AttemptFacts(
                str(row.job),
                row.restart,
                row.name,
                row.user,
                row.state.split()[0],
                float(row.submit),
                float(row.submit),
                float(row.start) if row.start else None,
                float(row.end) if row.end else None,
                (row.nodes,) if row.start else (),
                source="slurm",
            )
            for row in held
        ]
        with self.store.write() as session:
            record_attempts(session, self.cluster, told, utc(float(self.dbd.now)))

    def _last(self, row: Row) -> bool:
        """Nothing came after it: slurmctld holds one record a job."""
        return row.job not in self.live and row is max(
            (r for r in self.dbd.rows if r.job == row.job), key=lambda r: r.submit
        )

    def _take(self, session: Session, batch: Batch) -> None:
        now = utc(float(self.dbd.now))
        record_attempts(session, self.cluster, batch.attempts, now)
        marks.keep_marks(session, self.cluster, batch.source, batch.marks, now)

    # --- the story --------------------------------------------------------------------------------------------------

    def tell(self, steps: int) -> None:
        acts: list[Callable[[], object]] = [
            self.submit,
            self.start,
            self.start,
            self.end,
            self.requeue,
            self.wait,
            self.wait,
            self.restart,
        ]
        acts += [self.read, self.read, lambda: self.read(commits=False), self.part, self.look, self.look]
        for _ in range(steps):
            self.random.choice(acts)()
            self.dbd.now += 3
        self.dbd.away = False
        for _ in range(1000):
            self.dbd.now += 60
            if not self.read().more:
                break

    def lost_and_doubled(self) -> tuple[list[str], list[str]]:
        """Attempts that slurmdbd has and the store has not, and those that the store has too many.

        With their times to the second; without, where sacct shows local times that name no offset: an hour that a clock
        shows twice cannot always be told.
        """
        exact = self.dbd.form != "iso local"
        with self.store.read() as session:
            found = session.exec(select(Attempt).where(Attempt.cluster == self.cluster)).all()
        have = Counter(
            (row.job, exact * _second(row.submit), exact * _second(row.start), exact * _second(row.end))
            for row in found
        )
        waits = [r for r in self.dbd.rows if r.held and not r.start]  # sacct has them once they may begin, or ended
        keys = {id(r): (str(r.job), exact * r.submit, exact * r.start, exact * r.end) for r in self.dbd.rows}
        wanted = Counter(keys[id(r)] for r in self.dbd.rows if r not in waits)
        may = Counter(keys[id(r)] for r in waits)
        return sorted(map(str, wanted - have)), sorted(map(str, have - wanted - may))


def _second(at: datetime | None) -> int:
    return int(unix(at)) if at is not None else 0


def tell(seed: int, store: Store, steps: int = 40) -> tuple[list[str], list[str]]:
    """(lost, doubled) of one interleaving, in a cluster of its own."""
    story = Story(seed, store, f"c{seed}")
    story.tell(steps)
    return story.lost_and_doubled()
