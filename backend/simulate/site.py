"""The make-believe cluster before anything happens in it: racks, nodes, GPUs, and who trains on them."""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass

RACKS = 6
NODES_A_RACK = 8
CARDS_A_NODE = 8
CARD_MODEL = "NVIDIA H100 80GB HBM3"
#: Bus numbers of the eight SXM modules of an HGX board, in the order of their index.
BUSES = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU: ``row`` is its place in every array of the simulation, ``pci`` is ``0000:9d:00``."""

    row: int
    node: str
    index: int
    uuid: str
    pci: str


@dataclass(frozen=True, slots=True)
class Machine:
    row: int
    name: str
    rack: str
    switch: str
    cards: tuple[Card, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """A training run. ``load`` is the share of full power its steps draw, ``memory_mib`` what it holds per GPU."""

    name: str
    user: str
    nodes: int
    load: float
    memory_mib: int
    first_job: int


@dataclass(frozen=True, slots=True)
class Site:
    seed: int
    machines: tuple[Machine, ...]
    runs: tuple[Run, ...]

    @property
    def cards(self) -> tuple[Card, ...]:
        return tuple(card for machine in self.machines for card in machine.cards)


RUNS = (
    Run("atlas-70b-pretrain", "lena", 16, 0.94, 73_400, 41_207),
    Run("moe-8x22b", "tomas", 16, 0.88, 70_100, 41_233),
    Run("vision-sft", "amira", 8, 0.79, 61_800, 41_251),
)


def site(seed: int) -> Site:
    """The same site for the same seed: names never change, device identities come from the seed."""
    dice = random.Random(f"site/{seed}")
    machines: list[Machine] = []
    for row in range(RACKS * NODES_A_RACK):
        name, rack = f"gpu-{row + 1:03d}", row // NODES_A_RACK + 1
        cards = tuple(
            Card(
                row * CARDS_A_NODE + index, name, index, f"GPU-{uuid.UUID(int=dice.getrandbits(128))}", f"0000:{bus}:00"
            )
            for index, bus in enumerate(BUSES)
        )
        machines.append(Machine(row, name, f"rack-{rack}", f"leaf-{(rack + 1) // 2}", cards))
    return Site(seed, tuple(machines), RUNS)


def topology(place: Site) -> dict[str, object]:
    """The site as ``topology.json`` of the replay bundle."""
    return {
        "nodes": [
            {
                "name": machine.name,
                "rack": machine.rack,
                "switch": machine.switch,
                "model": CARD_MODEL,
                "gpus": [
                    {"index": card.index, "uuid": card.uuid, "pci_bus_id": f"0000{card.pci.upper()}.0"}
                    for card in machine.cards
                ],
            }
            for machine in place.machines
        ]
    }
