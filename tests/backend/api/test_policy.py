"""The policy over REST: as it is, tried on a fault that never was, and the breaker that an admin resets."""

from __future__ import annotations

import pytest
from sqlmodel import select

from backend.model.actions import Decision, Order
from backend.model.incidents import Incident
from backend.store import system
from tests.backend.api.conftest import NOW, Site, problem
from tests.backend.api.rows import a_node

API = "/api/v1"
#: Nobody resets the breaker without saying why.
WHY = {"reason": "the leaf is back"}


def test_the_policy_in_force_can_be_read(site: Site) -> None:
    body = site.program("read").get(f"{API}/policy").json()
    assert body["limits"]["max_out_share"] == 0.05 and body["rules"] == [] and body["mistakes"] == []
    assert body["breaker"] == ""


def test_a_fault_that_never_was_is_decided_and_nothing_is_written(site: Site) -> None:
    a_node(site)
    reader = site.program("read")
    asked = {"kind": "gpu_bus_loss", "node": "gpu-001", "mode": "act"}
    first = reader.get(f"{API}/policy/explain", params=asked).json()
    assert (first["known"], first["rule"], first["recommended"]) == (True, "", "drain_now")
    assert [step["rung"] for step in first["steps"]] == ["exclude", "drain_now"]
    assert len(first["guards"]) == 21
    again = reader.get(f"{API}/policy/explain", params=asked | {"seen": 1}).json()
    assert again["recommended"] == "reboot"
    with site.parts.store.read() as session:
        assert not [*session.exec(select(Decision)), *session.exec(select(Order)), *session.exec(select(Incident))]


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ({"kind": "no_such_kind", "node": "gpu-001"}, 404),
        ({"kind": "gpu_bus_loss"}, 422),
        ({"kind": "gpu_bus_loss", "node": "a b"}, 422),
        ({"kind": "gpu_bus_loss", "node": "x", "seen": -1}, 422),
    ],
)
def test_a_question_that_makes_no_sense_says_why(site: Site, words: dict[str, str], status: int) -> None:
    problem(site.program("read").get(f"{API}/policy/explain", params=words), status)


def test_a_node_that_nobody_knows_is_said_to_be_unknown(site: Site) -> None:
    asked = {"kind": "gpu_bus_loss", "node": "gpu-999", "mode": "act"}
    body = site.program("read").get(f"{API}/policy/explain", params=asked).json()
    assert not body["known"] and not body["allowed"]


def test_only_an_admin_resets_the_breaker(site: Site) -> None:
    with site.parts.store.write() as session:
        system.trip_breaker(session, site.watch.cluster, "10 nodes of 48 broke.", NOW)
    problem(site.person("approver").post(f"{API}/breaker/reset", json=WHY), 403)
    admin = site.person("admin")
    assert admin.post(f"{API}/breaker/reset", json=WHY).json() == {"breaker": "", "was": "10 nodes of 48 broke."}
    problem(admin.post(f"{API}/breaker/reset", json=WHY), 409)
