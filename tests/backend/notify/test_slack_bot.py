"""Slack by a bot, against Slack's rules on loopback: one thread, its root up to date, read back before a resend."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from backend.notify.base import NotifyError
from backend.notify.slack import SlackBot
from backend.settings import Slack
from tests.backend.notify.story import CHANGED, CLOSED, OPENED
from tests.contracts.notifier import TIMEOUT_S, NotifierContract, Wire
from tests.services.http_sink import Receiver, http_sink
from tests.services.sinks import Mode
from tests.services.slack_api import SlackApi
from tests.services.slack_sink import as_read

URL = "https://watchkeeper.example.com"


def bot(at: str, *, signed: bool = True) -> SlackBot:
    told = {"bot_token": "xoxb-s3cr3t", "channel": "C1", "api_url": at + "/api", "timeout_s": TIMEOUT_S}
    return SlackBot(Slack.model_validate(told | ({"signing_secret": "shh"} if signed else {})), URL)


class BotWire(Wire):
    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.tape = receiver.tape
        self.notifier = bot(receiver.url, signed=False)
        self.secrets = ("xoxb-s3cr3t",)

    def read(self, row: int) -> str:
        return as_read(self.receiver.bodies[row])

    def same(self, first: int, second: int) -> bool:
        one, other = (self.receiver.bodies[row]["metadata"] for row in (first, second))
        return bool(one == other)

    def nobody_there(self) -> SlackBot:
        return bot("http://127.0.0.1:1")


@pytest.fixture
def wire() -> Iterator[Wire]:
    with http_sink(SlackApi()) as receiver:
        yield BotWire(receiver)


class TestABotKeepsTheContract(NotifierContract):
    """The bot is a notifier."""


@pytest.fixture
def api() -> SlackApi:
    return SlackApi()


@pytest.fixture
def receiver(api: SlackApi) -> Iterator[Receiver]:
    with http_sink(api) as running:
        yield running


def test_an_incident_is_one_thread_whose_first_message_tells_the_state(receiver: Receiver, api: SlackApi) -> None:
    notifier = bot(receiver.url)
    root = notifier.send(replace(OPENED, decision=12)).attrs
    notifier.send(replace(CHANGED, earlier=root, state="acknowledged"))
    notifier.send(replace(CLOSED, earlier=root))
    first, *answers = api.posts
    assert [post["thread_ts"] for post in answers] == [root["ts:C1"]] * 2
    assert first["text"].startswith("✓ closed") and CLOSED.headline in as_read_of(first)
    assert not any(block["type"] == "actions" for post in api.posts for block in post["blocks"])
    assert first["metadata"]["event_payload"]["id"] == OPENED.id


def as_read_of(post: dict[str, object]) -> str:
    return json.dumps(post, ensure_ascii=False)


def test_buttons_stand_while_somebody_can_press_them(receiver: Receiver, api: SlackApi) -> None:
    bot(receiver.url).send(replace(OPENED, decision=12))
    bot(receiver.url).send(replace(OPENED, state="acknowledged"))
    bot(receiver.url, signed=False).send(replace(OPENED, decision=12))
    pressed = [
        [each["action_id"] for block in post["blocks"] if block["type"] == "actions" for each in block["elements"]]
        for post in api.posts
    ]
    assert pressed == [["watchkeeper_acknowledge", "watchkeeper_approve", "watchkeeper_reject"], [], []]


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_message_whose_answer_was_lost_goes_once(receiver: Receiver, api: SlackApi, in_thread: bool) -> None:
    notifier = bot(receiver.url)
    message = replace(CHANGED, earlier=notifier.send(OPENED).attrs) if in_thread else OPENED
    api.hangs_up = lambda: setattr(receiver.tape, "mode", Mode.DROP_AFTER)
    with pytest.raises(NotifyError):
        notifier.send(message)
    receiver.tape.mode = Mode.TAKE
    receipt = notifier.send(replace(message, again=True))
    assert len(api.posts) == 1 + in_thread and "already" in receipt.text
    assert receipt.attrs["ts:C1"] == api.posts[0]["ts"]


def test_where_a_bot_may_not_look_it_sends_again(receiver: Receiver, api: SlackApi) -> None:
    api.lacks = {"conversations.history"}
    bot(receiver.url).send(replace(OPENED, again=True))
    assert len(api.posts) == 1


def test_a_thread_that_was_deleted_begins_anew(receiver: Receiver, api: SlackApi) -> None:
    receipt = bot(receiver.url).send(replace(CHANGED, earlier={"ts:C1": "1.1"}))
    assert len(api.posts) == 1 and "thread_ts" not in api.posts[0]
    assert receipt.attrs["ts:C1"] == api.posts[0]["ts"]


def test_what_nobody_took_up_is_shown_in_the_channel(receiver: Receiver, api: SlackApi) -> None:
    root = bot(receiver.url).send(OPENED).attrs
    bot(receiver.url).send(replace(CHANGED, kind="escalated", earlier=root))
    assert api.posts[1]["reply_broadcast"] is True


def test_a_refusal_says_what_mends_it_and_is_for_good(receiver: Receiver, api: SlackApi) -> None:
    api.lacks = {"chat.postMessage"}
    with pytest.raises(NotifyError, match=r"missing_scope; give the app chat:write") as raised:
        bot(receiver.url).send(OPENED)
    assert raised.value.permanent
