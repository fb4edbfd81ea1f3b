"""Differential diagnosis: what nodes that fail have and others have not: firmware, driver, rack, switch, model.

Two questions a value of an attribute: is the rate of faults there higher (faults over node-days, conditional on their
sum), and do more of its nodes fail (Fisher's exact test on nodes)? Faults of one bad node come in rows, which makes
the first too sure of itself; a value stands out only where the second says so too, after Holm's correction for all
that were asked.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from scipy import stats

from backend.facts import VersionFacts
from backend.reliability.account import Accounts
from backend.reliability.faults import Fault, node_faults
from backend.reliability.intervals import TAIL, Interval

DAY_S = 86_400.0
#: A value stands out below this, after the correction for all that were asked.
LEVEL = 0.05
#: A value of fewer nodes than this, or an attribute with more values than the second, says nothing by itself.
LEAST_NODES, MOST_VALUES = 3, 200


@dataclass(frozen=True, slots=True)
class Difference:
    """Faults and nodes with ``value`` of ``attribute``, against all other nodes.

    ratio: of the rates, with its exact 95 % interval; None where the others had no fault. failed, nodes: nodes with a
    fault, of all with the value. p: Fisher's on nodes, one-sided, as it is; p_holm: corrected. stands_out: that is
    below LEVEL and the interval of the ratio above 1.
    """

    attribute: str
    value: str
    faults: int
    node_days: float
    other_faults: int
    other_days: float
    ratio: float | None
    interval: Interval
    failed: int
    nodes: int
    other_failed: int
    other_nodes: int
    p: float
    p_holm: float = 1.0
    stands_out: bool = False


#: One node and stretch of time with a value: (node, value, days, when it began, when it ended).
_Stretch = tuple[str, str, float, float, float]


def differences(accounts: Accounts, kinds: frozenset[str] | None = None) -> list[Difference]:
    """All values of all attributes, what stands out first. ``kinds``: only faults that began with one of these."""
    start, end = accounts.history.start, accounts.history.end
    names = sorted({n.name for n in accounts.history.nodes} | {n for a in accounts.attempts for n in a.attempt.nodes})
    faults = [f for f in node_faults(accounts) if f.node and (kinds is None or f.what in kinds)]
    found = [
        row
        for attribute, stretches in _attributes(accounts, names, start, end)
        for row in _of_attribute(attribute, list(stretches), faults)
    ]
    return _corrected(found)


def _attributes(
    accounts: Accounts, names: Sequence[str], start: float, end: float
) -> Iterable[tuple[str, Iterable[_Stretch]]]:
    days = max(0.0, end - start) / DAY_S
    nodes = {node.name: node for node in accounts.history.nodes}
    fixed: dict[str, Callable[[str], str]] = {
        "rack": lambda n: nodes[n].rack,
        "switch": lambda n: nodes[n].switch,
        "model": lambda n: nodes[n].model,
        "clique": lambda n: nodes[n].clique,
    }
    for label in sorted({key for node in nodes.values() for key in node.labels}):
        fixed[f"label {label}"] = lambda n, label=label: nodes[n].labels.get(label, "")  # type: ignore[misc]
    for attribute, value in fixed.items():
        yield attribute, [(n, value(n), days, start, end) for n in names if n in nodes and value(n)]
    by_item: defaultdict[str, list[VersionFacts]] = defaultdict(list)
    for version in accounts.history.versions:
        if not version.job:
            by_item[version.item].append(version)
    for item in sorted(by_item):
        yield item, _stretches(by_item[item], start, end)


def _stretches(versions: Sequence[VersionFacts], start: float, end: float) -> Iterable[_Stretch]:
    """What each node ran from when to when; what ran first also ran before it was first told."""
    told: defaultdict[str, list[VersionFacts]] = defaultdict(list)
    for version in sorted(versions, key=lambda v: (v.at, v.device)):
        told[version.node].append(version)
    for node, rows in told.items():
        now: dict[str, str] = {}
        edges: list[tuple[float, str]] = []
        for version in rows:
            now[version.device] = version.value
            edges.append((version.at, " + ".join(sorted(set(now.values())))))
        edges = [
            edge for edge, after in zip(edges, [*edges[1:], (float("inf"), "")], strict=True) if after[0] > edge[0]
        ]
        begins = [start, *(max(start, at) for at, _ in edges[1:]), end]
        for (_, value), low, high in zip(edges, begins, begins[1:], strict=False):
            high = min(end, high)
            if value and high > low:
                yield node, value, (high - low) / DAY_S, low, high


def _of_attribute(attribute: str, stretches: Sequence[_Stretch], faults: Sequence[Fault]) -> list[Difference]:
    values = {value for _, value, *_ in stretches}
    if not 2 <= len(values) <= MOST_VALUES:
        return []
    at = _finder(stretches)
    days: defaultdict[str, float] = defaultdict(float)
    members: defaultdict[str, set[str]] = defaultdict(set)
    failed: defaultdict[str, set[str]] = defaultdict(set)
    counts: defaultdict[str, int] = defaultdict(int)
    for node, value, length, *_ in stretches:
        days[value] += length
        members[value].add(node)
    for fault in faults:
        value = at(fault.node, fault.begin)
        if value:
            counts[value] += 1
            failed[value].add(fault.node)
    return [
        _difference(attribute, value, counts, days, failed, members)
        for value in sorted(values)
        if len(members[value]) >= LEAST_NODES
    ]


def _finder(stretches: Sequence[_Stretch]) -> Callable[[str, float], str]:
    by_node: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
    for node, value, _, low, _ in sorted(stretches, key=lambda s: s[3]):
        by_node[node].append((low, value))

    def at(node: str, when: float) -> str:
        rows = by_node.get(node, [])
        place = bisect_right(rows, when, key=lambda row: row[0]) - 1
        return rows[max(place, 0)][1] if rows else ""

    return at


def _difference(
    attribute: str,
    value: str,
    counts: Mapping[str, int],
    days: Mapping[str, float],
    failed: Mapping[str, set[str]],
    members: Mapping[str, set[str]],
) -> Difference:
    here, total, all_days = counts.get(value, 0), sum(counts.values()), sum(days.values())
    other, other_days = total - here, all_days - days[value]
    other_members = set().union(*(nodes for name, nodes in members.items() if name != value))
    other_failed = set().union(*(nodes for name, nodes in failed.items() if name != value))
    hit, nodes = len(failed.get(value, ())), len(members[value])
    table = [[hit, nodes - hit], [len(other_failed), max(0, len(other_members) - len(other_failed))]]
    p = float(stats.fisher_exact(table, alternative="greater")[1])
    ratio = here / days[value] / (other / other_days) if other and other_days > 0 and days[value] > 0 else None
    return Difference(
        attribute=attribute,
        value=value,
        faults=here,
        node_days=days[value],
        other_faults=other,
        other_days=other_days,
        ratio=ratio,
        interval=ratio_interval(here, days[value], other, other_days),
        failed=hit,
        nodes=nodes,
        other_failed=len(other_failed),
        other_nodes=len(other_members),
        p=p,
    )


def ratio_interval(k1: int, t1: float, k2: int, t2: float) -> Interval:
    """Exact 95 % interval of the ratio of two Poisson rates: given their sum, the first count is binomial
    (Przyborowski and Wilenski 1940), bounded by Clopper and Pearson. 0 and infinity where nothing bounds it."""
    if t1 <= 0 or t2 <= 0 or k1 + k2 == 0:
        return Interval(0.0, float("inf"))
    low = float(stats.beta.ppf(TAIL, k1, k2 + 1)) if k1 else 0.0
    high = float(stats.beta.ppf(1 - TAIL, k1 + 1, k2)) if k2 else 1.0
    scale = t2 / t1
    return Interval(
        low / (1 - low) * scale if low < 1 else float("inf"), high / (1 - high) * scale if high < 1 else float("inf")
    )


def _corrected(rows: Sequence[Difference]) -> list[Difference]:
    """Holm's step-down over all rows; what stands out first, then the smallest p."""
    ranked = sorted(rows, key=lambda row: (row.p, row.attribute, row.value))
    found, worst = [], 0.0
    for place, row in enumerate(ranked):
        worst = max(worst, min(1.0, row.p * (len(ranked) - place)))
        found.append(replace(row, p_holm=worst, stands_out=worst < LEVEL and row.interval.low > 1))
    return sorted(found, key=lambda row: not row.stands_out)
