"""Hands beside a scheduler: a signed webhook, tickets, commands without a shell, BMCs; each keeps the contract."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from backend.act.base import ActionError
from backend.act.command import CommandHand, Recipe
from backend.act.dry_run import DryRunBackend
from backend.act.hands import Hand, Hands
from backend.act.redfish import RedfishHand
from backend.act.tickets import ticket
from backend.act.webhook import WebhookHand
from backend.clock import ManualClock
from backend.facts import NodeFacts, Verb
from tests.backend.act.sites import Bmcs, OrderSite
from tests.conftest import NOW
from tests.contracts.cluster_backend import order
from tests.contracts.hand import CHECKS, World, claimed

SECRET = b"a site's key"


class WebhookWorld:
    def __init__(self, site: OrderSite) -> None:
        self.site = site
        self.url = site.url

    def hand(self) -> Hand:
        return WebhookHand("desk", self.url, SECRET, frozenset({Verb.TICKET}), ManualClock(NOW), 5.0, ticket)

    def verb(self) -> Verb:
        return Verb.TICKET

    def happened(self) -> int:
        return len(self.site.orders)

    def refusing(self) -> AbstractContextManager[None]:
        return self.site.saying(403)

    @contextmanager
    def silent(self) -> Iterator[None]:
        kept, self.url = self.url, f"http://127.0.0.1:{closed_port()}"
        yield
        self.url = kept


class RedfishWorld:
    def __init__(self, site: Bmcs) -> None:
        self.site = site
        self.url = site.url

    def hand(self) -> Hand:
        return RedfishHand(f"{self.url}/{{node}}", "root", "secret", 5.0)

    def verb(self) -> Verb:
        return Verb.REBOOT

    def happened(self) -> int:
        return len(self.site.resets)

    def refusing(self) -> AbstractContextManager[None]:
        return self.site.saying(400)

    @contextmanager
    def silent(self) -> Iterator[None]:
        kept, self.url = self.url, f"http://127.0.0.1:{closed_port()}"
        yield
        self.url = kept


class CommandWorld:
    """Two scripts and a folder of done orders; ``mood`` is what the first one does."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.mood = folder, folder / "mood"
        (folder / "done").mkdir()
        self.does = script(
            folder / "do", f'sleep "$(cat {self.mood})" || exit 3; touch "{folder}/done/$1"; echo rebooted'
        )
        self.asks = script(folder / "ask", f'test -e "{folder}/done/$1"')
        self.mood.write_text("0")

    def hand(self) -> Hand:
        recipe = Recipe((str(self.does), "{order}", "{node}"), (str(self.asks), "{order}"))
        return CommandHand({Verb.REBOOT: recipe}, timeout_s=1.0)

    def verb(self) -> Verb:
        return Verb.REBOOT

    def happened(self) -> int:
        return len(list((self.folder / "done").iterdir()))

    @contextmanager
    def mooded(self, word: str) -> Iterator[None]:
        self.mood.write_text(word)
        yield
        self.mood.write_text("0")

    def refusing(self) -> AbstractContextManager[None]:
        return self.mooded("no number")

    def silent(self) -> AbstractContextManager[None]:
        return self.mooded("60")


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.fixture
def desk() -> Iterator[OrderSite]:
    site = OrderSite()
    yield site
    site.close()


@pytest.fixture
def bmcs() -> Iterator[Bmcs]:
    site = Bmcs()
    yield site
    site.close()


@pytest.fixture(params=["webhook", "redfish", "command"])
def world(request: pytest.FixtureRequest, desk: OrderSite, bmcs: Bmcs, tmp_path: Path) -> World:
    made: dict[str, Callable[[], World]] = {
        "webhook": lambda: WebhookWorld(desk),
        "redfish": lambda: RedfishWorld(bmcs),
        "command": lambda: CommandWorld(tmp_path),
    }
    return made[request.param]()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_each_hand_keeps_the_contract(check: Callable[[World], None], world: World) -> None:
    check(world)


# --- webhook --------------------------------------------------------------------------------------------------------


def test_a_webhook_is_signed_over_its_time_and_body_and_carries_the_orders_id(desk: OrderSite) -> None:
    hand = WebhookWorld(desk).hand()
    sent = claimed(hand, order(Verb.TICKET, "gpu-0001"))
    hand.perform(sent)
    method, _, headers, body = next(asked for asked in desk.asked if asked[0] == "POST")
    at = headers["X-Watchkeeper-Timestamp"]
    expected = hmac.new(SECRET, at.encode() + b"." + body, hashlib.sha256).hexdigest()
    assert headers["X-Watchkeeper-Signature"] == f"sha256={expected}"
    assert headers["Idempotency-Key"] == f"main-{sent.id}" == json.loads(body)["id"]
    assert json.loads(body)["key"] == "main:gpu-0001:gpu_bus_loss:812" and method == "POST"


def test_what_was_accepted_is_asked_after_and_never_sent_again(desk: OrderSite) -> None:
    desk.later = True
    hand = WebhookWorld(desk).hand()
    sent = claimed(hand, order(Verb.TICKET, "gpu-0001"))
    for call in (hand.perform, hand.perform, hand.settle):
        with pytest.raises(ActionError) as waits:
            call(sent)
        assert not waits.value.permanent
    assert sum(asked[0] == "POST" for asked in desk.asked) == 1
    desk.later = False
    settled = hand.settle(sent)
    assert settled is not None and settled.attrs["ticket"] == "OPS-7"


