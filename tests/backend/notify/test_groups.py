"""What is told together, what waits, what is said again, and what is held back: on both databases, timers as rows."""

from __future__ import annotations

from datetime import time, timedelta

import pytest
from sqlalchemy import event
from sqlmodel import select

from backend.clock import ManualClock
from backend.model.alerts import AlertGroup
from backend.notify import groups
from backend.notify.routing import Escalation, Route, Routing
from backend.notify.silences import Flaps, Inhibit, Match
from backend.store.engine import Store
from detectors.model import Severity
from tests.backend.notify.desk import AtTheDesk

BOTH = ("email", "slack")


@pytest.fixture
def desk(store: Store, clock: ManualClock) -> AtTheDesk:
    return AtTheDesk(store, clock)


@pytest.fixture
def small(sqlite_store: Store, clock: ManualClock) -> AtTheDesk:
    return AtTheDesk(sqlite_store, clock)


def test_a_page_goes_at_once_and_ends_with_its_incident(desk: AtTheDesk) -> None:
    number = desk.incident()
    assert desk.after(0) == ["opened>email,slack"]
    desk.close(number)
    assert desk.after(0) == ["closed>email,slack"]
    assert desk.after(86_400) == []


def test_what_is_no_page_waits_for_company_and_is_told_as_one(desk: AtTheDesk) -> None:
    for node in ("n0", "n1", "n2"):
        desk.incident(node, severity="high")
        assert desk.after(9) == []
    assert desk.after(10) == ["opened>email,slack"]
    assert desk.last()["headline"] == "ib_link_down on n0 And 2 more like it."
    assert ["2 more", "n1, n2"] in desk.last()["facts"]  # type: ignore[operator]  # a list of pairs


def storm_of(desk: AtTheDesk, count: int) -> None:
    numbers = desk.burst([f"n{n % 8}" for n in range(count)])
    assert desk.after(0) == ["opened>email,slack"]
    assert f"{count - 1:,} more" in str(desk.last()["headline"])
    assert desk.after(3600) == []
    for number in numbers[:3]:
        desk.close(number)
    assert desk.after(3600) == []
    assert desk.last()["thread"] == f"main-inc-{numbers[0]}"


def test_a_storm_under_one_switch_is_one_page_one_thread_and_one_mail(small: AtTheDesk) -> None:
    storm_of(small, 60)


@pytest.mark.slow
def test_ten_thousand_of_one_switch_are_one_page_one_thread_and_one_mail(small: AtTheDesk) -> None:
    storm_of(small, 10_000)


def test_another_switch_and_another_kind_are_other_threads(small: AtTheDesk) -> None:
    for node, kind in (("n0", "ib_link_down"), ("n9", "ib_link_down"), ("n0", "gpu_bus_loss")):
        small.incident(node, kind)
    assert small.after(0) == ["opened>email,slack"] * 3


def test_latecomers_are_told_once_an_interval_where_nobody_is_woken(small: AtTheDesk) -> None:
    small.routing = Routing((Route("r", channels=("email", "pagerduty", "slack")),), edits=frozenset({"slack"}))
    small.incident("n0")
    assert small.after(10) == ["opened>email,pagerduty,slack"]
    small.incident("n1")
    small.incident("n2")
    assert small.after(280) == []
    assert small.after(20) == ["changed>email,slack"]
    assert small.after(3000) == []


def test_what_breaks_after_the_storm_is_a_page_of_its_own(small: AtTheDesk) -> None:
    small.incident("n0")
    small.after(301)
    small.incident("n1")
    assert small.after(0) == ["opened>email,slack"]


def test_growing_louder_is_told_at_once(small: AtTheDesk) -> None:
    number = small.incident(severity="high")
    assert small.after(30) == ["opened>email,slack"]
    small.change(number, severity="critical")
    assert small.after(0) == ["changed>email,slack"]
    assert small.last()["why"] == "It was high and is critical now."


def test_a_plan_that_waits_is_told_once_where_the_message_had_none(small: AtTheDesk) -> None:
    number = small.incident()
    small.after(60)
    small.propose(number)
    assert small.after(0) == ["proposal>email,slack"]
    assert small.after(3600) == []


def test_nobody_who_acknowledges_is_reminded(small: AtTheDesk) -> None:
    number = small.incident()
    assert small.after(4 * 3600) == ["opened>email,slack", "changed>email,slack"]
    assert small.last()["why"] == "It is still open, and nobody has acknowledged it."
    small.change(number, acknowledged_by="ada", state="acknowledged")
    assert small.after(24 * 3600) == []


def test_it_climbs_until_somebody_acknowledges(small: AtTheDesk) -> None:
    steps = (Escalation(900, ("slack",)), Escalation(1800, ("pagerduty",), {"pagerduty": ("boss",)}))
    small.routing = Routing((Route("r", channels=("email",), escalate=steps, repeat_s=0),))
    number = small.incident()
    assert small.after(899) == ["opened>email"]
    assert small.after(2) == ["escalated>slack"]
    assert small.last()["why"] == "Nobody has acknowledged it for 15 min."
    assert small.after(900) == ["escalated>pagerduty"]
    assert small.after(86_400) == []
    other = small.incident("n9")
    small.after(10)
    small.change(other, acknowledged_by="ada", state="acknowledged")
    assert small.after(86_400) == []
    assert number != other


