"""Who is told of an alert, why, when, and with whom together."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, time, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.notify.routing import Escalation, Plan, Route, fallback_of, heard_by, key_of, plan, until_digest_s
from backend.notify.silences import (
    Alert,
    Around,
    Flaps,
    Hours,
    Inhibit,
    Match,
    Standing,
    Window,
    comes_and_goes,
    match_of,
    match_row,
)
from detectors.model import Severity

NOON = datetime(2026, 11, 12, 12, 0, tzinfo=UTC)  # a Thursday
ALERT = Alert(
    cluster="main",
    kind="gpu_bus_loss",
    severity=Severity.CRITICAL,
    at=NOON,
    incident=812,
    entity="gpu-0412/gpu3",
    entity_kind="gpu",
    node="gpu-0412",
    rack="r7",
    switch="leaf-3",
    job="48213",
    owner="mona",
    team="llm",
)
FALLBACK = fallback_of(("email", "slack"), Severity.HIGH)


def told(alert: Alert, *routes: Route, around: Around | None = None) -> Plan:
    return plan(alert, routes, FALLBACK, around or Around())


def names(found: Plan) -> list[str]:
    return [choice.route.name for choice in found.taken]


def test_what_no_route_takes_goes_to_every_channel_from_its_floor_on() -> None:
    assert names(told(ALERT)) == ["default"]
    assert told(ALERT).taken[0].route.channels == ("email", "slack")
    quiet = told(replace(ALERT, severity=Severity.WARNING))
    assert names(quiet) == []
    assert quiet.choices[0].why == "severity warning is below high"


def test_the_first_route_that_fits_takes_it_and_the_others_say_so() -> None:
    gpus = Route("gpus", Match(kind=("gpu_*",)), channels=("slack",))
    all_ = Route("all", channels=("email",))
    found = told(ALERT, gpus, all_)
    assert names(found) == ["gpus"]
    assert [choice.why for choice in found.choices[1:]] == ["gpus takes it", "another route takes it"]
    assert names(told(replace(ALERT, kind="nfs_slow"), gpus, all_)) == ["all"]


def test_a_route_that_goes_on_leaves_room_for_the_next() -> None:
    gpus = Route("gpus", Match(kind=("gpu_*",)), channels=("slack",), goes_on=True)
    assert names(told(ALERT, gpus, Route("all", channels=("email",)))) == ["gpus", "all"]


def test_a_route_without_channels_takes_it_and_tells_nobody() -> None:
    found = told(ALERT, Route("muted", Match(team=("llm",))))
    assert names(found) == ["muted"]
    assert found.taken[0].why.endswith("this route tells nobody")


@pytest.mark.parametrize(
    ("match", "why"),
    [
        (Match(cluster=("other",)), "cluster main is not other"),
        (Match(kind=("nfs_*", "ib_*")), "kind gpu_bus_loss is not nfs_* or ib_*"),
        (Match(team=("vision",)), "team llm is not vision"),
        (Match(owner=("paul",)), "owner mona is not paul"),
        (Match(rack=("r1?",)), "rack r7 is not r1?"),
        (Match(most=Severity.HIGH), "severity critical is above high"),
        (Match(node=("gpu-04*",), job=("48213",), owner=("mona",), least=Severity.CRITICAL), ""),
    ],
)
def test_a_match_says_why_it_does_not_fit(match: Match, why: str) -> None:
    assert match.against(ALERT) == why


names_ = st.lists(st.sampled_from(["a", "gpu-*", "leaf-3", "日本"]), max_size=3).map(tuple)
bounds = st.one_of(st.none(), st.sampled_from(list(Severity)))


@given(kind=names_, node=names_, team=names_, least=bounds, most=bounds)
def test_a_match_survives_the_database(
    kind: tuple[str, ...],
    node: tuple[str, ...],
    team: tuple[str, ...],
    least: Severity | None,
    most: Severity | None,
) -> None:
    match = Match(kind=kind, node=node, team=team, least=least, most=most)
    assert match_of(match_row(match)) == match


@pytest.mark.parametrize(
    ("hours", "at", "on"),
    [
        (Hours(), NOON, True),
        (Hours(("monday",)), NOON, False),
        (Hours((), time(8), time(18)), NOON, True),
        (Hours((), time(8), time(12)), NOON, False),
        (Hours((), time(12), time(13)), NOON, True),
        (Hours((), time(22), time(6)), NOON, False),
        (Hours((), time(22), time(6)), NOON.replace(hour=23), True),
        (Hours((), time(22), time(6)), NOON.replace(hour=3), True),
        # a night shift belongs to the day on which it begins
        (Hours(("wednesday",), time(22), time(6)), NOON.replace(hour=3), True),
        (Hours(("thursday",), time(22), time(6)), NOON.replace(hour=3), False),
        # 12:00 UTC is 04:00 in California, and the clocks of Berlin stand at 13:00
        (Hours((), time(8), time(18), "America/Los_Angeles"), NOON, False),
        (Hours((), time(13), time(14), "Europe/Berlin"), NOON, True),
    ],
)
def test_hours_are_those_of_their_zone(hours: Hours, at: datetime, on: bool) -> None:
    assert (hours.against(at) == "") is on


def test_outside_its_hours_a_route_lets_the_next_one_have_it() -> None:
    day = Route("day", hours=Hours((), time(8), time(18)), channels=("slack",))
    night = Route("night", channels=("pagerduty",))
    assert names(told(ALERT, day, night)) == ["day"]
    assert names(told(replace(ALERT, at=NOON.replace(hour=2)), day, night)) == ["night"]


def test_a_page_waits_for_nothing_and_the_rest_for_company() -> None:
    assert told(ALERT).taken[0].wait_s == 0
    assert told(replace(ALERT, severity=Severity.HIGH)).taken[0].wait_s == 30
    assert told(ALERT, Route("late", channels=("email",), page_from=Severity.CRITICAL, wait_s=5)).taken[0].wait_s == 0


def test_what_is_told_together_has_the_same_kind_under_the_same_switch() -> None:
    route = Route("r", channels=("email",))
    assert key_of(route, ALERT) == "kind=gpu_bus_loss place=leaf-3"
    assert key_of(route, replace(ALERT, switch="", rack="r7")) == "kind=gpu_bus_loss place=r7"
    assert key_of(route, replace(ALERT, switch="", rack="")) == "kind=gpu_bus_loss place=gpu-0412"
    assert key_of(replace(route, group_by=("team",)), ALERT) == "team=llm"


def test_a_digest_waits_for_its_hour_in_its_zone() -> None:
    route = Route("d", digest=time(8), hours=Hours(zone="Europe/Berlin"), channels=("email",))
    assert until_digest_s(route, NOON) == 19 * 3600
    assert told(ALERT, route).taken[0].wait_s == 19 * 3600
    assert until_digest_s(route, NOON.replace(hour=6)) == 3600


# --- what holds back ------------------------------------------------------------------------------------------------


def silence(match: Match, hours: float = 1, kind: str = "silence") -> Window:
    end = NOON + timedelta(hours=hours)
    return Window(3, kind, match, NOON - timedelta(hours=1), end, "jana", "swap of the riser")  # type: ignore[arg-type]


def test_a_silence_holds_back_until_it_ends_and_says_whose_it_is() -> None:
    around = Around(windows=[silence(Match(node=("gpu-0412",))), silence(Match(), 2)])
    held = told(ALERT, around=around).held
    assert held is not None and held.until == NOON + timedelta(hours=2)
    assert held.why == "silence 3 (jana: swap of the riser)"
    assert told(replace(ALERT, at=NOON + timedelta(hours=2)), around=around).held is None
    assert told(ALERT, around=Around(windows=[silence(Match(node=("gpu-0001",)))])).held is None


def standing(entity: str, kind: str, severity: Severity, entity_kind: str = "switch") -> Standing:
    return Standing(
        replace(ALERT, incident=1, entity=entity, entity_kind=entity_kind, kind=kind, severity=severity), NOON
    )


def test_what_hangs_on_a_switch_in_trouble_is_spoken_for() -> None:
    around = Around(standing=[standing("switch:leaf-3", "network_fabric", Severity.CRITICAL)])
    nic = replace(ALERT, entity="gpu-0412/nic:mlx5_0", entity_kind="nic", kind="ib_link_down")
    held = told(nic, around=around).held
    assert held is not None and held.why == "incident 1 (network_fabric on switch:leaf-3) speaks for it"
    assert told(replace(nic, switch="leaf-4"), around=around).held is None
    assert told(replace(nic, incident=1), around=around).held is None


def test_a_fault_of_a_gpu_is_told_whatever_its_switch_does_and_a_quiet_switch_speaks_for_nothing() -> None:
    loud = Around(standing=[standing("switch:leaf-3", "network_fabric", Severity.CRITICAL)])
    assert told(ALERT, around=loud).held is None
    quiet = Around(standing=[standing("switch:leaf-3", "network_fabric", Severity.WARNING)])
    assert told(replace(ALERT, entity_kind="nic"), around=quiet).held is None


def test_a_rule_holds_back_what_follows_from_what_it_names() -> None:
    rule = Inhibit(Match(kind=("fs_*",)), Match(kind=("checkpoint_slow",)), ("cluster",))
    around = Around(standing=[standing("fs:/scratch", "fs_down", Severity.HIGH, "fs")], inhibit=[rule])
    assert told(replace(ALERT, kind="checkpoint_slow"), around=around).held is not None
    assert told(replace(ALERT, kind="checkpoint_slow", cluster="b"), around=around).held is None
    assert told(ALERT, around=around).held is None


def test_what_comes_and_goes_is_told_once_more_and_then_held_until_it_is_calm() -> None:
    flaps = Flaps(count=3, window_s=3600, calm_s=1800)
    opened = tuple(NOON - timedelta(minutes=10 * back) for back in range(4, -1, -1))

    def alert(times: int, minutes_later: int = 0) -> Alert:
        return replace(ALERT, openings=opened[:times], at=opened[times - 1] + timedelta(minutes=minutes_later))

    def held(one: Alert) -> datetime | None:
        found = told(one, around=Around(flaps=flaps)).held
        return found.until if found else None

    assert [bool(comes_and_goes(alert(n), flaps)) for n in (1, 2, 3, 4)] == [False, False, True, False]
    assert [held(alert(n)) is not None for n in (1, 2, 3, 4, 5)] == [False, False, False, True, True]
    assert held(alert(5)) == NOON + timedelta(minutes=30)
    assert held(alert(5, 30)) is None


def test_everybody_hears_of_a_turn_and_of_less_only_those_that_need_not_wake() -> None:
    channels = ("email", "pagerduty", "slack")
    assert heard_by(channels, frozenset({"slack"}), turn=True) == channels
    assert heard_by(channels, frozenset({"slack"}), turn=False) == ("email", "slack")


def test_an_escalation_names_its_own_people() -> None:
    step = Escalation(900, ("pagerduty",), {"pagerduty": ("boss",)})
    assert Route("r", escalate=(step,)).escalate[0].to["pagerduty"] == ("boss",)


@pytest.mark.parametrize(
    ("node", "narrow"),
    [(("*",), False), (("?*",), False), (("gpu-1", "**"), False), (("[!x]*",), False), (("gpu-0*",), True)],
)
def test_a_match_that_fits_every_name_names_nothing(node: tuple[str, ...], narrow: bool) -> None:
    assert Match(node=node).narrow is narrow
    assert Match(node=node, kind=("gpu_bus_loss",)).narrow
