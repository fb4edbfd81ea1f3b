"""Watchkeeper's own pulse: beats of loops and sources, and settings kept in the database."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlmodel import Field, SQLModel

from backend.model.base import stored, when


class Beat(SQLModel, table=True):
    """The pulse of one loop, source or detector. ``ok_at`` is the last success; ``error`` what has failed since."""

    cluster: str = Field(primary_key=True)
    kind: str = Field(primary_key=True)
    name: str = Field(primary_key=True)
    at: datetime = when()
    ok_at: datetime | None = when(default=None)
    failing_since: datetime | None = when(default=None)
    every_s: float = 0.0
    took_s: float = 0.0
    errors: int = 0
    error: str = ""
    counts: dict[str, Any] = stored(dict)


class Secret(SQLModel, table=True):
    """A key that Watchkeeper made for itself at first start (token hashing)."""

    name: str = Field(primary_key=True)
    value: str
    created_at: datetime = when()


class Lease(SQLModel, table=True):
    """Which process watches a cluster, until when. ``term`` counts up with each change of hands and fences the last."""

    cluster: str = Field(primary_key=True)
    holder: str
    who: str
    term: int
    since: datetime = when()
    until: datetime = when()
