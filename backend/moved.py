"""What clients moved to and from their mounts: saves and loads of the fleet, told from the telemetry's counters.

The last hours of each tick stay in memory, a few numbers a node; a phase that is over is written down, one line of JSON
each, so that a restart forgets none.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import orjson
from numpy.typing import NDArray

from backend.reliability.storage import JOIN_S, Counters, Phase, Straggler, phases
from detectors.model import Fleet, MetricKey, Tick

#: How far back ticks are held, s; a phase that lasts longer is told in pieces.
WINDOW_S = 6 * 3600.0
#: Nodes times ticks that are held at most: of large fleets fewer hours. Some 40 bytes each.
MOST_CELLS = 4_000_000
#: Phases that are kept on disk; older ones are let go when there are twice as many.
MOST_PHASES = 5_000
SENT, RECEIVED = ("mount_op", "op_sent_bytes"), ("mount_op", "op_received_bytes")
REQUESTS, QUEUE, TOOK = ("mount_op", "op_requests"), ("mount_op", "op_queue_s"), ("mount_op", "op_request_s")
UTIL, SLOTS = ("gpu", "utilisation_pct"), ("node", "node_rpc_slots")

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class _Look:
    """One tick: bytes and requests a second of each node, float64[n] in the order of ``nodes``."""

    at: float
    nodes: tuple[str, ...]
    written: Floats
    read: Floats
    requests: Floats
    queue_s: Floats
    took_s: Floats
    util: float
    slots: float


class Moved:
    """``file``: where phases that are over stand. write, read: bytes a second that the storage can do, 0 = unknown."""

    def __init__(self, file: Path, write: float = 0.0, read: float = 0.0) -> None:
        self._file, self._ceilings = file, (write, read)
        self._looks: deque[_Look] = deque()
        self._lock = threading.Lock()
        self._told: list[Phase] = list(_kept(file))

    def add(self, tick: Tick, fleet: Fleet) -> None:
        """Take one tick; those that hold no counters of mounts, or are not newer than the last, are let be."""
        look = _look(tick, fleet)
        with self._lock:
            if look is None or (self._looks and look.at <= self._looks[-1].at):
                return
            self._looks.append(look)
            most = max(2, MOST_CELLS // max(1, len(look.nodes)))
            while len(self._looks) > most or self._looks[0].at < look.at - WINDOW_S:
                self._looks.popleft()

    def phases(self, start: float, end: float) -> list[Phase]:
        """Saves and loads that were over between ``start`` and ``end`` (unix s); new ones are written down. Raises
        OSError where the disk takes none."""
        with self._lock:
            looks = list(self._looks)
        fresh = [] if len(looks) < 2 else self._over(phases(_counters(looks, *self._ceilings)), looks[-1].at)
        if fresh:
            self._keep(fresh)
        return [phase for phase in self._told if start <= phase.end <= end]

    def _over(self, found: Sequence[Phase], now: float) -> list[Phase]:
        """Those that nothing can join any more, and that were not told before."""
        last = {kind: max((p.end for p in self._told if p.kind == kind), default=-np.inf) for kind in ("save", "load")}
        return [phase for phase in found if phase.end + JOIN_S < now and phase.begin >= last[phase.kind] - 1.0]

    def _keep(self, fresh: Sequence[Phase]) -> None:
        self._told += fresh
        self._file.parent.mkdir(parents=True, exist_ok=True)
        if len(self._told) > 2 * MOST_PHASES:
            self._told = self._told[-MOST_PHASES:]
            beside = self._file.with_suffix(".new")
            beside.write_bytes(b"".join(_line(phase) for phase in self._told))
            beside.replace(self._file)
            return
        with self._file.open("ab") as file:
            torn = file.tell() > 0 and not self._file.read_bytes().endswith(b"\n")
            file.write((b"\n" if torn else b"") + b"".join(_line(phase) for phase in fresh))


def _line(phase: Phase) -> bytes:
    return orjson.dumps(asdict(phase)) + b"\n"


def _kept(file: Path) -> Iterator[Phase]:
    """What is on disk; a line that a crash tore says nothing."""
    try:
        lines = file.read_bytes().splitlines()
    except OSError:
        return
    for line in lines:
        try:
            told = orjson.loads(line)
            yield Phase(**{**told, "stragglers": tuple(Straggler(**one) for one in told["stragglers"])})
        except (ValueError, TypeError, KeyError):
            continue


def _look(tick: Tick, fleet: Fleet) -> _Look | None:
    axis = fleet.axes.get("mount_op")
    if axis is None or not len(axis) or not ({SENT, RECEIVED} & set(tick.values)):
        return None
    calls = np.array([fleet.roles[role] if role >= 0 else "" for role in axis.role_of])
    known = axis.live & (axis.node_of >= 0)
    writes, reads = known & (calls == "WRITE"), known & (calls == "READ")
    count = len(fleet.nodes)

    def a_node(key: MetricKey, rows: NDArray[np.bool_]) -> Floats:
        values = tick.values.get(key)
        if values is None:
            return np.zeros(count)
        weights = np.nan_to_num(np.maximum(values[rows], 0.0)).astype(np.float64)
        return np.bincount(axis.node_of[rows], weights, count).astype(np.float64)

    written, read = a_node(SENT, writes), a_node(RECEIVED, reads)
    side = writes if written.sum() >= read.sum() else reads
    return _Look(
        at=tick.at,
        nodes=fleet.nodes,
        written=written,
        read=read,
        requests=a_node(REQUESTS, side),
        queue_s=a_node(QUEUE, side),
        took_s=a_node(TOOK, side),
        util=_mean(tick, UTIL),
        slots=_mean(tick, SLOTS),
    )


def _mean(tick: Tick, key: MetricKey) -> float:
    values = tick.values.get(key)
    told = np.zeros(0) if values is None else values[np.isfinite(values)]
    return float(told.mean()) if len(told) else float("nan")


def _counters(looks: Sequence[_Look], write: float, read: float) -> Counters:
    """The looks as one table of all nodes that any of them has."""
    names = tuple(dict.fromkeys(name for look in {id(one.nodes): one for one in looks}.values() for name in look.nodes))
    place = {name: i for i, name in enumerate(names)}
    orders = {id(look.nodes): np.array([place[name] for name in look.nodes], np.int64) for look in looks}

    def table(field: str) -> Floats:
        made = np.full((len(looks), len(names)), np.nan)
        for row, look in enumerate(looks):
            made[row, orders[id(look.nodes)]] = getattr(look, field)
        return made

    util = np.array([look.util for look in looks])
    slots = np.array([look.slots for look in looks])
    requests = table("requests")
    return Counters(
        at=np.array([look.at for look in looks]),
        clients=names,
        written=table("written"),
        read=table("read"),
        requests=requests,
        queue_s=table("queue_s"),
        request_s=table("took_s"),
        gpu_util=util if np.isfinite(util).any() else None,
        slots=round(float(np.nanmedian(slots))) if np.isfinite(slots).any() else 0,
        ceiling_write=write,
        ceiling_read=read,
    )
