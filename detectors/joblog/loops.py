"""Crash loops: a run that fails again and again within the hour, so that trying once more gets nowhere.

Told from the verdicts on its attempts, the third quick failure in a row on (the published case was put back 35 times
and pushed 548 jobs aside, papers.md 3). An attempt that ran longer had time to save: it ends the row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detectors.catalogue import Catalogue
from detectors.joblog.again import stem, telling
from detectors.joblog.outcome import NAMESPACE, RESEMBLANCE
from detectors.model import Entity, Event, Evidence, Finding, Fleet, Judged, Need, Tick
from detectors.wording import counted

#: Runs that are followed at once; of more those that failed last.
MOST = 4_096
#: Clocks and epilogs let an attempt begin a little before the last one is recorded as ended, s.
OVERLAP_S = 60.0
ROW = np.dtype(
    [
        ("key", "U256"),
        ("run", "U128"),
        ("job", "U128"),
        ("count", "i8"),
        ("hardware", "i8"),
        ("yours", "i8"),
        ("first", "f8"),
        ("told", "f8"),
        ("end", "f8"),
        ("seq", "i8"),
        ("last", "U48"),
    ]
)


@dataclass(slots=True)
class LoopsState:
    """``rows``: structured array of dtype ROW, one a run that failed quickly of late; the order carries no meaning."""

    rows: NDArray[Any]


@dataclass(frozen=True, slots=True)
class Loops:
    """Thresholds: loop_least, loop_quick_s, loop_gap_s."""

    catalogue: Catalogue = field(repr=False)
    needs: frozenset[Need] = frozenset({NAMESPACE})

    @property
    def name(self) -> str:
        return "joblog/loops"

    def start(self, fleet: Fleet) -> LoopsState:
        return LoopsState(np.zeros(0, ROW))

    def step(self, state: LoopsState, tick: Tick, fleet: Fleet) -> Judged:
        limit = self.catalogue.limit
        gap_s = limit("loop_gap_s")
        kept = {str(row["key"]): row for row in state.rows if tick.at - row["end"] <= gap_s}
        for event in sorted(tick.events, key=lambda e: (e.at, e.seq)):
            if event.namespace == NAMESPACE and not event.late and event.attrs.get("job"):
                _take(kept, event, gap_s, limit("loop_quick_s"), int(limit("loop_least")))
        if kept or len(state.rows):
            state.rows = _packed(kept.values())
        found = [self._finding(row, fleet) for row in state.rows if row["count"] >= limit("loop_least")]
        return Judged(tuple(sorted(found, key=lambda finding: finding.key)))

    def move(self, state: LoopsState, old: Fleet, new: Fleet) -> LoopsState:
        return state

    def _finding(self, row: Any, fleet: Fleet) -> Finding:
        run, times, whose = str(row["run"]), int(row["count"]), _whose(row)
        ref = f"event:{int(row['seq'])}"
        evidence = (
            Evidence("Failures in a row", str(times), unit="attempts", ref=ref, grade="derived"),
            Evidence("Whose fault", whose, ref=ref, grade="derived"),
            Evidence("Class of the last", str(row["last"]), ref=ref, grade="derived"),
        )
        over = counted(round((float(row["end"]) - float(row["first"])) / 60), "minute")
        return Finding(
            detector=self.name,
            kind="crash_loop",
            entity=Entity(fleet.cluster, "run", run, f"run:{run}", ""),
            severity=self.catalogue.kinds["crash_loop"].severity,
            score=min(1.0, 0.6 + 0.1 * (times - self.catalogue.limit("loop_least"))),
            since=float(row["told"]),
            reason=f"Run {run} failed {times} times in a row within {over}, {whose}: trying again gets nowhere.",
            evidence=evidence,
        )


def _whose(row: Any) -> str:
    if row["hardware"] == row["count"]:
        return "each time of the hardware"
    if row["yours"] == row["count"]:
        return "each time of its own code or inputs"
    return f"{int(row['hardware'])} of the hardware, {int(row['yours'])} of its own code or inputs, the rest not known"


def _take(kept: dict[str, Any], event: Event, gap_s: float, quick_s: float, least: int) -> None:
    """One failed attempt: it joins its run's row, begins another, or ends it."""
    attrs = event.attrs
    started = _number(attrs.get("started", ""))
    if started is None:  # not known how long it ran: neither quick nor slow
        return
    run = stem(attrs.get("run", "")) if telling(attrs.get("run", "")) else ""
    key = f"{attrs.get('user', '')}/{run}" if run else f"job/{attrs['job']}"
    before = kept.get(key)
    if event.at - started > quick_s:
        kept.pop(key, None)
        return
    if before is not None and started < float(before["end"]) - OVERLAP_S:
        return  # it ran beside the last one: another job of that name, no retry
    row = np.zeros(1, ROW)[0] if before is None or started - float(before["end"]) > gap_s else before.copy()
    if not row["count"]:
        row["key"], row["first"] = key, started
    row["count"] += 1
    told = "" if attrs.get("by") == RESEMBLANCE else attrs.get("whose", "")
    row["hardware"] += told == "hardware"
    row["yours"] += told == "yours"
    row["run"], row["job"], row["last"] = run or attrs["job"], attrs["job"], event.code
    row["end"], row["seq"] = event.at, event.seq
    if row["count"] == least:
        row["told"] = event.at
    kept[key] = row


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if np.isfinite(found) else None


def _packed(rows: Iterable[Any]) -> NDArray[Any]:
    """In one order, so that equal memories are equal arrays; of too many those that failed last."""
    ordered = sorted(rows, key=lambda row: (float(row["end"]), str(row["key"])))[-MOST:]
    return np.array([row.item() for row in ordered], ROW) if ordered else np.zeros(0, ROW)
