"""InfiniBand as ibnetdiscover prints it: which port of which node is plugged into which leaf."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from backend.clients.hostlist import is_host
from backend.facts import Batch, CableFacts, NodeFacts
from backend.ingest.base import SourceError
from backend.ingest.rows import decoded

#: ``Ca  2 "H-08c0eb0300a1b2c4"  # "gpu-0412 mlx5_0"``; routers and switches alike (ibnetdiscover(8)).
_HEAD = re.compile(
    r'^(?P<kind>Switch|Ca|Rt)\s+\d{1,4}\s+"(?P<id>[SHR]-[0-9a-fA-F]{1,32})"\s*#\s*"(?P<text>[^"]{0,255})"'
)
#: ``[1](8c0eb0300a1b2c4)  "S-b83fd20300c0ffee"[17]  # lid ...``; what stands behind the peer's port is a comment.
_LINK = re.compile(
    r'^\[(?P<port>\d{1,4})\](?:\([0-9a-fA-F]{1,32}\))?\s+"(?P<peer>[SHR]-[0-9a-fA-F]{1,32})"\[(?P<to>\d{1,4})\]'
)
#: Managed switches call themselves ``MF0;leaf01:MQM9700/U1``.
_MANAGED = re.compile(r"^MF\d;(?P<name>[^:]{1,80}):")
#: The switches' own processors stand in the list as adapters.
_NO_NODE = re.compile(r"aggregation node|^mellanox|^nvidia|technologies", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Adapter:
    """One HCA of a host: ``device`` is its name there, ports to (switch id, switch port)."""

    node: str
    device: str
    ports: Mapping[int, tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Fabric:
    """What one print tells. switches: id to name. ``unread``: adapters whose description names no host."""

    switches: Mapping[str, str]
    adapters: tuple[Adapter, ...]
    unread: int


def parse(text: str) -> Fabric:
    """Never raises; lines that say nothing about a node or a link are passed by."""
    heads: dict[str, tuple[str, str]] = {}
    links: defaultdict[str, dict[int, tuple[str, int]]] = defaultdict(dict)
    current = ""
    for line in text.splitlines():
        line = line.strip()
        if head := _HEAD.match(line):
            current = head["id"]
            heads[current] = (head["kind"], head["text"].strip())
        elif current and (link := _LINK.match(line)):
            links[current][int(link["port"])] = (link["peer"], int(link["to"]))
        elif not line:
            current = ""
    adapters: list[Adapter] = []
    unread = 0
    for id_, (kind, words) in heads.items():
        if kind != "Ca" or _NO_NODE.search(words):
            continue
        node, device = _host(words)
        if not node:
            unread += 1
            continue
        to = {port: peer for port, peer in links[id_].items() if peer[0].startswith("S-")}
        adapters.append(Adapter(node, device or id_, to))
    names = _names({id_: words for id_, (kind, words) in heads.items() if kind == "Switch"})
    return Fabric(names, tuple(adapters), unread)


def _host(words: str) -> tuple[str, str]:
    """``gpu-0412 mlx5_0`` and ``gpu-0412 HCA-1``: the host, and the adapter's name on it."""
    node, _, device = words.partition(" ")
    return (node, device.strip().split(" ")[0]) if is_host(node) else ("", "")


def _names(described: Mapping[str, str]) -> dict[str, str]:
    """A switch by what it calls itself, where no other does; else by its id."""
    called = {id_: (found["name"] if (found := _MANAGED.match(words)) else words) for id_, words in described.items()}
    often = Counter(called.values())
    return {
        id_: name if name and often[name] == 1 and not _NO_NODE.search(name) else id_ for id_, name in called.items()
    }


def cables_of(fabric: Fabric) -> tuple[CableFacts, ...]:
    """Every port that ends in a switch. A leaf into which only adapters of one name are plugged, on several nodes, is
    that adapter's rail."""
    devices: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for adapter in fabric.adapters:
        for switch, _ in adapter.ports.values():
            devices[switch][adapter.device] += 1
    rail = {id_: next(iter(by)) for id_, by in devices.items() if len(by) == 1 and by.total() > 1}
    rail = rail if len(set(rail.values())) > 1 else {}  # one adapter a node makes no rails
    return tuple(
        CableFacts(
            one.node, f"{one.device}/{port}", fabric.switches.get(switch, switch), str(to), "ib", rail.get(switch, "")
        )
        for one in fabric.adapters
        for port, (switch, to) in sorted(one.ports.items())
    )


def infiniband_batch(body: bytes, now: float) -> Batch:
    """Cables of one print, and the leaf of each node that has only one. ``now`` in unix s.

    Raises SourceError(permanent=True) where no adapter of a host is in it.
    """
    text, _ = decoded(body)
    fabric = parse(text if isinstance(text, str) else text.decode())
    if not fabric.adapters:
        raise SourceError(
            "No host's adapter is in this text. Send what ibnetdiscover prints, where adapters are described by their "
            'host: Ca 1 "H-..." # "gpu-0412 mlx5_0".',
            permanent=True,
        )
    cables = cables_of(fabric)
    dropped = {"adapters that name no host": fabric.unread} if fabric.unread else {}
    return Batch("topology", now, now, nodes=tuple(_leaves(cables)), cables=cables, dropped=dropped)


def _leaves(cables: Iterable[CableFacts]) -> Iterable[NodeFacts]:
    leaves: defaultdict[str, set[str]] = defaultdict(set)
    for cable in cables:
        leaves[cable.node].add(cable.peer)
    return (NodeFacts(node, switch=next(iter(at)) if len(at) == 1 else "") for node, at in leaves.items())
