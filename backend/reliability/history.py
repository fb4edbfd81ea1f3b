"""What the accounting takes: the facts of a span of time, and steps as columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from backend.facts import (
    AttemptFacts,
    CheckpointFacts,
    IncidentFacts,
    NodeFacts,
    OutageFacts,
    StepFacts,
    VersionFacts,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: (job, restart): how the log class of an attempt is found.
AttemptKey = tuple[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class StepTable:
    """Rows of training as columns of one length n, in any order.

    at: unix s, when the row's last step ended. step_s: seconds of one step, NaN = not said. live, total: replicas, NaN
    = not said; live 0 where too few for the run's quorum were there, so that the step was not committed. tokens: merged
    in the row, NaN = not said. job_of, run_of: places in ``jobs`` and ``runs``; "" stands for not said. ``rank`` -1 =
    not said.
    """

    at: Floats
    step: Ints
    step_s: Floats
    live: Floats
    total: Floats
    tokens: Floats
    rank: Ints
    job_of: Ints
    run_of: Ints
    jobs: tuple[str, ...]
    runs: tuple[str, ...]

    @classmethod
    def of(cls, rows: Iterable[StepFacts]) -> StepTable:
        """The columns of ``rows``; rows whose time is no number are left out."""
        rows = [row for row in rows if np.isfinite(row.at)]
        jobs, runs = _places(row.job for row in rows), _places(row.run for row in rows)
        return cls(
            at=np.array([row.at for row in rows], np.float64),
            step=np.array([row.step for row in rows], np.int64),
            step_s=_floats(row.step_time_s for row in rows),
            live=_floats(members_of(row) for row in rows),
            total=_floats(row.replicas_total for row in rows),
            tokens=_floats(row.tokens for row in rows),
            rank=np.array([-1 if row.rank is None else row.rank for row in rows], np.int64),
            job_of=np.array([jobs[row.job] for row in rows], np.int64),
            run_of=np.array([runs[row.run] for row in rows], np.int64),
            jobs=tuple(jobs),
            runs=tuple(runs),
        )

    def __len__(self) -> int:
        return len(self.at)

    def take(self, which: NDArray[np.int64]) -> StepTable:
        """The rows at ``which`` (int64[k]), in that order."""
        return replace(
            self,
            at=self.at[which],
            step=self.step[which],
            step_s=self.step_s[which],
            live=self.live[which],
            total=self.total[which],
            tokens=self.tokens[which],
            rank=self.rank[which],
            job_of=self.job_of[which],
            run_of=self.run_of[which],
        )


def members_of(row: StepFacts) -> int | None:
    """Replicas whose work of this row counts: none where fewer lived than the row's own ``quorum`` asks for."""
    quorum = row.attrs.get("quorum")
    if row.replicas_live is not None and isinstance(quorum, int | float) and row.replicas_live < quorum:
        return 0
    return row.replicas_live


def _places(names: Iterable[str]) -> dict[str, int]:
    places: dict[str, int] = {}
    for name in names:
        places.setdefault(name, len(places))
    return places


def _floats(values: Iterable[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], np.float64)


def joined(parts: Sequence[StepTable]) -> StepTable:
    """One table of several; each may have names of its own."""
    if not parts:
        return StepTable.of(())
    jobs = tuple(dict.fromkeys(name for part in parts for name in part.jobs))
    runs = tuple(dict.fromkeys(name for part in parts for name in part.runs))
    job_at, run_at = ({name: place for place, name in enumerate(names)} for names in (jobs, runs))
    return StepTable(
        at=np.concatenate([part.at for part in parts]),
        step=np.concatenate([part.step for part in parts]),
        step_s=np.concatenate([part.step_s for part in parts]),
        live=np.concatenate([part.live for part in parts]),
        total=np.concatenate([part.total for part in parts]),
        tokens=np.concatenate([part.tokens for part in parts]),
        rank=np.concatenate([part.rank for part in parts]),
        job_of=np.concatenate([_moved(part.job_of, part.jobs, job_at) for part in parts]),
        run_of=np.concatenate([_moved(part.run_of, part.runs, run_at) for part in parts]),
        jobs=jobs,
        runs=runs,
    )


def _moved(places: Ints, names: Sequence[str], to: Mapping[str, int]) -> Ints:
    moved: Ints = np.array([to[name] for name in names], np.int64)[places]
    return moved


@dataclass(frozen=True, slots=True)
class ExclusionSpan:
    """A span (unix s; end None = still) in which a node was kept from new work, by whom and why."""

    node: str
    begin: float
    end: float | None
    by: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class RepairFacts:
    """Something that was done to a node to mend it (reset_gpu, reboot, replace ...), done at ``at`` (unix s)."""

    node: str
    at: float
    what: str
    by: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """The facts of one cluster from ``start`` to ``end`` (unix s), in any order; rows may be repeated.

    classes: the log class of an attempt, by (job, restart), where its log was read. checkpoints_whole: every save and
    load of every run is in ``checkpoints`` (a bundle with its file), so that a run without one did not save; else a
    run that shows none is one whose saves nobody told. xids: (at, code) a node, where kernel lines were read.
    tickets: when tickets were opened, a node. versions: what nodes run, and since when. excluded: exclusions that are
    not in the lists of attempts (ours, a scheduler's). repairs: those that somebody told of; outages tell of others.
    """

    start: float
    end: float
    attempts: Sequence[AttemptFacts]
    steps: StepTable | Sequence[StepFacts] = ()
    checkpoints: Sequence[CheckpointFacts] = ()
    outages: Sequence[OutageFacts] = ()
    incidents: Sequence[IncidentFacts] = ()
    nodes: Sequence[NodeFacts] = ()
    classes: Mapping[AttemptKey, str] = field(default_factory=dict)
    checkpoints_whole: bool = False
    xids: Mapping[str, Sequence[tuple[float, int]]] = field(default_factory=dict)
    tickets: Mapping[str, Sequence[float]] = field(default_factory=dict)
    versions: Sequence[VersionFacts] = ()
    excluded: Sequence[ExclusionSpan] = ()
    repairs: Sequence[RepairFacts] = ()

    def table(self) -> StepTable:
        return self.steps if isinstance(self.steps, StepTable) else StepTable.of(self.steps)
