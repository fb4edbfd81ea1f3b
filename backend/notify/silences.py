"""What an alert is, and what may be said about alerts: matches, hours, and holds such as silences. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, time, timedelta
from fnmatch import fnmatchcase
from typing import Any, Literal
from zoneinfo import ZoneInfo

from detectors.model import Severity

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
#: Why something is held back.
HoldKind = Literal["silence", "maintenance", "inhibited", "flapping"]


@dataclass(frozen=True, slots=True)
class Alert:
    """One incident as routing sees it: what broke, where, whose job it hit. ``at``: when it is judged, aware UTC.

    ``owner`` is the user of the job, ``team`` its account. ``entity_kind``: node, gpu, switch, job ... (Entity).
    ``opened_at``: since when; ``openings``: how often the same thing opened lately, this time included.
    """

    cluster: str
    kind: str
    severity: Severity
    at: datetime
    incident: int = 0
    entity: str = ""
    entity_kind: str = ""
    node: str = ""
    rack: str = ""
    switch: str = ""
    job: str = ""
    owner: str = ""
    team: str = ""
    openings: tuple[datetime, ...] = ()


#: Columns of a match beside the severities, and the words that people read for them.
WHERE = {
    "cluster": "cluster",
    "kind": "kind",
    "entity": "entity",
    "node": "node",
    "rack": "rack",
    "switch": "switch",
    "job": "job",
    "owner": "owner",
    "team": "team",
}


#: What a pattern may hold without naming anything.
LOOSE = re.compile(r"\[.[^\]]*\]|[*?\s]")


@dataclass(frozen=True, slots=True)
class Match:
    """Which alerts are meant: each named column holds patterns (``gpu-0*``), and one of them has to fit. ``least`` and
    ``most`` bound the severity, both included."""

    cluster: tuple[str, ...] = ()
    kind: tuple[str, ...] = ()
    entity: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    rack: tuple[str, ...] = ()
    switch: tuple[str, ...] = ()
    job: tuple[str, ...] = ()
    owner: tuple[str, ...] = ()
    team: tuple[str, ...] = ()
    least: Severity | None = None
    most: Severity | None = None

    def against(self, alert: Alert) -> str:
        """Why it does not fit, in words; empty: it fits."""
        if self.least is not None and alert.severity < self.least:
            return f"severity {alert.severity.word} is below {self.least.word}"
        if self.most is not None and alert.severity > self.most:
            return f"severity {alert.severity.word} is above {self.most.word}"
        for column, word in WHERE.items():
            wanted, found = getattr(self, column), str(getattr(alert, column))
            if wanted and not any(fnmatchcase(found, pattern) for pattern in wanted):
                return f"{word} {found or '(none)'} is not {' or '.join(wanted)}"
        return ""

    def words(self) -> str:
        """``node gpu-0412, at most high``; ``everything`` for an empty one."""
        said = [
            f"{word} {' or '.join(getattr(self, column))}" for column, word in WHERE.items() if getattr(self, column)
        ]
        said += [f"at least {self.least.word}"] if self.least is not None else []
        said += [f"at most {self.most.word}"] if self.most is not None else []
        return ", ".join(said) or "everything"

    @property
    def narrow(self) -> bool:
        """Whether it names anything beside a cluster. A column does where each of its patterns has a letter that has to
        be there: one that fits every name (``*``, ``?*``, ``[!x]*``) opens the column whatever stands beside it."""
        columns = (getattr(self, one.name) for one in fields(self) if one.name not in ("cluster", "least", "most"))
        return any(column and all(LOOSE.sub("", pattern) for pattern in column) for column in columns)


def match_row(match: Match) -> dict[str, Any]:
    """A match as JSON, without what it leaves open."""
    bounds = {"least", "most"}
    row = {name: list(value) for name, value in asdict(match).items() if name not in bounds and value}
    return row | {name: getattr(match, name).word for name in sorted(bounds) if getattr(match, name) is not None}


def match_of(row: Mapping[str, Any]) -> Match:
    """A match of JSON, of this release or another one: columns that it does not know match nothing away."""
    given: dict[str, Any] = {name: tuple(str(one) for one in row[name]) for name in WHERE if row.get(name)}
    given |= {name: Severity.of(row[name]) for name in ("least", "most") if row.get(name)}
    return Match(**given)


@dataclass(frozen=True, slots=True)
class Hours:
    """When a route is on duty: days of the week, from a minute to a minute of the day, in a zone. An end before its
    start passes midnight, and belongs to the day on which it began. No days: every day; no minutes: all day."""

    days: tuple[str, ...] = ()
    start: time | None = None
    end: time | None = None
    zone: str = "UTC"

    def against(self, at: datetime) -> str:
        """Why it is off duty at ``at`` (aware), in words; empty: it is on duty."""
        here = at.astimezone(ZoneInfo(self.zone))
        clock, today = here.time().replace(tzinfo=None), here.date()
        if self.start is not None and self.end is not None and self.start != self.end:
            late = self.start > self.end
            inside = clock >= self.start or clock < self.end if late else self.start <= clock < self.end
            if not inside:
                return f"{here:%H:%M} {self.zone} is outside {self.start:%H:%M}-{self.end:%H:%M}"
            if late and clock < self.end:
                today -= timedelta(days=1)
        day = DAYS[today.weekday()]
        if self.days and day not in self.days:
            return f"{day} is not {' or '.join(self.days)}"
        return ""


@dataclass(frozen=True, slots=True)
class Held:
    """Why an alert is held back, and until when (None: until its reason is gone)."""

    kind: HoldKind
    why: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """A silence or announced work: what it matches, from when to when, by whom and why."""

    id: int
    kind: Literal["silence", "maintenance"]
    match: Match
    starts_at: datetime
    ends_at: datetime | None
    by: str
    comment: str


@dataclass(frozen=True, slots=True)
class Standing:
    """A live incident that was told or is about to be: it may speak for what follows from it."""

    alert: Alert
    opened_at: datetime


@dataclass(frozen=True, slots=True)
class Inhibit:
    """While an alert that ``cause`` matches stands, those that ``victim`` matches are held back, where all of ``same``
    (switch, rack, node, job, cluster ...) are the same."""

    cause: Match
    victim: Match
    same: tuple[str, ...] = ("cluster",)


@dataclass(frozen=True, slots=True)
class Flaps:
    """What opens so often within ``window_s`` is told once more, as coming and going, and then held back until it has
    been quiet for ``calm_s``. 0: never."""

    count: int = 4
    window_s: float = 3600.0
    calm_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class Around:
    """What stands around an alert: silences and windows, other live incidents, rules."""

    windows: Sequence[Window] = ()
    standing: Sequence[Standing] = ()
    inhibit: Sequence[Inhibit] = ()
    flaps: Flaps = field(default_factory=Flaps)


def held(alert: Alert, around: Around) -> Held | None:
    """Why nobody is told of this alert now; None: nothing holds it back."""
    return _silenced(alert, around.windows) or _inhibited(alert, around) or _flapping(alert, around.flaps)


def _silenced(alert: Alert, windows: Iterable[Window]) -> Held | None:
    """The window that ends last."""
    hits = [
        one
        for one in windows
        if one.starts_at <= alert.at
        and (one.ends_at is None or one.ends_at > alert.at)
        and not one.match.against(alert)
    ]
    if not hits:
        return None
    last = max(hits, key=lambda one: (one.ends_at is None, one.ends_at or one.starts_at))
    said = f"{last.by}: {last.comment}" if last.comment else last.by
    number = f" {last.id}" if last.id else ""
    return Held(last.kind, f"{last.kind}{number} ({said})", last.ends_at)


def _inhibited(alert: Alert, around: Around) -> Held | None:
    for other in around.standing:
        if other.alert.incident == alert.incident or other.alert.cluster != alert.cluster:
            continue
        if _beneath(alert, other.alert) or any(_speaks(rule, other.alert, alert) for rule in around.inhibit):
            what = f"incident {other.alert.incident} ({other.alert.kind} on {other.alert.entity})"
            return Held("inhibited", f"{what} speaks for it")
    return None


def _beneath(alert: Alert, cause: Alert) -> bool:
    """Whether a switch or rack in trouble is where this node hangs, and is no less loud. What is no fault of a place,
    as a code of a GPU, is told all the same: only what says nothing of its own device follows."""
    if cause.entity_kind not in ("switch", "rack") or alert.entity_kind not in ("link", "nic", "node", "job", "rank"):
        return False
    place = alert.switch if cause.entity_kind == "switch" else alert.rack
    return bool(place) and cause.entity.endswith(f"{cause.entity_kind}:{place}") and cause.severity >= alert.severity


def _speaks(rule: Inhibit, cause: Alert, alert: Alert) -> bool:
    same = all(getattr(cause, name) == getattr(alert, name) != "" for name in rule.same)
    return same and not rule.cause.against(cause) and not rule.victim.against(alert)


def _flapping(alert: Alert, flaps: Flaps) -> Held | None:
    """From the opening after the one that was told as coming and going, until it was calm."""
    if not flaps.count:
        return None
    newest = max(alert.openings, default=alert.at)
    lately = [at for at in alert.openings if newest - at <= timedelta(seconds=flaps.window_s)]
    until = newest + timedelta(seconds=flaps.calm_s)
    if len(lately) <= flaps.count or until <= alert.at:
        return None
    return Held("flapping", f"it opened {len(lately)} times within {_span(flaps.window_s)}", until)


def comes_and_goes(alert: Alert, flaps: Flaps) -> str:
    """What is said at the last opening that is told before it is held back; empty: it does not flap."""
    newest = max(alert.openings, default=alert.at)
    lately = [at for at in alert.openings if newest - at <= timedelta(seconds=flaps.window_s)]
    if not flaps.count or len(lately) != flaps.count:
        return ""
    said = f"It comes and goes: {len(lately)} times within {_span(flaps.window_s)}."
    return f"{said} More is told once it was calm for {_span(flaps.calm_s)}."


def _span(seconds: float) -> str:
    return (
        f"{seconds / 3600:g} h" if seconds >= 3600 else f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"
    )
