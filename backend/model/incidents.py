"""Incidents and their timeline."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlmodel import Field, Index, SQLModel

from backend.model.base import RowId, row_id, stored, when


class Incident(SQLModel, table=True):
    """One fault, with its ranked causes. ``clear_s`` is how long it has been seen and clear; blind time counts not.
    ``resolving_by``: who said that it is mended; then nothing seen keeps it open. ``drill``: who drills it, "" = it is
    real; nothing of a drill is sent to the cluster, and no report counts it.

    state: open, acknowledged, mitigated or resolved. ``revision`` rises with every change that a decision or a
    message may depend on. ``hypotheses`` are HypothesisFacts, ``victims`` names of folded entities.
    """

    __table_args__ = (
        Index("ix_incident_state", "cluster", "state", "opened_at"),
        Index("ix_incident_entity", "cluster", "kind", "entity_id", "opened_at"),
    )
    id: int | None = row_id()
    cluster: str
    kind: str
    severity: str
    state: str = "open"
    headline: str
    entity_kind: str
    entity_id: str
    entity_name: str
    node: str = ""
    job: str = ""
    run: str = ""
    opened_at: datetime = when()
    changed_at: datetime = when()
    last_asserted_at: datetime = when()
    clear_s: float = 0.0
    blind: bool = False
    closed_at: datetime | None = when(default=None)
    acknowledged_by: str = ""
    acknowledged_at: datetime | None = when(default=None)
    mitigated_at: datetime | None = when(default=None)
    resolving_by: str = ""
    close_note: str = ""
    drill: str = ""
    revision: int = 1
    decided_revision: int = 0
    hypotheses: list[dict[str, Any]] = stored(list)
    entities: list[str] = stored(list)
    victims: list[str] = stored(list)
    dark: list[str] = stored(list)


class Entry(SQLModel, table=True):
    """One line of an incident's timeline; a state change is a row."""

    id: int | None = row_id()
    cluster: str
    incident_id: int = Field(index=True, sa_type=RowId)
    at: datetime = when()
    what: str
    actor: str = ""
    text: str
    attrs: dict[str, Any] = stored(dict)
