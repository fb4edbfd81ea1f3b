"""Saves and loads as the counters of clients show them, in sums and one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from backend.reliability.storage import Kind, Phase
from backend.reliability.totals import number

#: Phases that were over in a span (unix s).
Phases = Callable[[float, float], Sequence[Phase]]
#: Phases told one by one, the newest first; clients told that came late most often.
MOST_PHASES, MOST_LATE = 60, 10


def nothing_moved(start: float, end: float) -> Sequence[Phase]:
    """Where nobody follows the counters of mounts."""
    return ()


def storage_json(found: Sequence[Phase]) -> dict[str, Any]:
    """``saves``, ``loads``: sums with their n; ``stragglers``: who came late how often; ``phases``: the newest."""
    late = Counter(one.client for phase in found for one in phase.stragglers)
    newest = sorted(found, key=lambda phase: -phase.begin)[:MOST_PHASES]
    return {
        "saves": _sums(found, "save"),
        "loads": _sums(found, "load"),
        "stragglers": [{"client": name, "times": times} for name, times in late.most_common(MOST_LATE)],
        "phases": [_phase(phase) for phase in newest],
    }


def _sums(found: Sequence[Phase], kind: Kind) -> dict[str, Any]:
    mine = [phase for phase in found if phase.kind == kind]
    lengths = [phase.end - phase.begin for phase in mine]
    return {
        "n": len(mine),
        "median_s": _median(lengths),
        "mean_bytes_s": number(sum(p.bytes for p in mine) / sum(lengths)) if mine else None,
        "of_ceiling": _median([p.of_ceiling for p in mine if p.of_ceiling is not None]),
        "queue_share": _median([p.queue_share for p in mine if p.queue_share is not None]),
        "response_s": _median([p.response_s for p in mine if p.response_s is not None]),
        "of_slots": _median([p.of_slots for p in mine if p.of_slots is not None]),
        "waited_s": number(sum(p.waited_s for p in mine)),
        "held_by": dict(Counter(p.held_by for p in mine).most_common()),
    }


def _median(values: Sequence[float]) -> float | None:
    return number(float(np.median(values))) if values else None


def _phase(phase: Phase) -> dict[str, Any]:
    return {
        "kind": phase.kind,
        "begin": number(phase.begin),
        "end": number(phase.end),
        "clients": phase.clients,
        "bytes": number(phase.bytes),
        "mean_bytes_s": number(phase.mean_bytes_s),
        "peak_bytes_s": number(phase.peak_bytes_s),
        "of_ceiling": number(phase.of_ceiling),
        "queue_share": number(phase.queue_share),
        "response_s": number(phase.response_s),
        "of_slots": number(phase.of_slots),
        "waited_s": number(phase.waited_s),
        "held_by": phase.held_by,
        "stragglers": [
            {"client": one.client, "late_s": number(one.late_s), "share": number(one.bytes_share)}
            for one in phase.stragglers
        ],
    }
