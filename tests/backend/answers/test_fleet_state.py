"""The state of every GPU: the worst reason counts, and unknown is never healthy."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from backend.answers.fleet_state import (
    RANK,
    Gpu,
    Sight,
    Trouble,
    distinct,
    natural,
    of_node,
    of_samples,
    of_telemetry,
    slots_of,
)
from backend.answers.pulse import Pulse
from backend.model.cluster import Node

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SILENT = NOW - timedelta(minutes=1)


def node(**more: Any) -> Node:
    base: dict[str, Any] = {
        "cluster": "main",
        "name": "n1",
        "first_seen": NOW,
        "last_seen": NOW,
        "state": "allocated",
    }
    return Node(**(base | more))


def device(index: str, id_: str) -> Gpu:
    return Gpu(id_, "n1", index)


def test_a_node_at_work_has_no_trouble() -> None:
    assert not list(of_node(node(), SILENT))


def test_a_node_that_fell_silent_is_unknown_whatever_the_scheduler_once_said() -> None:
    found = list(of_node(node(state="down", last_seen=NOW - timedelta(hours=1)), SILENT))
    assert [t.state for t in found] == ["unknown"]


def test_a_drain_is_draining_while_work_runs_and_excluded_after() -> None:
    assert [t.state for t in of_node(node(flags=["DRAIN"], state="allocated"), SILENT)] == ["draining"]
    assert [t.state for t in of_node(node(flags=["DRAIN"], state="idle"), SILENT)] == ["excluded"]
    assert [t.state for t in of_node(node(flags=["DRAIN", "COMPLETING"], state="idle"), SILENT)] == ["draining"]


def test_a_foreign_drain_names_its_owner() -> None:
    found = list(of_node(node(flags=["DRAIN"], state="idle", reason="riser swap", reason_owner="root"), SILENT))
    assert found[0].reason == "Drained by root: riser swap"


def test_a_down_node_is_failed() -> None:
    assert [t.state for t in of_node(node(state="down"), SILENT)] == ["failed"]


def test_devices_sit_at_their_index_and_the_rest_at_free_places() -> None:
    slots = slots_of([device("2", "a"), device("", "b"), device("0", "c")], [node(expected_gpus=4)])
    assert slots.place == {"a": 2, "c": 0, "b": 1}
    assert slots.size == {"n1": 4}


def test_the_reason_of_an_incident_is_kept_before_a_bare_one() -> None:
    bare = Trouble("n1", None, "unknown", "silent", NOW - timedelta(hours=2))
    told = Trouble("n1", None, "unknown", "exporter down", NOW, incident=4)
    assert distinct([bare, told]) == [told]


def test_what_an_incident_says_is_lost_is_not_called_dark_as_well() -> None:
    lost = Trouble("n1", 3, "failed", "lost", NOW, incident=4)
    dark = Trouble("n1", 3, "unknown", "No telemetry of it comes.", NOW)
    assert distinct([dark, lost]) == [lost]


def test_racks_sort_as_people_count() -> None:
    assert sorted(["rack-10", "rack-2", "rack-1"], key=natural) == ["rack-1", "rack-2", "rack-10"]


@given(st.lists(st.text(max_size=12), max_size=12))
@settings(max_examples=60, deadline=None)
def test_any_names_can_be_sorted(names: list[str]) -> None:
    assert sorted(sorted(names, key=natural), key=natural) == sorted(names, key=natural)


def test_the_order_of_worst_is_the_design_s() -> None:
    assert RANK[::-1] == ("failed", "unknown", "draining", "suspect", "excluded", "ok")


def source(health: str, name: str = "prometheus") -> Pulse:
    since = NOW - timedelta(minutes=5)
    return Pulse("source", name, health, 1.0, 60.0, 15.0, 0.1, 0, "", since, {})  # type: ignore[arg-type]  # a literal


def test_a_cluster_without_telemetry_has_no_healthy_gpu() -> None:
    assert [t.state for t in of_telemetry([node()], [], NOW)] == ["unknown"]
    assert [t.state for t in of_telemetry([node()], [source("failing")], NOW)] == ["unknown"]
    assert not list(of_telemetry([node()], [source("failing"), source("fine", "remote_write")], NOW))


def test_a_gpu_whose_own_samples_stopped_is_unknown_beside_healthy_neighbours() -> None:
    devices = [device(str(i), f"d{i}") for i in range(2)]
    slots = slots_of(devices, [node(expected_gpus=2)])
    sight = Sight(60.0, {"d0": NOW.timestamp(), "d1": NOW.timestamp() - 300})
    found = list(of_samples(devices, slots, [node()], sight, NOW))
    assert [(t.gpu, t.state) for t in found] == [(1, "unknown")]


def test_a_node_whose_gpus_never_sent_anything_is_one_trouble() -> None:
    devices = [device(str(i), f"d{i}") for i in range(8)]
    slots = slots_of(devices, [node(expected_gpus=8)])
    found = list(of_samples(devices, slots, [node()], Sight(60.0, {"other": NOW.timestamp()}), NOW))
    assert [(t.gpu, t.reason) for t in found] == [(None, "No telemetry of it has come yet.")]
    assert not list(of_samples(devices, slots, [node()], Sight(60.0), NOW)), "no ring here: nothing is claimed"
