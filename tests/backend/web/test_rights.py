"""Who may see and press what; forged and stale forms change nothing."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response
from sqlmodel import select

from backend.auth import COOKIE
from backend.clock import ManualClock
from backend.model.actions import Decision, Order
from backend.model.cluster import Cluster, Node
from backend.model.incidents import Entry, Incident
from backend.registry import Parts
from tests.backend.web import site
from tests.backend.web.conftest import Reader, client_of
from tests.backend.web.test_pages import words

ACKNOWLEDGE = "/incidents/1/acknowledge"
APPROVE = "/incidents/1/decisions/1/approve"


def csrf(client: TestClient, path: str = "/incidents/1") -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', client.get(path).text)
    assert found is not None
    return found[1]


def sign_in(client: TestClient, **fields: str) -> Response:
    """As the form does: with the secret that its page carries."""
    return client.post("/sign-in", data={"csrf": csrf(client, "/sign-in"), **fields})


def incident(parts: Parts) -> Incident:
    with parts.store.read() as session:
        return session.get_one(Incident, 1)


def test_a_reader_on_loopback_sees_pages_but_no_form_that_writes(reader: Reader) -> None:
    page = reader("").get("/incidents/1").text
    assert "Your role is viewer. An approver can approve." in words(page)
    assert not re.findall(r'action="/incidents', page)
    assert "/sign-in?to=" in page


@pytest.mark.parametrize(
    ("role", "approves", "notes"),
    [("viewer", False, False), ("operator", False, True), ("approver", True, True), ("admin", True, True)],
)
def test_each_role_sees_the_buttons_it_may_press_and_a_reason_for_the_others(
    reader: Reader, role: str, approves: bool, notes: bool
) -> None:
    page = reader(role).get("/incidents/1").text
    assert (APPROVE in page) is approves
    assert ("/incidents/1/notes" in page) is notes
    assert (f"Your role is {role}. An approver can approve." in words(page)) is not approves


def test_elsewhere_nobody_reads_without_a_sign_in(parts: Parts) -> None:
    client = TestClient(
        site.app_of(parts), base_url="http://10.0.0.5", client=("10.0.0.9", 50000), follow_redirects=False
    )
    got = client.get("/incidents/1?x=1")
    assert got.status_code == 303 and got.headers["location"] == "/sign-in?to=%2Fincidents%2F1%3Fx%3D1"
    assert client.get("/figures/fleet.json").status_code == 303
    assert client.get("/live").status_code == 303
    assert "384" not in client.get("/sign-in").text, "the sign-in page tells strangers nothing about the cluster"


def test_signing_in_leads_back_and_the_cookie_is_guarded(parts: Parts) -> None:
    client = client_of(parts)
    got = sign_in(client, name="approver", password=site.PASSWORD, to="/incidents/1")
    assert got.status_code == 303 and got.headers["location"] == "/incidents/1"
    cookie = got.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=lax" in cookie
    assert "approver, approver" in words(client.get("/").text)


def test_a_wrong_password_says_the_same_as_a_wrong_name(parts: Parts) -> None:
    client = client_of(parts)
    wrong = [sign_in(client, name=n, password="no") for n in ("approver", "nobody")]
    assert [got.status_code for got in wrong] == [401, 401]
    assert all("Name or password is wrong." in got.text and COOKIE not in got.cookies for got in wrong)


@pytest.mark.parametrize("to", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)"])
def test_sign_in_never_leads_to_another_site(parts: Parts, to: str) -> None:
    got = sign_in(client_of(parts), name="viewer", password=site.PASSWORD, to=to)
    assert got.headers["location"] == "/"


def test_signing_out_ends_the_session_on_the_server(parts: Parts) -> None:
    client = client_of(parts, "approver")
    stolen = client.cookies[COOKIE]
    client.post("/sign-out", data={"csrf": csrf(client)})
    client.cookies.set(COOKIE, stolen)
    assert "Nobody signed in" in words(client.get("/").text)


def test_acknowledging_goes_back_to_where_the_form_stood(reader: Reader, parts: Parts) -> None:
    client = reader("operator")
    got = client.post(ACKNOWLEDGE, data={"csrf": csrf(client), "back": "/"})
    assert got.status_code == 303 and got.headers["location"] == "/"
    assert incident(parts).acknowledged_by == "operator"


def test_a_note_stands_on_the_incident_and_is_inert(reader: Reader, parts: Parts) -> None:
    client = reader("operator")
    client.post("/incidents/1/notes", data={"csrf": csrf(client), "note": "<b>swap</b> the riser\nat 9"})
    assert "&lt;b&gt;swap&lt;/b&gt; the riser" in client.get("/incidents/1").text
    got = client.post("/incidents/1/notes", data={"csrf": csrf(client), "note": "  "})
    assert got.status_code == 422 and "A note has 1 to 4,000 characters" in words(got.text)


@pytest.mark.parametrize("token", ["", "wrong"])
def test_a_form_without_the_secret_of_the_session_changes_nothing(reader: Reader, parts: Parts, token: str) -> None:
    got = reader("approver").post(ACKNOWLEDGE, data={"csrf": token})
    assert got.status_code == 422 and not incident(parts).acknowledged_by


def test_a_form_from_another_site_changes_nothing(reader: Reader, parts: Parts) -> None:
    client = reader("approver")
    token = csrf(client)
    got = client.post(ACKNOWLEDGE, data={"csrf": token}, headers={"Origin": "https://evil.example"})
    assert got.status_code in (303, 422) and not incident(parts).acknowledged_by


def test_the_secret_of_one_session_is_worth_nothing_in_another(reader: Reader, parts: Parts) -> None:
    other = csrf(reader("operator"))
    assert reader("approver").post(ACKNOWLEDGE, data={"csrf": other}).status_code == 422
    assert not incident(parts).acknowledged_by


def test_nobody_writes_on_loopback_without_a_sign_in(reader: Reader, parts: Parts) -> None:
    got = reader("").post(ACKNOWLEDGE, data={"csrf": "x"})
    assert got.status_code == 303 and got.headers["location"].startswith("/sign-in")
    assert not incident(parts).acknowledged_by


def test_a_role_that_may_not_is_told_which_one_may(reader: Reader, parts: Parts) -> None:
    client = reader("operator")
    got = client.post(APPROVE, data={"csrf": csrf(client)})
    assert got.status_code == 403 and "Your role is operator; approve needs approver." in words(got.text)


def test_a_huge_form_is_refused(reader: Reader) -> None:
    client = reader("operator")
    got = client.post("/incidents/1/notes", data={"csrf": csrf(client), "note": "x" * 200_000})
    assert got.status_code == 422


def test_approving_makes_orders_and_shows_who_approved(reader: Reader, parts: Parts, clock: ManualClock) -> None:
    fresh(parts, clock)
    client = reader("approver")
    got = client.post(APPROVE, data={"csrf": csrf(client), "note": "night shift"})
    assert got.status_code == 303, words(got.text)
    page = words(client.get("/incidents/1").text)
    assert "Approved by approver at 12:00 UTC. Note: night shift" in page
    with parts.store.read() as session:
        verbs = [o.verb for o in session.exec(select(Order).where(Order.incident_id == 1)).all()]
    assert verbs == ["drain", "requeue"]


def test_pressing_twice_approves_once_and_says_so(reader: Reader, parts: Parts, clock: ManualClock) -> None:
    fresh(parts, clock)
    client = reader("approver")
    token = csrf(client)
    client.post(APPROVE, data={"csrf": token})
    got = client.post(APPROVE, data={"csrf": token})
    assert got.status_code == 409 and "no longer waits for anybody" in words(got.text)


def test_a_guard_that_refuses_at_the_click_is_named_and_nothing_happens(reader: Reader, parts: Parts) -> None:
    """The stored state of the node is hours old here."""
    client = reader("approver")
    got = client.post(APPROVE, data={"csrf": csrf(client)})
    assert got.status_code == 409
    assert "A guard refuses; nothing happened." in words(got.text)
    with parts.store.read() as session:
        assert session.get_one(Decision, 1).state == "proposed"
        assert not session.exec(select(Order).where(Order.incident_id == 1)).all()


def test_rejecting_keeps_the_reason(reader: Reader, parts: Parts) -> None:
    client = reader("approver")
    client.post("/incidents/1/decisions/1/reject", data={"csrf": csrf(client), "note": "riser swap at 9"})
    page = words(client.get("/incidents/1").text)
    assert "The plan was rejected." in page and "riser swap at 9" in page
    with parts.store.read() as session:
        assert any(e.what == "rejected" for e in session.exec(select(Entry)).all())


def test_only_an_admin_throws_the_kill_switch_and_every_page_shows_it(reader: Reader, parts: Parts) -> None:
    approver, admin = reader("approver"), reader("admin")
    assert approver.post("/system/kill-switch", data={"csrf": csrf(approver), "on": "1"}).status_code == 403
    assert admin.post("/system/kill-switch", data={"csrf": csrf(admin), "on": "1"}).status_code == 303
    with parts.store.read() as session:
        assert session.get_one(Cluster, "main").kill_switch
    for path in ("/", "/fleet", "/incidents/1", "/system"):
        assert "Stopped: no order is sent" in words(approver.get(path).text)


def test_the_theme_is_kept_in_a_cookie(reader: Reader) -> None:
    client = reader("")
    got = client.post("/theme", data={"theme": "dark", "back": "/fleet"})
    assert got.headers["location"] == "/fleet"
    assert '<html lang="en" data-theme="dark">' in client.get("/").text


def test_the_demo_signs_its_reader_in_on_loopback_only(parts: Parts) -> None:
    demo = replace(parts, demo_person="approver")
    local = client_of(demo)
    assert "Nobody signed in" in words(local.get("/").text), "a program that polls pages opens no sessions"
    local.headers["Accept"] = "text/html"
    assert "approver, approver" in words(local.get("/").text) and COOKIE in local.cookies
    far = TestClient(site.app_of(demo), base_url="http://10.0.0.5", client=("10.0.0.9", 1), follow_redirects=False)
    assert far.get("/", headers={"Accept": "text/html"}).status_code == 303 and COOKIE not in far.cookies


def fresh(parts: Parts, clock: ManualClock) -> None:
    """The scheduler has just listed every node, and nobody else holds one: guards may allow."""
    with parts.store.write() as session:
        for node in session.exec(select(Node)).all():
            node.state_at, node.flags, node.reason, node.reason_owner = clock.now(), [], "", ""
            session.add(node)
