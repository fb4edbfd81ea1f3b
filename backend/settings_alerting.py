"""The section about who is told of what: routes, what speaks for what, flaps, and the pulse to the outside."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import Field, SecretStr, StringConstraints, field_validator, model_validator

from backend.settings_counting import Weekday
from backend.settings_file import Section

CHANNELS = ("email", "slack", "pagerduty", "teams", "webhook", "apprise", "alertmanager")
Channel = Literal["email", "slack", "pagerduty", "teams", "webhook", "apprise", "alertmanager"]
Loudness = Literal["info", "warning", "high", "critical"]
Column = Literal["cluster", "kind", "place", "entity", "node", "rack", "switch", "job", "owner", "team"]
Pattern = Annotated[str, StringConstraints(min_length=1, max_length=255)]
#: A clock time of the day, as 08:00.
TIME = r"^([01]\d|2[0-3]):[0-5]\d$"


class Match(Section):
    cluster: tuple[Pattern, ...] = Field((), description="Clusters; * stands for anything. Empty: all.")
    kind: tuple[Pattern, ...] = Field((), description="Kinds of fault, as in gpu_*. Empty: all.")
    node: tuple[Pattern, ...] = Field((), description="Nodes, as in gpu-04*.")
    rack: tuple[Pattern, ...] = Field((), description="Racks.")
    switch: tuple[Pattern, ...] = Field((), description="Leaf switches.")
    job: tuple[Pattern, ...] = Field((), description="Jobs by id.")
    owner: tuple[Pattern, ...] = Field((), description="Users whose job it is.")
    team: tuple[Pattern, ...] = Field((), description="Accounts whose job it is.")
    least: Loudness | None = Field(None, description="The quietest severity that is meant.")
    most: Loudness | None = Field(None, description="The loudest severity that is meant.")


class Escalate(Section):
    after_s: float = Field(gt=0, description="So long after the first message, if nobody has acknowledged, in seconds.")
    channels: tuple[Channel, ...] = Field(min_length=1, description="Channels that are told then.")
    to: dict[str, tuple[str, ...]] = Field(
        default_factory=dict, description="Channel = who gets it there, instead of those of its section."
    )


class Route(Section):
    name: str = Field(pattern=r"^[A-Za-z0-9][\w .-]{0,63}$", description="Its name, for previews and the log.")
    match: Match = Field(default_factory=Match, description="What it takes; empty: everything.")
    days: tuple[Weekday, ...] = Field((), description="Days on which it is on duty; empty: every day.")
    hours: str = Field(
        "",
        pattern=r"^$|^([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d$",
        description="Hours of duty, as in 08:00-18:00; 22:00-06:00 passes midnight. Empty: all day.",
    )
    timezone: str = Field("UTC", description="Zone of hours and digest, as in Europe/Berlin.")
    channels: tuple[Channel, ...] = Field((), description="Where it goes. Empty: nowhere, and no later route has it.")
    to: dict[str, tuple[str, ...]] = Field(
        default_factory=dict, description="Channel = who gets it there, instead of those of its section."
    )
    group_by: tuple[Column, ...] = Field(
        ("kind", "place"), description="What must be the same to be told as one; place: switch, else rack, else node."
    )
    group_wait_s: float = Field(30.0, ge=0, description="How long a first message waits for company, in seconds.")
    group_interval_s: float = Field(300.0, ge=1, description="Least time between news of a group, in seconds.")
    repeat_interval_s: float = Field(
        14_400.0, ge=0, description="When what nobody acknowledged is told again (4 h); 0: never."
    )
    page_from: Loudness = Field("critical", description="From this severity on nothing waits.")
    go_on: bool = Field(False, description="Let later routes have it too.")
    digest: str = Field(
        "", pattern=rf"^$|{TIME}", description="All in one message a day at this hour, as in 08:00. Empty: at once."
    )
    escalate: tuple[Escalate, ...] = Field((), description="Who is told too while nobody acknowledges, in order.")

    @field_validator("timezone")
    @classmethod
    def _a_zone(cls, given: str) -> str:
        try:
            ZoneInfo(given)
        except (KeyError, ValueError, OSError):
            raise ValueError("is no time zone. Write it as Europe/Berlin") from None
        return given

    @model_validator(mode="after")
    def _rising(self) -> Self:
        times = [step.after_s for step in self.escalate]
        if times != sorted(times):
            raise ValueError("has steps of escalate whose after_s falls; write them in their order")
        return self


class Inhibit(Section):
    cause: Match = Field(description="While one of these stands ...")
    victim: Match = Field(description="... these are held back ...")
    same: tuple[Column, ...] = Field(("cluster",), description="... where these are the same.")


class Alerts(Section):
    route: tuple[Route, ...] = Field((), description="Routes in their order; the first that fits takes it.")
    inhibit: tuple[Inhibit, ...] = Field((), description="What speaks for what.")
    flap_count: int = Field(
        4, ge=0, description="What opens so often within the window is held back then, until it was calm. 0: never."
    )
    flap_window_s: float = Field(3600.0, gt=0, description="That window, in seconds.")
    flap_calm_s: float = Field(3600.0, gt=0, description="How long it must be calm, in seconds.")
    heartbeat_url: SecretStr | None = Field(
        None, description="Address outside that is asked (GET) while all is well: it warns when the asking stops."
    )
    heartbeat_every_s: float = Field(60.0, ge=5, description="How often, in seconds.")

    @field_validator("heartbeat_url")
    @classmethod
    def _an_address(cls, given: SecretStr | None) -> SecretStr | None:
        if given is not None and re.fullmatch(r"https?://[^\s/]+\S*", given.get_secret_value()) is None:
            raise ValueError("is no address. Write it as https://host/path")
        return given

    @field_validator("route")
    @classmethod
    def _named_once(cls, routes: tuple[Route, ...]) -> tuple[Route, ...]:
        names = [route.name for route in routes]
        if twice := sorted({name for name in names if names.count(name) > 1 or name == "default"}):
            raise ValueError(f"has no name of its own for {', '.join(twice)} (default is ours)")
        return routes

    def check(self, configured: set[str]) -> None:
        """Raises ValueError where a route asks for a channel that has no section, or addresses one it does not use."""
        for route in self.route:
            wanted = {*route.channels, *(name for step in route.escalate for name in step.channels)}
            if absent := sorted(wanted - configured):
                sections = ", ".join(f"[{name}]" for name in absent)
                raise ValueError(f"has a route {route.name!r} to {', '.join(absent)}, and no section {sections}")
            addressed = {*route.to, *(name for step in route.escalate for name in step.to)}
            if loose := sorted(addressed - wanted):
                raise ValueError(
                    f"has a route {route.name!r} that says who gets it on {', '.join(loose)}, unused there"
                )
