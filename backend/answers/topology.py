"""How the cluster hangs together, as far as anybody told: racks, leaves, rails, NVLink domains, file servers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlmodel import Session

from backend.clients import hostlist
from backend.model.cluster import Node
from backend.model.past import Cable
from backend.store import cables
from backend.store.cluster import nodes as node_rows


@dataclass(frozen=True, slots=True)
class Part:
    """A rack, leaf, NVLink domain or file server, and the nodes in it or at it."""

    kind: str
    name: str
    nodes: tuple[str, ...]
    out: int = 0
    rails: tuple[str, ...] = ()

    @property
    def hostlist(self) -> str:
        return hostlist.render(self.nodes)


@dataclass(frozen=True, slots=True)
class Coverage:
    """Of ``nodes`` nodes, how many have a known place of each kind."""

    nodes: int
    placed: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Topology:
    nodes: tuple[Node, ...]
    parts: tuple[Part, ...]
    coverage: Coverage
    cables: int

    def of(self, kind: str) -> tuple[Part, ...]:
        return tuple(part for part in self.parts if part.kind == kind)


KINDS = ("rack", "switch", "clique", "rail", "fs", "partition")


def topology(session: Session, name: str) -> Topology:
    """Nodes that left are no part of it."""
    rows = [row for row in node_rows(session, name) if row.retired_at is None]
    here = {row.name for row in rows}
    ties = [tie for tie in cables.cables(session, name) if tie.node in here]
    return drawn(rows, ties)


def drawn(rows: Iterable[Node], ties: Iterable[Cable]) -> Topology:
    nodes, ties = tuple(rows), tuple(ties)
    members: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    rails: defaultdict[str, set[str]] = defaultdict(set)
    for row in nodes:
        for kind, value in (("rack", row.rack), ("switch", row.switch), ("clique", row.clique)):
            if value:
                members[(kind, value)].add(row.name)
        for partition in row.partitions:
            members[("partition", partition)].add(row.name)
    for tie in ties:
        members[("fs" if tie.kind == "fs" else "switch", tie.peer)].add(tie.node)
        if tie.rail and tie.kind != "fs":
            members[("rail", tie.rail)].add(tie.node)
            rails[tie.peer].add(tie.rail)
    out = {row.name for row in nodes if "DRAIN" in row.flags or row.state in ("down", "error", "fail")}
    parts = tuple(
        Part(kind, value, tuple(sorted(who)), len(who & out), tuple(sorted(rails[value])) if kind == "switch" else ())
        for (kind, value), who in sorted(members.items(), key=lambda pair: (KINDS.index(pair[0][0]), pair[0][1]))
    )
    placed: Counter[str] = Counter()
    for kind in KINDS:
        placed[kind] = len(set().union(*(members[key] for key in members if key[0] == kind)))
    return Topology(nodes, parts, Coverage(len(nodes), dict(placed)), len(ties))
