"""What a replay leaves for the accounting: attempts, steps, saves and incidents as one History, and its documents."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlmodel import Session

from backend.clock import utc
from backend.facts import Batch, CheckpointFacts, StepFacts
from backend.incidents import lifecycle
from backend.ingest.bundle.bundle import Prepared
from backend.ingest.bundle.training import SortedCheckpoints, SortedSteps, StepBlock
from backend.model.incidents import Incident
from backend.reliability.account import account
from backend.reliability.history import History, StepTable, joined
from backend.reliability.report import reliability_json, runs_json
from backend.store.accounting import every_attempt
from backend.store.cluster import node_facts
from backend.store.outages import outages
from backend.watch import Watch
from detectors.joblog.outcome import NAMESPACE as VERDICT
from detectors.joblog.outcome import RESEMBLANCE
from detectors.joblog.rules import UNKNOWN
from detectors.model import Tick

#: Step rows held at once, some 64 bytes each. Of more, one rank of each job tells for all: a step is finished by all.
MOST_STEPS = 3_000_000
#: Steps of a recording that wait to become columns.
PIECE = 50_000


@dataclass
class Gathered:
    """What passes by during a replay and that the store does not keep. xids: (at, code) by node; classes: the log
    class of an attempt by (job, restart), the last word on it."""

    classes: dict[tuple[str, int], str] = field(default_factory=dict)
    xids: defaultdict[str, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    steps: list[StepTable] = field(default_factory=list)
    checkpoints: list[CheckpointFacts] = field(default_factory=list)
    _loose: list[StepFacts] = field(default_factory=list)

    def tick(self, tick: Tick) -> None:
        for event in tick.events:
            restart = event.attrs.get("restart", "")
            if event.namespace == VERDICT and restart.isdecimal():
                guessed = event.attrs.get("by") == RESEMBLANCE
                self.classes[event.attrs.get("job", ""), int(restart)] = UNKNOWN if guessed else event.code
            if event.namespace == "xid" and event.code.isdecimal() and event.entity.node:
                self.xids[event.entity.node].append((event.at, int(event.code)))

    def batch(self, batch: Batch) -> None:
        """Steps and saves of a recording; those of any other bundle lie in columns already."""
        self.checkpoints += batch.checkpoints
        self._loose += batch.steps
        if len(self._loose) >= PIECE:
            self._settle()

    def table(self) -> StepTable:
        self._settle()
        return joined(self.steps)

    def _settle(self) -> None:
        if self._loose:
            self.steps.append(StepTable.of(self._loose))
            self._loose = []


def documents(
    watch: Watch, prepared: Prepared, gathered: Gathered, session: Session, rows: Iterable[Incident]
) -> dict[str, Any]:
    """runs.json and reliability.json as plain JSON values, by file name."""
    accounts = account(history_of(session, watch, prepared, gathered, rows))
    return {"runs.json": runs_json(accounts), "reliability.json": reliability_json(accounts)}


def history_of(
    session: Session, watch: Watch, prepared: Prepared, gathered: Gathered, rows: Iterable[Incident]
) -> History:
    """The facts of a whole replay."""
    start, end = prepared.begin, prepared.end
    sorted_ = {part.part: part for part in prepared.training}
    steps, saves = sorted_.get("training"), sorted_.get("checkpoints")
    return History(
        start=start,
        end=end,
        attempts=tuple(every_attempt(session, watch.cluster)),
        steps=table_of(steps) if isinstance(steps, SortedSteps) else gathered.table(),
        checkpoints=[facts for _, facts in saves.each()]
        if isinstance(saves, SortedCheckpoints)
        else gathered.checkpoints,
        outages=outages(session, watch.cluster, utc(start), utc(end)),
        incidents=tuple(lifecycle.facts_of(row) for row in rows),
        nodes=node_facts(session, watch.cluster),
        checkpoints_whole=saves is not None,
        classes=gathered.classes,
        xids=gathered.xids,
    )


def table_of(steps: SortedSteps, most: int = MOST_STEPS) -> StepTable:
    """The columns of all rows; of more than ``most`` only those of each job's lowest rank, and those without one."""
    lowest = _lowest_ranks(steps) if steps.rows.size > most else None
    parts = []
    for block in steps.blocks():
        part = _table(block, steps.names)
        parts.append(part if lowest is None else part.take(np.flatnonzero(block.rank <= lowest[block.job])))
    return joined(parts)


def _table(block: StepBlock, names: tuple[str, ...]) -> StepTable:
    return StepTable(
        at=block.at,
        step=block.step,
        step_s=block.step_s,
        live=block.live,
        total=block.total,
        tokens=block.tokens,
        rank=block.rank.astype(np.int64),
        job_of=block.job.astype(np.int64),
        run_of=block.run.astype(np.int64),
        jobs=names,
        runs=names,
    )


def _lowest_ranks(steps: SortedSteps) -> NDArray[np.int32]:
    """The lowest rank that tells anything, of each job by its place in the names."""
    lowest = np.full(len(steps.names), np.iinfo(np.int32).max, np.int32)
    for block in steps.blocks():
        ranked = block.rank >= 0
        np.minimum.at(lowest, block.job[ranked], block.rank[ranked])
    return lowest
