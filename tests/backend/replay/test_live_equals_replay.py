"""What a watch did live, a replay of its recording does again, byte for byte, whatever the order of arrival."""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend import pipeline
from backend.clock import ManualClock, utc
from backend.facts import (
    AttemptFacts,
    Batch,
    CableFacts,
    CheckpointFacts,
    MaintenanceFacts,
    NodeFacts,
    OutageFacts,
    StepFacts,
    VersionFacts,
)
from backend.ingest.bundle.bundle import open_bundle
from backend.ingest.bundle.recorded import TURN
from backend.replay.record import FACTS, Recorder
from backend.replay.run import own_store, replay
from backend.reported import ToldFacts
from backend.settings import Incidents, Settings
from detectors.catalogue import load
from tests.backend.replay.live import T0, TICK_S, Step, jobs, kernel, label, nodes, recorded, scrape, watch_on

FILES = ("findings.jsonl", "incidents.jsonl")
NODES, GPUS = 3, 4
#: Long enough for the telemetry that has ended to be dark by then: what happens after a recording is not in it.
END = T0 + 1000.0
SETTINGS = Settings(incidents=Incidents(hold_s=120.0))


def story(dice: random.Random) -> list[Step]:
    """A quarter of an hour: a GPU is lost, one runs hot, an exporter dies and comes back, counters start anew, the
    scheduler falls silent; scrapes come late, some after their tick has closed, lines hours old are told again."""
    found = [Step(T0 + 0.5, Batch("topology", T0, T0, nodes=nodes(NODES, GPUS))), Step(T0 + 1.5, jobs(T0, NODES))]
    devices = [label(n, g) for n in range(NODES) for g in range(GPUS)]
    lost, hot, dark = dice.sample(devices, 2)[0], dice.choice(devices), f"gpu-{dice.randrange(NODES):04d}"
    lost_at, dark_from = T0 + dice.uniform(200, 500), T0 + dice.uniform(100, 600)
    for n in range(1, 55):
        at = T0 + n * TICK_S + dice.uniform(0, 0.02)
        heard = [
            d
            for d in devices
            if not (d == lost and at > lost_at) and not (d.node == dark and dark_from < at < dark_from + 150)
        ]
        off = {"temperature_c": 30.0, "sm_clock_mhz": -600.0} if 300 < at - T0 < 600 else {}
        batch = scrape(at, heard, off=off, odd=hot.uuid, replays=float((n * 3) % 50))
        found.append(Step(at + dice.choice((0.1, 0.1, 0.1, 3.0, 14.0, 31.0, 50.0)) + dice.uniform(0, 0.9), batch))
        if n % 7 == 0:
            found.append(Step(at + 0.05, Batch("slurm", at, at, nodes=nodes(NODES, GPUS, read_at=at))))
    for _ in range(dice.randrange(6)):
        at, delay = T0 + dice.uniform(60, 800), dice.choice((0.2, 2.0, 40.0))
        ts = at - 7200 if dice.random() < 0.2 else at
        code = dice.choice((79, 94, 31, 63, 48))
        found.append(Step(at + delay, kernel(ts, at + delay, dice.randrange(NODES), dice.randrange(GPUS), code)))
    found.append(Step(lost_at + 1.0, kernel(lost_at, lost_at + 1.0, int(lost.node[-4:]), int(lost.index), 79)))
    found.append(Step(lost_at + 2.0, kernel(lost_at, lost_at + 2.0, int(lost.node[-4:]), int(lost.index), 79)))
    found.append(Step(T0 + 333.0, source="slurm", dark=True))
    if dice.random() < 0.5:
        found.append(Step(T0 + 444.0, source="slurm", dark=False))
    return sorted(found, key=lambda step: step.at)


def compare(folder: Path, steps: list[Step]) -> dict[str, bytes]:
    live, bundle = recorded(folder, steps, END)
    replay(open_bundle(bundle), folder / "again", load(), SETTINGS)
    told = {name: (live / name).read_bytes() for name in FILES}
    for name in FILES:
        assert (folder / "again" / name).read_bytes() == told[name], name
    return told


