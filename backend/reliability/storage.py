"""Checkpoints as storage saw them: save and load phases in the counters of clients, and what held them up.

Rules and figures: papers.md 1 (save: the fleet writes above 20 GB/s on 63 nodes; load: it reads above 2 GB/s while the
GPUs are idle; queue share; 128 RPC slots). The thresholds are arguments, and by default scale with the clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from backend.reliability.history import Floats

#: Bytes a second of the whole fleet, a client (papers.md 1: 20 and 2 GB/s of 63 nodes).
SAVE_BYTES_S, LOAD_BYTES_S = 20e9 / 63, 2e9 / 63
#: GPUs busier than this on average, %, are not waiting for a load.
IDLE_UTIL = 50.0
#: Phases of a kind that are this close are one, s; shorter ones than the second are none.
JOIN_S, LEAST_S = 60.0, 10.0
#: A client is busy while it moves at least this share of its own peak in the phase.
BUSY = 0.1
#: It straggles where it is done later than the median by this share of the phase, and by so many robust deviations.
LATE_SHARE, LATE_Z = 0.25, 3.5
#: Time in the queue above this share of a request means that slots are short (Algalon's rule, papers.md 1).
QUEUED = 0.9

Kind = Literal["save", "load"]


@dataclass(frozen=True, slots=True, eq=False)
class Counters:
    """Rates of t moments and n clients (NFS, Lustre or object store), NaN = not seen. at: rising unix s, float64[t].

    written, read: bytes a second, float64[t, n]. Optional, by the direction that prevails: requests: a second;
    queue_s, request_s: seconds a second that requests waited for a slot, and took in all. gpu_util: %, float64[t].
    slots: of RPCs a client, 0 = not known. ceiling_write, ceiling_read: bytes a second the storage can do, 0 = not
    known.
    """

    at: Floats
    clients: tuple[str, ...]
    written: Floats
    read: Floats
    requests: Floats | None = None
    queue_s: Floats | None = None
    request_s: Floats | None = None
    gpu_util: Floats | None = None
    slots: int = 0
    ceiling_write: float = 0.0
    ceiling_read: float = 0.0


@dataclass(frozen=True, slots=True)
class Straggler:
    """A client that was done ``late_s`` after the median one; share of the phase's bytes that were its."""

    client: str
    late_s: float
    bytes_share: float


@dataclass(frozen=True, slots=True)
class Phase:
    """A save or a load of the fleet, begin to end (unix s). None = not known.

    of_ceiling: mean rate over what the storage can do. queue_share: time in the client's queue over the time of
    requests. response_s: mean time of a request. in_flight: mean requests at once that held a slot, a client that
    moved anything (Little: seconds of requests a second, without their queue); of_slots: that over the slots.
    waited_s: from when the others were done to the last straggler. held_by: what the figures point to, a word.
    """

    kind: Kind
    begin: float
    end: float
    clients: int
    bytes: float
    mean_bytes_s: float
    peak_bytes_s: float
    of_ceiling: float | None
    queue_share: float | None
    response_s: float | None
    in_flight: float | None
    of_slots: float | None
    stragglers: tuple[Straggler, ...]
    waited_s: float
    held_by: str


def phases(counters: Counters, save_bytes_s: float | None = None, load_bytes_s: float | None = None) -> list[Phase]:
    """Saves and loads in the order they began. ``save_bytes_s``, ``load_bytes_s``: rates of the whole fleet."""
    if len(counters.at) < 2:
        return []
    count = max(1, len(counters.clients))
    written, read = np.nansum(counters.written, axis=1), np.nansum(counters.read, axis=1)
    saving = written > (SAVE_BYTES_S * count if save_bytes_s is None else save_bytes_s)
    loading = read > (LOAD_BYTES_S * count if load_bytes_s is None else load_bytes_s)
    if counters.gpu_util is not None:
        loading &= ~(counters.gpu_util >= IDLE_UTIL)
    sides: tuple[tuple[Kind, NDArray[np.bool_]], ...] = (("save", saving), ("load", loading & ~saving))
    found = [_phase(counters, kind, low, high) for kind, on in sides for low, high in _runs(counters.at, on)]
    return sorted(found, key=lambda phase: (phase.begin, phase.kind))


