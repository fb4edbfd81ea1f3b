"""What the accounting has found, kept as rows: runs, sums per hour, and the whole over a window."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlmodel import Field, Index, SQLModel

from backend.model.base import stored, when


class Run(SQLModel, table=True):
    """One run as last accounted. ``document`` is its object of runs.json, ``digest`` the hash of it.

    ettr_low, ettr_high: bounds, None where nothing was scheduled. lost_*_gpu_s: scheduled and not productive.
    ``state`` is that of the newest attempt, ``moved_at`` when the run last did anything: what a list is sorted by.
    """

    __table_args__ = (Index("ix_run_moved", "cluster", "moved_at"), Index("ix_run_state", "cluster", "state"))
    cluster: str = Field(primary_key=True)
    name: str = Field(primary_key=True)
    user: str = ""
    account: str = ""
    state: str = "UNKNOWN"
    nodes: int = 0
    gpus: int = 0
    began_at: datetime | None = when(default=None)
    moved_at: datetime = when()
    failed_at: datetime | None = when(default=None)
    failed_why: str = ""
    attempts: int = 0
    failures: int = 0
    infra_failures: int = 0
    ettr_low: float | None = None
    ettr_high: float | None = None
    lost_low_gpu_s: float = 0.0
    lost_high_gpu_s: float = 0.0
    digest: str
    document: dict[str, Any] = stored(dict)


class RunJob(SQLModel, table=True):
    """Which run a job belongs to: the way in by job from other pages."""

    cluster: str = Field(primary_key=True)
    job: str = Field(primary_key=True)
    run: str = Field(index=True)


class Rollup(SQLModel, table=True):
    """Sums of one hour: of a job (``node`` empty), of a node (``job`` empty), or of the cluster (both empty).

    ``hour`` is its begin. held_gpu_s: GPU-seconds in attempts; productive_*_gpu_s: bounds of those that trained and
    were kept; queue_gpu_s: waited for nodes. failures, infra_failures: attempts that ended so. findings, incidents:
    begun in the hour. out_s: node-seconds out. A node's row counts what happened on it, not what it ran; it is there
    only where something happened.
    """

    __table_args__ = (Index("ix_rollup_hour", "cluster", "hour"),)
    cluster: str = Field(primary_key=True)
    job: str = Field(primary_key=True)
    node: str = Field(primary_key=True)
    hour: datetime = when(primary_key=True)
    held_gpu_s: float = 0.0
    productive_low_gpu_s: float = 0.0
    productive_high_gpu_s: float = 0.0
    queue_gpu_s: float = 0.0
    failures: int = 0
    infra_failures: int = 0
    findings: int = 0
    incidents: int = 0
    out_s: float = 0.0


class Reckoning(SQLModel, table=True):
    """The whole over one window of days, as reliability.json has it, with trends; ``took_s`` is what it cost."""

    cluster: str = Field(primary_key=True)
    days: int = Field(primary_key=True)
    at: datetime = when()
    took_s: float = 0.0
    document: dict[str, Any] = stored(dict)
