"""Codes of every family as levels: what must last, what ends, what comes again, who is meant."""

from __future__ import annotations

from dataclasses import replace

import pytest

from detectors.catalogue import load
from detectors.kernel.codes import Codes, _table
from detectors.kernel.levels import FAMILIES, family
from detectors.kernel.rows import KernelState
from detectors.kernel.rules import packaged
from detectors.model import Event, Finding, Fleet, Severity, Tick
from tests.detectors.fleets import T0, boot, fleet_of, kernel, telemetry, xid

CATALOGUE = load()
CODES = Codes(CATALOGUE)
FLEET = fleet_of(6, jobs={"48213": (0, 1, 2), "48214": (3, 4)})
NODE, GPU3, GPU5 = "gpu-0001", "gpu-0001/gpu3", "gpu-0001/gpu5"
DOWN = "mlx5_core 0000:4b:00.0 enp75s0np0: Link down"
UP = "mlx5_core 0000:4b:00.0 enp75s0np0: Link up"
CORRECTED = "nvidia 0000:9b:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)"
ILLEGAL = "pid=4242, name=python3, Graphics SM Warp Exception on (GPC 4, TPC 0, SM 0): Out Of Range Address"


class Told:
    """One detector followed through a story, tick by tick."""

    def __init__(self, name: str, fleet: Fleet = FLEET) -> None:
        self.detector = family(name, CATALOGUE)
        self.fleet = fleet
        self.state: KernelState = self.detector.start(fleet)

    def hear(self, *events: Event) -> tuple[Finding, ...]:
        return self.step(Tick(max(e.at for e in events), events=events))

    def say(self, name: str, at: float, line: str, seq: int = 1) -> tuple[Finding, ...]:
        return self.hear(kernel(self.fleet, name, at, line, seq))

    def look(self, at: float) -> tuple[Finding, ...]:
        return self.step(telemetry(self.fleet, at))

    def step(self, tick: Tick) -> tuple[Finding, ...]:
        return self.detector.step(self.state, tick, self.fleet).findings


# --- the tables ---------------------------------------------------------------------------------------------------


def test_every_rule_has_a_meaning_and_every_namespace_a_detector() -> None:
    heard = frozenset[str]().union(*FAMILIES.values())
    for rule in packaged():
        assert rule.namespace in heard, rule.namespace
        code = CODES.named(rule.namespace, rule.code if rule.code != "*" else "17")
        assert code.source, f"{rule.namespace} {rule.code} has no row in kernel_codes.csv"


def test_meanings_speak_the_common_vocabulary() -> None:
    rows = _table(CATALOGUE.limit("kernel_soft_s"))
    for code in rows.values():
        kind = CATALOGUE.kinds[code.kind]
        assert code.severity <= kind.severity, code
        assert code.again is None or code.again <= kind.severity, code
        assert code.scope in ("gpu", "nic", "node", "fs", "job"), code
        assert code.says and code.source, code
        assert not (code.app and code.hard), code
        assert all((*ended, "") in rows for ended in code.ends), code
        assert not code.again_code or (code.namespace, code.again_code, code.device) in rows, code
        assert not code.repeats or code.again_s, code


@pytest.mark.parametrize("namespace", ["xid", "sxid", "amd", "afid", "aer", "nic", "mce", "goe"])
def test_a_code_that_no_table_knows_is_a_warning_worth_a_look(namespace: str) -> None:
    code = CODES.named(namespace, "98765")
    assert code.severity >= Severity.WARNING and code.says or namespace in ("xid", "sxid", "afid")


# --- links --------------------------------------------------------------------------------------------------------


def test_a_link_must_stay_down_before_it_is_told() -> None:
    told = Told("kernel/network")
    told.look(T0 - 15)
    assert told.say(NODE, T0, DOWN) == ()
    assert told.look(T0 + 15) == ()
    (found,) = told.look(T0 + 30)
    assert (found.kind, found.severity, found.since) == ("ib_link_down", Severity.CRITICAL, T0)
    assert found.entity.kind == "nic" and found.entity.host == NODE
    assert found.reason == "Network port 0000:4b:00 of gpu-0001 lost its link (enp75s0np0)."
    assert told.look(T0 + 86_400) != (), "it holds until the link is back"
    assert told.say(NODE, T0 + 86_401, UP) == ()


def test_where_no_telemetry_ever_came_nothing_is_waited_for() -> None:
    told = Told("kernel/network")
    assert [f.kind for f in told.say(NODE, T0, DOWN)] == ["ib_link_down"]


def test_a_link_that_goes_three_times_flaps() -> None:
    told = Told("kernel/network")
    told.look(T0 - 15)
    for step in range(3):
        told.say(NODE, T0 + 600 * step, DOWN, 2 * step + 1)
        found = told.say(NODE, T0 + 600 * step + 5, UP, 2 * step + 2)
    assert [(f.kind, f.severity) for f in found] == [("ib_link_flap", Severity.HIGH)]
    assert told.look(T0 + 6 * 3600) == ()


