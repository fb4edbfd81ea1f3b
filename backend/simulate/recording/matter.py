"""The cards of a recording as matter, one scrape after the other: work asked, heat, clocks, and what they count."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from backend.simulate.physics import BOOST_MHZ, HBM_ABOVE_DIE_C, MEMORY_MHZ, SLOWDOWN_C, Floats, silicon
from backend.simulate.recording.doings import Doing
from backend.simulate.recording.effects import Field
from backend.simulate.recording.noise import Noise
from backend.simulate.recording.plant import Plant
from backend.simulate.recording.work import Phase, Run

#: Share of a run's own load that each phase asks of a card, but for steps; a rank that waits spins.
ASKED = {
    Phase.INIT: 0.04,
    Phase.LOAD: 0.06,
    Phase.EVAL: 0.72,
    Phase.SAVE: 0.10,
    Phase.STALL: 0.15,
    Phase.TEARDOWN: 0.03,
}
SUBSTEP_S = 5.0
DAY_S = 86_400.0
DAILY_C = 1.8
LINK_BYTES_A_S = 2.1e11
PCIE_BYTES_A_S = 9.0e9
MEMORY_MIB = {"nvidia": 81_559.0, "amd": 196_592.0}
OWN_MIB = 620.0
#: Bits of the clock event mask.
IDLE, POWER_CAP, THERMAL, HARD_THERMAL, BRAKE, HARD = 0x1, 0x4, 0x20, 0x40, 0x80, 0x8
#: How long and how far loads wander by themselves, and how many cards have a PCIe link that replays now and then.
WANDER_S, RUN_WANDERS, CARD_WANDERS, FLAKY_SHARE = 700.0, 0.02, 0.012, 0.03
#: What DCGM answers for a field it has no value of.
BLANK = 9_223_372_036_854_775_794.0
COUNTED = ("energy", "links", "replays", "sbe", "crc", "power_ns", "thermal_ns")


class Cards:
    """State of all cards between scrapes; every array is float64[cards]."""

    def __init__(self, site: Plant, runs: tuple[Run, ...], interval_s: float) -> None:
        n = len(site.cards)
        self._site, self._runs, self._dt = site, runs, interval_s
        self._matter = silicon(site.cards_a_node, len(site.nodes), site.seed)
        self._inlet = self._matter.inlet_c.copy()
        racks = sorted({node.rack for node in site.nodes})
        self._rack = np.array([racks.index(node.rack) for node in site.nodes])[site.node_of_card]
        self._rack_c = np.random.default_rng((site.seed, 21)).normal(0.0, 0.8, len(racks))
        dice = np.random.default_rng((site.seed, 22))
        self._counts: dict[str, Floats] = {
            name: np.floor(dice.uniform(0.0, most, n))
            for name, most in (("energy", 4e13), ("links", 8e17), ("replays", 3.0), ("sbe", 2.0), ("crc", 1.0),
                               ("power_ns", 3e12), ("thermal_ns", 1e6))
        }  # fmt: skip
        self._old_rows = np.floor(dice.exponential(0.25, n))
        self._shown_xid, self._raw_xid = np.zeros(n), np.zeros(n)
        self._load_of = np.array([run.load for run in runs] + [0.0])
        self._held_of = np.array([float(run.memory_mib) for run in runs] + [0.0])
        self._size = np.array([MEMORY_MIB[node.vendor] for node in site.nodes])[site.node_of_card]
        self.speed = np.ones(len(runs))
        self._mood, self._habit = np.zeros(len(runs) + 1), np.zeros(n)
        self._flaky = np.where(dice.random(n) < FLAKY_SHARE, dice.uniform(2e-5, 2e-4, n), 0.0)

    def settle(self, doing: Doing, now: Floats, field: Field) -> None:
        """Begin as a cluster that has been at work for a while."""
        for _ in range(6):
            self.step(doing, now, field, Noise.of(self._site.seed, 1 << 40))

    def reboot(self, rows: NDArray[np.intp]) -> None:
        for name in COUNTED:
            self._counts[name][rows] = 0.0
        self._shown_xid[rows] = 0.0

    def forget_codes(self, rows: NDArray[np.intp]) -> None:
        """An exporter that starts anew has seen no Xid yet."""
        self._shown_xid[rows] = 0.0

    def step(self, doing: Doing, now: Floats, field: Field, noise: Noise) -> dict[str, Floats]:
        """One scrape interval on. ``now`` float64[cards]; readings by name, float64[cards]."""
        of_card = self._site.node_of_card
        phase, run = doing.phase[of_card], doing.run[of_card]
        read = {name: field.read(name, now) for name in ("brake", "cooling", "inlet_c", "gone", "lanes", "links")}
        off = (field.read("off", now[:: self._site.cards_a_node])[of_card] > 0) | (read["gone"] > 0)
        self._wander(noise.cards)
        load = np.where(off, 0.0, self._asked(phase, run, now, off, field))
        self._warm(load, now, read, noise.cards)
        self._count(load, phase, run, now, read, field, noise)
        return self._readings(load, phase, run, now, read, field, noise.cards)

    def _wander(self, noise: np.random.Generator) -> None:
        """Batches differ: a run's load wanders with all of its cards, a card's own a little for itself."""
        keep = math.exp(-self._dt / WANDER_S)
        new = math.sqrt(1.0 - keep**2)
        self._mood = self._mood * keep + noise.normal(0.0, RUN_WANDERS * new, len(self._mood))
        self._habit = self._habit * keep + noise.normal(0.0, CARD_WANDERS * new, len(self._habit))

    def _asked(self, phase: NDArray[np.int8], run: NDArray[np.intp], now: Floats,
               off: NDArray[np.bool_], field: Field) -> Floats:  # fmt: skip
        """Work asked, 0..1. A job steps as its slowest card does, so that the others wait for part of each step.

        What binds cards of several nodes is taken at the earliest of their times: no node shows what comes later.
        """
        vigour = field.read("vigour", np.full(len(now), float(now.min())))
        moments = np.full(len(self._runs), float(now.min()))
        feed, mix = field.read("feed", moments), field.read("mix", moments)
        own = self._matter.clock_mhz / BOOST_MHZ * vigour
        load = np.zeros(len(now))
        for kind, share in ASKED.items():
            load[phase == kind] = share
        steps = phase == Phase.STEPS
        self.speed = self.speed.copy()
        for row in range(len(self._runs)):
            held = (run == row) & steps & ~off
            if held.any():
                slowest = float(own[held].min()) * feed[row]
                self.speed[row] = slowest / (0.5 + 0.5 * mix[row])
                wait = np.minimum(slowest / np.maximum(own[held], 0.05) + 0.25, 1.25) / 1.25
                load[held] = self._load_of[row] * mix[row] * wait * (1.0 + self._mood[row] + self._habit[held])
        load[phase == Phase.EVAL] *= self._load_of[run[phase == Phase.EVAL]]
        return load

    def _warm(self, load: Floats, now: Floats, read: dict[str, Floats], noise: np.random.Generator) -> None:
        matter, n = self._matter, len(load)
        day = DAILY_C * np.sin(2 * math.pi * (now / DAY_S - 0.38)) * (1.0 + 0.15 * self._rack_c[self._rack])
        matter.inlet_c = self._inlet + self._rack_c[self._rack] + day + read["inlet_c"]
        matter.top_mhz = BOOST_MHZ * read["brake"]
        steps = max(1, math.ceil(self._dt / SUBSTEP_S))
        for _ in range(steps):
            asked = np.clip(load + noise.normal(0.0, 0.01, n) * (load > 0.02), 0.0, 1.0)
            matter.step(asked, read["cooling"], self._dt / steps, noise)

    def _count(self, load: Floats, phase: NDArray[np.int8], run: NDArray[np.intp], now: Floats, read: dict[str, Floats],
               field: Field, noise: Noise) -> None:  # fmt: skip
        dt, counts = self._dt, self._counts
        work = np.where(phase == Phase.STEPS, self.speed[run], np.where(phase == Phase.EVAL, 0.35, 0.0))
        counts["energy"] += np.floor(self._matter.power_w * dt * 1000.0)
        counts["links"] += np.floor(
            LINK_BYTES_A_S * work * read["links"] * dt * noise.cards.normal(1.0, 0.01, len(load))
        )
        counts["replays"] += noise.rare.poisson((2e-6 + self._flaky + field.read("replays_a_s", now)) * dt)
        counts["sbe"] += noise.rare.poisson((1e-6 + field.read("sbe_a_s", now)) * dt)
        counts["crc"] += noise.rare.poisson((1e-7 + field.read("crc_a_s", now)) * dt)
        counts["power_ns"] += np.where(self._matter.power_w > 640.0, 0.02 * dt * 1e9, 0.0).round()
        counts["thermal_ns"] += np.where(self._matter.temperature_c > SLOWDOWN_C, 0.7 * dt * 1e9, 0.0).round()

    def _readings(self, load: Floats, phase: NDArray[np.int8], run: NDArray[np.intp], now: Floats,
                  read: dict[str, Floats], field: Field, noise: np.random.Generator) -> dict[str, Floats]:  # fmt: skip
        matter, n = self._matter, len(load)
        held = np.where(phase >= Phase.LOAD, self._held_of[run] + np.arange(n) % 8 * 2.0, OWN_MIB)
        held = np.where(phase == Phase.INIT, OWN_MIB + 900.0, held)
        spins = (phase == Phase.STALL) & (load > 0)
        steps = (phase == Phase.STEPS) | (phase == Phase.EVAL)
        util = np.where(
            steps, np.clip(100.0 - noise.integers(0, 4, n) - 30.0 * (load < 0.45), 0.0, 100.0), np.round(load * 250.0)
        )
        util = np.where(spins, 100.0, np.where(load > 0.0, util, 0.0))
        lanes = read["lanes"]
        bytes_ = np.where(phase == Phase.LOAD, 3.0, load) * PCIE_BYTES_A_S * lanes / 16.0 * noise.normal(1.0, 0.03, n)
        return {
            "temperature": np.round(matter.temperature_c),
            "memory_temperature": np.round(matter.temperature_c + HBM_ABOVE_DIE_C * (0.5 + 0.5 * load)),
            "power": np.round(matter.power_w, 3),
            "clock": matter.clock_mhz.copy(),
            "memory_clock": np.full(n, MEMORY_MHZ),
            "util": util,
            "copy_util": np.round(np.clip(load * 55.0 + noise.normal(0.0, 1.5, n), 0.0, 100.0) * (load > 0.05)),
            "none": np.zeros(n),
            "used": held,
            "free": self._size - held - 560.0,
            "reserved": np.full(n, 560.0),
            "size": self._size,
            "pcie_tx": np.round(np.clip(bytes_ * 0.4, 0.0, None)),
            "pcie_rx": np.round(np.clip(bytes_, 0.0, None)),
            "lanes": lanes,
            "pcie_gen": np.full(n, 5.0),
            **self._profile(load, spins, noise),
            **self._health(now, field),
            "mask": self._mask(load, read["brake"]),
        }  # fmt: skip

    def _profile(self, load: Floats, spins: NDArray[np.bool_], noise: np.random.Generator) -> dict[str, Floats]:
        """Profiling fields: a rank that spins keeps its engine busy and its tensor cores idle."""
        n = len(load)
        active = np.clip(np.where(spins, 0.98, load * 1.03), 0.0, 1.0)
        return {
            "gr_active": np.round(active, 6),
            "sm_active": np.round(active * 0.93, 6),
            "occupancy": np.round(active * 0.41, 6),
            "tensor": np.round(np.where(spins, 0.0, load * 0.62) * noise.normal(1.0, 0.01, n).clip(0.9, 1.1), 6),
            "fp16": np.round(np.where(spins, 0.0, load * 0.05), 6),
            "fp32": np.round(np.where(spins, 0.01, load * 0.08), 6),
            "dram": np.round(np.clip(np.where(spins, 0.02, load * 0.48) * noise.normal(1.0, 0.02, n), 0.0, 1.0), 6),
        }

    def _health(self, now: Floats, field: Field) -> dict[str, Floats]:
        """Error counters and states of repair."""
        mended, bad = field.read("rows_mended", now), field.read("rows_bad", now)
        return {
            "healthy": (field.read("dbe", now) == 0.0).astype(np.float64),
            "xid": self._xid(now, field),
            "dbe": field.read("dbe", now),
            "dbe_all": field.read("dbe", now),
            "sbe": self._counts["sbe"].copy(),
            "sbe_all": self._counts["sbe"] + self._old_rows,
            "rows_bad": bad,
            "rows_mended": self._old_rows + mended,
            "remap_failed": field.read("remap_failed", now),
            "remap_pending": field.read("remap_pending", now),
            "recovery": field.read("recovery", now),
            "fabric": np.where(field.read("fabric", now) > 0, 2.0, 1.0),
            **{name: self._counts[name].copy() for name in COUNTED if name != "sbe"},
            "energy_uj": self._counts["energy"] * 1000.0,
        }

    def _xid(self, now: Floats, field: Field) -> Floats:
        raw = field.read("xid", now)
        self._shown_xid = np.where(raw != self._raw_xid, raw, self._shown_xid)
        self._raw_xid = raw
        return self._shown_xid.copy()

    def _mask(self, load: Floats, brake: Floats) -> Floats:
        matter = self._matter
        mask = np.where(load < 0.01, IDLE, 0) + np.where(matter.power_w > 640.0, POWER_CAP, 0)
        hot = matter.temperature_c - SLOWDOWN_C
        mask = mask + np.where(hot > 0.0, THERMAL, 0) + np.where(hot > 6.0, HARD_THERMAL | HARD, 0)
        return (mask + np.where(brake < 1.0, BRAKE | HARD, 0)).astype(np.float64)
