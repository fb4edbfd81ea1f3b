"""What people change over REST: in whose name, with which right, and what a forged request gets."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient

from backend.security import csrf
from backend.store import people
from tests.backend.api.conftest import NOW, Site, problem
from tests.backend.api.rows import a_node, a_plan, an_exclusion, an_incident, an_order

API = "/api/v1"
NEW = {"node": "gpu-001", "reason": "riser is being swapped", "hours": 8}


def writes(site: Site) -> list[tuple[str, str, Any]]:
    """Every write route, ready to be asked."""
    incident = an_incident(site)
    plan = a_plan(site, incident)
    return [
        ("POST", "/exclusions", NEW),
        ("DELETE", f"/exclusions/{an_exclusion(site, 'gpu-009')}", None),
        ("POST", f"/incidents/{incident}/ack", None),
        ("POST", f"/incidents/{incident}/notes", {"text": "looking"}),
        ("POST", f"/incidents/{incident}/resolve", None),
        ("POST", f"/orders/d{plan}/approve", {}),
        ("POST", f"/orders/d{plan}/reject", {}),
        ("POST", f"/orders/{an_order(site, incident, plan)}/cancel", None),
    ]


def test_no_write_goes_without_a_name_also_on_loopback(site: Site, local: TestClient) -> None:
    for method, path, body in writes(site):
        problem(local.request(method, API + path, json=body), 401)


def test_no_write_goes_with_a_cookie_alone_or_from_another_site(site: Site) -> None:
    approver = site.person("approver")
    secret = approver.headers.pop(csrf.HEADER)
    for method, path, body in writes(site):
        problem(approver.request(method, API + path, json=body), 403)
        problem(approver.request(method, API + path, json=body, headers={csrf.HEADER: "x" * len(secret)}), 403)
        forged = {csrf.HEADER: secret, "Origin": "https://evil.example"}
        problem(approver.request(method, API + path, json=body, headers=forged), 403)


@pytest.mark.parametrize("who", ["viewer", "read", "ingest"])
def test_who_may_only_read_changes_nothing(site: Site, who: str) -> None:
    client = site.person(who) if who == "viewer" else site.program(who)
    for method, path, body in writes(site):
        problem(client.request(method, API + path, json=body), 403)


def test_an_operator_excludes_in_their_own_name_and_lifts_it_again(site: Site, local: TestClient) -> None:
    a_node(site)
    operator = site.person("operator")
    answer = operator.post(f"{API}/exclusions", json=NEW)
    row = answer.json()
    assert answer.status_code == 201 and (row["owner"], row["origin"], row["binding"]) == ("operator", "person", True)
    assert row["until"] == (NOW + timedelta(hours=8)).isoformat()
    assert local.get(f"{API}/nodes/gpu-001").json()["binding"] is True, "who writes reads what was written"
    lifted = operator.delete(f"{API}/exclusions/{row['id']}", params={"reason": "swapped"}).json()
    assert lifted["lifted_at"] == NOW.isoformat() and lifted["binding"] is False
    assert local.get(f"{API}/nodes/gpu-001").json()["verdict"] == "ok"
    problem(operator.delete(f"{API}/exclusions/{row['id']}"), 409)


def test_an_exclusion_lasts_as_long_as_said_or_a_week(site: Site) -> None:
    operator = site.program("operate")
    until = NOW + timedelta(days=2)
    said = operator.post(f"{API}/exclusions", json={"node": "a", "reason": "b", "until": until.isoformat()}).json()
    assert said["until"] == until.isoformat() and said["owner"] == "token:operate robot"
    unsaid = operator.post(f"{API}/exclusions", json={"node": "c", "reason": "b"}).json()
    assert unsaid["until"] == (NOW + timedelta(days=7)).isoformat()


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"node": "a"},
        {"node": "", "reason": "x"},
        {"node": "a", "reason": "   "},
        {"node": "a", "reason": "x", "until": "2026-01-01T00:00:00Z"},
        {"node": "a", "reason": "x", "until": "2026-04-01T00:00:00"},
        {"node": "a", "reason": "x", "hours": -1},
        {"node": "a", "reason": "x", "hours": 1, "until": "2027-01-01T00:00:00Z"},
        {"node": "a", "reason": "x", "hours": "NaN"},
        {"node": "a b\n", "reason": "x"},
        {"node": "a", "reason": "x", "binding": True},
        {"node": "a", "reason": "x\u0000y"},
        {"node": "a", "reason": "\ud800"},
    ],
)
def test_an_exclusion_that_makes_no_sense_is_refused(site: Site, body: Any) -> None:
    headers = {"Content-Type": "application/json"}
    problem(site.program("operate").post(f"{API}/exclusions", content=json.dumps(body), headers=headers), 422)


def test_what_was_approved_an_operator_cannot_lift_and_an_approver_can(site: Site) -> None:
    exclusion = an_exclusion(site)
    problem(site.person("operator").delete(f"{API}/exclusions/{exclusion}"), 403)
    assert site.person("approver").delete(f"{API}/exclusions/{exclusion}").json()["lifted_at"]


def test_acknowledge_note_and_resolve_leave_their_lines(site: Site) -> None:
    incident = an_incident(site)
    operator = site.person("operator")
    assert operator.post(f"{API}/incidents/{incident}/ack").json()["state"] == "acknowledged"
    assert operator.post(f"{API}/incidents/{incident}/ack").json()["acknowledged_by"] == "operator"
    noted = operator.post(f"{API}/incidents/{incident}/notes", json={"text": "riser ordered"})
    assert noted.status_code == 201
    found = operator.post(f"{API}/incidents/{incident}/resolve").json()
    told = [(entry["what"], entry["actor"]) for entry in found["timeline"]]
    assert ("acknowledged", "operator") in told and ("note", "operator") in told and found["state"] == "resolved"
    problem(operator.post(f"{API}/incidents/{incident}/resolve"), 409)
    with site.parts.store.read() as session:
        assert {row.action for row in people.audits(session)} >= {"acknowledge", "note", "resolve"}


@pytest.mark.parametrize("text", ["", "   ", "x" * 4001])
def test_an_empty_or_endless_note_is_refused(site: Site, text: str) -> None:
    incident = an_incident(site)
    problem(site.person("operator").post(f"{API}/incidents/{incident}/notes", json={"text": text}), 422)


def test_approving_a_plan_binds_and_a_second_approval_is_a_conflict(site: Site, local: TestClient) -> None:
    a_node(site)
    plan = a_plan(site, an_incident(site))
    problem(site.person("operator").post(f"{API}/orders/d{plan}/approve"), 403)
    assert local.get(f"{API}/nodes/gpu-001").json()["binding"] is False
    approver = site.person("approver")
    answer = approver.post(f"{API}/orders/d{plan}/approve", json={"note": "spares are free"})
    assert answer.status_code == 200, answer.text
    row = answer.json()
    assert (row["state"], row["decided_by"], row["outcome"]) == ("approved", "approver", "spares are free")
    found = local.get(f"{API}/nodes/gpu-001").json()
    assert (found["verdict"], found["binding"]) == ("exclude", True)
    assert local.get(f"{API}/exclusions", params={"format": "hostlist"}).text == "gpu-001\n"
    problem(approver.post(f"{API}/orders/d{plan}/approve"), 409)


def test_a_guard_that_refuses_is_409_with_every_verdict_and_nothing_happened(site: Site, local: TestClient) -> None:
    a_node(site)
    plan = a_plan(site, an_incident(site))
    from backend.store import system

    with site.parts.store.write() as session:
        system.set_kill_switch(session, site.watch.cluster, True, "dana", NOW)
    body = problem(site.person("approver").post(f"{API}/orders/d{plan}/approve"), 409)
    assert any(guard["verdict"] == "refuses" for guard in body["guards"])
    assert local.get(f"{API}/orders/d{plan}").json()["state"] == "proposed"
    assert local.get(f"{API}/nodes/gpu-001").json()["binding"] is False


def test_a_rejected_plan_no_longer_waits(site: Site) -> None:
    plan = a_plan(site, an_incident(site))
    approver = site.person("approver")
    assert approver.post(f"{API}/orders/d{plan}/reject", json={"note": "known"}).json()["state"] == "rejected"
    problem(approver.post(f"{API}/orders/d{plan}/approve"), 409)
    assert [r["id"] for r in approver.get(f"{API}/orders", params={"state": "rejected"}).json()["items"]] == [
        f"d{plan}"
    ]


def test_only_a_waiting_order_is_cancelled_and_an_order_is_not_a_plan(site: Site) -> None:
    incident = an_incident(site)
    plan = a_plan(site, incident, state="approved")
    order = an_order(site, incident, plan)
    approver = site.person("approver")
    problem(approver.post(f"{API}/orders/{order}/approve"), 409)
    problem(approver.post(f"{API}/orders/d{plan}/cancel"), 409)
    assert approver.post(f"{API}/orders/{order}/cancel").json()["state"] == "cancelled"
    problem(approver.post(f"{API}/orders/{order}/cancel"), 409)


@pytest.mark.parametrize("path", ["orders/d4711/approve", "orders/4711/cancel", "incidents/4711/ack"])
def test_writing_to_what_is_not_there_is_404(site: Site, path: str) -> None:
    problem(site.person("approver").post(f"{API}/{path}"), 404)


def test_malformed_json_is_400_and_says_so(site: Site) -> None:
    headers = {"Content-Type": "application/json"}
    answer = site.program("operate").post(f"{API}/exclusions", content=b'{"node":', headers=headers)
    assert "JSON" in problem(answer, 400)["detail"]
    problem(site.program("operate").post(f"{API}/exclusions", content=b'{"node":"\xff"}', headers=headers), 400)
