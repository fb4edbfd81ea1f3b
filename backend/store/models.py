"""Fitted models: each a row, the newest is used, and a few older ones stay to be looked at."""

from __future__ import annotations

from sqlalchemy.orm import defer
from sqlmodel import Session, col, delete, select

from backend.model.learning import ModelArtifact

#: Versions of one model that are kept.
KEPT = 3


def newest(session: Session, cluster: str, name: str, *, arrays: bool = True) -> ModelArtifact | None:
    """The last version; without ``arrays`` they are only read when they are asked for."""
    query = select(ModelArtifact).where(col(ModelArtifact.cluster) == cluster, col(ModelArtifact.name) == name)
    query = query if arrays else query.options(defer(col(ModelArtifact.arrays)))  # type: ignore[arg-type]
    return session.exec(query.order_by(col(ModelArtifact.version).desc()).limit(1)).first()


def last(session: Session, cluster: str, name: str) -> tuple[int, int]:
    """(version, newest label it knew) without reading it; zeros where there is none."""
    query = select(ModelArtifact.version, ModelArtifact.labels_to).where(
        col(ModelArtifact.cluster) == cluster, col(ModelArtifact.name) == name
    )
    found = session.exec(query.order_by(col(ModelArtifact.version).desc()).limit(1)).first()
    return (found[0], found[1]) if found is not None else (0, 0)


def add(session: Session, row: ModelArtifact) -> None:
    """A new version; versions older than the KEPT newest go."""
    session.add(row)
    session.flush()
    old = delete(ModelArtifact).where(
        col(ModelArtifact.cluster) == row.cluster,
        col(ModelArtifact.name) == row.name,
        col(ModelArtifact.version) <= row.version - KEPT,
    )
    session.connection().execute(old)
