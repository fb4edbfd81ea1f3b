"""Every kind of trouble can be made, and the truth says of each what the files show."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import detectors
from backend.simulate.recording.plant import plant
from backend.simulate.recording.record import EPOCH
from backend.simulate.recording.scenario import FAMILIES, TROUBLE, ScenarioError, chosen, names, scene
from tests.backend.simulate.recording.reading import of_card, of_instance, rows, samples, truth, written_at

Made = Callable[..., Path]
KINDS_FILE = Path(detectors.__file__).parent / "tables" / "kinds.csv"
EVERY = [f"{kind}/{variant}" for kind, variant in TROUBLE]


def listed_kinds() -> set[str]:
    lines = [line for line in KINDS_FILE.read_text().splitlines() if not line.startswith("#")]
    return {row["kind"] for row in csv.DictReader(lines)}


def test_the_simulator_makes_every_kind_of_the_list_and_no_other() -> None:
    """A shift of the whole fleet is no fault of its own: the breaker says it of many others. What an Alertmanager says
    is somebody else's finding."""
    assert {kind for kind, _ in TROUBLE} == listed_kinds() - {"fleet_shift", "outside_alert"}


@pytest.mark.parametrize("which", EVERY)
@pytest.mark.parametrize("seed", [3, 12])
def test_every_variant_finds_somebody_to_strike(which: str, seed: int) -> None:
    stage = scene(plant(seed, 8, 2), f"kind:{which}", EPOCH, EPOCH + 4 * 3600.0)
    (fault,) = stage.faults
    assert f"{fault.kind}/{fault.variant}" == which
    assert EPOCH < fault.start < fault.end <= EPOCH + 4 * 3600.0
    assert fault.sights and (fault.exclude_ok or not fault.exclude)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_truth_names_a_moment_at_which_something_was_written(family: str, made: Made) -> None:
    bundle = made(family, 8.0)
    described = json.loads((bundle / "bundle.json").read_text())
    nodes = {node["name"]: node for node in json.loads((bundle / "topology.json").read_text())["nodes"]}
    faults, moments = truth(bundle), written_at(bundle)
    assert len(faults) >= 5 and {row["kind"] for row in faults} <= {kind for kind, _ in FAMILIES[family]}
    for row in faults:
        assert described["start"] <= row["start"] <= row["first_visible"] <= row["end"] <= described["end"], row
        unseen = (row["kind"], row["entity"]) == ("telemetry_dark", f"cluster:{described['cluster']}")
        assert unseen or round(row["first_visible"], 3) in moments, row
        assert set(row["nodes"]) <= set(nodes)
        assert row["first_xid"] is None or row["first_xid"] >= row["start"]


def test_faults_of_a_mix_begin_apart_and_one_node_has_one_at_a_time(made: Made) -> None:
    faults = truth(made("mixed", 8.0))
    starts = [row["start"] for row in faults]
    assert all(b - a >= 120.0 for a, b in zip(starts, starts[1:], strict=False))
    jobs = [row for row in faults if row["job"]]
    for i, one in enumerate(jobs):
        for other in jobs[i + 1 :]:
            if set(one["nodes"]) & set(other["nodes"]):
                assert other["start"] >= one["end"] or one["kind"] in ("network_fabric", "nfs_slow", "disk_full"), (
                    one,
                    other,
                )


@pytest.mark.parametrize("how", ["code", "text", "series"])
def test_a_lost_gpu_has_no_series_until_it_is_mended_and_its_neighbour_has(how: str, made: Made) -> None:
    bundle = made(f"kind:gpu_bus_loss/{how}")
    (row,) = truth(bundle)
    node, _, index = row["entity"].partition("/gpu")
    temperature = ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS")
    lost = [at for at, _ in of_card(bundle, row["entity"], *temperature)]
    neighbour = [at for at, _ in of_card(bundle, f"{node}/gpu{1 - int(index)}", *temperature)]
    assert [at for at in lost if at < row["start"]]
    assert not [at for at in lost if row["start"] <= at < row["end"]]
    assert [at for at in neighbour if row["start"] <= at < row["start"] + 600.0]
    lines = [
        one["line"] for one in rows(bundle / "logs" / "kernel.jsonl") if one["host"] == node and "recv_ts" not in one
    ]
    assert any("79, " in line for line in lines) == (how == "code")
    assert any("fallen off the bus" in line for line in lines) == (how != "series")
    assert (row["first_xid"] is not None) == (how == "code")


def test_an_error_without_a_line_moves_its_counter_at_the_first_visible_scrape(made: Made) -> None:
    bundle = made("kind:gpu_ecc_uncorrectable/counter")
    (row,) = truth(bundle)
    counted = of_card(bundle, row["entity"], "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL")
    before = [value for at, value in counted if at < row["first_visible"]]
    after = [value for at, value in counted if row["first_visible"] <= at < row["first_visible"] + 200.0]
    assert set(before) == {0.0} and (set(after) == {1.0} or row["first_visible"] < row["start"] + 1.0)
    assert row["first_xid"] is None