def _runs(at: Floats, on: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """(first, last + 1) moments of each stretch."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], on, [False]]).astype(np.int8)))
    found: list[tuple[int, int]] = []
    for low, high in edges.reshape(-1, 2).tolist():
        if found and at[low] - at[found[-1][1] - 1] <= JOIN_S:
            found[-1] = (found[-1][0], high)
        else:
            found.append((low, high))
    return [(low, high) for low, high in found if at[high - 1] - _before(at, low) >= LEAST_S]


def _before(at: Floats, place: int) -> float:
    """A rate at a moment is that since the moment before."""
    return float(at[place - 1]) if place else float(at[0] - (at[1] - at[0]))


def _phase(counters: Counters, kind: Kind, low: int, high: int) -> Phase:
    rates = np.nan_to_num((counters.written if kind == "save" else counters.read)[low:high])
    begin, end = _before(counters.at, low), float(counters.at[high - 1])
    widths = np.diff(np.concatenate([[begin], counters.at[low:high]]))
    moved = rates * widths[:, None]
    total = float(moved.sum())
    ceiling = counters.ceiling_write if kind == "save" else counters.ceiling_read
    mean = total / (end - begin)
    late, waited = _stragglers(counters, rates, moved, low, begin, end)
    queue_share, response_s, in_flight = _requests(counters, rates, low, high, widths)
    of_slots = in_flight / counters.slots if in_flight is not None and counters.slots else None
    of_ceiling = mean / ceiling if ceiling > 0 else None
    return Phase(
        kind=kind,
        begin=begin,
        end=end,
        clients=int((moved.sum(axis=0) > 0).sum()),
        bytes=total,
        mean_bytes_s=mean,
        peak_bytes_s=float(rates.sum(axis=1).max()),
        of_ceiling=of_ceiling,
        queue_share=queue_share,
        response_s=response_s,
        in_flight=in_flight,
        of_slots=of_slots,
        stragglers=late,
        waited_s=waited,
        held_by=_held_by(of_ceiling, queue_share, of_slots, waited / (end - begin)),
    )


def _stragglers(
    counters: Counters, rates: Floats, moved: Floats, low: int, begin: float, end: float
) -> tuple[tuple[Straggler, ...], float]:
    """(clients done late, the latest first; seconds that the fleet waited for them)."""
    active = np.flatnonzero(moved.sum(axis=0) > 0)
    if len(active) < 4:
        return (), 0.0
    busy = rates[:, active] >= BUSY * rates[:, active].max(axis=0)
    last = len(busy) - 1 - np.argmax(busy[::-1], axis=0)
    done = counters.at[low + last]
    middle = float(np.median(done))
    spread = max(1.4826 * float(np.median(np.abs(done - middle))), float(np.median(np.diff(counters.at))))
    late = (done - middle > LATE_SHARE * (end - begin)) & (done - middle > LATE_Z * spread)
    total = float(moved.sum())
    rows = [
        Straggler(counters.clients[active[i]], float(done[i] - middle), float(moved[:, active[i]].sum()) / total)
        for i in np.flatnonzero(late)
    ]
    others = done[~late]
    waited = float(done.max() - others.max()) if late.any() and len(others) else 0.0
    return tuple(sorted(rows, key=lambda row: (-row.late_s, row.client))), waited


def _requests(
    counters: Counters, rates: Floats, low: int, high: int, widths: Floats
) -> tuple[float | None, float | None, float | None]:
    """(queue share, seconds a request, requests in flight a client that moved anything)."""
    if counters.request_s is None:
        return None, None, None
    took = float(np.nansum(counters.request_s[low:high] * widths[:, None]))
    waited = None if counters.queue_s is None else float(np.nansum(counters.queue_s[low:high] * widths[:, None]))
    asked = None if counters.requests is None else float(np.nansum(counters.requests[low:high] * widths[:, None]))
    active = max(1, int((rates.sum(axis=0) > 0).sum()))
    share = waited / took if waited is not None and took > 0 else None
    served = (took - (waited or 0.0)) / float(widths.sum()) / active
    return share, took / asked if asked else None, served


def _held_by(of_ceiling: float | None, queue_share: float | None, of_slots: float | None, waited: float) -> str:
    """The nearest limit: slots before the ceiling, for a full queue says that the path behind it is not full."""
    if waited > LATE_SHARE:
        return "stragglers"
    if (queue_share or 0.0) > QUEUED or (of_slots or 0.0) > QUEUED:
        return "rpc slots"
    return "storage" if (of_ceiling or 0.0) > 0.8 else "not known"


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Of ``n`` saves or loads that told their bytes. of_ceiling: mean rate over the ceiling, None = not known."""

    n: int
    mean_bytes_s: float | None
    of_ceiling: float | None


def bandwidth(sizes: Sequence[tuple[float, float]], ceiling: float = 0.0) -> Bandwidth:
    """``sizes``: (bytes, seconds) of each; ``ceiling``: bytes a second, 0 = not known."""
    told = [(size, seconds) for size, seconds in sizes if size > 0 and seconds > 0]
    if not told:
        return Bandwidth(0, None, None)
    mean = sum(size for size, _ in told) / sum(seconds for _, seconds in told)
    return Bandwidth(len(told), mean, mean / ceiling if ceiling > 0 else None)
