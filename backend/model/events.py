"""What happened: accepted events, the findings drawn from them, saved detector state, cursors."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlmodel import Field, Index, LargeBinary, SQLModel, UniqueConstraint

from backend.model.base import RowId, row_id, stored, when

#: Verdicts on the logs of jobs are few among the events, and are looked up by their job.
VERDICTS = text("namespace = 'log'")


class Event(SQLModel, table=True):
    """One accepted event; its id is the order of arrival and the cursor of the observe loop."""

    __table_args__ = (
        UniqueConstraint("cluster", "dedupe"),
        Index("ix_event_node_at", "cluster", "node", "at"),
        Index("ix_event_verdict", "cluster", "job", sqlite_where=VERDICTS, postgresql_where=VERDICTS),
    )
    id: int | None = row_id()
    cluster: str
    at: datetime = when()
    received_at: datetime = when()
    namespace: str
    code: str
    node: str = ""
    entity_kind: str
    entity_id: str
    entity_name: str
    job: str = ""
    text: str = ""
    source: str = ""
    late: bool = False
    dedupe: str
    attrs: dict[str, Any] = stored(dict)


class Finding(SQLModel, table=True):
    """One span of one level: raised, perhaps changed, perhaps cleared."""

    __table_args__ = (
        Index("ix_finding_key", "cluster", "key", "raised_at"),
        Index("ix_finding_raised", "cluster", "raised_at", "node"),
    )
    id: int | None = row_id()
    cluster: str
    key: str
    detector: str
    kind: str
    entity_kind: str
    entity_id: str
    entity_name: str
    node: str = ""
    severity: str
    score: float
    since: datetime = when()
    reason: str
    evidence: list[dict[str, Any]] = stored(list)
    raised_at: datetime = when()
    emitted_at: datetime = when()
    cleared_at: datetime | None = when(default=None, index=True)
    incident_id: int | None = Field(default=None, index=True, sa_type=RowId)
    victim: bool = False


class DetectorState(SQLModel, table=True):
    """The saved state of one detector; it belongs to the event cursor written in the same transaction."""

    cluster: str = Field(primary_key=True)
    detector: str = Field(primary_key=True)
    at: datetime = when()
    cursor: int = Field(sa_type=RowId)
    fleet: dict[str, Any] = stored(dict)
    arrays: bytes = Field(sa_type=LargeBinary)


class Mark(SQLModel, table=True):
    """How far a source that follows something has come; written with the events that it brought. ``position`` is the
    source's own text (JSON)."""

    cluster: str = Field(primary_key=True)
    source: str = Field(primary_key=True)
    name: str = Field(primary_key=True)
    position: str
    at: datetime = when()


class Cursor(SQLModel, table=True):
    """How far a reader has come in a numbered log."""

    cluster: str = Field(primary_key=True)
    name: str = Field(primary_key=True)
    position: int = Field(default=0, sa_type=RowId)
    at: datetime | None = when(default=None)