@pytest.mark.parametrize("seed", range(2))
def test_a_replay_of_a_recording_is_the_live_run_byte_for_byte(tmp_path: Path, seed: int) -> None:
    told = compare(tmp_path, story(random.Random(seed)))
    kinds = {orjson.loads(row)["kind"] for row in told["findings.jsonl"].splitlines()}
    assert "gpu_bus_loss" in kinds
    assert told["incidents.jsonl"]


def steps_of(dice: random.Random) -> list[Step]:
    """A run of four ranks whose loss breaks; some rows come late, some twice, and it falls silent in the end."""
    found = []
    for n in range(120):
        at = T0 + 20.0 + 5.0 * n
        loss = float("nan") if n > 80 else 3.0 + 2.0 / (1 + n) + dice.gauss(0, 0.01)
        rows = tuple(
            StepFacts(at, "r", "7", 100 + n, None if rank else loss, None, 5.0, None, rank, attrs={"train/lr": 3e-4})
            for rank in range(4)
        )
        batch = Batch("steps", at, at, steps=rows)
        delay = dice.choice((0.2, 0.2, 0.2, 7.0))
        found += [Step(at + delay, batch)] * (2 if n % 9 == 0 else 1)
    saved = CheckpointFacts(T0 + 222.0, "r", 140, "save", 3.5, None, "7")
    return [*found, Step(T0 + 223.0, Batch("checkpoints", T0, T0, checkpoints=(saved,)))]


def test_a_replay_judges_the_training_as_the_live_run_did_byte_for_byte(tmp_path: Path) -> None:
    dice = random.Random(5)
    told = compare(tmp_path, sorted([*story(dice), *steps_of(dice)], key=lambda step: step.at))
    found = [orjson.loads(row) for row in told["findings.jsonl"].splitlines()]
    assert any("run:r" in row["entity"] and row["detector"].startswith("training/") for row in found), found


def test_what_was_dark_live_is_dark_in_its_replay(tmp_path: Path) -> None:
    told = [step for step in story(random.Random(0)) if not step.source]
    steps = sorted([*told, Step(T0 + 30.0, source="slurm", dark=True)], key=lambda step: step.at)
    rows = [orjson.loads(row) for row in compare(tmp_path, steps)["incidents.jsonl"].splitlines()]
    assert rows and all("slurm" in row["dark_sources"] for row in rows)


@settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**6), swaps=st.lists(st.tuples(st.integers(2, 60), st.floats(-40, 40)), max_size=12))
def test_any_order_of_arrival_is_replayed_as_it_was(seed: int, swaps: list[tuple[int, float]]) -> None:
    steps = story(random.Random(seed))
    for place, by in swaps:
        step = steps[place % len(steps)]
        steps[place % len(steps)] = Step(min(END - 1, max(T0 + 2.0, step.at + by)), step.batch, step.source, step.dark)
    with tempfile.TemporaryDirectory() as folder:
        compare(Path(folder), sorted(steps, key=lambda step: step.at))


def test_a_recording_holds_what_any_bundle_may(tmp_path: Path) -> None:
    _, bundle = recorded(tmp_path, story(random.Random(1)), END)
    rows = [orjson.loads(row) for row in (bundle / "logs" / "recorded.jsonl").read_bytes().splitlines()]
    assert {"ts", "recv_ts", "host", "source", "line"} <= set(rows[0])
    text = (bundle / "telemetry" / "recorded.om").read_text()
    assert 'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-0000-0",pci_bus_id="0000:10:00"' in text
    assert text.endswith("# EOF\n")
    assert not open_bundle(bundle).ignored


