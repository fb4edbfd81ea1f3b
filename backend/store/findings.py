"""Findings and saved detector states: every query about them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlmodel import Session, and_, col, func, or_, select

from backend.model.events import DetectorState, Finding
from detectors.shadow import SAID as SHADOW


def active(session: Session, cluster: str) -> Sequence[Finding]:
    """Findings that still hold, oldest first."""
    query = select(Finding).where(col(Finding.cluster) == cluster, col(Finding.cleared_at).is_(None))
    return session.exec(query.order_by(col(Finding.id))).all()


def shadowed(session: Session, cluster: str, name: str, since: datetime) -> tuple[int, Finding | None]:
    """How often what is in shadow under ``name`` (a detector, a kind or detector:kind) was found since then, and the
    newest of it."""
    detector, colon, kind = name.partition(":")
    mine = and_(col(Finding.detector) == detector, col(Finding.kind) == kind)
    fits = mine if colon else or_(col(Finding.detector) == name, col(Finding.kind) == name)
    where = (
        col(Finding.cluster) == cluster,
        col(Finding.raised_at) >= since,
        col(Finding.reason).startswith(SHADOW),
        fits,
    )
    number = session.exec(select(func.count()).select_from(Finding).where(*where)).one()
    newest = select(Finding).where(*where).order_by(col(Finding.raised_at).desc(), col(Finding.id).desc()).limit(1)
    return number, session.exec(newest).first()


def of_incident(session: Session, incident_id: int) -> Sequence[Finding]:
    """All findings ever linked to an incident, oldest first."""
    return session.exec(
        select(Finding).where(col(Finding.incident_id) == incident_id).order_by(col(Finding.raised_at), col(Finding.id))
    ).all()


def states(session: Session, cluster: str) -> dict[str, DetectorState]:
    rows = session.exec(select(DetectorState).where(col(DetectorState.cluster) == cluster)).all()
    return {row.detector: row for row in rows}


def saved_at(session: Session, cluster: str, detector: str) -> float:
    """The tick (unix s) that a saved state has seen; minus infinity where there is none."""
    query = select(DetectorState.at).where(
        col(DetectorState.cluster) == cluster, col(DetectorState.detector) == detector
    )
    found = session.exec(query).first()
    return found.timestamp() if found is not None else -math.inf


def save_state(
    session: Session, cluster: str, detector: str, at: datetime, cursor: int, arrays: bytes, fleet: Mapping[str, Any]
) -> None:
    """Insert or replace the saved state of one detector."""
    row = session.get(DetectorState, (cluster, detector))
    if row is None:
        row = DetectorState(cluster=cluster, detector=detector, at=at, cursor=cursor, arrays=arrays, fleet=dict(fleet))
    else:
        row.at, row.cursor, row.arrays, row.fleet = at, cursor, arrays, dict(fleet)
    session.add(row)
