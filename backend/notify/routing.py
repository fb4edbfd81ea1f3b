"""Who is told of an alert, and why: one function that sending, preview and pages ask. Pure: facts in, choices out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from backend.notify.silences import Alert, Around, Flaps, Held, Hours, Inhibit, Match, held
from detectors.model import Severity

#: The route of what no route of the settings takes.
DEFAULT = "default"
#: Timers as people know them from Alertmanager: 30 s, 5 min, 4 h.
WAIT_S, INTERVAL_S, REPEAT_S = 30.0, 300.0, 14_400.0


@dataclass(frozen=True, slots=True)
class Escalation:
    """Who is told too when nobody has acknowledged for ``after_s``."""

    after_s: float
    channels: tuple[str, ...]
    to: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Route:
    """Where what it matches goes. Times in seconds; what is at least as loud as ``page_from`` waits for nothing.

    to: channel -> who gets it there, instead of those in the settings. group_by: columns of an alert that must be the
    same to be told as one. digest: the hour of the day at which all is told in one message; None: at once.
    """

    name: str
    match: Match = field(default_factory=Match)
    hours: Hours = field(default_factory=Hours)
    channels: tuple[str, ...] = ()
    to: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    group_by: tuple[str, ...] = ("kind", "place")
    wait_s: float = WAIT_S
    interval_s: float = INTERVAL_S
    repeat_s: float = REPEAT_S
    page_from: Severity = Severity.CRITICAL
    goes_on: bool = False
    digest: time | None = None
    escalate: tuple[Escalation, ...] = ()


@dataclass(frozen=True, slots=True)
class Routing:
    """The routes of a site in their order, what they share, and which channels there are. ``edits``: channels that
    change what they sent before instead of sending more."""

    routes: tuple[Route, ...] = ()
    inhibit: tuple[Inhibit, ...] = ()
    flaps: Flaps = field(default_factory=Flaps)
    edits: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Choice:
    """One route's word: whether it takes the alert, why, where it goes, in which group, and after how many seconds."""

    route: Route
    takes: bool
    why: str
    key: str = ""
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """Every route's word in order, and what holds the alert back (None: nothing)."""

    choices: tuple[Choice, ...]
    held: Held | None = None

    @property
    def taken(self) -> tuple[Choice, ...]:
        return tuple(choice for choice in self.choices if choice.takes)


def plan(alert: Alert, routes: Sequence[Route], fallback: Route, around: Around) -> Plan:
    """Who is told of ``alert`` at ``alert.at``: the first route that fits, those after it where it says to go on, and
    the fallback where none fits. A hold is of the alert, whatever the route."""
    choices: list[Choice] = []
    done = ""
    for route in routes:
        why_not = f"{done} takes it" if done else route.match.against(alert) or route.hours.against(alert.at)
        choices.append(_choice(route, alert, why_not))
        if not why_not and not route.goes_on:
            done = route.name
    if any(choice.takes for choice in choices):
        choices.append(Choice(fallback, False, "another route takes it"))
    else:
        choices.append(_choice(fallback, alert, fallback.match.against(alert)))
    return Plan(tuple(choices), held(alert, around))


def _choice(route: Route, alert: Alert, why_not: str) -> Choice:
    if why_not:
        return Choice(route, False, why_not)
    if not route.channels:
        return Choice(route, True, "it fits, and this route tells nobody")
    wait_s = 0.0 if alert.severity >= route.page_from else route.wait_s
    if route.digest is not None:
        here = alert.at.astimezone(ZoneInfo(route.hours.zone))
        return Choice(route, True, "it fits; told in the digest", f"{here.date()}", until_digest_s(route, alert.at))
    return Choice(route, True, f"it fits: {route.match.words()}", key_of(route, alert), wait_s)


def until_digest_s(route: Route, at: datetime) -> float:
    """Seconds until the next hour of a digest; 0 where there is none."""
    if route.digest is None:
        return 0.0
    here = at.astimezone(ZoneInfo(route.hours.zone))
    due = datetime.combine(here.date(), route.digest, here.tzinfo)
    if due <= here:
        due = datetime.combine(here.date() + timedelta(days=1), route.digest, here.tzinfo)
    return (due - at).total_seconds()


def key_of(route: Route, alert: Alert) -> str:
    """What must be the same to be told as one: ``kind=ib_link_down place=leaf-3``."""
    return " ".join(f"{name}={place_of(alert) if name == 'place' else getattr(alert, name)}" for name in route.group_by)


def place_of(alert: Alert) -> str:
    """Where it is: the switch, else the rack, else the node, else the thing itself."""
    return alert.switch or alert.rack or alert.node or alert.entity


def fallback_of(channels: Iterable[str], notify_from: Severity) -> Route:
    """The route of what no other takes: every channel, for what is at least so loud."""
    return Route(DEFAULT, Match(least=notify_from), channels=tuple(channels))


def heard_by(channels: Sequence[str], edits: frozenset[str], *, turn: bool) -> tuple[str, ...]:
    """Which of a route's channels hear of it. turn: it opened, closed, grew louder, waits for somebody or was not heard
    of for too long: all do. Of anything less (a step of a repair, more of the same) those that edit what they said,
    and mail, which keeps one thread that nobody has to open."""
    return tuple(c for c in channels if turn or c in edits or c == "email")
