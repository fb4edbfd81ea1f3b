"""What people say of our verdicts, and what was learnt of it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlmodel import Field, Index, LargeBinary, SQLModel, UniqueConstraint

from backend.model.base import RowId, row_id, stored, when


class Label(SQLModel, table=True):
    """One person's word on one incident or one job. Never altered: a person who thinks again adds another, and the
    last one counts.

    ``said`` is what we had said then (the incident's kind, or the class of the job's logs); ``cause`` the real one, a
    class or a kind, empty where nobody named one; ``event_id`` the verdict on the job's logs that it speaks of.
    """

    __table_args__ = (
        Index("ix_label_incident", "cluster", "incident_id"),
        Index("ix_label_job", "cluster", "job"),
    )
    id: int | None = row_id()
    cluster: str
    at: datetime = when()
    by: str
    incident_id: int | None = Field(default=None, sa_type=RowId)
    job: str = ""
    right: bool
    said: str = ""
    cause: str = ""
    note: str = ""
    event_id: int | None = Field(default=None, sa_type=RowId)


class ModelArtifact(SQLModel, table=True):
    """One fitted model: ``arrays`` as npz without objects (never a pickle), ``facts`` as JSON. ``n`` examples taught
    it; ``labels_to`` is the newest label that it knew."""

    __table_args__ = (UniqueConstraint("cluster", "name", "version"),)
    id: int | None = row_id()
    cluster: str
    name: str
    version: int
    at: datetime = when()
    n: int
    labels_to: int = Field(default=0, sa_type=RowId)
    facts: dict[str, Any] = stored(dict)
    arrays: bytes = Field(sa_type=LargeBinary)