def test_a_digest_gathers_until_its_hour(small: AtTheDesk) -> None:
    at = (small.clock.now() + timedelta(hours=5)).time().replace(microsecond=0)
    quiet = Route("quiet", Match(most=Severity.WARNING), channels=("email",), digest=time(at.hour, at.minute))
    small.routing = Routing((quiet,))
    for node in ("n0", "n9", "n17"):
        small.incident(node, severity="warning")
    assert small.after(4 * 3600) == []
    assert small.after(2 * 3600) == ["digest>email"]
    assert small.last()["headline"] == "3 alerts gathered: 3 ib link down."
    assert small.last()["url"] == "https://watch.test/alerts"
    assert small.after(48 * 3600) == []


def test_a_silence_holds_back_until_it_ends_and_then_it_is_told(desk: AtTheDesk) -> None:
    desk.silence(2, node=("n0",))
    number = desk.incident("n0")
    desk.incident("n9")
    assert desk.after(3600) == ["opened>email,slack"]
    assert desk.member(number).state == "held" and desk.member(number).why.startswith("silence")
    assert desk.after(3601) == ["opened>email,slack"]


def test_what_closes_under_a_silence_is_never_told(small: AtTheDesk) -> None:
    small.silence(2, node=("n0",))
    number = small.incident("n0")
    small.after(60)
    small.close(number)
    assert small.after(86_400) == []
    assert small.member(number).why == "it closed before it was told"


def test_a_thread_that_is_silenced_says_so_once_and_still_hears_of_its_end(small: AtTheDesk) -> None:
    number = small.incident("n0")
    small.after(60)
    small.silence(8, node=("n0",))
    assert small.after(7 * 3600) == ["silenced>email,slack"]
    small.close(number)
    assert small.after(0) == ["closed>email,slack"]


def test_announced_work_holds_back_as_a_silence_does(small: AtTheDesk) -> None:
    small.silence(1, kind="maintenance", switch=("s0",))
    number = small.incident("n3")
    assert small.after(60) == []
    assert small.member(number).why.startswith("maintenance")


def test_ports_of_a_switch_in_trouble_are_spoken_for_until_it_is_over(small: AtTheDesk) -> None:
    more = {"entity_kind": "switch", "entity_name": "switch:s0"}
    switch = small.incident("", "network_fabric", **more)
    assert small.after(0) == ["opened>email,slack"]
    ports = [small.incident(f"n{n}") for n in range(8)]
    assert small.after(600) == []
    small.close(switch)
    assert small.after(600) == ["closed>email,slack", "opened>email,slack"]
    assert {small.member(port).state for port in ports} == {"told"}


def test_a_rule_of_the_site_says_what_speaks_for_what(small: AtTheDesk) -> None:
    small.with_routing(inhibit=(Inhibit(Match(kind=("fs_down",)), Match(kind=("checkpoint_*",))),))
    small.incident("n0", "fs_down")
    small.incident("n1", "checkpoint_slow")
    assert small.after(600) == ["opened>email,slack"]


def test_what_comes_and_goes_is_told_so_and_then_left_alone_until_it_is_calm(small: AtTheDesk) -> None:
    small.with_routing(flaps=Flaps(3, 3600, 1800))
    said = []
    for _ in range(6):
        number = small.incident("n0", entity_id="same")
        said += small.after(60)
        small.close(number)
        said += small.after(240)
    assert said == ["opened>email,slack", "closed>email,slack"] * 3
    number = small.incident("n0", entity_id="same")
    assert small.after(1700) == []
    assert small.member(number).why == "it opened 7 times within 1 h"
    assert small.after(101) == ["opened>email,slack"]


def test_the_last_that_is_told_says_that_it_flaps(small: AtTheDesk) -> None:
    small.with_routing(flaps=Flaps(2, 3600, 1800))
    for _ in range(2):
        number = small.incident("n0", entity_id="same")
        small.after(60)
        small.close(number)
        small.after(60)
    with small.store.read() as session:
        from backend.store import messages

        (told,) = [m for m in messages.of_incident(session, "main", number) if m.kind == "opened"]
    assert told.body["why"].startswith("It comes and goes: 2 times within 1 h.")


def test_what_something_else_speaks_for_is_held_and_told_when_that_ends(small: AtTheDesk) -> None:
    number = small.incident("n0", severity="high")
    small.muted[number] = "the breaker's own incident speaks for it"
    assert small.after(600) == []
    small.muted.clear()
    assert small.after(61) == ["opened>email,slack"]


def test_two_routes_tell_their_own_people_in_one_thread(small: AtTheDesk) -> None:
    routes = (
        Route("team", Match(kind=("ib_*",)), channels=("email",), to={"email": ("net@x.test",)}, goes_on=True),
        Route("all", channels=("email", "slack")),
    )
    small.routing = Routing(routes)
    number = small.incident("n0")
    assert small.after(0) == ["opened>email", "opened>email,slack"]
    with small.store.read() as session:
        from backend.store import messages

        told = messages.deliveries_of(session, "main", number)
    assert [(m.route, d.channel, d.to) for m, d in told] == [
        ("team", "email", ["net@x.test"]),
        ("all", "email", []),
        ("all", "slack", []),
    ]
    assert {m.body["thread"] for m, _ in told} == {f"main-inc-{number}"}
    assert len({m.body["id"] for m, _ in told}) == 2


def test_a_storm_of_many_is_looked_at_in_few_statements(small: AtTheDesk) -> None:
    small.burst([f"n{n % 8}" for n in range(120)], job="7")
    statements: list[str] = []

    def counted(*words: object) -> None:
        statements.append(str(words[2]))

    with small.store.write() as session:
        event.listen(session.get_bind(), "before_cursor_execute", counted)
        (group,) = session.exec(select(AlertGroup)).all()
        assert len(groups.look(session, small.desk, group, small.clock.now()).live) == 120
        event.remove(session.get_bind(), "before_cursor_execute", counted)
    assert len(statements) < 30
