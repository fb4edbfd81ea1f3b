"""From a line of each family to its incident: whom it names, how loud, and what never touches a node."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlmodel import col, select

from backend.clock import ManualClock
from backend.model.incidents import Incident
from backend.store.engine import Store
from tests.backend.bench import TICK_S, Bench

PORT = "mlx5_core 0000:4b:00.0 enp75s0np0: Link {}"


@pytest.fixture
def bench(sqlite_store: Store, clock: ManualClock) -> Bench:
    made = Bench(sqlite_store, clock)
    made.ticks(3)
    return made


def incidents(bench: Bench) -> list[Incident]:
    with bench.watch.store.read() as session:
        return list(session.exec(select(Incident).order_by(col(Incident.id))))


def wait(bench: Bench, seconds: float) -> None:
    for _ in range(int(seconds / TICK_S)):
        bench.clock.set(bench.clock.now() + timedelta(seconds=TICK_S))
        bench.telemetry()
        bench.turn()


@pytest.mark.parametrize(
    ("line", "kind", "entity", "severity"),
    [
        (
            "nvidia-nvswitch2: SXid (PCI:0000:85:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
            "nvlink_error",
            "{node}",
            "critical",
        ),
        ("amdgpu {pci}: amdgpu: device lost from bus!", "gpu_bus_loss", "{node}/gpu3", "critical"),
        (
            "nvidia {pci}: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)",
            "gpu_bus_loss",
            "{node}/gpu3",
            "critical",
        ),
        ("NVRM: GPU {pci}: RmInitAdapter failed! (0x26:0x56:1474)", "gpu_hardware_other", "{node}/gpu3", "high"),
        (
            "mlx5_core 0000:5c:00.0: poll_health:840:(pid 0): device's health compromised - reached miss count",
            "ib_link_down",
            "{node}/nic:0000:5c:00",
            "critical",
        ),
        ("EXT4-fs (nvme0n1p2): Remounting filesystem read-only", "filesystem_io_error", "{node}", "high"),
        (
            "Memory cgroup out of memory: Killed process 4242 (python3) total-vm:81234kB",
            "host_oom",
            "{node}",
            "warning",
        ),
        ("Kernel panic - not syncing: Fatal exception", "host_hardware", "{node}", "high"),
        ("nfs: server nfs-17 not responding, still trying", "nfs_slow", "fs:nfs-17", "warning"),
    ],
)
def test_a_line_opens_one_incident_of_whom_it_names(
    bench: Bench, line: str, kind: str, entity: str, severity: str
) -> None:
    node = bench.busy_node()
    bench.line(node, line.replace("{pci}", f"{bench.machine(node).cards[3].pci}"))
    bench.turn()
    (found,) = incidents(bench)
    assert (found.kind, found.entity_name) == (kind, entity.format(node=node))
    assert found.severity == severity


def test_a_link_that_comes_back_at_once_is_no_incident_and_one_that_stays_down_is(bench: Bench) -> None:
    node = bench.busy_node()
    wait(bench, TICK_S)
    bench.line(node, PORT.format("down"))
    bench.turn()
    assert incidents(bench) == []
    bench.line(node, PORT.format("up"))
    wait(bench, 60)
    assert incidents(bench) == []
    bench.clock.set(bench.clock.now() + timedelta(seconds=TICK_S))
    bench.line(node, PORT.format("down"))
    wait(bench, 45)
    (found,) = incidents(bench)
    assert (found.kind, found.entity_name) == ("ib_link_down", f"{node}/nic:0000:4b:00")
    assert found.job == bench.job_of(node)


def test_a_file_server_that_many_wait_for_is_one_incident_and_touches_no_node(bench: Bench) -> None:
    nodes = [machine.name for machine in bench.world.site.machines][:20]
    for node in nodes:
        bench.line(node, "nfs: server nfs-17 not responding, still trying")
    bench.turn()
    (found,) = incidents(bench)
    assert (found.kind, found.entity_name, found.severity) == ("nfs_slow", "fs:nfs-17", "high")
    assert "so do 19 other nodes" in found.headline
    assert bench.exclusions() == [] and bench.orders() == []
    for node in nodes:
        bench.line(node, "nfs: server nfs-17 OK")
    wait(bench, 180)
    assert incidents(bench)[0].state == "resolved"


def test_a_storm_of_corrected_errors_is_one_warning_and_never_an_exclusion(bench: Bench) -> None:
    node = bench.busy_node()
    pci = bench.machine(node).cards[3].pci
    for _ in range(30):
        bench.clock.set(bench.clock.now() + timedelta(seconds=10))
        bench.line(node, f"nvidia {pci}: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)")
        bench.turn()
    (found,) = incidents(bench)
    assert (found.kind, found.severity) == ("gpu_hardware_other", "warning")
    assert bench.exclusions() == [] and bench.orders() == []


@pytest.mark.parametrize("together", [True, False])
def test_the_slot_that_goes_down_folds_under_the_card_that_is_lost_in_it(bench: Bench, together: bool) -> None:
    node = bench.busy_node()
    bench.line(node, "pcieport 0000:00:01.0: pciehp: Slot(12): Link Down")
    if not together:
        bench.turn()
    bench.clock.set(bench.clock.now() + timedelta(seconds=1))
    bench.xid(node, 3, 79)
    bench.turn()
    (found,) = incidents(bench)
    assert (found.kind, found.entity_name, found.severity) == ("gpu_bus_loss", f"{node}/gpu3", "critical")


@pytest.mark.parametrize("first", ["port", "job"])
def test_a_lost_adapter_explains_the_transfers_that_failed_with_it(bench: Bench, first: str) -> None:
    node = bench.busy_node()
    lines = [
        "mlx5_core 0000:5c:00.0: enter_error_state:190:(pid 77): start",
        "infiniband mlx5_2: dump_cqe:272:(pid 4242): dump error cqe",
    ]
    for line in lines if first == "port" else lines[::-1]:
        bench.line(node, line)
        bench.turn()
    (found,) = incidents(bench)
    assert (found.kind, found.severity) == ("ib_link_down", "critical")


EITHER = "NVRM: Xid (PCI:{pci}): 145, RLW_RXPIPE Fatal XC0 i0 Link 07 (0x000004c2 0x00000002)"


@pytest.mark.parametrize("version", ["", "550.54.15"])
def test_a_sub_code_of_nvlink_is_told_by_the_driver_whose_start_was_logged(bench: Bench, version: str) -> None:
    node = bench.busy_node()
    if version:
        bench.line(node, f"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {version}  Tue Mar  5 22:23:56 UTC 2024")
    bench.line(node, EITHER.replace("{pci}", f"{bench.machine(node).cards[3].pci}"))
    bench.turn()
    (found,) = incidents(bench)
    assert (found.kind, found.entity_name) == ("nvlink_error", f"{node}/gpu3")
    assert ("version is not known" in found.headline) == (not version)


@pytest.mark.parametrize("proven", [True, False])
def test_a_line_that_anybody_may_have_written_excludes_nobody_until_telemetry_agrees(
    bench: Bench, proven: bool
) -> None:
    """``logger -t kernel`` writes into a mixed syslog file what the kernel would."""
    node = bench.busy_node()
    pci = bench.machine(node).cards[3].pci
    bench.line(node, f"NVRM: Xid (PCI:{pci}): 79, pid=1, name=x, GPU has fallen off the bus.", unproven=not proven)
    bench.turn()
    (found,) = incidents(bench)
    assert (found.kind, found.hypotheses[0]["authority"]) == ("gpu_bus_loss", "code" if proven else "rule")
    for _ in range(4):
        bench.clock.set(bench.clock.now() + timedelta(seconds=TICK_S))
        bench.telemetry(silent=[(node, 3)])
        bench.turn()
    assert incidents(bench)[0].hypotheses[0]["authority"] in ("code", "vote")
