"""PagerDuty, Teams, the signed webhook, Apprise and Alertmanager, each against a receiver on loopback."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from backend.notify.alertmanager import AlertmanagerNotifier
from backend.notify.apprise import AppriseNotifier
from backend.notify.base import Notifier, NotifyError
from backend.notify.pagerduty import KEY, SUMMARY, PagerDutyNotifier
from backend.notify.teams import TeamsNotifier
from backend.notify.webhook import WebhookNotifier
from backend.settings import Alertmanager, Apprise, PagerDuty, Teams, Webhook
from detectors.model import Severity
from tests.backend.notify.story import CHANGED, CLOSED, HOSTILE, OPENED, hostile
from tests.contracts.notifier import TIMEOUT_S, NotifierContract, Wire
from tests.services.http_sink import Receiver, http_sink
from tests.services.sinks import Mode

URL = "https://watchkeeper.example.com"
NOBODY = "http://127.0.0.1:1"
AT = 1794451930.0
MAKE: dict[str, Callable[[str], Notifier]] = {
    "pagerduty": lambda at: PagerDutyNotifier(
        PagerDuty.model_validate({"routing_key": "R0UTINGKEY", "url": at + "/v2/enqueue", "timeout_s": TIMEOUT_S}), URL
    ),
    "teams": lambda at: TeamsNotifier(
        Teams.model_validate({"webhook_url": at + "/workflows/s3cr3tpath?sig=s1gn4ture", "timeout_s": TIMEOUT_S}), URL
    ),
    "webhook": lambda at: WebhookNotifier(
        Webhook.model_validate({"url": at + "/hook/s3cr3tpath", "secret": "signing-k3y", "timeout_s": TIMEOUT_S}),
        URL,
        lambda: AT,
    ),
    "alertmanager": lambda at: AlertmanagerNotifier(
        Alertmanager.model_validate({"urls": [at], "token": "b34rer-token", "timeout_s": TIMEOUT_S}), URL, lambda: AT
    ),
}
SECRETS = ("R0UTINGKEY", "s3cr3tpath", "s1gn4ture", "signing-k3y", "b34rer-token")


class HttpWire(Wire):
    def __init__(self, name: str, receiver: Receiver) -> None:
        self.name = name
        self.receiver = receiver
        self.tape = receiver.tape
        self.notifier = MAKE[name](receiver.url)
        self.secrets = SECRETS

    def read(self, row: int) -> str:
        return "\n".join(texts(self.receiver.bodies[row]))

    def same(self, first: int, second: int) -> bool:
        one, other = (self.identity(self.receiver.bodies[row]) for row in (first, second))
        return bool(one == other)

    def identity(self, body: Any) -> Any:
        if self.name == "pagerduty":
            return body["dedup_key"], body["event_action"]
        if self.name == "webhook":
            return body["id"]
        if self.name == "alertmanager":
            return body[0]["labels"], body[0]["endsAt"]
        return body

    def nobody_there(self) -> Notifier:
        return MAKE[self.name](NOBODY)


def texts(body: Any) -> Iterator[str]:
    """Every text of a body, labels of its objects too."""
    if isinstance(body, dict):
        for name, value in body.items():
            yield from (*texts(name), *texts(value)) if value is not False else ()
    elif isinstance(body, list):
        yield from (text for each in body for text in texts(each))
    elif body is not None:
        yield str(body)


@pytest.fixture(params=["pagerduty", "teams", "webhook"])
def wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    with http_sink() as receiver:
        yield HttpWire(request.param, receiver)


class TestHttpChannelsKeepTheContract(NotifierContract):
    """PagerDuty, Teams and the webhook are notifiers."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with http_sink() as running:
        yield running


def test_pagerduty_raises_acknowledges_and_resolves_one_alert(receiver: Receiver) -> None:
    notifier = MAKE["pagerduty"](receiver.url)
    for message in (OPENED, replace(CHANGED, state="acknowledged"), replace(CHANGED, kind="escalated"), CLOSED):
        notifier.send(message)
    assert [body["event_action"] for body in receiver.bodies] == ["trigger", "acknowledge", "trigger", "resolve"]
    assert {body["dedup_key"] for body in receiver.bodies} == {"main-inc-812"}
    first = receiver.bodies[0]["payload"]
    assert (first["severity"], first["group"]) == ("critical", "main")


def test_pagerduty_keeps_its_limits_and_says_what_is_left_out(receiver: Receiver) -> None:
    long = "日" * 20_000
    huge = replace(OPENED, headline=long, why=long, evidence=tuple(f"{n} {long}" for n in range(50)), thread="t" * 400)
    MAKE["pagerduty"](receiver.url).send(huge)
    body = receiver.bodies[0]
    assert len(receiver.tape.rows[0]["raw"].encode()) <= 512_000
    assert len(body["payload"]["summary"]) <= SUMMARY and len(body["dedup_key"]) <= KEY
    assert "more lines" in body["payload"]["custom_details"]["more"]


@pytest.mark.parametrize("kind", ["owner", "digest", "report", "silenced"])
@pytest.mark.parametrize("name", ["pagerduty", "alertmanager"])
def test_what_is_for_reading_wakes_nobody(receiver: Receiver, name: str, kind: Any) -> None:
    receipt = MAKE[name](receiver.url).send(replace(OPENED, kind=kind))
    assert "not sent" in receipt.text and not receiver.bodies


