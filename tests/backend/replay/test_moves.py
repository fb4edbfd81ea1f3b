"""Fleets change while levels hold: nodes come, a GPU is swapped, a card shows its UUID, a node moves to another rack, a
job starts. Levels stay with their devices, also when the process dies at that very moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlmodel import select

from backend import pipeline
from backend.clock import ManualClock, utc
from backend.facts import AttemptFacts, Batch, DeviceLabel, GpuFacts, NodeFacts
from backend.history import History
from backend.model.events import Finding
from backend.store.engine import Store
from backend.watch import Watch
from detectors.detector import arrays_of
from tests.backend.replay.live import T0, TICK_S, jobs, label, name, nodes, scrape, watch_on
from tests.backend.replay.mortal import between

NODES, GPUS = 3, 4
#: The GPU that runs hot and the one that falls silent.
HOT, SILENT = label(0, 1), label(2, 2)
OFF = {"temperature_c": 30.0, "sm_clock_mhz": -600.0}


class Site:
    """A watch that has seen a GPU run hot and another one fall silent, and the scrapes that led there."""

    def __init__(self, store: Store, devices: Sequence[DeviceLabel]) -> None:
        self.store = store
        self.clock = ManualClock(utc(T0))
        self.watch = watch_on(store, self.clock)
        self.devices = list(devices)
        self.scraped: list[Batch] = []
        self.n = 0

    def take(self, batch: Batch) -> None:
        pipeline.accept(self.watch, batch)

    def ticks(self, count: int, *, hot: DeviceLabel = HOT, silent: DeviceLabel | None = SILENT) -> None:
        for _ in range(count):
            self.n += 1
            at = T0 + self.n * TICK_S
            self.clock.set(utc(at))
            heard = [d for d in self.devices if d != silent]
            batch = scrape(at, heard, off=OFF, odd=hot.uuid)
            self.scraped.append(batch)
            self.take(batch)
            while pipeline.observe(self.watch):
                pass

    def restart(self) -> None:
        """Kill -9, and the first read of the source."""
        self.watch = watch_on(self.store, self.clock)
        since, now = self.watch.ring.behind_since(), T0 + self.n * TICK_S
        if since is not None:
            pipeline.accept(self.watch, between(self.scraped, since, now), pushed=False)

    def levels(self) -> dict[tuple[str, str], bool]:
        """(kind, entity) of every finding ever raised, and whether it holds."""
        with self.store.read() as session:
            rows = session.exec(select(Finding)).all()
        assert len({(row.kind, row.entity_name) for row in rows}) == len(rows), "a level was raised twice"
        return {(row.kind, row.entity_name): row.cleared_at is None for row in rows}


def more_nodes(site: Site) -> None:
    # Nodes whose names sort before, between and behind the others.
    for host in ("aaa-0001", "gpu-0000b", "zzz-0001"):
        gpus = tuple(GpuFacts(g, f"GPU-{host}-{g}", f"0000:{16 + g:02x}:00", "H100") for g in range(GPUS))
        site.take(Batch("topology", 0, 0, nodes=(NodeFacts(host, gpus=gpus, expected_gpus=GPUS),)))
        site.devices += [DeviceLabel("gpu", host, g.uuid, g.pci, str(g.index), "H100") for g in gpus]


def another_rack(site: Site) -> None:
    moved = tuple(replace(node, rack="elsewhere") for node in nodes(NODES, GPUS))
    site.take(Batch("topology", 0, 0, nodes=moved))


def another_job(site: Site) -> None:
    now = T0 + site.n * TICK_S
    gone = AttemptFacts("7", 0, "train", "ada", "COMPLETED", T0, T0, T0, now, tuple(name(n) for n in range(NODES)), 8)
    new = AttemptFacts("8", 0, "next", "ada", "RUNNING", now, now, now, None, tuple(name(n) for n in range(NODES)), 8)
    site.take(Batch("jobs", now, now, attempts=(gone, new)))


def a_swapped_card(site: Site) -> None:
    """Another card in a slot of the hot one's node; neither of the two that are ill."""
    old = label(0, 3)
    new = replace(old, uuid="GPU-new")
    site.devices = [new if d == old else d for d in site.devices]


