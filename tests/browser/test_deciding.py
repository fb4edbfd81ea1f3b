"""A person decides: sign-in, review, approve by mouse and by keyboard, refuse, reject, note."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect
from sqlmodel import select

from backend.model.actions import Decision, Exclusion, Order
from backend.model.cluster import Node
from backend.model.incidents import Incident
from backend.registry import Parts
from tests.backend.web import site
from tests.browser.conftest import Visitor
from tests.browser.pictures import drawn

pytestmark = pytest.mark.browser
Come = Callable[..., Visitor]


def decision(parts: Parts) -> Decision:
    with parts.store.read() as session:
        return session.get_one(Decision, 1)


def test_sign_in_review_and_approve_with_the_mouse(visitor: Come, parts: Parts) -> None:
    page = visitor().page
    page.goto("/incidents/1")
    expect(page.locator("#decision")).to_contain_text("Your role is viewer. An approver can approve.")
    page.locator("#decision").get_by_role("link", name="Sign in").click()
    page.get_by_label("Name").fill("approver")
    page.get_by_label("Password").fill(site.PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/incidents/1")
    page.get_by_role("button", name="Approve drain and requeue").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading")).to_have_text("Drain gpu-012 and requeue job 41207?")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    dialog.get_by_label("Note for the night log").fill("seen on the console")
    dialog.get_by_role("button", name="Drain and requeue").click()
    expect(page.locator("#decision")).to_contain_text("Approved by approver")
    expect(dialog).to_be_hidden()
    assert (decision(parts).state, decision(parts).note) == ("approved", "seen on the console")
    with parts.store.read() as session:
        assert [o.verb for o in session.exec(select(Order).where(Order.incident_id == 1))] == ["drain", "requeue"]
        assert session.exec(select(Exclusion).where(Exclusion.incident_id == 1)).one().origin == "approved"


def test_approve_with_the_keyboard_alone(visitor: Come, parts: Parts) -> None:
    page = visitor("approver").page
    page.goto("/incidents/1")
    page.get_by_role("button", name="Approve drain and requeue").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.get_by_role("button", name="Approve drain and requeue")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#decision")).to_contain_text("Approved by approver")
    assert decision(parts).state == "approved"


def test_review_on_now_opens_the_dialog_of_the_incident(visitor: Come) -> None:
    page = visitor("approver").page
    page.goto("/")
    page.get_by_role("link", name="Review and approve").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    expect(page.get_by_role("button", name="Cancel")).to_be_focused()


def test_a_refusing_guard_is_shown_and_nothing_happens(visitor: Come, parts: Parts) -> None:
    one = visitor("approver")
    one.page.goto("/incidents/1")
    with parts.store.write() as session:
        node = session.get_one(Node, ("main", "gpu-012"))
        node.flags, node.reason, node.reason_owner = ["DRAIN"], "riser swap", "root"
        session.add(node)
    one.page.get_by_role("button", name="Approve drain and requeue").click()
    one.page.get_by_role("dialog").get_by_role("button", name="Drain and requeue").click()
    told = one.page.locator("#told")
    expect(told).to_contain_text("A guard refuses; nothing happened.")
    expect(told).to_contain_text("out by root: riser swap")
    expect(one.page.get_by_role("dialog")).to_be_hidden()
    with one.page.expect_response(lambda r: r.url.endswith("/incidents/1")):
        parts.changes.publish("incident", "1", "main")
    expect(told).to_contain_text("out by root: riser swap")
    assert decision(parts).state == "proposed"
    assert all("409" in line for line in one.said)
    one.said.clear()


def test_reject_and_note_leave_their_words(visitor: Come, parts: Parts) -> None:
    page = visitor("approver").page
    page.goto("/incidents/1")
    page.get_by_label("Note", exact=True).fill("I am on it")
    page.get_by_role("button", name="Save note").click()
    expect(page.locator("#notes")).to_contain_text("I am on it")
    expect(page.get_by_label("Note", exact=True)).to_have_value("")
    page.get_by_role("button", name="Reject", exact=True).click()
    page.get_by_label("Why, optional").fill("riser swap at 9")
    page.get_by_role("button", name="Reject the plan").click()
    expect(page.locator("#decision")).to_contain_text("Rejected by approver")
    assert decision(parts).note == "riser swap at 9"


def test_what_changes_elsewhere_appears_and_typed_text_stays(visitor: Come, parts: Parts) -> None:
    mine, other = visitor("operator").page, visitor("approver").page
    mine.goto("/incidents/1")
    drawn(mine)
    mine.evaluate("window.stayed = true")
    mine.get_by_label("Note", exact=True).fill("half a thou")
    other.goto("/incidents/1")
    other.get_by_role("button", name="Acknowledge").click()
    expect(other.locator(".facts")).to_contain_text("approver")
    parts.changes.publish("incident", "1", "main")
    expect(mine.locator(".facts")).to_contain_text("approver")
    expect(mine.get_by_label("Note", exact=True)).to_have_value("half a thou")
    expect(mine.get_by_label("Note", exact=True)).to_be_focused()
    assert mine.evaluate("window.stayed"), "the page was never loaded anew"


def test_an_open_dialog_and_an_open_table_survive_a_change(visitor: Come, parts: Parts) -> None:
    page = visitor("approver").page
    page.goto("/incidents/1")
    drawn(page)
    page.get_by_text("Table, 18 rows").click()
    page.get_by_role("button", name="Approve drain and requeue").click()
    page.get_by_label("Note for the night log").fill("wait")
    with page.expect_response(lambda r: r.url.endswith("/incidents/1")):
        parts.changes.publish("incident", "1", "main")
    expect(page.get_by_role("dialog")).to_be_visible()
    expect(page.get_by_label("Note for the night log")).to_have_value("wait")
    expect(page.locator("#lanes-twin")).to_have_attribute("open", "")


def test_new_incidents_wait_behind_a_button_while_somebody_reads(visitor: Come, parts: Parts) -> None:
    from tests.backend.web import tales

    page = visitor("viewer").page
    page.goto("/incidents")
    with parts.store.write() as session:
        tales.incident(
            session,
            parts.clock.now(),
            1,
            kind="gpu_bus_loss",
            severity="critical",
            headline="GPU 0 of gpu-001 is lost.",
            entity_kind="gpu",
            entity_id=site.uuid(0, 0),
            entity_name="gpu-001/gpu0",
            node="gpu-001",
        )
    parts.changes.publish("incident", "99", "main")
    new = page.get_by_role("button", name="1 new")
    expect(new).to_be_visible()
    expect(page.locator("#list")).not_to_contain_text("GPU 0 of gpu-001")
    new.click()
    expect(page.locator("#list")).to_contain_text("GPU 0 of gpu-001")


def test_without_the_live_stream_the_page_asks_by_itself(visitor: Come, parts: Parts) -> None:
    one = visitor("viewer")
    one.page.route("**/live*", lambda route: route.abort())
    one.page.goto("/incidents/1")
    with parts.store.write() as session:
        row = session.get_one(Incident, 1)
        row.acknowledged_by = "operator"
        session.add(row)
    expect(one.page.locator(".facts")).to_contain_text("operator", timeout=12_000)
    one.said.clear()
