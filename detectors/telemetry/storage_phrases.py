"""Slow mounts and servers as findings: the sentence and the numbers behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from detectors.model import Axis, BoolArray, Entity, Evidence, Finding, Fleet, Severity
from detectors.wording import counted, number

if TYPE_CHECKING:
    from detectors.telemetry.storage import StorageState

SLOW, STALLED, TIMED_OUT = range(3)
#: Names written out in a sentence.
NAMED = 6
#: Most calls that a finding shows the numbers of.
MOST_CALLS = 4


def mount_finding(
    detector: str,
    fleet: Fleet,
    node: int,
    name: str,
    axis: Axis,
    state: StorageState,
    held: BoolArray,
    rows: Sequence[int],
) -> Finding:
    """One client's mount."""
    host = fleet.nodes[node] if node >= 0 else ""
    entity = Entity(fleet.cluster, "mount", name, name, host)
    point = name.partition("mount:")[2]
    if held[STALLED, rows].any():
        reason = f"{host} gets no answer on {point}: its calls stopped while processes wait for them."
    elif held[SLOW, rows].any():
        reason = f"{host} waits long for {point}: {_longest(state, axis, fleet, rows)}; the other clients do not."
    else:
        reason = f"{host} ran into major timeouts on {point}: its server answered too late, or not at all."
    sure = held[STALLED, rows].any() or held[SLOW, rows].sum() > 1
    severity, score = (Severity.HIGH, 0.7) if sure else (Severity.WARNING, 0.55)
    evidence = _evidence(state, axis, fleet, held, rows)
    return Finding(detector, "nfs_slow", entity, severity, score, _since(state, held, rows), reason, evidence)


def server_finding(detector: str, fleet: Fleet, axis: Axis, state: StorageState, held: BoolArray) -> Finding:
    """Many clients of one export at once. held: bool[signs, n], of its calls only."""
    rows = sorted((int(row) for row in np.flatnonzero(held.any(axis=0))), key=lambda r: axis.ids[r])
    nodes = sorted({fleet.nodes[code] for code in axis.node_of[rows]})
    name = system_of(axis.names[rows[0]].partition("mount:")[2])
    entity = Entity(fleet.cluster, "fs", name, f"fs:{name}")
    more = f" and {len(nodes) - NAMED:,} more" if len(nodes) > NAMED else ""
    what = "get no answer from" if held[STALLED].any() else "wait long for"
    return Finding(
        detector,
        "nfs_slow",
        entity,
        Severity.HIGH,
        0.85,
        _since(state, held, rows),
        f"{counted(len(nodes), 'client')} {what} {entity} at the same time, so it is the server: "
        f"{', '.join(nodes[:NAMED])}{more}.",
        (
            Evidence("clients that wait", str(len(nodes)), "0", "nodes", "metric:mount_op/op_request_s", "derived"),
            *_evidence(state, axis, fleet, held, rows),
        ),
    )


def system_of(point: str) -> str:
    """``/scratch`` is scratch; of ``store:/export/data`` the data."""
    return point.rstrip("/").rpartition("/")[2] or point


def _since(state: StorageState, held: BoolArray, rows: Sequence[int]) -> float:
    return float(np.nanmin(np.where(held[:, rows], state.begun[:, rows], np.nan)))


def _longest(state: StorageState, axis: Axis, fleet: Fleet, rows: Sequence[int]) -> str:
    worst = max(rows, key=lambda row: (float(state.time_s[row]), axis.ids[row]))
    took, usual = 1000 * float(state.time_s[worst]), 1000 * float(state.usual_s[worst])
    return f"a {_call(axis, fleet, worst)} takes {number(took)} ms against {number(usual, 1)} ms at most before"


def _call(axis: Axis, fleet: Fleet, row: int) -> str:
    return fleet.roles[axis.role_of[row]] if axis.role_of[row] >= 0 else "call"


def _evidence(
    state: StorageState, axis: Axis, fleet: Fleet, held: BoolArray, rows: Sequence[int]
) -> tuple[Evidence, ...]:
    found = []
    for row in [r for r in rows if held[SLOW, r]][:MOST_CALLS]:
        took, usual = number(1000 * float(state.time_s[row])), number(1000 * float(state.usual_s[row]), 1)
        call = _call(axis, fleet, row)
        found.append(
            Evidence(f"time of a {call}", took, f"under {usual}", "ms", "metric:mount_op/op_request_s", "derived")
        )
        share = number(100 * float(state.share[row]))
        found.append(Evidence(f"of it in the client's queue ({call})", share, "", "%", "metric:mount_op/op_queue_s"))
    for sign, what in ((STALLED, "calls that come back"), (TIMED_OUT, "calls without a major timeout")):
        if held[sign, rows].any():
            found.append(
                Evidence(what, "none" if sign == STALLED else "not all", "all", "", "metric:mount_op/op_requests")
            )
    return tuple(found)
