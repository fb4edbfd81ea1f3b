"""Backtest: asked for by a form, told while it runs, read side by side, adopted by an admin alone; its REST twin."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from fastapi.testclient import TestClient

from backend.backtest.compare import compare, sentence
from backend.model.tasks import Task
from backend.registry import Parts
from backend.store import tasks
from tests.backend.backtest.test_compare import incident
from tests.backend.web.conftest import client_of
from tests.backend.web.test_pages import outline
from tests.backend.web.test_rights import csrf
from tests.backend.web.test_settings_pages import words
from tests.bundles import T
from tests.conftest import NOW

ASKED = {"start": "2026-02-02 02:40", "end": "2026-02-02 08:40", "thresholds": "silence_ticks = 3"}


def outcome() -> dict[str, Any]:
    found = compare([incident(), incident(9, "n2")], [incident(severity="warning"), incident(30, "n3")], (7, 5))
    return asdict(found) | {"gained": found.gained, "lost": found.lost, "samples": 900, "sentence": sentence(found)}


def a_task(parts: Parts, state: str = "done", **more: Any) -> int:
    asked = {"start": T, "end": T + 3600, "thresholds": {"silence_ticks": 3.0}, "today": {"silence_ticks": 2.0}}
    row = Task(cluster="main", kind="backtest", at=NOW, by="ada", asked=asked, state=state, **more)
    row.result = outcome() if state == "done" else {}
    with parts.store.write() as session:
        session.add(row)
        session.flush()
        return row.id or 0


def sent(client: TestClient, path: str, **fields: str) -> int:
    return client.post(path, data={"csrf": csrf(client, "/settings/account"), **fields}).status_code


@pytest.mark.parametrize("role", ["", "viewer", "operator", "admin"])
def test_each_state_has_one_answer_and_nothing_inline_for_every_reader(parts: Parts, role: str) -> None:
    client = client_of(parts, role)
    states = {state: a_task(parts, state, said="reading the span", share=0.4, cancelled_by="bob")
              for state in ("done", "waiting", "running", "failed", "cancelled")}  # fmt: skip
    for path in ("/backtest", *(f"/backtest/{number}" for number in states.values())):
        got = client.get(path)
        page = outline(got.text)
        assert got.status_code == 200 and page.h1 == 1 and len(page.ids) == len(set(page.ids)) and not page.inline
    assert "40 % done" in words(client.get("/backtest").text)
    assert client.get("/backtest/999").status_code == 404


def test_both_rule_sets_stand_side_by_side_and_each_difference_is_named(parts: Parts) -> None:
    number = a_task(parts)
    page = words(client_of(parts, "viewer").get(f"/backtest/{number}").text)
    for told in ("Today's rules 7 2 2 n1, n2", "The tried rules 5 2 2 n1, n3", "3 differences", "silence_ticks 2 3"):
        assert told in page
    assert "severity: critical today, warning tried" in page and "An admin can put rules in force" in page
    body = client_of(parts, "viewer").get(f"/api/v1/backtests/{number}").json()
    assert (body["result"]["gained"], body["result"]["lost"]) == (["n3"], ["n2"])
    assert [one["what"] for one in body["result"]["differences"]] == ["changed", "not raised", "raised"]


def test_a_form_begins_one_and_says_what_is_wrong_with_it(parts: Parts) -> None:
    client = client_of(parts, "operator")
    assert sent(client, "/backtest", **ASKED) == 303
    assert sent(client, "/backtest", **{**ASKED, "start": "yesterday"}) == 422
    assert sent(client, "/backtest", **{**ASKED, "thresholds": "silence_ticks three"}) == 422
    assert sent(client, "/backtest", **{**ASKED, "thresholds": "no_such = 3"}) == 422
    assert sent(client_of(parts, "viewer"), "/backtest", **ASKED) == 403
    with parts.store.read() as session:
        (row,) = tasks.page(session, "main", 10)
    assert row.asked["thresholds"] == {"silence_ticks": 3.0} and row.asked["today"] == {"silence_ticks": 2.0}
    assert sent(client, f"/backtest/{row.id}/cancel") == 303
    assert sent(client, f"/backtest/{row.id}/cancel") == 409
    assert client.get("/api/v1/backtests").json()["items"][0]["state"] == "cancelled"


def test_an_admin_adopts_it_and_withdraws_it(parts: Parts) -> None:
    number = a_task(parts)
    admin = client_of(parts, "admin")
    assert sent(client_of(parts, "approver"), f"/backtest/{number}/adopt") == 403
    assert sent(admin, f"/backtest/{number}/withdraw") == 409
    assert sent(admin, f"/backtest/{number}/adopt", reason="calmer") == 303
    assert "It is in force." in words(admin.get(f"/backtest/{number}").text)
    assert "In force by adoption" in words(admin.get("/backtest").text)
    assert sent(admin, f"/backtest/{number}/adopt") == 409
    assert sent(admin, f"/backtest/{number}/withdraw") == 303
