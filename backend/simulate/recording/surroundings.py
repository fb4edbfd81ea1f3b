"""Hosts, ports and mounts of a recording, one scrape after the other: what the node exporter would count."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from backend.simulate.recording.doings import Doing
from backend.simulate.recording.effects import Field, Floats
from backend.simulate.recording.noise import Noise
from backend.simulate.recording.plant import Plant
from backend.simulate.recording.work import Phase

PHASES = 8
OPERATIONS = ("READ", "WRITE", "GETATTR")
#: By phase (none, init, load, steps, eval, save, stall, teardown): interrupts and context switches a second, runnable
#: processes a card, calls a second of each operation.
INTERRUPTS = np.array([1_200.0, 5_000.0, 7_000.0, 10_000.0, 8_000.0, 6_000.0, 2_800.0, 3_000.0])
SWITCHES = np.array([4_000.0, 30_000.0, 38_000.0, 52_000.0, 45_000.0, 30_000.0, 9_000.0, 9_000.0])
RUNNABLE = np.array([0.05, 2.0, 2.2, 4.2, 3.4, 1.6, 0.2, 0.3])
CALLS = np.array([
    [0.2, 20.0, 1_900.0, 45.0, 25.0, 8.0, 0.4, 1.0],
    [0.3, 1.0, 1.0, 2.0, 1.0, 2_300.0, 0.3, 1.0],
    [3.0, 60.0, 25.0, 9.0, 9.0, 30.0, 3.0, 4.0],
])  # fmt: skip
#: Seconds an operation takes on a healthy server, and which share of that is queueing; a save saturates the slots.
ANSWER_S = np.array([0.004, 0.008, 0.0012])
SAVE_ANSWER_S, SAVE_QUEUE = 0.11, 0.9
CALL_BYTES = 1_048_576.0
PORT_BYTES_A_S, PORT_RATE = 1.8e10, 5.0e10
MEMORY_BYTES, ROOT_BYTES, STORE_BYTES = 2.16e12, 9.6e11, 2.0e15
CPUS = 96
#: Share of ports whose fibres make a symbol error now and then.
DUSTY_SHARE = 0.05


class Hosts:
    """State of hosts, ports and mounts between scrapes. Operations: rows are node * 3 + operation."""

    def __init__(self, site: Plant, start: float, interval_s: float) -> None:
        self._site, self._start, self._dt = site, start, interval_s
        n, ports = len(site.nodes), len(site.ports)
        dice = np.random.default_rng((site.seed, 31))
        self._boot = start - dice.uniform(3.0, 60.0, n).round(2) * 86_400.0
        self._node = {name: np.floor(dice.uniform(0.1, 1.0, n) * most) for name, most in (
            ("interrupts", 4e10), ("switches", 2e11), ("paged_out", 8e10), ("paged_in", 9e10), ("cpu_user", 4e7),
            ("cpu_system", 6e6), ("cpu_wait", 2e5), ("edac_ce", 20.0))}  # fmt: skip
        self._port = {name: np.floor(dice.uniform(0.1, 1.0, ports) * most) for name, most in (
            ("rx", 5e17), ("tx", 5e17), ("wait", 5e11), ("symbols", 3.0), ("discards", 2.0))}  # fmt: skip
        self._call = {name: np.floor(dice.uniform(0.1, 1.0, 3 * n) * most) for name, most in (
            ("calls", 2e8), ("queue_s", 2e5), ("answer_s", 4e5), ("call_s", 6e5), ("sent", 3e13),
            ("received", 3e13))}  # fmt: skip
        self._backlog = np.floor(dice.uniform(0.1, 1.0, n) * 1e9)
        self._load1 = np.full(n, 1.0)
        self._used = dice.uniform(0.25, 0.5, n)
        self._habit = dice.normal(1.0, 0.06, n)
        self._dusty = np.where(dice.random(ports) < DUSTY_SHARE, dice.uniform(2e-5, 4e-4, ports), 0.0)

    def reboot(self, row: int, at: float) -> None:
        self._boot[row] = round(at, 2)
        for name in self._node:
            self._node[name][row] = 0.0
        ports = [port.row for port in self._site.nodes[row].ports]
        for name in self._port:
            self._port[name][ports] = 0.0
        for name in self._call:
            self._call[name][3 * row : 3 * row + 3] = 0.0
        self._backlog[row] = 0.0

    def step(
        self, doing: Doing, speed: Floats, now: Floats, field: Field, noise: Noise
    ) -> dict[str, dict[str, Floats]]:
        """One scrape interval on. ``now`` float64[nodes], ``speed`` float64[runs]; readings by axis and name."""
        wait = field.read("nfs_wait", now)
        pace = np.where(doing.phase == Phase.STEPS, speed[doing.run], 1.0)
        return {
            "node": self._nodes(doing.phase, pace, now, field, noise.hosts),
            "nic": self._ports(doing.phase, pace, now, field, noise),
            "call": self._calls(doing.phase, pace, wait, noise.hosts),
            "mount": self._mounts(doing.phase, now, wait, field, noise.hosts),
        }

    def _nodes(
        self, phase: NDArray[np.int8], pace: Floats, now: Floats, field: Field, noise: np.random.Generator
    ) -> dict[str, Floats]:
        n, dt, count = len(now), self._dt, self._node
        drowsy = field.read("drowsy", now)
        runnable = RUNNABLE[phase] * self._site.cards_a_node * drowsy
        jitter = noise.normal(1.0, 0.02, (3, n))
        count["interrupts"] += np.floor(INTERRUPTS[phase] * self._habit * drowsy * (0.4 + 0.6 * pace) * dt * jitter[0])
        count["switches"] += np.floor(SWITCHES[phase] * self._habit * drowsy * (0.4 + 0.6 * pace) * dt * jitter[1])
        count["paged_out"] += np.floor((300.0 + 1024.0 * CALLS[1][phase] * drowsy) * dt * jitter[2])
        count["paged_in"] += np.floor((100.0 + 1024.0 * CALLS[0][phase] * drowsy) * dt * jitter[2])
        busy = runnable / CPUS
        count["cpu_user"] += np.round(CPUS * np.clip(busy, 0.0, 1.0) * 0.9 * dt, 2)
        count["cpu_system"] += np.round(CPUS * np.clip(busy, 0.0, 1.0) * 0.1 * dt + 0.3, 2)
        count["cpu_wait"] += np.round(0.02 * dt * (1.0 + CALLS[1][phase] * 0.01), 2)
        self._load1 += (np.maximum(runnable, 0.3) - self._load1) * -np.expm1(-dt / 60.0)
        held = 0.06 + 0.11 * (phase > Phase.INIT) + field.read("memory_share", now)
        skew = field.read("skew_s", now) + noise.normal(0.0, 2e-5, n)
        return {
            **{name: values.copy() for name, values in count.items() if name != "edac_ce"},
            "edac_ce": count["edac_ce"] + np.floor(field.read("edac_ce", now)),
            "edac_ue": field.read("edac_ue", now),
            "running": np.maximum(np.round(runnable + noise.normal(0.0, 0.6, n)), 1.0),
            "blocked": np.round(CALLS[1][phase] * 0.004 + noise.random(n) * 0.6),
            "load1": np.round(self._load1 + noise.normal(0.0, 0.15, n).clip(-0.25), 2),
            "memory_free": np.round(MEMORY_BYTES * np.clip(1.0 - held, 0.004, 1.0) * noise.normal(1.0, 0.001, n)),
            "memory": np.full(n, MEMORY_BYTES),
            "boot": self._boot.copy(),
            "time": np.round(now + skew, 3),
            "offset": np.round(skew, 9),
            "in_step": (np.abs(skew) < 1.0).astype(np.float64),
            "killed": field.read("killed", now),
            "backlog": self._backlog.copy(),
        }  # fmt: skip

    def _ports(
        self, phase: NDArray[np.int8], pace: Floats, now: Floats, field: Field, noise: Noise
    ) -> dict[str, Floats]:
        of = self._site.node_of_port
        moments, n = now[of], len(self._site.ports)
        down, slower = field.read("down", moments) > 0, field.read("pace", moments)
        work = np.where(phase == Phase.STEPS, pace, np.where(phase == Phase.EVAL, 0.3, 0.0))[of]
        moved = np.where(down, 0.0, PORT_BYTES_A_S * work * (0.3 + 0.7 * slower) + 2e4) * self._dt
        self._port["rx"] += np.floor(moved * noise.hosts.normal(1.0, 0.01, n))
        self._port["tx"] += np.floor(moved * noise.hosts.normal(1.0, 0.01, n))
        crowd = 2e5 * work * (1.0 + 30.0 * field.read("congestion", moments))
        self._port["wait"] += np.floor(crowd * self._dt * noise.hosts.normal(1.0, 0.1, n).clip(0.3))
        self._port["symbols"] += noise.rare.poisson(
            (1e-6 + self._dusty + field.read("symbols_a_s", moments)) * self._dt
        )
        return {
            **{name: values.copy() for name, values in self._port.items()},
            "state": np.where(down, 1.0, 4.0),
            "physical": np.where(down, 3.0, 5.0),
            "rate": np.where(slower <= 0.55, PORT_RATE / 2, PORT_RATE),
            "downs": field.read("downs", moments),
        }

    def _calls(
        self, phase: NDArray[np.int8], pace: Floats, wait: Floats, noise: np.random.Generator
    ) -> dict[str, Floats]:
        saves = phase == Phase.SAVE
        answer = np.outer(ANSWER_S, wait)
        answer[1] = np.where(saves, SAVE_ANSWER_S * wait, answer[1])
        answer = answer * noise.lognormal(0.0, 0.08, answer.shape)
        queue = np.where(saves, SAVE_QUEUE, 0.1) * np.ones((3, 1)) * answer
        calls = np.floor(CALLS[:, phase] * np.where(phase == Phase.STEPS, pace, 1.0) / np.sqrt(wait) * self._dt
                         * noise.lognormal(0.0, 0.06, answer.shape))  # fmt: skip
        self._backlog += np.floor(np.where(saves, 90.0, 0.1) * calls.sum(axis=0) * 0.01 * wait)
        grown = {
            "calls": calls,
            "queue_s": calls * queue,
            "answer_s": calls * (answer - queue),
            "call_s": calls * (answer + 1e-5),
            "sent": calls * np.array([[180.0], [CALL_BYTES + 200.0], [160.0]]),
            "received": calls * np.array([[CALL_BYTES + 120.0], [140.0], [112.0]]),
        }
        for name, more in grown.items():
            digits = 3 if name.endswith("_s") else 0
            self._call[name] = np.round(self._call[name] + np.round(more.T.reshape(-1), digits), digits)
        return {name: values.copy() for name, values in self._call.items()}

    def _mounts(
        self, phase: NDArray[np.int8], now: Floats, wait: Floats, field: Field, noise: np.random.Generator
    ) -> dict[str, Floats]:
        """``/`` of each node, then the shared store as each node sees it."""
        used = np.clip(self._used + field.read("root_share", now) + noise.normal(0.0, 2e-5, len(now)), 0.0, 1.0)
        store = np.clip(0.31 + field.read("store_share", now) + 1e-7 * (now - self._start), 0.0, 1.0)
        free = np.concatenate([ROOT_BYTES * (1.0 - used), STORE_BYTES * (1.0 - store)])
        size = np.concatenate([np.full(len(now), ROOT_BYTES), np.full(len(now), STORE_BYTES)])
        return {"free": np.round(free / 4096.0) * 4096.0, "capacity": size}
