"""Ports, mounts and NFS calls as exporters label them."""

from __future__ import annotations

import numpy as np
import pytest

from backend.facts import DeviceLabel
from backend.ingest.labels import device_label, identity
from backend.ingest.samples import assemble
from detectors.catalogue import load

CATALOGUE = load()
NODE = {"instance": "gpu-0001:9100", "job": "node"}


@pytest.mark.parametrize(
    ("labels", "name"),
    [
        ({"device": "mlx5_0", "port": "1"}, "mlx5_0"),
        ({"device": "mlx5_0", "port": "2"}, "mlx5_0:2"),
        ({"device": "bnxt_re1", "port": "1"}, "bnxt_re1"),
        ({"device": "eth0"}, "eth0"),
        ({"device": "enp75s0np0"}, "enp75s0np0"),
        ({"device": "ibp12s0"}, "ibp12s0"),
    ],
)
def test_a_port_is_its_device_and_number(labels: dict[str, str], name: str) -> None:
    assert device_label("nic", NODE | labels) == DeviceLabel("nic", "gpu-0001", index=name)


@pytest.mark.parametrize(
    "device",
    [
        "lo",
        "docker0",
        "veth1a2b3c",
        "br-0f",
        "cali12",
        "cni0",
        "flannel.1",
        "eth0.100",
        "enp59s0f0v3",
        "tunl0",
        "virbr0",
    ],
)
def test_what_containers_bring_is_no_port(device: str) -> None:
    assert device_label("nic", NODE | {"device": device}) is None


@pytest.mark.parametrize(
    ("point", "kind"),
    [
        ("/run/user/1000", "tmpfs"),
        ("/var/lib/docker/overlay2/ab/merged", "overlay"),
        ("/var/lib/kubelet/pods/1", "ext4"),
    ],
)
def test_mounts_that_pass_by_are_no_rows(point: str, kind: str) -> None:
    assert device_label("mount", NODE | {"mountpoint": point, "fstype": kind, "device": "x"}) is None


def test_a_mount_knows_what_is_mounted_there_and_a_call_its_export() -> None:
    mount = device_label("mount", NODE | {"mountpoint": "/scratch", "fstype": "nfs4", "device": "store:/x"})
    assert mount == DeviceLabel("mount", "gpu-0001", index="/scratch", export="store:/x")
    call = device_label("mount_op", NODE | {"export": "store:/x", "operation": "READ", "protocol": "tcp"})
    assert call == DeviceLabel("mount_op", "gpu-0001", export="store:/x", operation="READ")
    assert identity(DeviceLabel("mount_op", "gpu-0001", export="store:/x", operation="READ")) == (
        "mount_op",
        "gpu-0001",
        "store:/x",
        "READ",
    )
    assert device_label("mount_op", NODE | {"export": "store:/x", "operation": "FSINFO"}) is None


def test_series_that_a_metric_joins_stay_apart_until_the_ring() -> None:
    def edac(controller: str, value: float) -> tuple[dict[str, str], np.ndarray, np.ndarray]:
        said = NODE | {"__name__": "node_edac_correctable_errors_total", "controller": controller}
        return said, np.array([10.0]), np.array([value])

    series, _ = assemble([edac("0", 3.0), edac("1", 4.0)], CATALOGUE)
    assert sorted(one.values[0] for one in series) == [3.0, 4.0]
    assert len({one.part for one in series}) == 2
