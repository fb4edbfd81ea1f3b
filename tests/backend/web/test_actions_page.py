"""Actions: what waits with what it touches and costs, what runs, what nobody knows; each button, and who may press."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlmodel import select

from backend import orders
from backend.clock import ManualClock
from backend.model.actions import Decision, Exclusion, Order
from backend.model.people import Audit
from backend.registry import Parts
from backend.store import system
from backend.store.people import put_user
from tests.backend.web.conftest import Reader, client_of
from tests.backend.web.test_pages import outline
from tests.backend.web.test_rights import csrf, fresh
from tests.backend.web.test_settings_pages import words


def press(client: TestClient, path: str, **fields: str) -> int:
    return int(client.post(path, data={"csrf": csrf(client, "/settings/account"), **fields}).status_code)


def order(parts: Parts, **columns: Any) -> int:
    now = parts.clock.now()
    plain: dict[str, Any] = {
        "cluster": "main", "decision_id": 1, "incident_id": 1, "verb": "drain", "node": "gpu-040", "kind": "node_down",
        "reason": "[watchkeeper] node_down inc=1", "created_at": now, "not_before": now,
    }  # fmt: skip
    with parts.store.write() as session:
        row = Order(**{"key": f"k{now}{columns}", **plain, **columns})
        session.add(row)
        session.flush()
        return row.id or 0


def audits(parts: Parts) -> list[Audit]:
    with parts.store.read() as session:
        return list(session.exec(select(Audit)))


def decision(parts: Parts) -> Decision:
    with parts.store.read() as session:
        return session.get_one(Decision, 1)


@pytest.mark.parametrize("role", ["", "viewer", "approver", "admin"])
def test_the_page_stands_for_every_reader_and_shows_the_buttons_they_may_press(reader: Reader, role: str) -> None:
    page = reader(role).get("/actions").text
    found, told = outline(page), words(page)
    assert found.h1 == 1 and len(found.ids) == len(set(found.ids)) and not found.inline
    assert ("Approve drain and requeue" in told) is (role in ("approver", "admin"))
    assert "Nothing else." in told or "leaves service now" in told
    assert ("Stop all actions" in told) is (role == "admin")


def test_a_plan_shows_each_guard_what_it_touches_and_what_each_way_costs(reader: Reader, parts: Parts) -> None:
    with parts.store.write() as session:
        row = session.get_one(Decision, 1)
        row.advice = [
            "Job 7: Queue it again, on spare nodes: about 12 GPU-hours.",
            "2 spare nodes of its kind are free.",
        ]
        session.add(row)
    told = words(reader("approver").get("/actions").text)
    assert "about 12 GPU-hours" in told and "2 spare nodes of its kind" in told and "Guards:" in told
    assert "leaves service now and stays excluded until" in told


def test_approving_here_makes_the_orders_and_cancelling_withdraws_them(
    reader: Reader, parts: Parts, clock: ManualClock
) -> None:
    fresh(parts, clock)
    approver = reader("approver")
    assert press(approver, "/actions/plans/1/approve", note="night shift") == 303
    assert decision(parts).state == "approved"
    with parts.store.read() as session:
        waiting = session.exec(select(Order).where(Order.incident_id == 1, Order.state == "waiting")).all()
    assert waiting and f"/actions/orders/{waiting[0].id}/cancel" in approver.get("/actions").text
    assert press(reader("operator"), f"/actions/orders/{waiting[0].id}/cancel") == 403
    assert press(approver, f"/actions/orders/{waiting[0].id}/cancel") == 303
    assert press(approver, f"/actions/orders/{waiting[0].id}/cancel") == 409


def test_rejecting_here_keeps_the_reason(reader: Reader, parts: Parts) -> None:
    assert press(reader("approver"), "/actions/plans/1/reject", note="riser swap at 9") == 303
    assert (decision(parts).state, decision(parts).note) == ("rejected", "riser swap at 9")


def test_what_touches_several_nodes_has_to_be_typed_also_without_a_script(reader: Reader, parts: Parts) -> None:
    with parts.store.write() as session:
        row = session.get_one(Decision, 1)
        row.blast = row.blast | {"nodes": ["gpu-001", "gpu-002"]}
        session.add(row)
    approver = reader("approver")
    assert "type 2 nodes" in words(approver.get("/actions").text)
    assert press(approver, "/actions/plans/1/approve", typed="yes") == 422
    assert press(approver, "/incidents/1/decisions/1/approve") == 422, "on the page of the incident too"
    assert 'name="typed"' in approver.get("/incidents/1").text
    assert decision(parts).state == "proposed"


def test_two_persons_are_asked_for_in_plain_words(reader: Reader, parts: Parts, clock: ManualClock) -> None:
    fresh(parts, clock)
    watch = parts.watches["main"]
    watch.rules = replace(watch.rules, limits=replace(watch.rules.limits, wide_gpus=1))
    with parts.store.write() as session:
        put_user(session, "second", "approver", "", clock.now())
    first, second = reader("approver"), client_of(parts, "second")
    assert press(first, "/actions/plans/1/approve") == 303
    assert decision(parts).state == "proposed"
    assert "You approved. It is for two persons" in words(first.get("/actions").text)
    assert "approver approved. It is for two persons: your approval" in words(second.get("/actions").text)
    assert press(first, "/actions/plans/1/approve") == 409
    assert press(second, "/actions/plans/1/approve") == 303 and decision(parts).state == "approved"


def test_a_drain_that_stands_is_undone_by_an_approver_and_its_exclusion_lifted(reader: Reader, parts: Parts) -> None:
    number = order(parts, state="done", sent_at=parts.clock.now(), ended_at=parts.clock.now())
    with parts.store.write() as session:
        session.add(
            Exclusion(
                cluster="main", node="gpu-040", owner="ada", origin="approved", reason="x", incident_id=1,
                created_at=parts.clock.now(), until=parts.clock.now() + timedelta(days=1),
            )
        )  # fmt: skip
    approver = reader("approver")
    assert f"/actions/orders/{number}/undo" in approver.get("/actions").text
    assert press(reader("operator"), f"/actions/orders/{number}/undo") == 403
    assert press(approver, f"/actions/orders/{number}/undo", note="swapped") == 303
    with parts.store.read() as session:
        back = session.exec(select(Order).where(Order.undoes_id == number)).one()
        lifted = session.exec(select(Exclusion).where(Exclusion.node == "gpu-040")).one()
    assert (back.verb, back.node, back.state) == ("resume", "gpu-040", "waiting")
    assert lifted.lifted_at is None, "it keeps work away until the node is back"
    with parts.store.write() as session:
        orders.lift_undone(session, session.get_one(Order, back.id), parts.clock.now())
        lifted = session.exec(select(Exclusion).where(Exclusion.node == "gpu-040")).one()
        assert (lifted.lifted_by, lifted.lift_reason) == ("approver", "swapped")
    assert press(approver, f"/actions/orders/{number}/undo") == 409, "it is on its way back already"
    assert f"/actions/orders/{number}/undo" not in approver.get("/actions").text


def test_what_nobody_knows_stands_by_itself_and_offers_no_way_to_send_it_again(reader: Reader, parts: Parts) -> None:
    number = order(parts, state="uncertain", error="the boot id tells nothing", node="gpu-039")
    page = reader("approver").get("/actions?show=uncertain").text
    assert "Uncertain" in words(page) and "the boot id tells nothing" in words(page)
    assert f"/actions/orders/{number}" not in page and "Under way" not in words(page)


def test_the_breaker_is_reset_by_an_admin_with_a_reason_only(reader: Reader, parts: Parts) -> None:
    with parts.store.write() as session:
        system.trip_breaker(session, "main", "30 nodes of 48 broke within 10 min.", parts.clock.now())
    admin, approver = reader("admin"), reader("approver")
    told = words(admin.get("/actions").text)
    assert "The breaker is tripped: nothing is taken out until an admin resets it." in told
    assert "30 nodes of 48 broke" in told and "Reset the breaker" in told
    assert "An admin can reset it." in words(approver.get("/actions").text)
    assert press(approver, "/actions/breaker", reason="x") == 403
    assert press(admin, "/actions/breaker", reason="  ") == 422
    assert press(admin, "/actions/breaker", reason="the leaf is back") == 303
    assert audits(parts)[-1].details["reason"] == "the leaf is back"
    assert press(admin, "/actions/breaker", reason="again") == 409
    assert "admin reset it at" in words(admin.get("/actions").text)


def test_the_kill_switch_is_thrown_here_as_well(reader: Reader, parts: Parts) -> None:
    assert press(reader("approver"), "/actions/kill-switch", on="1") == 403
    assert press(reader("admin"), "/actions/kill-switch", on="1") == 303
    assert "Let actions go on" in words(reader("admin").get("/actions").text)


def test_ended_orders_turn_pages(reader: Reader, parts: Parts) -> None:
    for number in range(60):
        order(parts, key=f"p{number}", state="failed", error=f"try {number}.", ended_at=parts.clock.now())
    page = reader("viewer").get("/actions?show=ended").text
    older = re.search(r'href="(/actions\?show=ended&amp;before=\d+)"', page)
    assert older is not None and "try 59." in page and "try 3." not in page
    assert "try 3." in reader("viewer").get(older[1].replace("&amp;", "&")).text
