"""What job wrappers told: one report a process that ended."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlmodel import Field, Index, SQLModel, text

from backend.model.base import stored, when

_WAITING = text("NOT joined")


class WrapReport(SQLModel, table=True):
    """One report. ``joined``: the verdict on its attempt was drawn, or there is none to draw. ``report``: the row."""

    __table_args__ = (
        Index("ix_wrapreport_job", "cluster", "job", "restart"),
        Index("ix_wrapreport_waiting", "cluster", sqlite_where=_WAITING, postgresql_where=_WAITING),
    )
    cluster: str = Field(primary_key=True)
    id: str = Field(primary_key=True)
    job: str = ""
    restart: int = 0
    task: int | None = None
    tasks: int | None = None
    host: str
    at: datetime = when()
    received_at: datetime = when()
    exit_code: int
    log_class: str = ""
    joined: bool = False
    report: dict[str, Any] = stored(dict)
