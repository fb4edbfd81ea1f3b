"""The outbox: what is to be said, and how far each channel has come with it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlmodel import Field, Index, SQLModel, UniqueConstraint

from backend.model.base import RowId, row_id, stored, when


class Message(SQLModel, table=True):
    """One thing to say about an incident, written in the transaction that made it true. ``body`` is MessageFacts.

    ``route``: by which it goes; empty: none takes it. ``group_id``: the group of incidents that it speaks for.
    """

    __table_args__ = (UniqueConstraint("cluster", "incident_id", "kind", "revision", "route"),)
    id: int | None = row_id()
    cluster: str
    incident_id: int = Field(index=True, sa_type=RowId)
    kind: str
    revision: int
    route: str = ""
    group_id: int | None = Field(default=None, index=True, sa_type=RowId)
    created_at: datetime = when()
    body: dict[str, Any] = stored(dict)


class Delivery(SQLModel, table=True):
    """One message on one channel. state: waiting, claimed, sent or dead.

    ``thread``: what keeps its order: a later delivery of one thread and channel waits for an earlier one.
    ``to``: who gets it instead of those in the settings.
    """

    __table_args__ = (
        UniqueConstraint("message_id", "channel"),
        Index("ix_delivery_state", "state", "not_before"),
        Index("ix_delivery_thread", "thread", "channel"),
    )
    id: int | None = row_id()
    cluster: str
    message_id: int = Field(index=True, sa_type=RowId)
    incident_id: int = Field(index=True, sa_type=RowId)
    channel: str
    thread: str = ""
    to: list[str] = stored(list)
    state: str = "waiting"
    not_before: datetime = when()
    claimed_by: str = ""
    lease_until: datetime | None = when(default=None)
    attempts: int = 0
    sent_at: datetime | None = when(default=None)
    receipt: dict[str, Any] = stored(dict)
    error: str = ""