def test_a_node_that_left_the_fleet_live_leaves_it_in_the_replay(tmp_path: Path) -> None:
    """It was known before the recording began, and only the word that a list is whole tells that it has gone."""
    (tmp_path / "live").mkdir()
    whole = nodes(4, 2, read_at=T0)
    with own_store(tmp_path / "live") as store:
        clock = ManualClock(utc(T0))
        watch = watch_on(store, clock)
        pipeline.accept(watch, Batch("slurm", T0, T0, nodes=whole, listing=True))
        recorder = Recorder(watch, tmp_path / "bundle")
        for n in range(1, 30):
            at = T0 + n * 500.0
            clock.set(utc(at))
            listed = tuple(replace(one, read_at=at) for one in whole[: 3 if n > 1 else 4])
            pipeline.accept(watch, Batch("slurm", at, at, nodes=listed, listing=n % 2 == 1))
            pipeline.observe(watch)
        recorder.close()
        live = {place.name: (place.state, place.retired_at, place.listed_by) for place in watch.inventory._places}
    again = _places_of(tmp_path)
    assert live == again
    (state, left, listed_by) = live["gpu-0003"]
    assert state == "unknown" and left is not None and listed_by == ("slurm",)


def _places_of(folder: Path) -> dict[str, object]:
    (folder / "again").mkdir()
    with own_store(folder / "again") as store:
        clock = ManualClock(utc(T0))
        watch = watch_on(store, clock)
        with open_bundle(folder / "bundle").prepare(folder, load()) as ready:
            for at, batch in ready.batches():
                clock.set(utc(at))
                if batch.source != TURN:
                    pipeline.accept(watch, batch)
        return {place.name: (place.state, place.retired_at, place.listed_by) for place in watch.inventory._places}


def test_a_bad_row_of_a_recording_is_listed_and_costs_itself(tmp_path: Path) -> None:
    live, bundle = recorded(tmp_path, story(random.Random(2)), END)
    with (bundle / "arrivals.jsonl").open("ab") as file:
        file.write(b'{"recv_ts": "never"}\nnot json\n')
    summary = replay(open_bundle(bundle), tmp_path / "again", load(), SETTINGS)
    assert summary["bad_rows"]["count"] == 2
    assert {row["file"] for row in summary["bad_rows"]["first"]} == {"arrivals.jsonl"}
    assert (tmp_path / "again" / "findings.jsonl").read_bytes() == (live / "findings.jsonl").read_bytes()


def test_every_kind_of_fact_is_recorded_as_it_was_taken_in(tmp_path: Path) -> None:
    at = T0 + 1.0
    step = StepFacts(T0, "r", "7", 4, float("inf"), 0.5, 3.0, None, 2, None, 4, {"lr": 3e-4, "phase": "warmup"})
    sent = Batch(
        "any", T0, at,
        nodes=(NodeFacts("gpu-0001", "idle", frozenset({"DRAIN"}), partitions=("a", "b"), labels={"zone": "x"}),),
        attempts=(AttemptFacts("7", 1, gpus=(("gpu-0001", (0, 3)),), roles=(("gpu-0001", "stage-3"),), signal=9),),
        versions=(VersionFacts("gpu-0001", "driver", "550.54", T0, "GPU-1"),),
        outages=(OutageFacts("gpu-0001", T0, None, "DOWN", "fan", "ada"),),
        maintenances=(MaintenanceFacts("m", ("gpu-0001",), T0, None, "power"),),
        steps=(step,),
        checkpoints=(CheckpointFacts(T0, "r", 4, "save", 3.5, None, "7", blocking=False),),
        told=(ToldFacts(T0, "collective", "all_reduce", "r", "7", 3, "gpu-0001", {"seq": "12", "start": "1.5"}),),
        cables=(CableFacts("gpu-0001", "mlx5_0/1", "leaf1", "17", rail="0"),),
        listing=False,
    )  # fmt: skip
    (tmp_path / "live").mkdir()
    with own_store(tmp_path / "live") as store:
        clock = ManualClock(utc(at))
        watch = watch_on(store, clock)
        recorder = Recorder(watch, tmp_path / "bundle")
        watch.taken(sent)
        recorder.close()
    with open_bundle(tmp_path / "bundle").prepare(tmp_path, load()) as ready:
        ((arrival, again),) = ready.batches()
    assert arrival == at
    for name in ("nodes", "listing", "cables", *FACTS):
        assert getattr(again, name) == getattr(sent, name), name
