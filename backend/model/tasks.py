"""Work that takes minutes and runs beside the watch: what was asked, how far it is, what came of it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlmodel import Field, Index, SQLModel

from backend.model.base import row_id, stored, when


class Task(SQLModel, table=True):
    """One backtest. state: waiting, running, done, failed or cancelled. ``share`` is done (0 to 1), ``said`` what is
    being done or why it failed, ``who`` the process that runs it.

    asked: {"start", "end" (unix s), "thresholds"}; result: the comparison. ``cancelled_by``: a person who stopped it.
    ``adopted_at``: since then its thresholds are in force, None = they are not (any more).
    """

    __tablename__ = "tasks"
    __table_args__ = (Index("ix_tasks_state", "cluster", "state"),)
    id: int | None = row_id()
    cluster: str
    kind: str
    at: datetime = when()
    by: str
    asked: dict[str, Any] = stored(dict)
    state: str = "waiting"
    share: float = Field(default=0.0)
    said: str = ""
    who: str = ""
    began_at: datetime | None = when(default=None)
    ended_at: datetime | None = when(default=None)
    cancelled_by: str = ""
    result: dict[str, Any] = stored(dict)
    adopted_at: datetime | None = when(default=None)
    adopted_by: str = ""
