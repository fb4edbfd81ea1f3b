"""Buttons under Slack's messages: signed, fresh, and with the rights of the user behind the member."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from fastapi.testclient import TestClient

from backend.model.actions import Decision
from backend.model.incidents import Incident
from backend.security.signed import slack_signature
from backend.settings import Slack
from backend.store import people
from tests.backend.api.conftest import NOW, Site, make, problem
from tests.backend.api.rows import a_plan, an_incident
from tests.services.http_sink import Receiver, http_sink

ROUTE = "/api/v1/slack/actions"
KEY = b"8f742231b10e8888abcd99yyyzzz85a5"


@pytest.fixture
def slack() -> Iterator[Receiver]:
    """Where Slack takes the words for who pressed."""
    with http_sink() as running:
        yield running


@pytest.fixture
def pressed(tmp_path: Path, migrated_sqlite: Path, slack: Receiver) -> Iterator[Site]:
    told = {
        "bot_token": "xoxb-1",
        "channel": "C1",
        "signing_secret": KEY.decode(),
        "api_url": slack.url,
        "users": {"U1": "jana", "U2": "otto", "U3": "gone"},
    }
    for site in make(tmp_path, migrated_sqlite, mode="propose", slack=Slack.model_validate(told)):
        with site.parts.store.write() as session:
            people.ensure_user(session, "jana", "approver", NOW)
            people.ensure_user(session, "otto", "viewer", NOW)
        yield site


def press(
    site: Site, slack: Receiver, verb: str, value: str, member: str = "U1", key: bytes = KEY, age_s: int = 0
) -> Any:
    payload = {
        "type": "block_actions",
        "user": {"id": member, "name": "whoever"},
        "response_url": f"{slack.url}/answer",
        "actions": [{"action_id": f"watchkeeper_{verb}", "value": value}],
    }
    body = urlencode({"payload": json.dumps(payload)}).encode()
    at = str(int(NOW.timestamp()) - age_s)
    headers = {
        "X-Slack-Request-Timestamp": at,
        "X-Slack-Signature": slack_signature(key, at, body),
        "Content-Type": "application/x-www-form-urlencoded",
    }
    return site.client(("203.0.113.9", 443)).post(ROUTE, content=body, headers=headers)


def test_acknowledge_is_done_in_the_name_of_the_user_behind_the_member(pressed: Site, slack: Receiver) -> None:
    number = an_incident(pressed)
    assert press(pressed, slack, "acknowledge", f"main/{number}").status_code == 200
    with pressed.parts.store.read() as session:
        row = session.get_one(Incident, number)
        assert (row.acknowledged_by, row.state) == ("jana", "acknowledged")
        assert people.audits(session)[0].actor == "jana"
    said = slack.tape.wait_for(1)[0]
    assert json.loads(said["raw"]) == {
        "response_type": "ephemeral",
        "replace_original": False,
        "text": f"jana has incident {number}.",
    }


def test_reject_ends_a_plan_and_a_second_press_says_so(pressed: Site, slack: Receiver) -> None:
    plan = a_plan(pressed, an_incident(pressed))
    press(pressed, slack, "reject", f"main/{plan}")
    press(pressed, slack, "approve", f"main/{plan}")
    with pressed.parts.store.read() as session:
        assert session.get_one(Decision, plan).state == "rejected"
    words = [json.loads(row["raw"])["text"] for row in slack.tape.wait_for(2)]
    assert words[0].startswith("Rejected") and "Nothing was done" in words[1]


@pytest.mark.parametrize(
    ("member", "says"),
    [("U2", "Your role is viewer"), ("U3", "may not sign in"), ("U9", "nobody here yet"), ("", "nobody here yet")],
)
def test_who_may_not_is_told_why_and_nothing_is_done(pressed: Site, slack: Receiver, member: str, says: str) -> None:
    plan = a_plan(pressed, an_incident(pressed))
    assert press(pressed, slack, "approve", f"main/{plan}", member).status_code == 200
    assert says in json.loads(slack.tape.wait_for(1)[0]["raw"])["text"]
    with pressed.parts.store.read() as session:
        assert session.get_one(Decision, plan).state == "proposed"


@pytest.mark.parametrize(("key", "age_s"), [(b"another", 0), (KEY, 301), (KEY, -301)])
def test_what_slack_did_not_sign_lately_is_refused(pressed: Site, slack: Receiver, key: bytes, age_s: int) -> None:
    number = an_incident(pressed)
    problem(press(pressed, slack, "acknowledge", f"main/{number}", key=key, age_s=age_s), 401)
    with pressed.parts.store.read() as session:
        assert session.get_one(Incident, number).state == "open"


@pytest.mark.parametrize("value", ["main/0", "other/1", "main/1; drop", "", "main/999999999999999999"])
def test_a_button_of_elsewhere_does_nothing(pressed: Site, slack: Receiver, value: str) -> None:
    assert press(pressed, slack, "acknowledge", value).status_code == 200
    assert slack.tape.wait_for(1)


def test_without_a_signing_secret_no_button_is_taken(site: Site, local: TestClient) -> None:
    problem(local.post(ROUTE, content=b"payload={}"), 404)


def test_slacks_own_example_is_signed_as_slack_says() -> None:
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
        b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
        b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
        b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    key = b"8f742231b10e8888abcd99yyyzzz85a5"
    expected = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
    assert slack_signature(key, "1531420618", body) == expected
