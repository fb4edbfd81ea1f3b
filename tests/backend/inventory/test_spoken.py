"""Kernel lines read with what is known of their node: the driver that spoke, the name of a port in telemetry."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.clock import unix
from backend.facts import Batch, DeviceLabel, RawEvent, VersionFacts
from backend.ingest.topology import topology_batch
from backend.inventory.inventory import Inventory
from backend.inventory.ports import address, port_named
from backend.inventory.spoken import attrs_of, versions_said
from backend.store.engine import Store
from detectors.kernel.lines import parse
from tests.backend.inventory.test_parts import NOW, absorbed, batch

NODE = "gpu-0001"
#: Bits that ask for a reset before driver 575, and for nothing from there on.
EITHER = "NVRM: Xid (PCI:0000:4b:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 07 (0x000004c2 0x00000002)"
PORTS = (DeviceLabel("nic", NODE, index="mlx5_0"), DeviceLabel("nic", NODE, index="mlx5_1"))


def raw(line: str) -> RawEvent:
    found = parse(line)
    assert found is not None, line
    return RawEvent(unix(NOW), NODE, found.namespace, found.code, line, line, found.pci, attrs=found.attrs)


def told(store: Store, *facts: VersionFacts) -> Inventory:
    return absorbed(store, replace(batch(*PORTS), versions=facts))


@pytest.mark.parametrize(("driver", "asks"), [("550.54.15", "reset_gpu"), ("580.65.06", "none")])
def test_a_sub_code_is_read_by_the_driver_that_an_exporter_told(store: Store, driver: str, asks: str) -> None:
    attrs = attrs_of(told(store, VersionFacts(NODE, "driver", driver, 1.0)), raw(EITHER))
    assert attrs["asks"] == asks and "old" not in attrs and attrs["driver_version"] == driver[:3]


def test_a_driver_that_nobody_told_leaves_both_readings(store: Store) -> None:
    attrs = attrs_of(told(store), raw(EITHER))
    assert attrs["old"].startswith("reset_gpu") and attrs["new"].startswith("none")


def test_the_kernels_own_line_tells_the_driver(store: Store) -> None:
    line = raw("NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build")
    (said,) = versions_said((line,))
    assert (said.node, said.item, said.value) == (NODE, "driver", "580.65.06")
    again = Inventory("main")
    absorbed(store, Batch("logs", 0.0, 0.0, events=(line,), versions=(said,)), batch(*PORTS))
    with store.read() as session:
        again.load(session)
    assert again.driver(NODE) == 580  # also after a restart


TOPOLOGY = (
    b'{"nodes": [{"name": "gpu-0001", "nics": ['
    b'{"name": "mlx5_0", "pci_bus_id": "0000:5c:00.0", "netdev": "ens5f0"},'
    b'{"name": "mlx5_1", "pci_bus_id": "0000:5c:00.1", "netdev": "ens5f1"}]}]}'
)


@pytest.mark.parametrize(
    ("line", "port"),
    [
        ("mlx5_core 0000:5c:00.0 ens5f0: Link down", "mlx5_0"),
        ("mlx5_core 0000:5c:00.1: Port: 1 Link DOWN", "mlx5_1"),
        ("NETDEV WATCHDOG: ens5f1 (mlx5_core): transmit queue 3 timed out", "mlx5_1"),
        ("infiniband mlx5_1: port 1: port error", "mlx5_1"),
        ("mlx5_core 0000:5c:00.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=x", "mlx5_0"),
        ("mlx5_core 0000:77:00.0 ens9: Link down", ""),
    ],
)
def test_a_line_about_a_port_is_held_against_the_name_that_telemetry_has_for_it(
    store: Store, line: str, port: str
) -> None:
    facts, rejects = topology_batch(TOPOLOGY, "application/json", unix(NOW))
    assert rejects == ()
    inventory = absorbed(store, batch(*PORTS), facts)
    assert attrs_of(inventory, raw(line)).get("nic", "") == port


def test_a_port_that_says_no_address_is_refused_with_the_reason() -> None:
    body = b'{"nodes": [{"name": "n1", "nics": [{"name": "mlx5_0", "pci_bus_id": "slot 4"}]}]}'
    _, rejects = topology_batch(body, "application/json", 1.0)
    assert "PCI address" in rejects[0].problem


def test_both_ports_of_a_card_are_told_apart() -> None:
    assert (address("0000:5c:00.0"), address("0000:5c:00.1"), address("x")) == ("0000:5c:00", "0000:5c:00.1", "")
    addresses = {"mlx5_0": "0000:5c:00", "mlx5_1": "0000:5c:00.1"}
    assert port_named(addresses, {"function": "1"}, "0000:5c:00", ["mlx5_0", "mlx5_1"]) == "mlx5_1"
