"""A second start of the demo goes on where the first one stopped."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from backend.clock import ManualClock, unix
from backend.simulate.demo import FILE, Simulation
from backend.simulate.world import step

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def aged(folder: Path, steps: int = 40) -> Simulation:
    clock = ManualClock(NOON)
    simulation = Simulation(7, clock, folder)
    for _ in range(steps):
        clock.set(clock.now() + timedelta(seconds=3))
        simulation.step()
    simulation.world.scheduler.drain("gpu-044", "[watchkeeper] gpu_bus_loss inc=3", "watchkeeper")
    simulation.save()
    return simulation


def test_faults_drains_jobs_and_carried_out_orders_outlive_a_restart(tmp_path: Path) -> None:
    before = aged(tmp_path).world
    after = Simulation(7, ManualClock(NOON + timedelta(hours=5)), tmp_path).world
    assert after.faults == before.faults and after.faults
    assert after.scheduler.hosts == before.scheduler.hosts
    assert after.scheduler.jobs == before.scheduler.jobs
    assert after.performed == before.performed
    assert np.allclose(after.silicon.temperature_c, before.silicon.temperature_c, atol=0.01)
    assert after.starts == before.starts + 1


def test_a_long_pause_is_no_jump_in_the_world_and_the_next_fault_is_near(tmp_path: Path) -> None:
    before = aged(tmp_path).world
    now = NOON + timedelta(days=3)
    after = Simulation(7, ManualClock(now), tmp_path).world
    report = step(after, unix(now) + 3)
    assert after.world_s - before.world_s <= 10
    assert {row["job"] for row in report.jobs} >= set(before.scheduler.jobs)
    assert min(planned.due_at for planned in after.planned) <= after.world_s + 10


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version":1,"seed":7}', '{"version":99,"seed":7}', "null"])
def test_an_unreadable_file_starts_the_world_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    world = Simulation(7, ManualClock(NOON), tmp_path).world
    assert world.world_s == 0 and world.starts == 1 and not world.faults


def test_a_folder_that_vanishes_costs_the_saved_world_and_not_the_running_one(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    folder.mkdir()
    simulation = aged(folder)
    shutil.rmtree(folder)
    steps = simulation.world.steps
    for i in range(10):
        simulation.step(unix(NOON) + 130 + 3 * i)
    assert simulation.world.steps == steps + 10 and "cannot be saved" in simulation.error
    folder.mkdir()
    for i in range(5):
        simulation.step(unix(NOON) + 170 + 3 * i)
    assert simulation.error == "" and (folder / FILE).exists()


def test_another_seed_does_not_take_over_the_file(tmp_path: Path) -> None:
    aged(tmp_path)
    assert Simulation(8, ManualClock(NOON), tmp_path).world.world_s == 0