def test_a_card_is_below_what_teams_takes_and_counts_what_is_missing(receiver: Receiver) -> None:
    long = "日本" * 9_000
    MAKE["teams"](receiver.url).send(replace(OPENED, why=long, evidence=(long,) * 20))
    assert len(receiver.tape.rows[0]["raw"].encode()) <= 28_000
    assert "characters more" in "\n".join(texts(receiver.bodies[0]))
    assert OPENED.advice in list(texts(receiver.bodies[0]))


@pytest.mark.parametrize("text", HOSTILE)
def test_a_card_holds_names_as_runs_never_as_markdown(receiver: Receiver, text: str) -> None:
    MAKE["teams"](receiver.url).send(hostile(text))
    blocks = receiver.bodies[0]["attachments"][0]["content"]["body"]
    assert {block["type"] for block in blocks} == {"RichTextBlock"}


def test_a_webhook_is_signed_over_its_time_and_its_body(receiver: Receiver) -> None:
    MAKE["webhook"](receiver.url).send(OPENED)
    row = receiver.tape.rows[0]
    at = row["headers"]["X-Watchkeeper-Timestamp"]
    expected = hmac.new(b"signing-k3y", f"{at}.{row['raw']}".encode(), hashlib.sha256).hexdigest()
    assert row["headers"]["X-Watchkeeper-Signature"] == f"v1={expected}"
    assert (at, row["headers"]["Idempotency-Key"]) == ("1794451930", OPENED.id)


def test_an_alert_ends_by_itself_unless_it_is_told_again(receiver: Receiver) -> None:
    notifier = MAKE["alertmanager"](receiver.url)
    notifier.send(replace(OPENED, fault="gpu_bus_loss", node="gpu-0412"))
    notifier.send(replace(CLOSED, fault="gpu_bus_loss", node="gpu-0412"))
    first, last = (body[0] for body in receiver.bodies)
    assert first["labels"] == last["labels"]
    assert first["labels"]["alertname"] == "WatchkeeperGpuBusLoss" and first["labels"]["node"] == "gpu-0412"
    assert (first["endsAt"], last["endsAt"]) == ("2026-11-12T02:56:10+00:00", "2026-11-12T02:52:10+00:00")


def test_an_alert_that_grew_louder_ends_under_its_old_labels(receiver: Receiver) -> None:
    notifier = MAKE["alertmanager"](receiver.url)
    receipt = notifier.send(replace(OPENED, severity=Severity.WARNING))
    notifier.send(replace(CHANGED, earlier=receipt.attrs))
    louder, before = receiver.bodies[1]
    assert (louder["labels"]["severity"], before["labels"]["severity"]) == ("critical", "warning")
    assert before["endsAt"] == "2026-11-12T02:52:10+00:00"


def test_one_alertmanager_of_two_suffices(receiver: Receiver) -> None:
    both = Alertmanager.model_validate({"urls": [NOBODY, receiver.url], "timeout_s": TIMEOUT_S})
    assert "1 of 2" in AlertmanagerNotifier(both, URL).send(OPENED).text


#: Its import warns of what Python 3.13 will lack.
quiet = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")


def apprise_to(*addresses: str) -> AppriseNotifier:
    return AppriseNotifier(Apprise.model_validate({"urls": " ".join(addresses), "timeout_s": TIMEOUT_S}), URL)


@quiet
def test_apprise_hands_the_whole_text_to_each_of_its_services(receiver: Receiver) -> None:
    to = receiver.url.replace("http", "json")
    assert apprise_to(to, to).send(OPENED).text == "taken by 2 of 2 services"
    for body in receiver.bodies:
        assert OPENED.why in body["message"] and OPENED.headline in body["title"]


@quiet
def test_apprise_tries_again_only_those_services_that_did_not_take_it(receiver: Receiver) -> None:
    notifier = apprise_to(receiver.url.replace("http", "json"), "json://user:s3cr3t@127.0.0.1:1")
    for _ in range(2):
        with pytest.raises(NotifyError, match=r"service 2 .* of 2") as raised:
            notifier.send(OPENED)
        assert not raised.value.permanent and "s3cr3t" not in str(raised.value)
    assert len(receiver.bodies) == 1


@quiet
def test_an_address_that_apprise_does_not_know_is_named_by_its_place() -> None:
    with pytest.raises(NotifyError, match="address 1 of") as raised:
        apprise_to("nosuch://s3cr3t").send(OPENED)
    assert raised.value.permanent and "s3cr3t" not in str(raised.value)


@pytest.mark.parametrize("mode", [Mode.PUT_OFF, Mode.LIMIT])
def test_the_rest_that_a_service_asks_for_is_handed_on(receiver: Receiver, mode: Mode) -> None:
    receiver.tape.mode = mode
    with pytest.raises(NotifyError) as raised:
        MAKE["alertmanager"](receiver.url).send(OPENED)
    assert raised.value.retry_after_s == (37.0 if mode is Mode.LIMIT else None)
    assert json.dumps(SECRETS) not in str(raised.value)
