"""What load does to a GPU: power follows load and clock, heat follows power, the clock gives way to heat."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Round figures of an air-cooled 700 W card; plausible, not measured.
IDLE_W = 74.0
FULL_W = 655.0
LIMIT_W = 700.0
BOOST_MHZ = 1980.0
FLOOR_MHZ = 345.0
CLOCK_STEP_MHZ = 15.0
MEMORY_MHZ = 2619.0
#: Degrees a watt adds between inlet air and die, with a healthy fan.
K_PER_W = 0.058
WARMING_S = 22.0
#: Above this the card gives clock away, so many MHz a degree.
SLOWDOWN_C = 86.0
MHZ_PER_K = 48.0
HBM_ABOVE_DIE_C = 9.0


@dataclass(slots=True, eq=False)
class Silicon:
    """All GPUs as matter; every array is float64[n]. The first four never change: no two cards are alike."""

    inlet_c: Floats
    resistance: Floats
    draw: Floats
    top_mhz: Floats
    temperature_c: Floats
    power_w: Floats
    clock_mhz: Floats

    def step(self, load: Floats, cooling: Floats, dt_s: float, noise: np.random.Generator) -> None:
        """Move ``dt_s`` on. ``load`` 0..1 is work asked of each card; ``cooling`` 1 is a healthy fan, less a bad one.

        First-order warming; the clock follows the temperature of the moment, power the clock of the moment.
        """
        n = len(load)
        over = np.maximum(self.temperature_c - SLOWDOWN_C, 0.0)
        droop = 30.0 * load + noise.normal(0.0, 6.0, n)
        wanted = np.clip(self.top_mhz - droop - MHZ_PER_K * over, FLOOR_MHZ, self.top_mhz)
        self.clock_mhz = np.round(wanted / CLOCK_STEP_MHZ) * CLOCK_STEP_MHZ
        speed = self.clock_mhz / BOOST_MHZ
        drawn = IDLE_W + self.draw * load * speed**2 * (FULL_W - IDLE_W) + noise.normal(0.0, 4.0, n)
        self.power_w = np.clip(drawn, 40.0, LIMIT_W)
        target = self.inlet_c + self.resistance / cooling * self.power_w
        self.temperature_c = self.temperature_c + (target - self.temperature_c) * -np.expm1(-dt_s / WARMING_S)

    def settle(self, load: Floats, noise: np.random.Generator) -> None:
        """Start where a cluster that has run for hours would be, so that no start looks like a change."""
        for _ in range(12):
            self.step(load, np.ones(len(load)), 30.0, noise)


def silicon(cards_a_node: int, nodes: int, seed: int) -> Silicon:
    """Cold cards with their lifelong differences: place in the air stream, paste, leakage, highest clock."""
    dice = np.random.default_rng((seed, 1))
    n = cards_a_node * nodes
    behind = np.tile(np.where(np.arange(cards_a_node) % 2 == 1, 3.0, 0.0), nodes)
    inlet = 24.0 + behind + dice.normal(0.0, 0.7, n)
    zeros = np.zeros(n)
    return Silicon(
        inlet_c=inlet,
        resistance=K_PER_W * (1.0 + dice.normal(0.0, 0.02, n)),
        draw=1.0 + dice.normal(0.0, 0.012, n),
        top_mhz=np.full(n, BOOST_MHZ),
        temperature_c=inlet + 4.0,
        power_w=zeros + IDLE_W,
        clock_mhz=zeros + BOOST_MHZ,
    )