def test_two_losses_in_a_week_are_no_flapping() -> None:
    told = Told("kernel/network")
    told.look(T0 - 15)
    for day in (0, 3, 6):
        told.say(NODE, T0 + 86_400 * day, DOWN)
        assert told.say(NODE, T0 + 86_400 * day + 5, UP) == ()


@pytest.mark.parametrize("how", ["boot", "uptime", "record"])
def test_a_port_without_a_link_while_its_node_comes_up_is_no_fault(how: str) -> None:
    told = Told("kernel/network")
    told.look(T0 - 15)
    if how == "boot":
        told.hear(boot(FLEET, NODE, T0 - 60))
    head = {"uptime": "[   61.000123] ", "record": "6,1023,61000123,-;"}.get(how, "")
    told.say(NODE, T0, head + DOWN)
    assert told.look(T0 + 3600) == ()


def test_two_ports_of_a_node_are_two_entities() -> None:
    told = Told("kernel/network")
    told.say(NODE, T0, DOWN)
    found = told.say(NODE, T0 + 1, DOWN.replace("4b", "5c"), 2)
    assert len({f.entity for f in found}) == 2


# --- rates --------------------------------------------------------------------------------------------------------


def test_corrected_errors_are_a_record_until_they_come_in_numbers() -> None:
    told = Told("kernel/pcie")
    for step in range(15):
        found = told.say(GPU3, T0 + 10 * step, CORRECTED, step)
        assert [f.severity for f in found] == [Severity.INFO]
    for step in range(15, 40):
        found = told.say(GPU3, T0 + 10 * step, CORRECTED, step)
    assert [(f.kind, f.severity) for f in found] == [("gpu_hardware_other", Severity.WARNING)]


def test_a_trickle_of_corrected_errors_never_becomes_one() -> None:
    told = Told("kernel/pcie")
    for step in range(200):
        found = told.say(GPU3, T0 + 1800 * step, CORRECTED, step)
        assert [f.severity for f in found] == [Severity.INFO]


def test_many_lines_of_one_moment_are_one_error() -> None:
    told = Told("kernel/pcie")
    events = [kernel(FLEET, GPU3, T0 + step / 100, CORRECTED, step) for step in range(400)]
    (found,) = told.hear(*events)
    assert found.severity is Severity.INFO


def test_the_same_error_means_another_thing_on_another_device() -> None:
    told = Told("kernel/pcie")
    line = "{} 0000:5c:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)"
    found = told.hear(
        kernel(FLEET, GPU3, T0, line.format("nvidia"), 1),
        kernel(FLEET, "gpu-0002", T0, line.format("mlx5_core"), 2),
        kernel(FLEET, "gpu-0003", T0, line.format("pcieport"), 3),
    )
    assert {(f.kind, f.entity.kind) for f in found} == {
        ("gpu_bus_loss", "gpu"),
        ("ib_link_down", "nic"),
        ("host_hardware", "node"),
    }


# --- servers, jobs, pairs -----------------------------------------------------------------------------------------


def test_many_clients_of_one_server_point_at_the_server() -> None:
    told = Told("kernel/storage")
    for step, node in enumerate(FLEET.nodes[:4]):
        found = told.say(node, T0 + step, "nfs: server nfs-17 not responding, still trying", step)
        assert len(found) == 1 and found[0].entity.kind == "fs"
        assert found[0].severity is (Severity.HIGH if step > 1 else Severity.WARNING)
    for step, node in enumerate(FLEET.nodes[:4]):
        found = told.say(node, T0 + 60 + step, "nfs: server nfs-17 OK", 10 + step)
    assert found == ()


def test_a_limit_that_a_job_met_is_held_against_the_job() -> None:
    told = Told("kernel/host")
    line = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=step_0,mems_allowed=0-1,"
    line += (
        "oom_memcg=/slurm/uid_1000/job_48213,task_memcg=/slurm/uid_1000/job_48213/step_0,task=python3,pid=4242,uid=1"
    )
    (found,) = told.say(NODE, T0, line)
    assert (found.kind, str(found.entity)) == ("host_oom", "job:48213")
    assert found.reason == "gpu-0001 killed a process at the memory limit of its job (python3)."


def test_power_smoothing_that_is_back_ends_its_loss() -> None:
    told = Told("kernel/xid")
    assert [f.severity for f in told.hear(xid(FLEET, GPU3, T0, 163))] == [Severity.WARNING]
    assert told.hear(xid(FLEET, GPU3, T0 + 30, 162)) == ()
    assert [f.severity for f in told.hear(xid(FLEET, GPU3, T0 + 60, 163))] == [Severity.WARNING]


def test_a_fabric_manager_that_is_ready_again_ends_it() -> None:
    told = Told("kernel/fabric")
    (found,) = told.say(NODE, T0, "systemd[1]: Failed to start NVIDIA fabric manager service.")
    assert found.kind == "fabric_manager_not_ready"
    assert told.say(NODE, T0 + 60, "systemd[1]: Started NVIDIA fabric manager service.", 2) == ()


