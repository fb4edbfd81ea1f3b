"""POST slack/actions: buttons under Slack's messages, pressed in the name of the user that the member is mapped to."""

from __future__ import annotations

import json as plain_json
import logging
import re
from typing import Annotated, Any
from urllib.parse import parse_qs, urlsplit

import requests
from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool

from backend import writes
from backend.api.guard import parts_of
from backend.api.problems import Problem
from backend.api.snapshots import snapshots_of
from backend.auth import Person
from backend.clock import unix
from backend.model.actions import Decision
from backend.model.base import LARGEST_ID
from backend.notify.slack import HOSTS
from backend.proposals import Conflict, Refused
from backend.registry import Parts
from backend.security.signed import is_slacks
from backend.settings import Slack
from backend.store import people
from backend.watch import Watch
from backend.writes import Forbidden, Invalid, Missing

router = APIRouter(prefix="/slack", tags=["slack"])
log = logging.getLogger("watchkeeper.slack")

#: What a press is answered with has to be there within three seconds; the words follow by themselves.
ANSWER_S = 3.0
#: The body, for the documentation: a form with one field, which holds JSON.
_FIELDS = {"type": "object", "required": ["payload"], "properties": {"payload": {"type": "string"}}}
FORM: dict[str, Any] = {"requestBody": {"content": {"application/x-www-form-urlencoded": {"schema": _FIELDS}}}}
VALUE = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]*)/([1-9][0-9]{0,17})")


@router.post("/actions", operation_id="slack_actions", openapi_extra=FORM)
async def slack_actions(request: Request, parts: Annotated[Parts, Depends(parts_of)]) -> Response:
    """Acknowledge, Approve and Reject, as Slack posts them (block_actions), signed by it. What the member's user may
    not do is not done, and only they are told why. 404 without a signing secret, 401 for a signature that is not
    Slack's or is older than five minutes."""
    settings = parts.settings.slack
    if settings is None or settings.signing_secret is None:
        raise Problem(404, "No button is taken here: [slack] has no signing_secret.")
    body = await request.body()
    at, given = (request.headers.get(f"x-slack-{name}", "") for name in ("request-timestamp", "signature"))
    key = settings.signing_secret.get_secret_value().encode()
    if not is_slacks(key, at, given, body, unix(parts.clock.now())):
        raise Problem(401, "This is not signed by Slack within the last five minutes; check signing_secret and clock.")
    pressed = pressed_of(body)
    words = await run_in_threadpool(done, request, parts, settings, pressed)
    to = str(pressed.get("response_url", ""))
    return Response(status_code=200, background=BackgroundTask(answer, to, words, settings))


def pressed_of(body: bytes) -> dict[str, Any]:
    """The payload of the form. Raises Problem 400."""
    try:
        found = plain_json.loads(parse_qs(body.decode())["payload"][0])
    except (ValueError, KeyError, UnicodeDecodeError):
        raise Problem(400, "The form holds no payload that can be read as JSON.") from None
    if not isinstance(found, dict):
        raise Problem(400, "The payload is no object.")
    return found


def done(request: Request, parts: Parts, settings: Slack, pressed: dict[str, Any]) -> str:
    """Do what was pressed; returns what the member is told."""
    member = pressed.get("user")
    person = person_of(parts, settings, str(member.get("id", "")) if isinstance(member, dict) else "")
    if isinstance(person, str):
        return person
    said = []
    actions = pressed.get("actions")
    for action in actions if isinstance(actions, list) else []:
        if isinstance(action, dict) and str(action.get("action_id", "")).startswith("watchkeeper_"):
            said.append(one(request, parts, person, str(action["action_id"]), str(action.get("value", ""))))
    return " ".join(said)


def person_of(parts: Parts, settings: Slack, member: str) -> Person | str:
    """The user that a Slack member is here, with their role and limits; or why there is none."""
    name = settings.users.get(member, "")
    if not name:
        return f"Slack member {member or 'unknown'} is nobody here yet: an admin adds them under [slack] users."
    with parts.store.read() as session:
        row = people.user(session, name)
        if row is None or row.disabled_at is not None:
            return f"{name} may not sign in to Watchkeeper."
        return Person(row.name, row.role, "", tuple(row.clusters), tuple(row.projects), tuple(row.nodes))


def one(request: Request, parts: Parts, person: Person, action_id: str, value: str) -> str:
    """One button, in words for who pressed it."""
    verb = action_id.removeprefix("watchkeeper_")
    match = VALUE.fullmatch(value)
    watch = parts.watches.get(match[1]) if match else None
    if match is None or watch is None:
        return "This button is of another Watchkeeper; open the incident instead."
    try:
        words = deed(watch, person, verb, int(match[2]))
    except (Forbidden, Missing, Invalid, Conflict) as error:
        return f"Nothing was done: {error}"
    except Refused as error:
        return f"Nothing was done, a guard refuses: {error}"
    snapshots_of(request).forget(watch.cluster)
    return words


def deed(watch: Watch, person: Person, verb: str, number: int) -> str:
    if verb == "acknowledge":
        row = writes.acknowledge(watch, number, person)
        return f"{row.acknowledged_by} has incident {number}."
    if verb == "approve":
        with watch.store.read() as session:
            plan = session.get(Decision, number) if number <= LARGEST_ID else None
        if plan is not None and plan.cluster == watch.cluster and len(plan.blast.get("nodes", ())) > 1:
            raise Invalid("this plan touches more than one node; approve it on its page, where you type how many.")
        return f"Approved. {writes.approve(watch, number, person, 'in Slack').sentence}"
    if verb == "reject":
        writes.reject(watch, number, person, "in Slack")
        return "Rejected; nothing is done. News of the incident may propose anew."
    return "This button is of another version of Watchkeeper; open the incident instead."


def answer(to: str, words: str, settings: Slack) -> None:
    """Tell only who pressed. Slack's own addresses alone are called, or the one that its API has in the settings."""
    host = urlsplit(to).hostname
    if not words or host not in {*HOSTS, urlsplit(settings.api_url).hostname}:
        return
    body = {"response_type": "ephemeral", "replace_original": False, "text": words}
    try:
        requests.post(to, json=body, timeout=ANSWER_S, allow_redirects=False).close()
    except requests.RequestException as error:
        log.warning("Slack did not take an answer: %s", type(error).__name__)
