"""Watchkeeper's own state: beats, cursors, its secret, and the kill switch."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlmodel import Session, col, select

from backend.model.cluster import Cluster
from backend.model.events import Cursor
from backend.model.system import Beat, Secret

SECRET_BYTES = 32
#: A failure is shown on System and stored with each beat; its beginning says what it is.
LONGEST_ERROR = 2000


def beats(session: Session, cluster: str | None = None) -> Sequence[Beat]:
    """The pulse of every loop, source and detector, of one cluster or ("" = the process itself) of all."""
    query = select(Beat).order_by(col(Beat.cluster), col(Beat.kind), col(Beat.name))
    return session.exec(query if cluster is None else query.where(col(Beat.cluster) == cluster)).all()


def beat_ok(
    session: Session,
    cluster: str,
    kind: str,
    name: str,
    now: datetime,
    took_s: float,
    counts: Mapping[str, Any],
    *,
    every_s: float | None = None,
) -> Beat:
    """A step succeeded: what failed before is over. every_s: how often it should beat; None keeps what is known."""
    beat = _beat(session, cluster, kind, name, now, every_s)
    beat.ok_at, beat.took_s, beat.counts = now, took_s, dict(counts)
    beat.failing_since, beat.error = None, ""
    session.add(beat)
    return beat


def beat_failed(
    session: Session, cluster: str, kind: str, name: str, now: datetime, error: str, *, every_s: float | None = None
) -> Beat:
    """A step failed; ``failing_since`` stays at the first failure after a success, ``errors`` counts them all."""
    beat = _beat(session, cluster, kind, name, now, every_s)
    beat.failing_since = beat.failing_since or now
    beat.errors += 1
    beat.error = error[:LONGEST_ERROR].replace("\x00", "")
    session.add(beat)
    return beat


def _beat(session: Session, cluster: str, kind: str, name: str, now: datetime, every_s: float | None) -> Beat:
    beat = session.get(Beat, (cluster, kind, name)) or Beat(cluster=cluster, kind=kind, name=name, at=now)
    beat.at = now
    beat.every_s = beat.every_s if every_s is None else every_s
    return beat


def cursor(session: Session, cluster: str, name: str) -> int:
    """How far the reader ``name`` has come; 0 where it never read."""
    row = session.get(Cursor, (cluster, name))
    return row.position if row is not None else 0


def cursor_at(session: Session, cluster: str, name: str) -> float | None:
    """The time (unix s) that a reader of ticks has come to; None where it never read."""
    row = session.get(Cursor, (cluster, name))
    return row.at.timestamp() if row is not None and row.at is not None else None


def set_cursor(session: Session, cluster: str, name: str, position: int, at: datetime | None = None) -> None:
    """Keep ``position`` in the same transaction as what was made of everything up to it."""
    row = session.get(Cursor, (cluster, name)) or Cursor(cluster=cluster, name=name)
    row.position, row.at = position, at
    session.add(row)


def secret(session: Session, name: str, now: datetime) -> bytes:
    """A key of 32 random bytes that is made at its first use and stays. Needs a writing session."""
    _one_at_a_time(session, name)
    row = session.get(Secret, name, populate_existing=True)
    if row is None:
        row = Secret(name=name, value=secrets.token_hex(SECRET_BYTES), created_at=now)
        session.add(row)
        session.flush()
    return bytes.fromhex(row.value)


def _one_at_a_time(session: Session, name: str) -> None:
    """Two processes that start together would each make a key; SQLite's write transaction keeps them apart already."""
    if session.get_bind().dialect.name == "postgresql":
        lock = text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))").bindparams(name=f"secret:{name}")
        session.connection().execute(lock)


def kill_switch(session: Session, cluster: str) -> bool:
    """True while nothing may be sent to this cluster. Read fresh each time, also inside a long session."""
    row = session.get(Cluster, cluster, populate_existing=True)
    return row is not None and row.kill_switch


def set_kill_switch(session: Session, cluster: str, on: bool, by: str, now: datetime) -> None:
    """Throw or release the switch; who and when stay readable. Raises LookupError for an unknown cluster."""
    row = session.get(Cluster, cluster)
    if row is None:
        raise LookupError(f"no cluster {cluster!r}")
    row.kill_switch, row.kill_switch_by, row.kill_switch_at = on, by, now
    session.add(row)


def cluster_row(session: Session, cluster: str) -> Cluster | None:
    """The cluster with its kill switch and breaker, read fresh."""
    return session.get(Cluster, cluster, populate_existing=True)


def breaker(session: Session, cluster: str) -> str:
    """Why the breaker is tripped, "" while it is closed. Read fresh each time."""
    row = session.get(Cluster, cluster, populate_existing=True)
    return row.breaker if row is not None else ""


def trip_breaker(session: Session, cluster: str, why: str, now: datetime) -> bool:
    """Trip it; True where it was closed. Raises LookupError for an unknown cluster."""
    row = session.get(Cluster, cluster, populate_existing=True)
    if row is None:
        raise LookupError(f"no cluster {cluster!r}")
    if row.breaker:
        return False
    row.breaker, row.breaker_at = why, now
    session.add(row)
    return True


def reset_breaker(session: Session, cluster: str, by: str, now: datetime) -> str:
    """Close it again; returns why it had been tripped, "" where it was closed."""
    row = session.get(Cluster, cluster, populate_existing=True)
    if row is None or not row.breaker:
        return ""
    was, row.breaker = row.breaker, ""
    row.breaker_reset_by, row.breaker_reset_at = by, now
    session.add(row)
    return was
