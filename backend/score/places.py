"""Where a fault sits and what touches it: entities as they print, their ancestors, parts and victims."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

from backend.score.rows import Fault, Incident

#: Entities that print as ``word:name``; all others stand on a node.
WORDS = frozenset({"link", "rack", "switch", "fs", "job", "run", "cluster"})
#: What an incident says of one place, and what a fault listens for: (how, name).
Token = tuple[str, str]


class Touch(IntEnum):
    """How near an incident is to a fault, nearest first.

    NAMED: its own entity is the fault's. AMONG: the fault's is one of its entities. NEAR: the node (or run) that the
    fault's device sits in, a part of the node that is at fault, the other end of the link. WIDE: its rack, switch or
    cluster, or the run of its job. JOB: its job only.
    """

    NAMED = 0
    AMONG = 1
    NEAR = 2
    WIDE = 3
    JOB = 4


def prefix_of(entity: str) -> str:
    """``C:`` of an entity of one of several clusters, else empty."""
    head, colon, rest = entity.partition("/")[0].partition(":")
    return f"{head}:" if colon and head not in WORDS and rest else ""


def word_of(entity: str) -> str:
    """Kind of a printed entity: node, gpu, nic, mount, rank, or one of WORDS."""
    bare = entity.removeprefix(prefix_of(entity))
    head, _, tail = bare.partition("/")
    word = head.partition(":")[0]
    if ":" in head and word in WORDS:
        return "rank" if word == "run" and "/rank:" in bare else word
    return tail.partition(":")[0].rstrip("0123456789") if tail else "node"


def parent_of(entity: str) -> str:
    """The node of a device, the run of a rank; any other entity itself."""
    word = word_of(entity)
    if word == "rank":
        return entity.rpartition("/rank:")[0]
    return entity if word in WORDS else entity.partition("/")[0]


def host_of(entity: str) -> str:
    """The node that an entity is or sits in; empty for jobs, runs, links, racks ..."""
    return "" if word_of(entity) in WORDS | {"rank"} else parent_of(entity)


@dataclass(frozen=True)
class Site:
    """The nodes with what stands above each, as it prints (``rack:R``, ``switch:S``)."""

    above: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def below(self) -> Mapping[str, frozenset[str]]:
        """Nodes of each rack and switch."""
        found: dict[str, set[str]] = {}
        for node, names in self.above.items():
            for name in names:
                found.setdefault(name, set()).add(node)
        return {name: frozenset(nodes) for name, nodes in found.items()}

    def ends(self, link: str) -> tuple[str, ...]:
        """Both ends of ``link:a-b`` where the site knows them (names may hold hyphens): nodes, ``switch:S``."""
        prefix = prefix_of(link)
        parts = link.removeprefix(prefix).removeprefix("link:").split("-")
        for cut in range(1, len(parts)):
            ends = [self._known(prefix, "-".join(side)) for side in (parts[:cut], parts[cut:])]
            if all(ends):
                return tuple(ends)
        return ()

    def _known(self, prefix: str, name: str) -> str:
        node, switch = prefix + name.partition("/")[0], f"{prefix}switch:{name.removeprefix('switch:')}"
        return node if node in self.above else switch if switch in self.below else ""

    def hosts(self, entity: str) -> frozenset[str]:
        """The nodes an entity sits on: one for a node or device, the ends of a link, else none."""
        if word_of(entity) == "link":
            return frozenset(end for end in self.ends(entity) if end in self.above)
        return frozenset({host_of(entity)} - {""})

    def members(self, entity: str) -> frozenset[str]:
        """The nodes under a rack, a switch or a cluster."""
        if word_of(entity) == "cluster":
            prefix = f"{entity.rpartition('cluster:')[2]}:"
            return frozenset(n for n in self.above if prefix_of(n) in ("", prefix))
        return self.below.get(entity, frozenset())

    def excludable(self, fault: Fault) -> frozenset[str]:
        """Nodes whose exclusion takes the fault away: where it sits, else what it names."""
        return self.hosts(fault.entity) or self.members(fault.entity) or frozenset(fault.nodes)

    def victims(self, fault: Fault) -> frozenset[str]:
        """Nodes that suffer a fault that is not theirs."""
        return (frozenset(fault.nodes) | self.members(fault.entity)) - self.hosts(fault.entity)


def around(fault: Fault, site: Site) -> dict[Token, Touch]:
    """What an incident may say to touch a fault, and how near that is."""
    entity, parent, prefix = fault.entity, parent_of(fault.entity), prefix_of(fault.entity)
    near: dict[Token, Touch] = {("is", entity): Touch.AMONG}

    def listen(how: str, name: str, touch: Touch) -> None:
        near.setdefault((how, name), touch)

    listen(*(("part", entity) if parent == entity else ("is", parent)), Touch.NEAR)
    hosts = sorted(site.hosts(entity))
    if word_of(entity) == "link":
        for end in site.ends(entity):
            listen("is", end, Touch.NEAR)
            listen("nic", end, Touch.NEAR)
    if word_of(entity) == "nic":
        listen("link", parent, Touch.NEAR)
    for name in (name for host in hosts for name in site.above.get(host, ())):
        listen("is", name, Touch.WIDE)
    listen("cluster", prefix, Touch.WIDE)
    if fault.run and word_of(entity) == "job":
        listen("is", f"{prefix}run:{fault.run}", Touch.WIDE)
    if fault.job:
        listen("is", f"{prefix}job:{fault.job}", Touch.JOB)
        listen("job", prefix + fault.job, Touch.JOB)
    return near


def tokens(entity: str, site: Site) -> list[Token]:
    """What naming an entity says."""
    word, parent = word_of(entity), parent_of(entity)
    said = [("is", entity)]
    if parent != entity:
        said.append(("part", parent))
    if word == "nic":
        said.append(("nic", parent))
    if word == "link":
        said += [("link", end) for end in site.ends(entity)]
    if word == "cluster":
        said += [("cluster", ""), ("cluster", f"{entity.rpartition('cluster:')[2]}:")]
    return said


def touch_of(said: Iterable[Token], near: Mapping[Token, Touch]) -> float:
    """How near what is said comes to a fault (``near``: its surroundings); infinite when it does not touch it."""
    return min((near[token] for token in said if token in near), default=math.inf)


def stands_on(incident: Incident, victims: frozenset[str]) -> bool:
    """Whether an incident names nothing but victims. Jobs and runs beside its own entity say nothing of a place."""
    if not host_of(incident.entity):
        return False
    placed = [e for e in incident.named if word_of(e) not in ("job", "run", "rank")]
    return all(host_of(e) in victims for e in placed)
