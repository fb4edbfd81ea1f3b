"""The GPUs of each job at one tick: grouped by job, with what the job as a whole does in the middle."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from detectors.columns import column
from detectors.model import Axis, BoolArray, Entity, Fleet, FloatArray, IntArray, MetricKey, Tick
from detectors.telemetry.robust import group_statistics

Cell = TypeVar("Cell", bound=np.generic)
#: Bytes over the links between GPUs, under the names of several exporters: the first that is there counts.
TRAFFIC: tuple[MetricKey, ...] = (("gpu", "nvlink_bytes"), ("gpu", "nvlink_tx_bytes"), ("gpu", "xgmi_tx_kb"))


@dataclass(frozen=True, slots=True, eq=False)
class Jobs:
    """slots int[k]: live rows that have a job, those of one job next to each other; starts int[g + 1]: where each job
    begins in them, ends with k; codes int[g]: its place in Fleet.jobs; marks uint32[g]: its name as a number."""

    slots: NDArray[np.intp]
    starts: IntArray
    codes: IntArray
    marks: NDArray[np.uint32]

    @property
    def sizes(self) -> NDArray[np.int64]:
        return np.diff(self.starts).astype(np.int64)

    def each(self, of_job: NDArray[Cell]) -> NDArray[Cell]:
        """[g] -> [k]: the job's value for each of its members."""
        found: NDArray[Cell] = np.repeat(of_job, self.sizes)
        return found

    def most(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """[n] -> float64[g]: the largest value among the members. A job's own state is kept with all of its rows."""
        if not len(self.codes):
            return np.zeros(0)
        found: NDArray[np.float64] = np.maximum.reduceat(rows[self.slots].astype(np.float64), self.starts[:-1])
        return found

    def share(self, rows: BoolArray) -> NDArray[np.float64]:
        """bool[k] -> float64[g]: share of the members."""
        if not len(self.codes):
            return np.zeros(0)
        found: NDArray[np.float64] = np.add.reduceat(rows.astype(np.int64), self.starts[:-1]) / np.maximum(
            self.sizes, 1
        )
        return found

    def middle(self, values: FloatArray, exact: int) -> tuple[FloatArray, FloatArray]:
        """float32[m, k] -> median and MAD, float32[m, g]; NaN does not count."""
        found = group_statistics(values, self.starts, exact)
        return found.median, found.mad


def jobs_of(axis: Axis, fleet: Fleet) -> Jobs:
    rows = np.flatnonzero(axis.live & (axis.job_of >= 0))
    rows = rows[np.argsort(axis.job_of[rows], kind="stable")]
    codes, first = np.unique(axis.job_of[rows], return_index=True)
    marks = np.fromiter((mark_of(fleet.jobs[code]) for code in codes), np.uint32, len(codes))
    starts = np.r_[first, len(rows)].astype(np.int32) if len(codes) else np.zeros(1, np.int32)
    return Jobs(rows, starts, codes.astype(np.int32), marks)


def mark_of(job: str) -> int:
    """A job as a number that a state can hold, never 0."""
    return zlib.crc32(job.encode()) or 1


def job_entity(fleet: Fleet, code: int) -> Entity:
    name = fleet.jobs[code]
    return Entity(fleet.cluster, "job", name, f"job:{name}")


def traffic(tick: Tick, n: int) -> FloatArray:
    """float32[n]: what goes over the links between GPUs, in the exporter's own unit; NaN where nobody says."""
    found = np.full(n, np.nan, np.float32)
    for key in TRAFFIC:
        if key in tick.values:
            found = np.where(np.isnan(found), column(tick, key, n), found)
    return found
