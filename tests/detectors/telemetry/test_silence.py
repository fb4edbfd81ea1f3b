"""One silent GPU is lost, a silent node is dark, and what nobody looked at is neither."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from detectors.catalogue import load
from detectors.model import Event, Fleet, Judged, Severity, Tick
from detectors.telemetry.silence import Silence, SilenceState
from tests.detectors.fleets import T0, entity, fleet_of, gpu, telemetry

FLEET = fleet_of(3)
GPU3 = "gpu-0001/gpu3"


class Told:
    def __init__(self, fleet: Fleet = FLEET) -> None:
        self.detector = Silence(load())
        self.fleet, self.ticks = fleet, 0
        self.state: SilenceState = self.detector.start(fleet)

    def look(self, silent: Sequence[str] = (), up: float | None = None) -> Judged:
        self.ticks += 1
        tick = telemetry(self.fleet, T0 + 15 * self.ticks, silent)
        if up is None:
            return self.step(tick)
        nodes = len(self.fleet.axes["node"])
        values = {**tick.values, ("node", "node_up"): np.full(nodes, up, np.float32)}
        return self.step(Tick(tick.at, values, {**tick.sampled, ("node", "node_up"): np.ones(nodes, np.bool_)}))

    def see(self, silent: Sequence[str] = (), mute: Sequence[str] = (), *events: Event) -> Judged:
        """A look at which the node exporters report too, but for those of ``mute``."""
        self.ticks += 1
        tick = telemetry(self.fleet, T0 + 15 * self.ticks, silent)
        axis = self.fleet.axes["node"]
        load = np.array([np.nan if name in mute else 4.0 for name in axis.names], np.float32)
        key = ("node", "node_load1")
        more = {key: np.ones(len(axis), np.bool_)}
        return self.step(Tick(tick.at, {**tick.values, key: load}, {**tick.sampled, **more}, events))

    def said(self, node: str, code: str, **attrs: str) -> Event:
        return Event(T0 + 15 * self.ticks, entity(self.fleet, node), "slurm", code, attrs=attrs)

    def step(self, tick: Tick) -> Judged:
        return self.detector.step(self.state, tick, self.fleet)

    def blind(self, judged: Judged) -> list[str]:
        return [self.fleet.axes["gpu"].names[row] for row in np.flatnonzero(judged.blind["gpu"])]


@pytest.fixture
def told() -> Told:
    told = Told()
    told.look()
    return told


def test_one_silent_gpu_among_speaking_neighbours_is_lost(told: Told) -> None:
    first, second = told.look([GPU3]), told.look([GPU3])
    assert first.findings == () and told.blind(first) == [GPU3], "one tick is no proof, but not healthy either"
    (found,) = second.findings
    assert found.reason == "GPU 3 of gpu-0001 sends no data; its 7 neighbours still report."
    assert (found.kind, found.entity) == ("gpu_bus_loss", entity(FLEET, GPU3))
    assert (found.severity, found.score, found.since) == (Severity.HIGH, 0.6, T0 + 30)
    assert told.blind(second) == []


def test_a_gpu_that_speaks_again_is_clear(told: Told) -> None:
    told.look([GPU3]), told.look([GPU3])
    judged = told.look()
    assert judged.findings == () and told.blind(judged) == []


def test_one_metric_that_stops_is_no_loss(told: Told) -> None:
    for step in range(3):
        tick = telemetry(FLEET, T0 + 100 + 15 * step)
        for metric in ("temperature_c", "power_w", "sm_clock_mhz", "fb_used_mib"):
            tick.values["gpu", metric][gpu(FLEET, GPU3)] = np.nan
        assert told.step(tick).findings == ()


def test_a_node_without_any_data_is_dark_and_its_gpus_are_blind_not_lost(told: Told) -> None:
    told.look(["gpu-0001"])
    judged = told.look(["gpu-0001"])
    (found,) = judged.findings
    assert (found.kind, found.severity, found.since) == ("telemetry_dark", Severity.INFO, T0 + 30)
    assert found.reason == "gpu-0001 sends no GPU data; 8 GPUs are blind."
    assert told.blind(judged) == [f"gpu-0001/gpu{i}" for i in range(8)]
    assert judged.blind["node"].tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("up", "says"), [(0.0, "Its exporter does not answer."), (1.0, "Its exporter answers, without them.")]
)
def test_a_dark_node_says_whether_its_exporter_answers(told: Told, up: float, says: str) -> None:
    told.look(["gpu-0001"], up)
    assert told.look(["gpu-0001"], up).findings[0].reason.endswith(says)


def test_a_lost_gpu_stays_lost_while_its_node_is_dark(told: Told) -> None:
    told.look([GPU3]), told.look([GPU3])
    assert [f.kind for f in told.look(["gpu-0001"]).findings] == ["gpu_bus_loss"], "all of them must last"
    found = {f.kind: f for f in told.look(["gpu-0001"]).findings}
    assert found["telemetry_dark"].reason.startswith("gpu-0001 sends no GPU data; 8 GPUs are blind.")
    assert set(found) == {"gpu_bus_loss", "telemetry_dark"}
    assert found["gpu_bus_loss"].since == T0 + 30
    assert {f.kind for f in told.look([GPU3]).findings} == {"gpu_bus_loss"}


def test_the_only_gpu_of_a_node_goes_dark_with_it() -> None:
    told = Told(fleet_of(2, 1))
    told.look(), told.look(["gpu-0001/gpu0"])
    assert [f.kind for f in told.look(["gpu-0001/gpu0"]).findings] == ["telemetry_dark"]


def test_what_never_reported_is_blind_and_not_lost() -> None:
    told = Told()
    judged = [told.look([GPU3]) for _ in range(4)][-1]
    assert judged.findings == () and told.blind(judged) == [GPU3]


def test_nothing_was_seen_before_the_first_look() -> None:
    told = Told()
    assert told.step(Tick(T0)).blind["gpu"].all()


def test_a_retired_gpu_is_not_missed(told: Told) -> None:
    after = fleet_of(3, epoch=2, retired=[GPU3])
    told.state, told.fleet = told.detector.move(told.state, FLEET, after), after
    judged = [told.look([GPU3]) for _ in range(3)][-1]
    assert judged.findings == () and told.blind(judged) == []


def test_a_row_that_was_not_due_keeps_what_was_known_of_it(told: Told) -> None:
    tick = telemetry(FLEET, T0 + 30)
    for rows in tick.sampled.values():
        rows[gpu(FLEET, GPU3)] = False
    judged = told.step(tick)
    assert judged.findings == () and told.blind(judged) == []


def test_a_row_that_nobody_asks_for_goes_blind(told: Told) -> None:
    judged = told.step(Tick(T0 + 15 + 121))
    assert judged.findings == () and judged.blind["gpu"].all(), "every source is silent: nothing is healthy"
    assert told.blind(told.look()) == []


def test_a_lost_gpu_stays_lost_while_nobody_looks(told: Told) -> None:
    told.look([GPU3])
    (found,) = told.look([GPU3]).findings
    assert told.step(Tick(T0 + 50)).findings == (found,)
    assert told.step(Tick(T0 + 5000)).findings == (found,)


def test_a_site_may_ask_for_more_patience() -> None:
    told = Told()
    told.detector = Silence(load(thresholds={"silence_ticks": 4.0}))
    told.look()
    assert [len(told.look([GPU3]).findings) for _ in range(5)] == [0, 0, 0, 1, 1]


def kinds(judged: Judged) -> dict[str, Severity]:
    return {f.kind: f.severity for f in judged.findings}


def test_a_dark_exporter_is_told_once_a_restart_would_be_over(told: Told) -> None:
    judged = [told.see(["gpu-0001"]) for _ in range(7)]
    assert kinds(judged[5]) == {"telemetry_dark": Severity.INFO}, "blind, and not yet told"
    assert kinds(judged[6]) == {"telemetry_dark": Severity.WARNING}
    assert judged[6].findings[0].reason.endswith("The node itself still reports.")
    assert kinds(told.see()) == {}


def test_an_exporter_that_is_restarted_is_never_told(told: Told) -> None:
    for _ in range(3):
        for _ in range(6):
            assert Severity.WARNING not in kinds(told.see(["gpu-0001"])).values()
        assert kinds(told.see()) == {}


def test_a_node_that_is_silent_altogether_may_be_lost_and_is_once_the_scheduler_misses_it(told: Told) -> None:
    told.see()
    judged = [told.see(["gpu-0001"], ["gpu-0001"]) for _ in range(3)][-1]
    assert kinds(judged) == {"node_unreachable": Severity.INFO, "telemetry_dark": Severity.INFO}
    judged = told.see(["gpu-0001"], ["gpu-0001"], told.said("gpu-0001", "node_down"))
    assert kinds(judged)["node_unreachable"] is Severity.CRITICAL
    judged = told.see([], [], told.said("gpu-0001", "node_back"))
    assert kinds(judged) == {}


def test_a_node_that_was_taken_out_may_be_switched_off(told: Told) -> None:
    told.see((), (), told.said("gpu-0001", "node_state", state="DRAINED"))
    for _ in range(60):
        judged = told.see(["gpu-0001"], ["gpu-0001"])
        assert set(kinds(judged).values()) <= {Severity.INFO} and "node_unreachable" not in kinds(judged)
    assert judged.findings[0].reason.endswith("It was taken out on purpose.")
    assert told.blind(judged) == [f"gpu-0001/gpu{i}" for i in range(8)], "meant, but not seen"


def test_what_is_put_back_and_stays_silent_is_told(told: Told) -> None:
    told.see((), (), told.said("gpu-0001", "node_state", state="DRAINED"))
    for _ in range(60):
        told.see(["gpu-0001"], ["gpu-0001"])
    judged = told.step(Tick(T0 + 15 * told.ticks, events=(told.said("gpu-0001", "node_state", state="RESUME"),)))
    assert Severity.WARNING not in kinds(judged).values(), "it has just begun to come back"
    judged = [told.see(["gpu-0001"], ["gpu-0001"]) for _ in range(22)][-1]
    assert kinds(judged)["telemetry_dark"] is Severity.WARNING


def test_a_reboot_that_was_asked_for_is_expected_for_an_hour_only(told: Told) -> None:
    told.see((), (), told.said("gpu-0001", "node_reboot_asked"))
    judged = [told.see(["gpu-0001"], ["gpu-0001"]) for _ in range(239)]
    assert all(set(kinds(j).values()) <= {Severity.INFO} for j in judged)
    assert kinds([told.see(["gpu-0001"], ["gpu-0001"]) for _ in range(3)][-1])["telemetry_dark"] is Severity.WARNING


def test_a_drain_that_answers_the_silence_does_not_excuse_it(told: Told) -> None:
    for _ in range(8):
        told.see(["gpu-0001"], ["gpu-0001"])
    told.see(["gpu-0001"], ["gpu-0001"], told.said("gpu-0001", "node_state", state="DRAIN"))
    judged = [told.see(["gpu-0001"], ["gpu-0001"]) for _ in range(15)][-1]
    assert kinds(judged)["telemetry_dark"] is Severity.WARNING


def test_most_nodes_silent_at_once_are_told_sooner(told: Told) -> None:
    everyone = [f"gpu-000{n}" for n in (1, 2, 3)]
    judged = [told.see(everyone, everyone) for _ in range(4)][-1]
    assert [f.severity for f in judged.findings if f.kind == "telemetry_dark"] == [Severity.WARNING] * 3
