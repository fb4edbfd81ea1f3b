"""What keeps alerts quiet: groups with their timers, who is in them, and silences. All of it outlives a kill."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlmodel import Field, Index, SQLModel

from backend.model.base import RowId, row_id, stored, when


class AlertGroup(SQLModel, table=True):
    """Incidents that one route tells as one. Its timers are columns: ``due_at`` is the next moment at which something
    may have to be said (None: nothing waits).

    state: open, or closed once all its incidents are. ``lead``: the incident whose thread it is. ``told_*``: what the
    last message said (how many incidents, the loudest severity, the plan that waited). ``stirred``: an incident of it
    has news that was not told.
    """

    __table_args__ = (
        Index("ix_alertgroup_key", "cluster", "route", "key", "state"),
        Index("ix_alertgroup_due", "state", "due_at"),
    )
    id: int | None = row_id()
    cluster: str
    route: str
    key: str
    state: str = "open"
    lead: int = Field(index=True, sa_type=RowId)
    opened_at: datetime = when()
    joined_at: datetime = when()
    due_at: datetime | None = when(default=None)
    told_at: datetime | None = when(default=None)
    repeat_at: datetime | None = when(default=None)
    escalate_at: datetime | None = when(default=None)
    step: int = 0
    revision: int = 0
    told_count: int = 0
    told_severity: str = ""
    told_decision: int = Field(default=0, sa_type=RowId)
    stirred: bool = False
    why: str = ""


class AlertMember(SQLModel, table=True):
    """One incident in one group. state: waiting (to be told), held (``why``, ``held_until``), told or closed.

    ``changed_revision``: the revision of the incident whose change was told, so that none is told twice.
    """

    group_id: int = Field(primary_key=True, sa_type=RowId)
    incident_id: int = Field(primary_key=True, sa_type=RowId, index=True)
    cluster: str
    joined_at: datetime = when()
    state: str = "waiting"
    why: str = ""
    held_until: datetime | None = when(default=None)
    changed_revision: int = 0


class Silence(SQLModel, table=True):
    """What is held back for a while, by a person, with a reason. kind: silence, or maintenance (announced work).

    ``matches`` is what it is about, as routing.Match writes it: lists of patterns by name, and the loudest severity.
    """

    __table_args__ = (Index("ix_silence_ends", "cluster", "ends_at"),)
    id: int | None = row_id()
    cluster: str
    kind: str = "silence"
    matches: dict[str, Any] = stored(dict)
    comment: str
    created_by: str
    created_at: datetime = when()
    starts_at: datetime = when()
    ends_at: datetime = when()
    ended_at: datetime | None = when(default=None)
    ended_by: str = ""
