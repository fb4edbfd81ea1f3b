"""Slack through a real webhook on loopback that holds us to Slack's limits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.notify.base import NotifyError
from backend.notify.http import retry_after_s
from backend.notify.slack import SlackNotifier, payload
from backend.settings import Slack
from tests.backend.notify.story import CLOSED, OPENED, hostile
from tests.contracts.notifier import TIMEOUT_S, NotifierContract, Wire
from tests.services.sinks import Mode
from tests.services.slack_sink import Hook, as_read, complaint, slack_sink, texts

URL = "https://watchkeeper.example.com"


def hooked(url: str) -> Slack:
    return Slack.model_validate({"webhook_url": url, "timeout_s": TIMEOUT_S})


class SlackWire(Wire):
    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        self.tape = hook.tape
        self.tape.slow_s = 2.0
        self.notifier = SlackNotifier(hooked(hook.url), URL)
        self.secrets = (hook.url, "kEyOfTheHook", "B0SECRET")

    def read(self, row: int) -> str:
        return as_read(self.hook.bodies[row])

    def same(self, first: int, second: int) -> bool:
        """A webhook has no ids: the same words are the same message."""
        return self.hook.bodies[first] == self.hook.bodies[second]

    def nobody_there(self) -> SlackNotifier:
        return SlackNotifier(hooked("http://127.0.0.1:1/services/T0SECRET/B0SECRET/kEyOfTheHook"), URL)


@pytest.fixture
def wire() -> Iterator[Wire]:
    with slack_sink() as hook:
        yield SlackWire(hook)


class TestSlackKeepsTheContract(NotifierContract):
    """Slack is a notifier."""


@pytest.fixture
def hook() -> Iterator[Hook]:
    with slack_sink() as running:
        yield running


def test_the_rest_that_slack_asks_for_is_handed_on(hook: Hook) -> None:
    hook.tape.mode = Mode.LIMIT
    with pytest.raises(NotifyError) as raised:
        SlackNotifier(hooked(hook.url), URL).send(OPENED)
    assert raised.value.retry_after_s == 37.0


@pytest.mark.parametrize(
    ("value", "date", "expected"),
    [
        ("30", "", 30.0),
        ("0", "", 0.0),
        ("Thu, 12 Nov 2026 03:00:30 GMT", "Thu, 12 Nov 2026 03:00:00 GMT", 30.0),
        ("Thu, 12 Nov 2026 02:00:00 GMT", "Thu, 12 Nov 2026 03:00:00 GMT", 0.0),
        ("Thu, 12 Nov 2026 03:00:30 GMT", "", None),
        ("soon", "", None),
        ("-5", "", None),
        ("²", "", None),
        ("", "", None),
        ("9" * 400, "", 999_999_999.0),
    ],
)
def test_retry_after_is_read_in_both_forms_and_nonsense_is_nothing(
    value: str, date: str, expected: float | None
) -> None:
    assert retry_after_s({"Retry-After": value, "Date": date}) == expected


def test_a_message_reads_answer_first() -> None:
    shown = as_read(payload(OPENED, URL)).splitlines()
    assert shown[0] == f"◆ critical: {OPENED.headline}"
    assert shown[1] == "incident 812 on main · opened 2026-11-12 02:52:08 UTC"
    assert shown[2] == OPENED.why
    assert payload(CLOSED, URL)["text"].startswith("✓ closed: GPU 3 of gpu-0412 is back.")
    assert as_read(payload(CLOSED, URL)).splitlines()[1].startswith("was critical · incident 812 on main · closed")


def test_a_pci_address_or_a_star_stays_what_it_is() -> None:
    facts = (("PCI", "0000:9b:00"), ("Name", "*gpu*"), ("Kind", "gpu_bus_loss"), ("Since", "02:52:08 UTC"))
    body = payload(replace(OPENED, facts=facts), URL)
    fields = [field for block in body["blocks"] for field in block.get("fields", [])]
    assert [field["type"] for field in fields] == ["plain_text", "plain_text", "mrkdwn", "mrkdwn"]


def test_no_text_of_the_cluster_is_a_control_sequence() -> None:
    body = json.dumps(payload(hostile("<!channel> <@U1> <https://evil.example|x>"), URL))
    assert "<!" not in body and "<@" not in body and "<https://evil" not in body
    assert body.count("<") == 1, "our own link and nothing else"


@settings(max_examples=60, deadline=None)
@given(
    st.text(max_size=6000),
    st.lists(st.tuples(st.text(max_size=2500), st.text(max_size=3000)), max_size=60),
    st.lists(st.text(max_size=4000), max_size=60),
)
def test_any_message_keeps_slacks_limits(text: str, facts: list[tuple[str, str]], lines: list[str]) -> None:
    message = replace(hostile(text), facts=tuple(facts), evidence=tuple(lines))
    body = payload(message, URL)
    assert complaint(json.dumps(body).encode()) == ""


def test_what_does_not_fit_is_counted() -> None:
    body = payload(replace(OPENED, evidence=tuple("&" * 1000 for _ in range(20))), URL)
    shown = as_read(body)
    missing = next(line for line in shown.splitlines() if line.endswith("characters more stand in the incident."))
    arrived = sum(text.count("&amp;") for block in body["blocks"] for _, text in texts(block))
    lost = int(missing.split()[0].replace(",", ""))
    assert 20_000 - arrived <= lost <= 20_000 - arrived + 60, "bullets and line breaks may count too"


def test_a_mistyped_webhook_is_told_without_being_shown() -> None:
    with pytest.raises(NotifyError, match=r"\[slack\] webhook_url") as raised:
        SlackNotifier(hooked("https://:80/services/T0/B0/kEy"), URL).send(OPENED)
    assert raised.value.permanent and "kEy" not in str(raised.value)
