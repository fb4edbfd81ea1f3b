"""The sections about who is told how: mail, Slack, PagerDuty, Teams, webhooks, Apprise, Alertmanager, job owners."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, SecretStr, StringConstraints, field_validator, model_validator

from backend.settings_file import Section

#: One mail address, with a name before it or without; no line end, so no header of its own.
ADDRESS = r"^[^\x00-\x1f\x7f<>]*<[^\s<>@,;]+@[^\s<>@,;]+>$|^[^\s<>@,;]+@[^\s<>@,;]+$"
Address = Annotated[str, StringConstraints(pattern=ADDRESS)]
#: A base address of http, without what would make it part of another.
HTTP = r"^https?://[^\s/]+\S*$"


def _an_address(given: SecretStr | None) -> SecretStr | None:
    if given is not None and re.fullmatch(r"https?://[^\s/]+\S*", given.get_secret_value()) is None:
        raise ValueError("is no address. Write it as https://host/path")
    return given


class Email(Section):
    host: str = Field(description="SMTP server.")
    port: int = Field(587, ge=1, le=65535, description="SMTP port; on 465 TLS begins with the first byte.")
    starttls: bool = Field(True, description="Ask for TLS before anything is sent.")
    ca_file: Path | None = Field(None, description="Authorities (PEM) of its certificate; empty: the system's.")
    user: str = Field("", description="SMTP user; empty: no sign-in.")
    password: SecretStr | None = Field(None, description="SMTP password.")
    sender: str = Field(
        "watchkeeper@localhost", alias="from", pattern=ADDRESS, description="From address, as in watch@example.org."
    )
    to: tuple[Address, ...] = Field(min_length=1, description="Recipients, as in on-call@example.org.")
    figures: bool = Field(True, description="Show a small picture of what was seen, where there is one.")
    timeout_s: float = Field(20.0, gt=0, description="Longest wait for the server, in seconds.")


class Slack(Section):
    webhook_url: SecretStr | None = Field(
        None, description="Incoming webhook, as https://hooks.slack.com/services/... It can neither thread nor edit."
    )
    bot_token: SecretStr | None = Field(
        None,
        description="Token of an app (xoxb-...) with chat:write; with channels:history it also reads back. Keeps one "
        "thread an incident, and its first message up to date.",
    )
    channel: str = Field("", pattern=r"^[\w#-]*$", description="Channel of the bot, as its id (C0123ABCD).")
    signing_secret: SecretStr | None = Field(
        None, description="Signing secret of the app: buttons then come back to /api/v1/slack/actions."
    )
    users: dict[str, str] = Field(
        default_factory=dict, description="Who presses buttons: Slack member id (U0123ABCD) = name of a user here."
    )
    api_url: str = Field("https://slack.com/api", pattern=HTTP, description="Slack's API.")
    timeout_s: float = Field(10.0, gt=0, description="Longest wait for Slack, in seconds.")

    _webhook = field_validator("webhook_url")(_an_address)

    @model_validator(mode="after")
    def one_way(self) -> Self:
        """A bot needs its channel; without a bot there must be a webhook, and nobody can press anything."""
        if self.bot_token is None and self.webhook_url is None:
            raise ValueError("has neither webhook_url nor bot_token with its channel; set one of them")
        if self.bot_token is not None and not self.channel:
            raise ValueError("has a bot_token but no channel; set channel to the id of the channel, as in C0123ABCD")
        return self


class PagerDuty(Section):
    routing_key: SecretStr = Field(description="Integration key of an Events API v2 integration.")
    url: str = Field(
        "https://events.pagerduty.com/v2/enqueue",
        pattern=HTTP,
        description="Where events go; https://events.eu.pagerduty.com/v2/enqueue in the EU.",
    )
    timeout_s: float = Field(10.0, gt=0, description="Longest wait for PagerDuty, in seconds.")


class Teams(Section):
    webhook_url: SecretStr = Field(
        description="Address of a Teams workflow (When a Teams webhook request is received) that posts cards."
    )
    timeout_s: float = Field(15.0, gt=0, description="Longest wait for Teams, in seconds.")

    _webhook = field_validator("webhook_url")(_an_address)


class Webhook(Section):
    url: SecretStr = Field(description="Where messages are posted as JSON.")
    secret: SecretStr | None = Field(
        None, description="Key of the signature: X-Watchkeeper-Signature is v1= and HMAC-SHA256 of time, dot and body."
    )
    timeout_s: float = Field(10.0, gt=0, description="Longest wait for the receiver, in seconds.")

    _webhook = field_validator("url")(_an_address)


class Apprise(Section):
    urls: SecretStr = Field(
        description="Addresses of Apprise, as ntfys://topic, parted by white space. Needs the extra apprise."
    )
    timeout_s: float = Field(15.0, gt=0, description="Longest wait for one service, in seconds.")


class Alertmanager(Section):
    urls: tuple[Annotated[str, StringConstraints(pattern=HTTP)], ...] = Field(
        min_length=1, description="Base URLs of Alertmanagers of one cluster; each is told."
    )
    token: SecretStr | None = Field(None, description="Bearer token, where a proxy asks for one.")
    labels: dict[str, str] = Field(default_factory=dict, description="Labels that every alert gets, as team = infra.")
    repeat_s: float = Field(
        60.0, ge=5, description="How often open incidents are told again, so that they do not end; in seconds."
    )
    timeout_s: float = Field(10.0, gt=0, description="Longest wait for one Alertmanager, in seconds.")


class Owners(Section):
    mail: bool = Field(False, description="Send the owner of a dead job one mail: hardware or their code, what now.")
    address: str = Field(
        "",
        pattern=r"^$|^[^\s@,;<>]*\{user\}[^\s@,;<>]*@[^\s@,;<>]+$",
        description="How their address is made, as in {user}@example.org. Empty: only those under addresses.",
    )
    addresses: dict[str, Address] = Field(default_factory=dict, description="User of a job = mail address.")
    notes: bool = Field(
        False,
        description="Write the verdict into the comment of the job (Slurm's AdminComment); in mode act only: "
        "it is a write.",
    )
