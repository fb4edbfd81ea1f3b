"""Inputs a monitor must survive, on their way from scraped text to Series."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from backend.facts import DeviceLabel, Series
from backend.ingest.labels import Targets, device_label, host_name
from backend.ingest.samples import Scraped, assemble, readable
from detectors.catalogue import load

CATALOGUE = load()
T = 1_770_000_000.0
TEMP, UTIL, XID = "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_XID_ERRORS"


def scraped(name: str, values: dict[float, float], **labels: str) -> Scraped:
    said = {"__name__": name, "Hostname": "gpu-0001", "instance": "10.0.0.1:9400", **labels}
    times = np.array(sorted(values))
    return said, T + times, np.array([values[t] for t in times])


def gathered(*given: Scraped, targets: Targets | None = None) -> tuple[dict[tuple[str, str], Series], Counter[str]]:
    """By (metric, UUID or node)."""
    series, dropped = assemble(given, CATALOGUE, targets)
    found = {(s.metric, s.label.uuid or s.label.node): s for s in series}
    assert len(found) == len(series)
    return found, dropped


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", 9.223372036854775792e18),
        ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", 9.223372036854775794e18),
        ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", 140737488355328.0),
        ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", 1.40737488355328e16),
        ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", 2147483632.0),
        ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", 2147483634.0),
        ("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", 2147483634.0),
        ("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", 9.223372036854775794e20),
        (TEMP, 9223372036854775792.0),
        (TEMP, 140737488355328.0),
        (UTIL, 1.40737488355328e16),
        (UTIL, 214748363200.0),
    ],
)
def test_a_blank_of_dcgm_is_missing_and_counted(name: str, value: float) -> None:
    """traps.md 1."""
    found, dropped = gathered(scraped(name, {0: 5.0, 15: value, 30: 7.0}, UUID="GPU-a", gpu="0"))
    (series,) = found.values()
    assert series.values.tolist() == [5.0, 7.0]
    assert dropped == {"blank": 1}


def test_one_bad_field_costs_only_itself() -> None:
    """traps.md 3: one GPU without support for one field."""
    found, dropped = gathered(
        scraped(UTIL, {0: np.nan}, UUID="GPU-a", gpu="0"),
        scraped(UTIL, {0: 97.0}, UUID="GPU-b", gpu="1"),
        scraped(TEMP, {0: 55.0}, UUID="GPU-a", gpu="0"),
    )
    assert found[("temperature_c", "GPU-a")].values.tolist() == [55.0]
    assert found[("utilisation_pct", "GPU-b")].values.tolist() == [97.0]
    assert np.isnan(found[("utilisation_pct", "GPU-a")].values).all()
    assert dropped == {"not a number": 1}


def test_an_impossible_value_is_dropped_and_counted() -> None:
    """traps.md 4: a percentage of 0, 0, 4294967295, 0."""
    found, dropped = gathered(scraped(UTIL, {0: 0, 15: 0, 30: 4294967295, 45: 0, 60: 1000}, UUID="GPU-a"))
    assert found[("utilisation_pct", "GPU-a")].values.tolist() == [0, 0, 0]
    assert dropped == {"out of range": 2}


def test_infinities_are_dropped_and_counted() -> None:
    """traps.md 19."""
    metric = CATALOGUE.metrics["temperature_c"]
    dropped: Counter[str] = Counter()
    given: Scraped = ({}, T + np.arange(4.0), np.array([np.inf, 50.0, -np.inf, np.nan]))
    ((_, times, values),) = readable(metric, [given], dropped)
    assert times.tolist() == [T + 1, T + 3] and values[0] == 50.0 and np.isnan(values[1])
    assert dropped["infinite"] == 2 and dropped["not a number"] == 1


def test_two_label_sets_of_one_gpu_are_one_series() -> None:
    """traps.md 9."""
    found, dropped = gathered(
        scraped(UTIL, {0: 90.0, 15: 91.0}, UUID="GPU-a", gpu="0"),
        scraped(UTIL, {0: 90.0, 15: 91.0, 30: 92.0}, UUID="GPU-a", gpu="0", exported_pod="job-1"),
    )
    (series,) = found.values()
    assert series.values.tolist() == [90.0, 91.0, 92.0] and np.all(np.diff(series.times) > 0)
    assert series.label.job == "job-1"
    assert not dropped


def test_a_label_that_comes_half_way_continues_the_series() -> None:
    found, _ = gathered(
        scraped(UTIL, {0: 1.0, 15: 2.0}, UUID="GPU-a", gpu="0"),
        scraped(UTIL, {30: 3.0, 45: 4.0}, UUID="GPU-a", gpu="0", hpc_job="77"),
    )
    (series,) = found.values()
    assert series.values.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_two_exporters_of_one_counter_do_not_look_like_resets() -> None:
    """The second reads a moment later but sees an older value."""
    name = "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"
    found, _ = gathered(
        scraped(name, {0: 100.0, 15: 115.0}, UUID="GPU-a", instance="10.0.0.1:9400"),
        scraped(name, {1: 99.0, 14: 112.0}, UUID="GPU-a", instance="10.0.0.1:9401"),
    )
    (series,) = found.values()
    assert np.all(np.diff(series.values) >= 0)


def test_the_exporters_own_pod_is_no_job() -> None:
    """traps.md 10."""
    own = device_label("gpu", {"UUID": "GPU-a", "Hostname": "n", "pod": "dcgm-exporter-vfbhl", "job": "dcgm"})
    train = device_label("gpu", {"UUID": "GPU-a", "pod": "dcgm-exporter-vfbhl", "exported_pod": "train-0"})
    assert own is not None and own.job == ""
    assert train is not None and train.job == "train-0"


def test_the_index_moves_and_the_gpu_stays() -> None:
    """traps.md 11: gpu="3" is another card after a reboot."""
    found, _ = gathered(
        scraped(TEMP, {0: 50.0}, UUID="GPU-d", gpu="3"),
        scraped(TEMP, {15: 70.0}, UUID="GPU-e", gpu="3"),
    )
    assert {key[1]: s.values.tolist() for key, s in found.items()} == {"GPU-d": [50.0], "GPU-e": [70.0]}


def test_the_newest_label_of_a_gpu_counts() -> None:
    found, _ = gathered(
        scraped(TEMP, {0: 50.0}, UUID="GPU-e", gpu="4", pci_bus_id="00000000:9B:00.0"),
        scraped(TEMP, {15: 51.0}, UUID="GPU-e", gpu="3"),
    )
    (series,) = found.values()
    assert (series.label.index, series.label.pci) == ("3", "0000:9b:00")


def test_mig_instances_count_once_for_what_belongs_to_the_device() -> None:
    """traps.md 12."""
    slices = [{"GPU_I_PROFILE": "1g.6gb", "GPU_I_ID": str(i)} for i in (3, 4, 5, 6)]
    found, dropped = gathered(
        *(scraped(XID, {0: 31.0}, UUID="GPU-a", gpu="0", **one) for one in slices),
        *(scraped("DCGM_FI_DEV_FB_USED", {0: 1000.0}, UUID="GPU-a", gpu="0", **one) for one in slices),
        scraped(XID, {0: 0.0}, UUID="GPU-b", gpu="1"),
    )
    assert {key: s.values.tolist() for key, s in found.items()} == {
        ("xid_last", "GPU-a"): [31.0],
        ("xid_last", "GPU-b"): [0.0],
    }
    assert dropped == {"of a MIG instance": 4}


@pytest.mark.parametrize("labels", [{"hostname": "gpu-7"}, {"Hostname": "gpu-7"}, {"instance": "gpu-7:9400"}])
def test_a_host_is_found_under_every_spelling(labels: dict[str, str]) -> None:
    found = device_label("gpu", {"gpu_uuid": "GPU-a", "model_name": "H100", **labels})
    assert found == DeviceLabel("gpu", "gpu-7", uuid="GPU-a", model="H100")


def test_what_the_exporter_said_beats_what_prometheus_attached() -> None:
    found = device_label("gpu", {"UUID": "GPU-a", "hostname": "prom-pod", "exported_hostname": "gpu-7"})
    assert found is not None and found.node == "gpu-7"


def test_an_amd_serial_is_an_identity() -> None:
    found = device_label(
        "gpu", {"serial_number": "PCB052", "gpu_id": "2", "card_model": "MI300X", "hostname": "a", "job_id": "9"}
    )
    assert found == DeviceLabel("gpu", "a", uuid="PCB052", index="2", model="MI300X", job="9")


@pytest.mark.parametrize(
    ("instance", "name"),
    [
        ("gpu-0001:9400", "gpu-0001"),
        ("gpu-0001.site.org:9400", "gpu-0001.site.org"),
        ("gpu-0001", "gpu-0001"),
        ("http://gpu-0001:9400/metrics", "gpu-0001"),
        ("10.0.0.7:9400", ""),
        ("[fe80::1]:9400", ""),
        ("localhost:9090", ""),
        ("127.0.0.1:9400", ""),
        ("", ""),
    ],
)
def test_an_address_is_no_name(instance: str, name: str) -> None:
    assert host_name(instance) == name


def test_a_gpu_by_index_alone_is_somebody_only_on_its_node() -> None:
    assert device_label("gpu", {"gpu": "3"}) is None
    assert device_label("gpu", {"gpu": "3", "Hostname": "n"}) == DeviceLabel("gpu", "n", index="3")
    assert device_label("node", {"instance": "10.0.0.1:9100"}) is None


# --- up --------------------------------------------------------------------------------------------------------------


def up(instance: str, value: float, **labels: str) -> Scraped:
    return {"__name__": "up", "instance": instance, **labels}, np.array([T]), np.array([value])


def test_up_of_an_address_speaks_for_the_nodes_whose_gpus_came_from_it() -> None:
    targets = Targets()
    both = [scraped(TEMP, {0: 50.0}, UUID=f"GPU-{n}", Hostname=n, instance="10.0.0.9:9400") for n in ("n1", "n2")]
    found, _ = gathered(*both, up("10.0.0.9:9400", 1.0), targets=targets)
    assert [found[("node_up", n)].values.tolist() for n in ("n1", "n2")] == [[1.0], [1.0]]
    found, _ = gathered(up("10.0.0.9:9400", 0.0), targets=targets)
    assert [found[("node_up", n)].values.tolist() for n in ("n1", "n2")] == [[0.0], [0.0]]


def test_a_node_exporter_does_not_hide_that_the_gpu_exporter_is_down() -> None:
    targets = Targets()
    gathered(scraped(TEMP, {0: 50.0}, UUID="GPU-a", Hostname="n1", instance="n1:9400"), targets=targets)
    found, _ = gathered(up("n1:9400", 0.0), up("n1:9100", 1.0), targets=targets)
    assert found[("node_up", "n1")].values.tolist() == [0.0]


def test_an_address_that_was_given_to_another_host_speaks_for_that_one() -> None:
    targets = Targets()
    for name in ("n1", "n2"):
        gathered(scraped(TEMP, {0: 50.0}, UUID=f"GPU-{name}", Hostname=name, instance="10.0.0.9:9400"), targets=targets)
    found, _ = gathered(up("10.0.0.9:9400", 1.0), targets=targets)
    assert list(found) == [("node_up", "n2")]


def test_up_of_prometheus_itself_speaks_for_nobody() -> None:
    found, dropped = gathered(up("localhost:9090", 1.0))
    assert not found and not dropped


@pytest.mark.parametrize("name", ["<script>", "a b", "a\r\nBcc: x", "gpu-1:9400", "a\0b", "n" * 300, "[n1-9]"])
def test_a_label_that_no_scheduler_would_take_for_a_host_names_none(name: str) -> None:
    """A node of such a name would break every hostlist that it stood in."""
    assert device_label("node", {"Hostname": name}) is None
    nobody, dropped = gathered(scraped(TEMP, {0: 5.0}, Hostname=name, gpu="0"))
    assert not nobody and dropped == {"no device or node in the labels": 1}
    assert gathered(scraped(TEMP, {0: 5.0}, Hostname=name, UUID="GPU-a"))[0].keys() == {("temperature_c", "GPU-a")}
    assert not gathered(scraped(TEMP, {0: 5.0}, Hostname="gpu-1", UUID="u" * 300))[0]
