"""The section [alerts] as the pure rooms take it: routes, what speaks for what, flaps."""

from __future__ import annotations

from collections.abc import Collection
from datetime import time

from backend.notify import routing, silences
from backend.settings_alerting import Alerts, Inhibit, Match, Route
from detectors.model import Severity

#: Channels whose later messages change what earlier ones said, and wake nobody.
EDITS = frozenset({"pagerduty", "webhook", "alertmanager"})


def routing_of(alerts: Alerts, channels: Collection[str], *, slack_edits: bool) -> routing.Routing:
    """What the settings say. channels: those that are configured, which are all that routes name."""
    edits = EDITS | ({"slack"} if slack_edits else set())
    return routing.Routing(
        routes=tuple(_route(one) for one in alerts.route),
        inhibit=tuple(_inhibit(one) for one in alerts.inhibit),
        flaps=silences.Flaps(alerts.flap_count, alerts.flap_window_s, alerts.flap_calm_s),
        edits=frozenset(edits & set(channels)),
    )


def _route(one: Route) -> routing.Route:
    start, _, end = one.hours.partition("-")
    return routing.Route(
        name=one.name,
        match=_match(one.match),
        hours=silences.Hours(one.days, _clock(start), _clock(end), one.timezone),
        channels=one.channels,
        to=dict(one.to),
        group_by=one.group_by,
        wait_s=one.group_wait_s,
        interval_s=one.group_interval_s,
        repeat_s=one.repeat_interval_s,
        page_from=Severity.of(one.page_from),
        goes_on=one.go_on,
        digest=_clock(one.digest),
        escalate=tuple(routing.Escalation(step.after_s, step.channels, dict(step.to)) for step in one.escalate),
    )


def _match(one: Match) -> silences.Match:
    return silences.Match(
        cluster=one.cluster,
        kind=one.kind,
        node=one.node,
        rack=one.rack,
        switch=one.switch,
        job=one.job,
        owner=one.owner,
        team=one.team,
        least=Severity.of(one.least) if one.least else None,
        most=Severity.of(one.most) if one.most else None,
    )


def _inhibit(one: Inhibit) -> silences.Inhibit:
    return silences.Inhibit(_match(one.cause), _match(one.victim), one.same)


def _clock(text: str) -> time | None:
    return time.fromisoformat(text) if text else None
