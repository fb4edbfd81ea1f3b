"""Ports that fail alone, and ports that fail with their switch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from detectors.catalogue import load
from detectors.fuse import fuse
from detectors.model import Finding, Fleet, FloatArray, MetricKey, Severity, Tick
from detectors.telemetry.network import Network, NetworkState
from tests.detectors.fleets import T0, fleet_of, kernel

CATALOGUE = load()
USUAL = {
    "nic_state": 4.0,
    "nic_rate_bytes_s": 5e10,
    "nic_tx_bytes": 1e10,
    "nic_tx_wait": 1000.0,
    "nic_link_downed": 0.0,
}
Off = Mapping[str, Mapping[str, float]]


class Story:
    """A fleet of ``nodes`` with two ports each, all on one leaf, looked at every 30 s."""

    def __init__(self, nodes: int = 4) -> None:
        self.detector = Network(CATALOGUE)
        self.fleet: Fleet = fleet_of(nodes)
        self.state: NetworkState = self.detector.start(self.fleet)
        self.at = T0
        self.dice = np.random.default_rng(5)

    def look(self, times: int = 1, off: Off | None = None, silent: tuple[str, ...] = ()) -> tuple[Finding, ...]:
        """The findings of the last of so many looks. off: by name of a port or node what reads otherwise."""
        found: tuple[Finding, ...] = ()
        for _ in range(times):
            self.at += 30.0
            found = self.detector.step(self.state, self.tick(off or {}, silent), self.fleet).findings
        return found

    def tick(self, off: Off, silent: tuple[str, ...]) -> Tick:
        names = self.fleet.axes["nic"].names
        values: dict[MetricKey, FloatArray] = {}
        for metric, usual in {**USUAL, **{m: 0.0 for one in off.values() for m in one if m not in USUAL}}.items():
            noise = 1 + 0.05 * self.dice.standard_normal(len(names)) if metric == "nic_tx_wait" else 1.0
            column = (usual * np.ones(len(names)) * noise).astype(np.float32)
            for row, name in enumerate(names):
                for who, changed in off.items():
                    if name == who or name.split("/")[0] == who:
                        column[row] = changed.get(metric, column[row])
                if name.split("/")[0] in silent:
                    column[row] = np.nan
            values["nic", metric] = column
        return Tick(self.at, values, {key: np.ones(len(names), np.bool_) for key in values})


def kinds(found: tuple[Finding, ...]) -> list[tuple[str, str]]:
    return [(f.kind, str(f.entity)) for f in found]


PORT = "gpu-0002/nic:mlx5_1"


def test_a_port_that_is_down_in_two_looks_is_down() -> None:
    story = Story()
    story.look(3)
    assert not story.look(1, {PORT: {"nic_state": 1.0}})
    (found,) = story.look(1, {PORT: {"nic_state": 1.0}})
    assert (found.kind, str(found.entity), found.severity) == ("ib_link_down", PORT, Severity.CRITICAL)
    assert found.entity.host == "gpu-0002"
    assert not story.look(4)


def test_a_port_that_was_never_up_is_not_in_use() -> None:
    assert not Story().look(10, {PORT: {"nic_state": 1.0}})


def test_a_node_that_starts_anew_may_bring_its_ports_up_slowly() -> None:
    story = Story()
    story.look(3)
    story.look(8, silent=("gpu-0002",))
    assert not story.look(10, {"gpu-0002": {"nic_state": 1.0, "nic_link_downed": 0.1}})


def test_one_fall_is_no_flap_and_two_are() -> None:
    story = Story()
    story.look(3)
    assert not story.look(1, {PORT: {"nic_link_downed": 1 / 30}})
    assert not story.look(10)
    assert kinds(story.look(1, {PORT: {"nic_link_downed": 1 / 30}})) == [("ib_link_flap", PORT)]


def test_errors_on_the_wire_and_a_lower_rate_are_a_port_that_fades() -> None:
    story = Story()
    story.look(3)
    assert kinds(story.look(4, {PORT: {"nic_symbol_errors": 3.0}})) == [("ib_port_degraded", PORT)]
    other = Story()
    other.look(3)
    (found,) = other.look(3, {PORT: {"nic_rate_bytes_s": 2.5e10}})
    assert found.kind == "ib_port_degraded" and "25.0 GB/s" in found.reason


def test_waiting_with_less_flow_is_congestion_and_waiting_with_more_flow_is_work() -> None:
    story = Story()
    story.look(40)
    assert not story.look(10, {PORT: {"nic_tx_wait": 9000.0, "nic_tx_bytes": 3e10}})
    assert kinds(story.look(5, {PORT: {"nic_tx_wait": 9000.0, "nic_tx_bytes": 4e9}})) == [("ib_port_degraded", PORT)]


def test_a_fall_in_work_is_no_congestion() -> None:
    story = Story()
    story.look(40)
    assert not story.look(20, {f"gpu-000{n}": {"nic_tx_wait": 300.0, "nic_tx_bytes": 3e9} for n in range(1, 5)})


def test_ports_of_half_of_a_switch_at_once_are_the_switch_and_nobody_else() -> None:
    story = Story()
    story.look(3)
    down = {f"gpu-000{n}": {"nic_state": 1.0} for n in (1, 2, 3)}
    (found,) = story.look(1, down)
    assert (found.kind, str(found.entity), found.entity.host) == ("network_fabric", "switch:leaf-1", "")
    assert "gpu-0001, gpu-0002, gpu-0003" in found.reason
    assert kinds(story.look(4, {"gpu-0003": {"nic_state": 1.0}})) == []  # the last to come back was the switch's too


def test_what_kernels_say_of_ports_folds_under_their_switch() -> None:
    story = Story()
    story.look(3)
    found = story.look(1, {f"gpu-000{n}": {"nic_state": 1.0} for n in (1, 2, 3)})
    line = "mlx5_core 0000:4b:00.0 enp75s0np0: Link down"
    said = []
    for name in ("gpu-0001", "gpu-0002"):
        event = kernel(story.fleet, name, story.at, line)
        said.append(
            Finding("kernel/network", "ib_link_down", event.entity, Severity.CRITICAL, 0.9, story.at, "Down.", ())
        )
    (suspicion,) = fuse([*found, *said], story.fleet, CATALOGUE)
    assert str(suspicion.cause.entity) == "switch:leaf-1"
    assert suspicion.cause.authority == "vote"
    assert len(suspicion.findings) == 3


def test_a_port_that_kernel_and_exporter_name_differently_is_one_port_of_two_witnesses() -> None:
    story = Story()
    story.look(3)
    (down,) = story.look(2, {PORT: {"nic_state": 1.0}})
    event = kernel(story.fleet, "gpu-0002", story.at, "mlx5_core 0000:4b:00.0 enp75s0np0: Link down")
    said = Finding("kernel/network", "ib_link_down", event.entity, Severity.CRITICAL, 0.9, story.at, "Down.", ())
    (suspicion,) = fuse([down, said], story.fleet, CATALOGUE)
    assert str(suspicion.cause.entity) == PORT and suspicion.cause.authority == "code"
