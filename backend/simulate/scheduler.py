"""The scheduler of the make-believe cluster: hosts, drains, jobs, their attempts and where they run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from backend.simulate.site import Run

#: Chained jobs of a run are this long; between saves a run steps for ``SAVE_EVERY_S``. Shortened, so a demo moves.
CHUNK_S = 1500.0
SAVE_EVERY_S = 210.0
SAVE_S = 9.0
PLACE_AFTER_S = 5.0
WARM_AFTER_S = 12.0
COMPLETING_S = 3.0
KEPT_ATTEMPTS = 40


@dataclass(slots=True)
class Host:
    """``boot_at`` is unix s; ``busy_until`` (world s) is the end of its epilog."""

    name: str
    boot_at: float
    up: bool = True
    drain: bool = False
    reason: str = ""
    reason_by: str = ""
    busy_until: float = 0.0


@dataclass(slots=True)
class Job:
    """The attempt of a job that is going. submit, start: unix s; ``*_at``: seconds of the world."""

    id: str
    run: str
    user: str
    need: int
    submit: float
    place_at: float
    restart: int = 0
    state: str = "PENDING"
    start: float | None = None
    nodes: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)
    warm_at: float = 0.0
    save_at: float = 0.0
    end_at: float = 0.0
    stalled_at: float | None = None

    @property
    def runs(self) -> bool:
        return self.state == "RUNNING"

    def steps(self, world_s: float) -> bool:
        """It trains: neither starting, nor saving, nor stalled."""
        return self.runs and self.stalled_at is None and self.warm_at <= world_s < self.save_at

    def saves(self, world_s: float) -> bool:
        return self.runs and self.stalled_at is None and self.save_at <= world_s


@dataclass(slots=True)
class Scheduler:
    hosts: dict[str, Host]
    jobs: dict[str, Job]
    next_job: int
    ended: list[dict[str, object]] = field(default_factory=list)
    changed: list[dict[str, object]] = field(default_factory=list)

    # --- questions ---------------------------------------------------------------------------------------------

    def job_on(self, node: str) -> Job | None:
        return next((job for job in self.jobs.values() if node in job.nodes), None)

    def completing(self, node: str, world_s: float) -> bool:
        return world_s < self.hosts[node].busy_until

    def drained(self, node: str, world_s: float) -> bool:
        return self.hosts[node].drain and self.job_on(node) is None and not self.completing(node, world_s)

    def free(self, job: Job, world_s: float) -> Iterator[str]:
        """Nodes a pending job could take, those it had before first."""
        taken = {node for other in self.jobs.values() for node in other.nodes}
        for name in sorted(self.hosts, key=lambda n: (n not in job.before, n)):
            host = self.hosts[name]
            fit = host.up and not host.drain and not self.completing(name, world_s)
            if fit and name not in taken and name not in job.excluded:
                yield name

    def table(self) -> list[dict[str, object]]:
        """Every attempt that is still remembered, oldest first."""
        return [*self.ended, *(row(job) for job in self.jobs.values())]

    # --- orders ------------------------------------------------------------------------------------------------

    def drain(self, node: str, reason: str, by: str) -> None:
        host = self.hosts[node]
        host.drain, host.reason, host.reason_by = True, reason, by

    def resume(self, node: str) -> None:
        host = self.hosts[node]
        host.drain, host.reason, host.reason_by = False, "", ""

    def requeue(self, job: Job, now: float, world_s: float, exclude: Sequence[str] = ()) -> None:
        """End this attempt and let the same job wait for nodes again, without those in ``exclude``."""
        self._leave(job, "REQUEUED", now, world_s)
        job.restart += 1
        job.state, job.start, job.stalled_at = "PENDING", None, None
        job.submit, job.place_at = now, world_s + PLACE_AFTER_S
        job.excluded = sorted({*job.excluded, *exclude})
        self.changed.append(row(job))

    def finish(self, job: Job, state: str, now: float, world_s: float, wait_s: float = PLACE_AFTER_S) -> Job:
        """End a job for good; its run goes on with a new one."""
        self._leave(job, state, now, world_s)
        del self.jobs[job.id]
        follower = Job(str(self.next_job), job.run, job.user, job.need, now, world_s + wait_s, before=job.before)
        self.next_job += 13
        self.jobs[follower.id] = follower
        self.changed.append(row(follower))
        return follower

    # --- time --------------------------------------------------------------------------------------------------

    def step(self, now: float, world_s: float) -> None:
        """Ends of saves and of chained jobs, then waiting jobs onto free nodes."""
        for job in list(self.jobs.values()):
            if job.saves(world_s) and world_s >= job.save_at + SAVE_S:
                job.save_at = world_s + SAVE_EVERY_S
                if world_s >= job.end_at or any(self.hosts[n].drain for n in job.nodes):
                    self.finish(job, "COMPLETED", now, world_s)
        for job in list(self.jobs.values()):
            if job.state == "PENDING" and world_s >= job.place_at:
                self._place(job, now, world_s)

    def _place(self, job: Job, now: float, world_s: float) -> None:
        nodes = [name for name, _ in zip(self.free(job, world_s), range(job.need), strict=False)]
        if len(nodes) < job.need:
            return
        job.state, job.start, job.nodes, job.before = "RUNNING", now, sorted(nodes), sorted(nodes)
        job.warm_at = world_s + WARM_AFTER_S
        job.save_at = job.warm_at + SAVE_EVERY_S * (0.5 + int(job.id) % 7 / 14)
        job.end_at = world_s + CHUNK_S
        self.changed.append(row(job))

    def _leave(self, job: Job, state: str, now: float, world_s: float) -> None:
        ended = {**row(job), "state": state, "end": now}
        self.changed.append(ended)
        self.ended = [*self.ended, ended][-KEPT_ATTEMPTS:]
        for node in job.nodes:
            self.hosts[node].busy_until = world_s + COMPLETING_S
        job.nodes = []


def row(job: Job) -> dict[str, object]:
    """One attempt as the ingest route takes it; times are unix s, null where they have not come."""
    return {
        "job": job.id,
        "restart": job.restart,
        "run": job.run,
        "user": job.user,
        "state": job.state,
        "submit": job.submit,
        "eligible": job.submit,
        "start": job.start,
        "end": None,
        "nodes": list(job.nodes),
        "gpus_per_node": 8,
        "excluded": list(job.excluded),
    }


def scheduler(hosts: Iterable[str], runs: Sequence[Run], now: float) -> Scheduler:
    """All runs placed and warm, as if they had been going for a while."""
    booted = now - 86_400.0 * 9
    last = max(run.first_job for run in runs)
    jobs = {
        str(run.first_job): Job(str(run.first_job), run.name, run.user, run.nodes, now - 1800.0, 0.0) for run in runs
    }
    made = Scheduler({name: Host(name, booted) for name in hosts}, jobs, last + 13)
    made.step(now - 1790.0, 0.0)
    for job in made.jobs.values():
        job.warm_at = 0.0
    return made
