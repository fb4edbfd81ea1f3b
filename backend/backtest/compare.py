"""What two rule sets make of the same past, side by side: every incident of one is paired with one of the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

#: A row of incidents.jsonl (contracts.md).
Row = Mapping[str, Any]

#: Incidents are the same one only if they open this close together, or one opens while the other stands (s).
NEAR_S = 600.0
#: An opening that moved by less than this is no difference: ticks of the usual 15 s close one later (s).
MOVED_S = 30.0
#: Differences that are named one by one; the rest is counted.
MOST = 500


@dataclass(frozen=True, slots=True)
class Difference:
    """One incident of which the two sets do not say the same. what: raised (only the tried set raises it), not raised
    (only today's does), changed. ``at``: unix s, when the first of the two opened."""

    what: str
    at: float
    entity: str
    kind: str
    severity: str
    words: str


@dataclass(frozen=True, slots=True)
class Side:
    """What one rule set did: counts, and the nodes that it would have kept from work, by name."""

    findings: int
    incidents: int
    above_info: int
    exclude: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """same: incidents of which both say the same. differences: by time, ``MOST`` at most; ``more`` were left out."""

    today: Side
    tried: Side
    same: int
    differences: tuple[Difference, ...]
    more: int = 0

    @property
    def gained(self) -> tuple[str, ...]:
        """Nodes that only the tried set would have excluded."""
        return tuple(sorted(set(self.tried.exclude) - set(self.today.exclude)))

    @property
    def lost(self) -> tuple[str, ...]:
        """Nodes that only today's set would have excluded."""
        return tuple(sorted(set(self.today.exclude) - set(self.tried.exclude)))


def compare(today: Sequence[Row], tried: Sequence[Row], findings: tuple[int, int] = (0, 0)) -> Comparison:
    """today, tried: incidents of the two replays of one past; findings: how many findings each made."""
    pairs = _pairs(today, tried)
    taken = set(pairs.values())
    found = [_alone("not raised", row) for i, row in enumerate(today) if i not in pairs]
    found += [_alone("raised", row) for j, row in enumerate(tried) if j not in taken]
    changed = [one for i, j in pairs.items() if (one := _changed(today[i], tried[j])) is not None]
    every = sorted([*found, *changed], key=lambda one: (one.at, one.entity, one.kind, one.what))
    sides = _side(today, findings[0]), _side(tried, findings[1])
    return Comparison(*sides, len(pairs) - len(changed), tuple(every[:MOST]), max(0, len(every) - MOST))


def _side(rows: Sequence[Row], findings: int) -> Side:
    nodes = {node for row in rows for node in row["exclude"]}
    return Side(findings, len(rows), sum(row["severity"] != "info" for row in rows), tuple(sorted(nodes)))


def _pairs(today: Sequence[Row], tried: Sequence[Row]) -> dict[int, int]:
    """Rows of ``today`` with those of ``tried`` that are the same incident, the likest first; each row once."""
    by_place: dict[str, list[int]] = {}
    for j, row in enumerate(tried):
        for place in _places(row):
            by_place.setdefault(place, []).append(j)
    edges = []
    for i, row in enumerate(today):
        for j in {j for place in _places(row) for j in by_place.get(place, ())}:
            if _meet(row, tried[j]):
                edges.append((*_unlike(row, tried[j]), i, j))
    found: dict[int, int] = {}
    taken: set[int] = set()
    for *_, i, j in sorted(edges):
        if i not in found and j not in taken:
            found[i] = j
            taken.add(j)
    return found


def _places(row: Row) -> set[str]:
    return {str(row["entity"]), *map(str, row["entities"])}


def _meet(one: Row, other: Row) -> bool:
    first, second = sorted((one, other), key=lambda row: float(row["opened_at"]))
    closed = first["closed_at"]
    last = float("inf") if closed is None else max(float(closed), float(first["opened_at"]) + NEAR_S)
    return float(second["opened_at"]) <= last


def _unlike(one: Row, other: Row) -> tuple[bool, bool, float]:
    apart_s = abs(float(one["opened_at"]) - float(other["opened_at"]))
    return one["kind"] != other["kind"], one["entity"] != other["entity"], apart_s


def _alone(what: str, row: Row) -> Difference:
    nodes = ", ".join(row["exclude"])
    words = f"it would {'have kept' if what == 'raised' else 'no more have kept'} {nodes} from work" if nodes else ""
    return Difference(what, float(row["opened_at"]), row["entity"], row["kind"], row["severity"], words)


def _changed(today: Row, tried: Row) -> Difference | None:
    """How they differ, in words; None where they do not."""
    words = [
        f"{name}: {today[key] or 'none'} today, {tried[key] or 'none'} tried"
        for key, name in (("kind", "kind"), ("entity", "where"), ("severity", "severity"))
        if today[key] != tried[key]
    ]
    if today["recommended_action"] != tried["recommended_action"]:
        words.append(f"advice: {_said(today)} today, {_said(tried)} tried")
    for what, nodes in (("also keeps", _less(tried, today)), ("no more keeps", _less(today, tried))):
        if nodes:
            words.append(f"{what} {', '.join(nodes)} from work")
    later_s = float(tried["opened_at"]) - float(today["opened_at"])
    if abs(later_s) >= MOVED_S:
        words.append(f"opens {abs(later_s):.0f} s {'later' if later_s > 0 else 'earlier'}")
    at = min(float(today["opened_at"]), float(tried["opened_at"]))
    said = "; ".join(words)
    return Difference("changed", at, tried["entity"], tried["kind"], tried["severity"], said) if words else None


def _said(row: Row) -> str:
    return str(row["recommended_action"]).replace("_", " ")


def _less(one: Row, other: Row) -> list[str]:
    return sorted(set(one["exclude"]) - set(other["exclude"]))


# --- words ----------------------------------------------------------------------------------------------------------


def sentence(found: Comparison) -> str:
    """The answer in one sentence."""
    n = len(found.differences) + found.more
    if not n:
        return f"No difference: both rule sets make the same {_many(found.same, 'incident')} of it."
    counts = [
        _many(sum(one.what == what for one in found.differences), f"incident {words}", f"incidents {words}")
        for what, words in (("raised", "more"), ("not raised", "fewer"), ("changed", "changed"))
        if any(one.what == what for one in found.differences)
    ]
    nodes = [f"also keep {_few(found.gained)}"] if found.gained else []
    nodes += [f"no more keep {_few(found.lost)}"] if found.lost else []
    said = f"The tried set makes {_listed(counts)}; {found.same:,} stay the same."
    return said + (f" It would {' and '.join(nodes)} from work." if nodes else " The same nodes are kept from work.")


def as_lines(found: Comparison) -> Iterable[str]:
    """For a terminal: the sentence, both sides, then each difference."""
    yield sentence(found)
    for name, side in (("today", found.today), ("tried", found.tried)):
        yield (
            f"{name}: {side.findings:,} findings, {side.incidents:,} incidents ({side.above_info:,} above info), "
            f"{_many(len(side.exclude), 'node')} kept from work"
        )
    for one in found.differences:
        at = datetime.fromtimestamp(one.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
        yield f"{at}  {one.what:10}  {one.severity:8}  {one.kind}  {one.entity}" + (
            f"  ({one.words})" * bool(one.words)
        )
    if found.more:
        yield f"... and {found.more:,} more"


def _many(n: int, one: str, more: str = "") -> str:
    return f"{n:,} {one if n == 1 else more or one + 's'}"


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
