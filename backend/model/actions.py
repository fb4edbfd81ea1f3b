"""Exclusions, decisions and orders: what keeps work away from a node, and what we ask of the cluster."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlmodel import Field, Index, SQLModel, UniqueConstraint

from backend.model.base import RowId, row_id, stored, when


class Exclusion(SQLModel, table=True):
    """Keeps new work from a node. ``origin``: person, approved or act (these bind); proposed does not.

    ``scope``: whose work, as in job:41207, run:NAME, account:NAME or partition:NAME; "" = everybody's. ``past``: what
    was changed since it was made, oldest first: {"at", "by", "until", "reason"}.
    """

    __table_args__ = (Index("ix_exclusion_live", "cluster", "node", "lifted_at"),)
    id: int | None = row_id()
    cluster: str
    node: str
    owner: str
    origin: str
    reason: str
    kind: str = ""
    scope: str = ""
    incident_id: int | None = Field(default=None, index=True, sa_type=RowId)
    created_at: datetime = when()
    until: datetime = when()
    lifted_at: datetime | None = when(default=None)
    lifted_by: str = ""
    lift_reason: str = ""
    past: list[dict[str, Any]] = stored(list)


class Advice(SQLModel, table=True):
    """What was last answered about a job: the same question has the same answer until something changed.

    ``mark`` is of all that it says; ``revision`` counts the answers about the job.
    """

    __table_args__ = (UniqueConstraint("cluster", "job", "revision"),)
    id: int | None = row_id()
    cluster: str
    job: str
    revision: int
    at: datetime = when()
    mark: str
    body: dict[str, Any] = stored(dict)


class Decision(SQLModel, table=True):
    """What we would do about one revision of an incident, why, and what each guard said.

    state: observed, proposed, approved, automatic, rejected, superseded or nothing (no step is called for).
    ``approvals``: who approved a plan that needs two persons and still waits for the second.
    """

    __table_args__ = (UniqueConstraint("cluster", "incident_id", "revision"),)
    id: int | None = row_id()
    cluster: str
    incident_id: int = Field(index=True, sa_type=RowId)
    revision: int
    at: datetime = when()
    mode: str
    state: str
    sentence: str
    recommended: str
    plan: list[dict[str, Any]] = stored(list)
    advice: list[str] = stored(list)
    blast: dict[str, Any] = stored(dict)
    guards: list[dict[str, Any]] = stored(list)
    dark: list[str] = stored(list)
    approvals: list[str] = stored(list)
    decided_by: str = ""
    decided_at: datetime | None = when(default=None)
    note: str = ""


class Order(SQLModel, table=True):
    """One write to the cluster, at most once.

    state: waiting, claimed, sent, done, refused, failed, uncertain or cancelled. ``after_id`` must be done first.
    ``key`` is unique: the same decision never makes the same order twice.
    """

    __tablename__ = "orders"
    __table_args__ = (UniqueConstraint("cluster", "key"), Index("ix_orders_state", "cluster", "state", "not_before"))
    id: int | None = row_id()
    cluster: str
    key: str
    decision_id: int = Field(index=True, sa_type=RowId)
    incident_id: int = Field(index=True, sa_type=RowId)
    verb: str
    node: str = Field(default="", index=True)
    job: str = ""
    kind: str
    reason: str
    exclude: list[str] = stored(list)
    after_id: int | None = Field(default=None, sa_type=RowId)
    undoes_id: int | None = Field(default=None, sa_type=RowId)
    state: str = "waiting"
    created_at: datetime = when()
    not_before: datetime = when()
    claimed_by: str = ""
    claimed_at: datetime | None = when(default=None)
    lease_until: datetime | None = when(default=None)
    sent_at: datetime | None = when(default=None)
    ended_at: datetime | None = when(default=None)
    attempts: int = 0
    witness: dict[str, Any] = stored(dict)
    guards: list[dict[str, Any]] = stored(list)
    outcome: str = ""
    error: str = ""
