"""Signs of trouble a node over time, as numbers that a model of risk can take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.reliability.account import Accounts
from backend.reliability.exclusions import outage_spans
from backend.reliability.faults import node_faults
from backend.reliability.history import Floats

DAY_S = 86_400.0
#: Each sign is counted over these spans back, s.
BACK_S = (DAY_S, 7 * DAY_S, 28 * DAY_S)
#: A node whose last fault is not known, or further back, counts as this far from one, days.
FAR_DAYS = 60.0

_KINDS = ("faults", "incidents", "xids", "outages", "tickets", "shared failures", "exclusions")
#: Names of the columns, in order; counts are log1p.
FEATURES = tuple(
    [f"{kind}, last {round(back / DAY_S)} d" for kind in _KINDS for back in BACK_S]
    + ["days since the last fault", "days since it was put back", "busy, last 7 d"]
)


@dataclass(frozen=True, eq=False)
class Signs:
    """times: by sign, by place of the node, rising unix s with a weight each. out: spans of outages, by place."""

    nodes: tuple[str, ...]
    times: Mapping[str, Mapping[int, tuple[Floats, Floats]]]
    out: Mapping[int, Floats]
    busy: Mapping[int, Floats]

    def features(self, at: Floats) -> Floats:
        """float64[n, k, f]: each node at each of ``at`` (rising), from what lay before it."""
        found = np.zeros((len(self.nodes), len(at), len(FEATURES)))
        column = 0
        for kind in _KINDS:
            for place, (times, weights) in self.times[kind].items():
                sums = np.concatenate([[0.0], np.cumsum(weights)])
                upto = sums[np.searchsorted(times, at, side="right")]
                for i, back in enumerate(BACK_S):
                    before = sums[np.searchsorted(times, at - back, side="right")]
                    found[place, :, column + i] = np.log1p(upto - before)
            column += len(BACK_S)
        found[:, :, column : column + 2] = np.log1p(FAR_DAYS)
        for place, (times, _) in self.times["faults"].items():
            found[place, :, column] = _since(times, at)
        for place, spans in self.out.items():
            found[place, :, column + 1] = _since(spans[:, 1], at)
        for place, spans in self.busy.items():
            found[place, :, column + 2] = _share(spans, at, 7 * DAY_S)
        return found

    def fault_within(self, at: Floats, horizon_s: float) -> NDArray[np.bool_]:
        """bool[n, k]: a fault begins after ``at`` and up to ``horizon_s`` later."""
        found = np.zeros((len(self.nodes), len(at)), np.bool_)
        for place, (times, _) in self.times["faults"].items():
            low = np.searchsorted(times, at, side="right")
            found[place] = np.searchsorted(times, at + horizon_s, side="right") > low
        return found

    def out_at(self, at: Floats) -> NDArray[np.bool_]:
        """bool[n, k]: the node was out."""
        found = np.zeros((len(self.nodes), len(at)), np.bool_)
        for place, spans in self.out.items():
            last = np.searchsorted(spans[:, 0], at, side="right") - 1
            found[place] = (last >= 0) & (at < spans[np.maximum(last, 0), 1])
        return found


def _since(times: Floats, at: Floats) -> Floats:
    """log1p of days since the last of ``times``, at most FAR_DAYS."""
    times = np.sort(times)
    last = np.searchsorted(times, at, side="right") - 1
    days = np.where(last >= 0, (at - times[np.maximum(last, 0)]) / DAY_S, FAR_DAYS)
    since: Floats = np.log1p(np.clip(days, 0.0, FAR_DAYS))
    return since


def _share(spans: Floats, at: Floats, back: float) -> Floats:
    """Share of the time before each of ``at`` that ``spans`` (rising, may touch) cover."""
    sums = np.concatenate([[0.0], np.cumsum(spans[:, 1] - spans[:, 0])])

    def until(when: Floats) -> Floats:
        place = np.searchsorted(spans[:, 0], when, side="right")
        last = np.maximum(place - 1, 0)
        over = np.where(place > 0, np.maximum(0.0, spans[last, 1] - when), 0.0)
        covered: Floats = sums[place] - over
        return covered

    share: Floats = np.clip((until(at) - until(at - back)) / back, 0.0, 1.0)
    return share


def signs_of(accounts: Accounts) -> Signs:
    """All signs that the history holds, of all nodes that it names."""
    history = accounts.history
    names = {n.name for n in history.nodes} | {n for a in accounts.attempts for n in a.attempt.nodes}
    names |= {outage.node for outage in history.outages}
    nodes = tuple(sorted(names))
    place = {node: i for i, node in enumerate(nodes)}
    told = {kind: _sorted(place, rows) for kind, rows in _told(accounts).items()}
    gone = outage_spans(history.outages)
    out = {place[node]: np.array(spans, np.float64) for node, spans in gone if node in place}
    busy: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
    for account in accounts.attempts:
        if account.window is not None:
            for node in account.attempt.nodes:
                busy[place[node]].append((account.window.begin, account.window.end))
    return Signs(nodes, told, out, {i: np.array(sorted(rows)) for i, rows in busy.items()})


def _told(accounts: Accounts) -> dict[str, list[tuple[str, float, float]]]:
    """(node, at, weight) by sign."""
    history, faults = accounts.history, node_faults(accounts)
    submitted = [(a.attempt.excluded, a.attempt.submit) for a in accounts.attempts if a.attempt.excluded]
    return {
        "faults": [(f.node, f.begin, 1.0) for f in faults if f.node],
        "incidents": [(n, c.begin, 1.0) for c in accounts.causes if c.infra is not False for n in c.nodes[:1]],
        "xids": [(node, at, 1.0) for node, rows in history.xids.items() for at, _ in rows],
        "outages": [(n, begin, 1.0) for n, spans in outage_spans(history.outages) for begin, _ in spans],
        "tickets": [(node, at, 1.0) for node, rows in history.tickets.items() for at in rows],
        "shared failures": [(n, f.begin, 1 / len(f.among)) for f in faults if not f.node for n in f.among],
        "exclusions": [(node, at, 1.0) for nodes, at in submitted if at is not None for node in nodes],
    }


def _sorted(place: Mapping[str, int], rows: Iterable[tuple[str, float, float]]) -> dict[int, tuple[Floats, Floats]]:
    by_node: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
    for node, at, weight in rows:
        if node in place:
            by_node[place[node]].append((at, weight))
    found = {}
    for i, pairs in by_node.items():
        pairs.sort()
        found[i] = (np.array([at for at, _ in pairs]), np.array([w for _, w in pairs]))
    return found
