"""The outbox: what is to be said, and how far each channel has come with it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlmodel import Field, Index, SQLModel, UniqueConstraint

from backend.model.base import RowId, row_id, stored, when


class Message(SQLModel, table=True):
    """One thing to say about an incident, written in the transaction that made it true. ``body`` is MessageFacts."""

    __table_args__ = (UniqueConstraint("cluster", "incident_id", "kind", "revision"),)
    id: int | None = row_id()
    cluster: str
    incident_id: int = Field(index=True, sa_type=RowId)
    kind: str
    revision: int
    created_at: datetime = when()
    body: dict[str, Any] = stored(dict)


class Delivery(SQLModel, table=True):
    """One message on one channel. state: waiting, claimed, sent or dead."""

    __table_args__ = (UniqueConstraint("message_id", "channel"), Index("ix_delivery_state", "state", "not_before"))
    id: int | None = row_id()
    cluster: str
    message_id: int = Field(index=True, sa_type=RowId)
    incident_id: int = Field(index=True, sa_type=RowId)
    channel: str
    state: str = "waiting"
    not_before: datetime = when()
    claimed_by: str = ""
    lease_until: datetime | None = when(default=None)
    attempts: int = 0
    sent_at: datetime | None = when(default=None)
    receipt: dict[str, Any] = stored(dict)
    error: str = ""
