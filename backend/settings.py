"""The shape of the configuration: one frozen object, built once in the CLI and handed down."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

Mode = Literal["observe", "propose", "act"]


class Section(BaseModel):
    """Unknown keys stop the start; nothing changes after it."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Server(Section):
    host: str = Field("127.0.0.1", description="Address to listen on. Off loopback, ingest needs a token.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    url: str = Field("", description="How people reach this server; links in mail and Slack start with it.")
    max_body_bytes: int = Field(16_777_216, gt=0, description="Largest request body; a larger one is answered 413.")


class Store(Section):
    url: str = Field("", description="Database URL. Empty: SQLite in the data folder.")
    folder: Path = Field(Path("watchkeeper-data"), description="Data folder; a network file system is refused.")


class Prometheus(Section):
    url: str = Field(description="Base URL of Prometheus, VictoriaMetrics, Thanos or Mimir.")
    interval_s: float = Field(15.0, ge=1, description="How often to read, in seconds.")
    timeout_s: float = Field(10.0, gt=0, description="Longest wait for one answer, in seconds.")
    headers: dict[str, str] = Field(default_factory=dict, description="Extra request headers.")
    matchers: str = Field("", description='Extra label matchers, as in cluster="main".')


class Slurm(Section):
    cli: bool = Field(True, description="Use sinfo, squeue and scontrol.")
    conf: str = Field("", description="SLURM_CONF for the commands; empty takes the system's.")
    interval_s: float = Field(15.0, ge=1, description="How often to read nodes and jobs, in seconds.")
    timeout_s: float = Field(10.0, gt=0, description="Longest wait for one command, in seconds.")


class Cluster(Section):
    name: str = Field("main", min_length=1, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", description="Name of the cluster.")
    prometheus: tuple[Prometheus, ...] = Field((), description="Prometheus servers to pull from.")
    slurm: Slurm | None = Field(None, description="Slurm as a source and as the hand that acts.")
    interval_s: float = Field(15.0, ge=1, description="Distance of telemetry ticks, in seconds.")
    lateness_s: float | None = Field(
        None, ge=0, description="How long a tick waits for late samples; empty: one interval."
    )
    backend: Literal["", "slurm", "dry_run", "simulated"] = Field(
        "", description="What carries orders out. Empty: slurm where it is configured, else dry_run."
    )


class Email(Section):
    host: str = Field(description="SMTP server.")
    port: int = Field(587, ge=1, le=65535, description="SMTP port.")
    starttls: bool = Field(True, description="Ask for TLS before anything is sent.")
    user: str = Field("", description="SMTP user; empty: no sign-in.")
    password: SecretStr | None = Field(None, description="SMTP password.")
    sender: str = Field("watchkeeper@localhost", alias="from", description="From address.")
    to: tuple[str, ...] = Field(min_length=1, description="Recipients.")
    timeout_s: float = Field(20.0, gt=0, description="Longest wait for the server, in seconds.")


class Slack(Section):
    webhook_url: SecretStr = Field(description="Incoming webhook. It can neither thread nor edit.")
    timeout_s: float = Field(10.0, gt=0, description="Longest wait for Slack, in seconds.")


class Incidents(Section):
    hold_s: float = Field(1800.0, ge=0, description="Seen and clear for this long before an incident may resolve.")
    fold_s: float = Field(2100.0, ge=0, description="Late victims of the same job fold in for this long (35 min).")
    notify_from: Literal["info", "warning", "high", "critical"] = Field(
        "high", description="Lowest severity that is told by mail and Slack."
    )


class Policy(Section):
    exclude_s: float = Field(604_800.0, gt=0, description="How long an approved exclusion lasts (7 days).")
    max_out_share: float = Field(0.05, gt=0, le=1, description="Largest share of the fleet that may be out at once.")
    max_out_min: int = Field(1, ge=0, description="This many nodes may be out whatever the share says.")
    cooldown_s: float = Field(3600.0, ge=0, description="No second action on a node within this time.")
    fresh_s: float = Field(60.0, gt=0, description="A node's state older than this refuses an action.")
    lease_s: float = Field(60.0, gt=0, description="A claimed order whose process died is looked at again after this.")


class Security(Section):
    session_s: float = Field(43_200.0, gt=0, description="How long a sign-in lasts (12 h).")
    lockout_after: int = Field(5, ge=1, description="Failed sign-ins before an account waits.")
    lockout_s: float = Field(300.0, ge=0, description="How long it waits, in seconds.")


class Settings(Section):
    mode: Mode = Field("observe", description="observe binds nobody; propose asks; act does.")
    server: Server = Field(default_factory=Server)
    store: Store = Field(default_factory=Store)
    cluster: tuple[Cluster, ...] = Field((Cluster(),), min_length=1)
    email: Email | None = None
    slack: Slack | None = None
    incidents: Incidents = Field(default_factory=Incidents)
    policy: Policy = Field(default_factory=Policy)
    security: Security = Field(default_factory=Security)