@pytest.mark.parametrize(
    ("said", "severity"),
    [
        ("20034, Fatal, Link 30 LTSSM Fault Up", Severity.CRITICAL),
        ("20034, Non-fatal, Link 30 LTSSM Fault Up", Severity.INFO),
        ("12028, Fatal, Link 30 egress", Severity.CRITICAL),
        ("11012, Data {0x1, 0x2}", Severity.INFO),
        ("99999, Link 7 what no table knows", Severity.HIGH),
        ("99999, Data {0x1, 0x2}", Severity.INFO),
        ("22013, Severity 0 Engine instance 09 Sub-engine instance 00", Severity.INFO),
        ("99999, Severity 1 Engine instance 09 Sub-engine instance 00", Severity.CRITICAL),
    ],
)
def test_the_word_in_the_line_of_a_switch_beats_the_table(said: str, severity: Severity) -> None:
    (found,) = Told("kernel/fabric").say(NODE, T0, f"nvidia-nvswitch2: SXid (PCI:0000:85:00.0): {said}")
    assert (found.kind, found.severity) == ("nvlink_error", severity)
    assert said.split(",")[0] in found.reason


# --- Xid ----------------------------------------------------------------------------------------------------------


def test_faults_of_the_application_that_stay_on_one_gpu_through_many_jobs_are_worth_a_look() -> None:
    told = Told("kernel/xid")
    kinds = []
    for number in range(3):
        told.fleet = fleet_of(6, jobs={f"{number}": (0, 1)}, epoch=number + 2)
        found = told.hear(xid(told.fleet, GPU3, T0 + 3600 * number, 13, ILLEGAL, number))
        kinds.append({f.kind: f.severity for f in found})
    assert kinds[1] == {"gpu_memory_fault_app": Severity.INFO}
    assert kinds[2]["gpu_hardware_other"] is Severity.WARNING, "never loud enough to exclude"


def test_a_job_that_faults_on_all_of_its_gpus_is_its_own_fault_however_often_it_is_sent_again() -> None:
    told = Told("kernel/xid")
    for number in range(5):
        told.fleet = fleet_of(6, jobs={f"{number}": (0, 1)}, epoch=number + 2)
        at = T0 + 3600 * number
        found = told.hear(*(xid(told.fleet, name, at, 13, ILLEGAL, number) for name in (GPU3, GPU5)))
        assert {f.kind for f in found} == {"gpu_memory_fault_app"}


@pytest.mark.parametrize(("model", "severity"), [("NVIDIA H100 80GB HBM3", Severity.INFO), ("A100", Severity.CRITICAL)])
def test_bits_of_74_that_need_no_care_are_a_record_on_the_cards_whose_bits_are_listed(
    model: str, severity: Severity
) -> None:
    fleet = replace(FLEET, models=(model,))
    line = "pid=4242, name=python3, NVLink: fatal error detected on link 14(0x1, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"
    axis = fleet.axes["gpu"]
    fleet = replace(fleet, axes={**fleet.axes, "gpu": replace(axis, model_of=axis.model_of * 0)})
    (found,) = Told("kernel/xid", fleet).hear(xid(fleet, GPU3, T0, 74, line))
    assert found.severity is severity and "link 14" in found.reason


def test_a_link_event_that_points_at_the_other_end_says_so() -> None:
    line = f"NETIR_LINK_EVT Fatal XC0 i0 Link 02 (0x{0b100101 << 20 | 0b0111000110:08x} 0x0 0x0 0x0 0x0 0x0)"
    (found,) = Told("kernel/xid").hear(xid(FLEET, GPU3, T0, 149, line))
    assert "other end of the link" in found.reason


def test_a_card_named_by_its_uuid_is_that_card() -> None:
    fleet = FLEET
    axis = fleet.axes["gpu"]
    uuid = "GPU-8f6d2c1e-0b7a-4c43-9f11-2a5d7e9c0b3f"
    ids = tuple(uuid if name == GPU3 else id_ for id_, name in zip(axis.ids, axis.names, strict=True))
    slots = {**fleet.slots, ("gpu", uuid): axis.names.index(GPU3)}
    fleet = replace(fleet, axes={**fleet.axes, "gpu": replace(axis, ids=ids)}, slots=slots)
    (found,) = Told("kernel/xid", fleet).say(NODE, T0, f"NVRM: Xid ({uuid}): 79, GPU has fallen off the bus.")
    assert str(found.entity) == GPU3


def test_a_line_from_before_the_last_boot_that_comes_behind_it_is_over_soon() -> None:
    told = Told("kernel/xid")
    told.look(T0 - 600)
    told.hear(boot(FLEET, NODE, T0))
    told.hear(xid(FLEET, GPU3, T0 - 300, 79))
    told.look(T0 + 30)
    assert told.look(T0 + 120) == ()


def test_memory_stays_within_bounds_whatever_comes() -> None:
    told = Told("kernel/host")
    for step in range(300):
        told.say(NODE, T0 + step, "watchdog: BUG: soft lockup - CPU#5 stuck for 22s! [python3:4242]", step)
    assert len(told.state.rows) == 1
