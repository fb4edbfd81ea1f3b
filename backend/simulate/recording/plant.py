"""The make-believe site of a recording: nodes of two makers in racks, their cards and ports, what exports them."""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

CLUSTERS = ("merlin", "osprey", "kestrel", "harrier")
NVIDIA_MODELS = ("NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA B200")
AMD_MODEL = "AMD Instinct MI300X OAM"
NODES_A_RACK = 4
RACKS_A_SWITCH = 2
#: Below this many nodes a site is of one maker only.
FEWEST_FOR_AMD = 6
#: Bus numbers of eight modules on each maker's board.
BUSES = {
    "nvidia": (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF),
    "amd": (0x05, 0x26, 0x46, 0x65, 0x85, 0xA6, 0xC6, 0xE5),
}
NICS_A_NODE = 4


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU: ``row`` is its place in every array of cards, ``pci`` is ``0000:9d:00``."""

    row: int
    node: int
    index: int
    uuid: str
    pci: str
    serial: str


@dataclass(frozen=True, slots=True)
class Port:
    row: int
    node: int
    name: str
    pci: str


@dataclass(frozen=True, slots=True)
class Node:
    """``style``: which names its GPU exporter uses: old, new or amd; ``full``: whether the optional metrics are on;
    ``pods``: whether its exporter adds pod labels instead of the Slurm job."""

    row: int
    name: str
    rack: str
    switch: str
    vendor: str
    model: str
    style: str
    full: bool
    pods: bool
    cards: tuple[Card, ...]
    ports: tuple[Port, ...]


@dataclass(frozen=True)
class Plant:
    """A whole site. Rows of cards and ports follow the rows of their nodes without gaps."""

    seed: int
    cluster: str
    nodes: tuple[Node, ...]
    cards_a_node: int

    @cached_property
    def cards(self) -> tuple[Card, ...]:
        return tuple(card for node in self.nodes for card in node.cards)

    @cached_property
    def ports(self) -> tuple[Port, ...]:
        return tuple(port for node in self.nodes for port in node.ports)

    @cached_property
    def node_of_card(self) -> NDArray[np.intp]:
        return np.array([card.node for card in self.cards], np.intp)

    @cached_property
    def node_of_port(self) -> NDArray[np.intp]:
        return np.array([port.node for port in self.ports], np.intp)


def plant(seed: int, nodes: int, cards: int) -> Plant:
    """The site of a seed: identities, exporters and models are all thrown from it."""
    dice = random.Random(f"plant/{seed}")
    cluster = CLUSTERS[seed % len(CLUSTERS)]
    model = dice.choice(NVIDIA_MODELS)
    amd = max(2, nodes // 6) if nodes >= FEWEST_FOR_AMD else 0
    made = [_node(dice, row, cards, "amd" if row >= nodes - amd else "nvidia", model) for row in range(nodes)]
    return Plant(seed, cluster, tuple(made), cards)


def _node(dice: random.Random, row: int, cards: int, vendor: str, model: str) -> Node:
    rack = row // NODES_A_RACK
    style = "amd" if vendor == "amd" else ("new" if rack % 3 == 2 or dice.random() < 0.15 else "old")
    buses = BUSES[vendor]
    made = tuple(
        Card(
            row * cards + index,
            row,
            index,
            f"GPU-{uuid.UUID(int=dice.getrandbits(128))}",
            f"{index // len(buses):04x}:{buses[index % len(buses)]:02x}:00",
            f"{dice.randrange(10**12):012d}",
        )
        for index in range(cards)
    )
    ports = tuple(
        Port(row * NICS_A_NODE + i, row, f"mlx5_{i}", f"0000:{0x18 + 0x22 * i:02x}:00") for i in range(NICS_A_NODE)
    )
    return Node(
        row,
        f"trn-r{rack + 1:02d}-{row % NODES_A_RACK + 1:02d}",
        f"r{rack + 1:02d}",
        f"leaf{rack // RACKS_A_SWITCH + 1:02d}",
        vendor,
        AMD_MODEL if vendor == "amd" else model,
        style,
        dice.random() < 0.5 or row % 2 == 0,
        dice.random() < 0.15,
        made,
        ports,
    )


def topology(site: Plant) -> dict[str, object]:
    """The site as ``topology.json`` of a bundle."""
    return {
        "nodes": [
            {
                "name": node.name,
                "rack": node.rack,
                "switch": node.switch,
                "model": node.model,
                "gpus": [
                    {
                        "index": card.index,
                        "uuid": card.serial if node.vendor == "amd" else card.uuid,
                        "pci_bus_id": f"0000{card.pci.upper()}.0",
                    }
                    for card in node.cards
                ],
            }
            for node in site.nodes
        ]
    }
