"""The state of every GPU: the worst reason counts, and unknown is never healthy."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from backend.answers.fleet_state import RANK, Trouble, distinct, natural, of_node, slots_of
from backend.model.cluster import Device, Node

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


def device(index: str, id_: str) -> Device:
    return Device(cluster="main", id=id_, node="n1", index=index, first_seen=NOW, last_seen=NOW)


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


def test_racks_sort_as_people_count() -> None:
    assert sorted(["rack-10", "rack-2", "rack-1"], key=natural) == ["rack-1", "rack-2", "rack-10"]


@given(st.lists(st.text(max_size=12), max_size=12))
@settings(max_examples=60, deadline=None)
def test_any_names_can_be_sorted(names: list[str]) -> None:
    assert sorted(sorted(names, key=natural), key=natural) == sorted(names, key=natural)


def test_the_order_of_worst_is_the_design_s() -> None:
    assert RANK[::-1] == ("failed", "unknown", "draining", "suspect", "excluded", "ok")