def test_a_failed_fan_heats_its_card_until_its_clock_gives_way(made: Made) -> None:
    bundle = made("kind:thermal_throttle/fan")
    (row,) = truth(bundle)
    names = ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS", "gpu_junction_temperature")
    hot = [v for at, v in of_card(bundle, row["entity"], *names) if row["start"] + 300.0 < at < row["end"]]
    cool = [v for at, v in of_card(bundle, row["entity"], *names) if at < row["start"]]
    assert max(hot) > max(cool) + 12.0
    clocks = of_card(bundle, row["entity"], "DCGM_FI_DEV_SM_CLOCK")
    if clocks:
        slow = [v for at, v in clocks if row["start"] + 600.0 < at < row["end"]]
        assert min(slow) < min(v for at, v in clocks if at < row["start"]) - 60.0


def test_a_node_that_is_unreachable_is_down_for_all_of_its_exporters(made: Made) -> None:
    bundle = made("kind:node_unreachable/late")
    (row,) = truth(bundle)
    for port in (9100, 9400, 5000):
        up = of_instance(bundle, f"{row['entity']}:{port}", "up")
        assert {v for at, v in up if row["first_visible"] + 60.0 < at < row["end"] - 60.0} <= {0.0}
    own = [one for one in rows(bundle / "logs" / "kernel.jsonl") if one["host"] == row["entity"]]
    assert not [one for one in own if row["start"] < one["ts"] < row["start"] + 900.0]


def test_a_frozen_exporter_repeats_every_value(made: Made) -> None:
    bundle = made("kind:telemetry_frozen/node")
    (row,) = truth(bundle)
    for index in (0, 1):
        power = of_card(
            bundle, f"{row['entity']}/gpu{index}",
            "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS", "gpu_package_power",
        )  # fmt: skip
        assert len({value for at, value in power if row["first_visible"] <= at < row["end"]}) == 1


@pytest.mark.parametrize(
    ("which", "field"), [("loss_spike", "loss"), ("loss_divergence", "loss"), ("nan_loss", "loss")]
)
def test_losses_go_wrong_in_the_rows_of_their_run(which: str, field: str, made: Made) -> None:
    bundle = made(f"kind:{which}")
    (row,) = truth(bundle)
    steps = rows(bundle / "training" / f"{row['run']}.jsonl")
    before = [one[field] for one in steps if one["ts"] < row["start"]]
    during = [one[field] for one in steps if row["first_visible"] <= one["ts"] < row["end"]]
    if which == "nan_loss":
        assert "NaN" in during and "NaN" not in before
    else:
        assert max(during) > max(before) + 0.15


def test_benign_events_are_there_and_stay_out_of_the_truth(made: Made) -> None:
    bundle = made("quiet", 24.0, interval_s=300.0)
    kernel = rows(bundle / "logs" / "kernel.jsonl")
    assert [one for one in kernel if one.get("recv_ts", one["ts"]) - one["ts"] > 3600.0], "old lines replayed"
    assert [one for one in kernel if "Nonfatal" in one["line"]]
    values, labels = set(), set()
    for name, found, value, _ in samples(bundle, files="[da]*.om"):
        labels |= set(found)
        if "_PROF_" in name:
            values.add(value)
    assert max(values) >= 2.0**63, "blank sentinels"
    assert {"exported_pod", "Hostname", "hostname", "hpc_job", "job_id", "serial_number"} <= labels
    assert truth(bundle) == []


def test_work_makes_power_and_power_makes_heat(made: Made) -> None:
    bundle = made("quiet", 6.0)
    power: dict[tuple[str | None, float], float] = {}
    heat: dict[tuple[str | None, float], float] = {}
    watts_of = ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS")
    heat_of = ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS")
    for name, labels, value, at in samples(bundle, *watts_of, *heat_of):
        key = (labels.get("UUID"), at)
        (power if name in watts_of else heat)[key] = value
    busy = [heat[key] for key, watts in power.items() if watts > 450.0]
    idle = [heat[key] for key, watts in power.items() if watts < 100.0]
    assert len(busy) > 100 and len(idle) > 100
    assert sum(busy) / len(busy) > sum(idle) / len(idle) + 15.0


def test_saves_are_seen_on_the_store_that_takes_them(made: Made) -> None:
    bundle = made("quiet", 6.0)
    save = next(one for one in rows(bundle / "checkpoints.jsonl") if one["kind"] == "save" and one["duration_s"] > 30.0)
    host = next(one["host"] for one in rows(bundle / "logs" / "job.jsonl") if one["job"] == save["job"])
    name = "node_mountstats_nfs_operations_sent_bytes_total"
    sent = of_instance(bundle, f"{host}:9100", name, operation="WRITE")
    rates = [((b[0] + a[0]) / 2, (b[1] - a[1]) / (b[0] - a[0])) for a, b in zip(sent, sent[1:], strict=False)]
    near = max(rate for at, rate in rates if abs(at - save["ts"]) < 150.0)
    usual = sorted(rate for _, rate in rates)[len(rates) // 2]
    assert near > 20.0 * usual


def test_an_unknown_scenario_is_refused_with_those_that_are_known() -> None:
    for name in ("nothing", "kind:nothing", "kind:gpu_bus_loss/nothing", "gpu_bus_loss"):
        with pytest.raises(ScenarioError, match="kind:gpu_bus_loss"):
            chosen(name)
    assert all(chosen(name) or name == "quiet" for name in names())