def test_a_site_that_cannot_be_asked_leaves_a_doubt_uncertain(desk: OrderSite) -> None:
    desk.deaf = True
    hand = WebhookWorld(desk).hand()
    sent = claimed(hand, order(Verb.TICKET, "gpu-0001"))
    assert hand.perform(sent).changed
    with pytest.raises(ActionError, match="nothing tells") as doubt:
        hand.settle(sent)
    assert doubt.value.permanent


@pytest.mark.parametrize(("status", "permanent"), [(400, True), (409, True), (429, False), (500, False), (302, True)])
def test_an_answer_says_whether_trying_again_can_help(desk: OrderSite, status: int, permanent: bool) -> None:
    hand = WebhookWorld(desk).hand()
    with desk.saying(status), pytest.raises(ActionError, match=f"{status}: not today") as failed:
        hand.perform(claimed(hand, order(Verb.TICKET, "gpu-0001")))
    assert failed.value.permanent == permanent


# --- commands -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("node", ["-rf", "a;b", "$(id)", "a b", "gpu-1\nx", "{job}"])
def test_a_name_that_is_none_runs_nothing(node: str, tmp_path: Path) -> None:
    world = CommandWorld(tmp_path)
    sent = replace(claimed(world.hand(), order(Verb.REBOOT, "gpu-0001")), node=node)
    with pytest.raises(ActionError, match="nothing was run") as refused:
        world.hand().perform(sent)
    assert refused.value.permanent and world.happened() == 0


def test_no_shell_reads_an_argument_and_nothing_of_our_environment_is_handed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHKEEPER_SECRET", "x")
    says = script(tmp_path / "says", 'printf "%s|" "$#" "$1" "$WATCHKEEPER_SECRET"')
    hand = CommandHand({Verb.REBOOT: Recipe((str(says), "{reason} `id` $HOME; ls"))})
    sent = order(Verb.REBOOT, "gpu-0001")
    assert f"1|{sent.reason} `id` $HOME; ls||" in hand.perform(sent).text


def test_a_command_without_a_question_leaves_a_doubt_uncertain(tmp_path: Path) -> None:
    hand = CommandHand({Verb.REBOOT: Recipe((str(script(tmp_path / "x", "true")), "{node}"))})
    with pytest.raises(ActionError, match="nothing tells") as doubt:
        hand.settle(order(Verb.REBOOT, "gpu-0001"))
    assert doubt.value.permanent


def test_exit_code_75_may_be_tried_again_and_a_missing_program_may_not(tmp_path: Path) -> None:
    later = CommandHand({Verb.REBOOT: Recipe((str(script(tmp_path / "later", "exit 75")),))})
    gone = CommandHand({Verb.REBOOT: Recipe((str(tmp_path / "gone"),))})
    for hand, permanent in ((later, False), (gone, True)):
        with pytest.raises(ActionError) as failed:
            hand.perform(order(Verb.REBOOT, "gpu-0001"))
        assert failed.value.permanent == permanent


# --- Redfish --------------------------------------------------------------------------------------------------------


def test_the_gentlest_way_that_the_bmc_allows_is_taken(bmcs: Bmcs) -> None:
    hand = RedfishWorld(bmcs).hand()
    hand.perform(claimed(hand, order(Verb.REBOOT, "gpu-0001")))
    bmcs.allowed = ("On", "PowerCycle")
    hand.perform(claimed(hand, order(Verb.REBOOT, "gpu-0002")))
    assert bmcs.resets == [("gpu-0001", "GracefulRestart"), ("gpu-0002", "PowerCycle")]


def test_a_bmc_that_cannot_tell_leaves_a_doubt_uncertain_and_two_systems_are_refused(bmcs: Bmcs) -> None:
    bmcs.tells = False
    hand = RedfishWorld(bmcs).hand()
    sent = claimed(hand, order(Verb.REBOOT, "gpu-0001"))
    with pytest.raises(ActionError, match="nothing can tell") as doubt:
        hand.settle(sent)
    assert doubt.value.permanent
    bmcs.systems = 2
    with pytest.raises(ActionError, match="2 systems"):
        hand.perform(sent)
    assert bmcs.resets == []


# --- all together ---------------------------------------------------------------------------------------------------


def test_each_verb_goes_to_the_hand_that_can_do_it(desk: OrderSite, bmcs: Bmcs) -> None:
    scheduler = DryRunBackend(lambda: [NodeFacts("gpu-0001")])
    both = Hands(scheduler, [WebhookWorld(desk).hand(), RedfishWorld(bmcs).hand()])
    assert both.can == {Verb.DRAIN, Verb.RESUME, Verb.REQUEUE, Verb.TICKET, Verb.REBOOT}
    for verb in (Verb.TICKET, Verb.REBOOT, Verb.DRAIN):
        sent = order(verb, "gpu-0001")
        both.perform(replace(sent, witness=both.witness(sent)))
    assert (len(desk.orders), len(bmcs.resets)) == (1, 1)
    with pytest.raises(ActionError, match="cannot check") as lacking:
        both.perform(order(Verb.CHECK, "gpu-0001"))
    assert lacking.value.permanent