@pytest.mark.parametrize("dies", [False, True], ids=["lives", "dies"])
@pytest.mark.parametrize("change", [more_nodes, another_rack, another_job, a_swapped_card])
def test_levels_stay_with_their_devices_while_the_fleet_changes(
    store: Store, change: Callable[[Site], None], dies: bool
) -> None:
    site = Site(store, [label(n, g) for n in range(NODES) for g in range(GPUS)])
    site.take(Batch("topology", T0, T0, nodes=nodes(NODES, GPUS)))
    site.take(jobs(T0, NODES))
    site.ticks(2, silent=None)
    site.ticks(8)
    ill = {("thermal_throttle", f"{HOT.node}/gpu1"): True, ("gpu_bus_loss", f"{SILENT.node}/gpu2"): True}
    assert site.levels() == ill
    change(site)
    if dies:
        site.restart()
    site.ticks(8)
    assert site.levels() == ill


@pytest.mark.parametrize("dies", [False, True], ids=["lives", "dies"])
def test_a_card_that_shows_its_uuid_keeps_its_levels(store: Store, dies: bool) -> None:
    """Known by its address first, as from an exporter that tells no UUID."""
    devices = [replace(label(n, g), uuid="") for n in range(NODES) for g in range(GPUS)]
    site = Site(store, devices)
    bare = [replace(f, gpus=tuple(replace(g, uuid="") for g in f.gpus)) for f in nodes(NODES, GPUS)]
    site.take(Batch("topology", T0, T0, nodes=tuple(bare)))
    site.take(jobs(T0, NODES))
    silent = devices[GPUS * 2 + 2]
    site.ticks(2, hot=HOT, silent=None)
    site.ticks(8, hot=HOT, silent=silent)
    lost = {("gpu_bus_loss", f"{SILENT.node}/gpu2"): True}
    assert site.levels() == lost
    before = missing(site.watch, "pci:gpu-0002:0000:12:00")
    site.take(Batch("topology", 0, 0, nodes=nodes(NODES, GPUS)))
    site.devices = [label(n, g) for n in range(NODES) for g in range(GPUS)]
    if dies:
        site.restart()
    while pipeline.observe(site.watch):
        pass
    site.watch.follow_fleet()
    assert missing(site.watch, SILENT.uuid) == before > 0


def missing(watch: Watch, id_: str) -> int:
    """For how many ticks in a row nothing came of a device, as the silence detector remembers it."""
    assert watch.fleet is not None
    found: np.ndarray[Any, Any] = arrays_of(watch.states["telemetry/silence"])["missing"]
    return int(found[watch.fleet.slots["gpu", id_]])


def test_a_history_follows_a_card_that_got_its_uuid_shortly_before_the_process_died(
    store: Store, tmp_path: Path
) -> None:
    """The inventory knew it, the history had not been told: the next process tells it."""
    site = Site(store, [replace(label(0, 0), uuid="")])
    bare = [replace(f, gpus=tuple(replace(g, uuid="") for g in f.gpus)) for f in nodes(1, 1)]
    site.take(Batch("topology", T0, T0, nodes=tuple(bare)))
    site.watch.history = History.open(tmp_path, "main", mode="write")
    site.ticks(6)
    old = "pci:gpu-0000:0000:10:00"
    assert site.watch.history.read("gpu", old, "power_w", T0, T0 + 300).most.size
    site.take(Batch("topology", 0, 0, nodes=nodes(1, 1)))
    site.watch.history.close()
    site.watch = watch_on(store, site.clock)
    site.watch.history = History.open(tmp_path, "main", mode="write")
    site.watch.load()
    site.devices = [label(0, 0)]
    site.ticks(4)
    found = site.watch.history.read("gpu", label(0, 0).uuid, "power_w", T0, T0 + 300)
    assert found.times[0] == T0 and found.most[0] == 600.0
    assert np.isnan(site.watch.history.read("gpu", old, "power_w", T0, T0 + 300).most).all()
    site.watch.history.close()
