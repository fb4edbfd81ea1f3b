"""Labels of exporters as versions: told once, told when they change."""

from __future__ import annotations

import numpy as np
import pytest

from backend.ingest.labels import Targets
from backend.ingest.samples import Scraped
from backend.ingest.versions import AGAIN_S, versions_of
from detectors.catalogue import load

CATALOGUE = load()


def series(name: str, at: float = 100.0, **labels: str) -> Scraped:
    return {"__name__": name, **labels}, np.array([at]), np.array([1.0])


def told(targets: Targets, *scraped: Scraped) -> list[tuple[str, str, str, str]]:
    return [(v.node, v.device, v.item, v.value) for v in versions_of(scraped, CATALOGUE, targets)]


def gpu(driver: str, at: float = 100.0, uuid: str = "GPU-a", **more: str) -> Scraped:
    return series("DCGM_FI_DEV_GPU_TEMP", at, UUID=uuid, Hostname="n1", gpu="0", DCGM_FI_DRIVER_VERSION=driver, **more)


def test_a_driver_is_told_once_a_node_and_again_when_it_changes() -> None:
    targets = Targets()
    assert told(targets, gpu("570.1"), gpu("570.1", uuid="GPU-b")) == [("n1", "", "driver", "570.1")]
    assert told(targets, gpu("570.1", 115.0)) == []
    assert told(targets, gpu("575.9", 130.0)) == [("n1", "", "driver", "575.9")]
    assert told(targets, gpu("575.9", 130.0 + AGAIN_S)) == [("n1", "", "driver", "575.9")]


def test_a_vbios_is_of_its_device() -> None:
    found = told(Targets(), gpu("570.1", DCGM_FI_DEV_VBIOS_VERSION="96.00.74"))
    assert found == [("n1", "", "driver", "570.1"), ("n1", "GPU-a", "vbios", "96.00.74")]


@pytest.mark.parametrize(
    ("scraped", "want"),
    [
        (
            series("node_uname_info", nodename="n1", release="5.15.0-105-generic"),
            ("n1", "", "kernel", "5.15.0-105-generic"),
        ),
        (series("node_dmi_info", instance="n1:9100", bios_version="2.3.1"), ("n1", "", "bios", "2.3.1")),
        (
            series("node_infiniband_info", instance="n1:9100", device="mlx5_0", firmware_version="28.39.1002"),
            ("n1", "mlx5_0", "firmware", "28.39.1002"),
        ),
        (series("kube_node_info", node="n1", kubelet_version="v1.31.2"), ("n1", "", "kubelet", "v1.31.2")),
    ],
)
def test_info_series_tell_by_their_labels(scraped: Scraped, want: tuple[str, str, str, str]) -> None:
    assert told(Targets(), scraped) == [want]


def test_labels_without_a_host_name_tell_nothing() -> None:
    nobody = series("node_uname_info", instance="10.0.0.7:9100", release="5.15")
    assert told(Targets(), nobody, series("DCGM_FI_DEV_GPU_TEMP", UUID="GPU-a", DCGM_FI_DRIVER_VERSION="1")) == []
    assert told(Targets(), series("DCGM_FI_DEV_POWER_USAGE", UUID="GPU-a", Hostname="n1", driver_version="1")) == []
