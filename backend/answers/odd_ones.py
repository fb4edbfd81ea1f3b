"""The odd ones out: nodes that run something else than nearly all of their kind."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlmodel import Session, col, select

from backend.model.cluster import Node
from backend.store import ledger
from backend.store.ledger import VersionRow

#: A group smaller than this has no custom to be odd against.
LEAST_GROUP = 4
#: Nearly all: the commonest value is held by at least this share of the group.
CUSTOM_SHARE = 0.8
#: Held by at most this share (and by one always): in a roll-out the new value is odd until it is common.
ODD_SHARE = 0.1
#: What differs between any two nodes and is no version.
NO_VERSION = frozenset({"boot"})
#: The group of what all nodes, or devices, hold alike.
EVERY = "every node"


@dataclass(frozen=True, slots=True)
class Odd:
    """``holders`` of ``group`` (``size`` nodes or devices) hold ``value`` where ``common`` hold ``custom``.

    group: model and partitions of the nodes, or the job. source: by whose word.
    """

    group: str
    item: str
    source: str
    value: str
    holders: tuple[str, ...]
    custom: str
    common: int
    size: int


@dataclass(frozen=True, slots=True)
class Spread:
    """How many of a group hold which value, commonest first."""

    group: str
    item: str
    source: str
    values: tuple[tuple[str, int], ...]

    @property
    def size(self) -> int:
        return sum(count for _, count in self.values)


def groups(session: Session, name: str) -> dict[str, str]:
    """Node to its kind: model, and partitions where it has any. Who left has none."""
    columns = select(Node.name, Node.model, Node.partitions).where(
        col(Node.cluster) == name, col(Node.retired_at).is_(None)
    )
    return {node: kind_of(model, partitions) for node, model, partitions in session.exec(columns)}


def kind_of(model: str, partitions: Sequence[str]) -> str:
    where = f" in {', '.join(sorted(partitions))}" if partitions else ""
    return f"{model or 'nodes'}{where}"


def odd_ones(versions: Iterable[VersionRow], kind: Mapping[str, str]) -> tuple[tuple[Odd, ...], tuple[Spread, ...]]:
    """Who differs, rarest first, and how every item is spread. Two sources' spellings are never compared."""
    held: defaultdict[tuple[str, str, str], dict[str, str]] = defaultdict(dict)
    for row in versions:
        group = kind.get(row.node)
        if row.job or group is None or row.item in NO_VERSION:
            continue
        held[(group, row.item, row.source)][f"{row.node} {row.device}".strip()] = row.value
    odd: list[Odd] = []
    spread: list[Spread] = []
    for (group, item, source), by in sorted(held.items()):
        counts = Counter(by.values()).most_common()
        spread.append(Spread(group, item, source, tuple(sorted(counts, key=lambda pair: (-pair[1], pair[0])))))
        odd += _odd(spread[-1], by)
    return tuple(sorted(odd, key=lambda one: (len(one.holders), one.item, one.group))), tuple(spread)


def _odd(spread: Spread, by: Mapping[str, str]) -> Sequence[Odd]:
    size, (custom, common) = spread.size, spread.values[0]
    if size < LEAST_GROUP or common < CUSTOM_SHARE * size:
        return ()
    return [
        Odd(
            spread.group,
            spread.item,
            spread.source,
            value,
            tuple(sorted(who for who, holds in by.items() if holds == value)),
            custom,
            common,
            size,
        )
        for value, count in spread.values[1:]
        if count <= max(1, ODD_SHARE * size)
    ]


def odd_in(session: Session, name: str) -> tuple[tuple[Odd, ...], tuple[Spread, ...]]:
    """As ``odd_ones``. Of what all hold alike, only the count is read: a fleet holds hundreds of thousands."""
    told = {key: values for key, values in ledger.tally(session, name).items() if key[0] not in NO_VERSION}
    items = sorted({item for (item, _), values in told.items() if len(values) > 1})
    rows = ledger.versions(session, name, jobs=False, items=items) if items else []
    odd, spread = odd_ones(rows, groups(session, name) if rows else {})
    alike = tuple(
        Spread(EVERY, item, source, tuple(told[item, source])) for item, source in sorted(told) if item not in items
    )
    return odd, (*spread, *alike)
