"""What checks of nodes found."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlmodel import Field, Index, SQLModel

from backend.model.base import RowId, row_id, stored, when


class Check(SQLModel, table=True):
    """One run of one check on one node. ``peer``: the other node of a pair test. verdict: pass, warn, fail, unknown.

    ``occasion``: return (before a node goes back) or idle (a sweep). ``digest``: what it computed, where results of
    several nodes are compared. ``incident_id``: what was opened because of it.
    """

    __tablename__ = "checks"
    __table_args__ = (Index("ix_checks_node", "cluster", "node", "name", "id"),)
    id: int | None = row_id()
    cluster: str
    node: str
    peer: str = ""
    name: str
    occasion: str
    at: datetime = when()
    verdict: str
    text: str = ""
    reading: dict[str, Any] = stored(dict)
    digest: str = ""
    incident_id: int | None = Field(default=None, sa_type=RowId)
