"""Watchkeeper's own pulse as System shows it: which loops are late, which sources are silent, what waits to be said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sqlmodel import Session

from backend.model.cluster import Cluster
from backend.model.system import Beat
from backend.store import messages, system

#: A beat is late after so many of its own intervals, and never before FLOOR_S.
LATE_AFTER = 3.0
FLOOR_S = 60.0

Health = Literal["fine", "late", "failing", "never"]


@dataclass(frozen=True, slots=True)
class Pulse:
    """One loop, source or detector. ``age_s``: since its last success, None = it never had one. ``limit_s``: late after
    so long; None = it comes when there is something (pushed lines, jobs), so no pulse is no silence."""

    kind: str
    name: str
    health: Health
    age_s: float | None
    limit_s: float | None
    every_s: float
    took_s: float
    errors: int
    error: str
    since: datetime | None
    counts: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Pulses:
    cluster: Cluster
    loops: tuple[Pulse, ...]
    sources: tuple[Pulse, ...]
    detectors: tuple[Pulse, ...]
    messages: Mapping[str, int]

    @property
    def dark(self) -> tuple[Pulse, ...]:
        return tuple(p for p in self.sources if p.health != "fine")


def pulses(session: Session, name: str, now: datetime) -> Pulses:
    """The pulse of one cluster and of what all clusters share; asked once in a session, for pages tell it often."""
    asked = ("pulses", name, now)
    if asked not in session.info:
        session.info[asked] = _read(session, name, now)
    found: Pulses = session.info[asked]
    return found


def _read(session: Session, name: str, now: datetime) -> Pulses:
    rows = [pulse(beat, now) for beat in system.beats(session) if beat.cluster in ("", name)]
    waiting: dict[str, int] = {}
    for (_, state), count in messages.outbox_counts(session, name).items():
        waiting[state] = waiting.get(state, 0) + count
    return Pulses(
        cluster=session.get(Cluster, name) or Cluster(name=name),
        loops=tuple(p for p in rows if p.kind == "loop"),
        sources=tuple(p for p in rows if p.kind == "source"),
        detectors=tuple(p for p in rows if p.kind == "detector"),
        messages=waiting,
    )


def pulse(beat: Beat, now: datetime) -> Pulse:
    age_s = (now - beat.ok_at).total_seconds() if beat.ok_at is not None else None
    limit_s = max(FLOOR_S, LATE_AFTER * beat.every_s) if beat.every_s > 0 and beat.kind != "detector" else None
    late = limit_s is not None and age_s is not None and age_s > limit_s
    health: Health = "never" if age_s is None else "late" if late else "fine"
    if beat.failing_since is not None:
        health = "failing"
    since = beat.failing_since or (beat.ok_at if late else None)
    return Pulse(
        kind=beat.kind,
        name=beat.name,
        health=health,
        age_s=age_s,
        limit_s=limit_s,
        every_s=beat.every_s,
        took_s=beat.took_s,
        errors=beat.errors,
        error=beat.error,
        since=since,
        counts={k: float(v) for k, v in beat.counts.items() if isinstance(v, int | float)},
    )
