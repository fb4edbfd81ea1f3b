"""The breaker: trips where the fleet breaks as a whole, says so once, and waits for a person."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta

from sqlmodel import Session

from backend.clock import unix
from backend.decide.storm import shifted
from backend.facts import HypothesisFacts
from backend.model.incidents import Incident
from backend.store import cluster as cluster_rows
from backend.store import incidents, system
from backend.watch import Watch

#: The kind of the one incident that says so (kinds.csv).
KIND = "fleet_shift"


def look(watch: Watch) -> bool:
    """Trip the breaker where so many nodes broke within so little time that they cannot have done so by themselves.
    True when it tripped now. After a reset, only nodes that break later count."""
    limits, now = watch.rules.limits, watch.clock.now()
    since = now - timedelta(seconds=limits.shift_s)
    with watch.store.read() as session:
        row = system.cluster_row(session, watch.cluster)
        if row is None or row.breaker:
            return False
        struck = incidents.struck(session, watch.cluster, max(since, row.breaker_reset_at or since))
        if len(struck) < limits.shift_min:
            return False
        why = shifted(len(struck), len(cluster_rows.nodes(session, watch.cluster)), limits)
    if not why:
        return False
    with watch.turn() as session:
        if not system.trip_breaker(session, watch.cluster, why, now):
            return False
        _open(session, watch, why, sorted(struck))
    watch.changes.nudge()
    return True


def _open(session: Session, watch: Watch, why: str, struck: list[str]) -> None:
    now, name = watch.clock.now(), f"cluster:{watch.cluster}"
    cause = HypothesisFacts(KIND, name, "cluster", "", 1.0, why, "state")
    row = Incident(
        cluster=watch.cluster,
        kind=KIND,
        severity="critical",
        headline=why,
        entity_kind="cluster",
        entity_id=watch.cluster,
        entity_name=name,
        opened_at=now,
        changed_at=now,
        last_asserted_at=now,
        hypotheses=[asdict(cause)],
        entities=[name],
        victims=struck,
        dark=list(watch.dark),
    )
    session.add(row)
    session.flush()
    incidents.tell(session, row, now, "opened", f"{why} The breaker is tripped: nothing is taken out by us.")


def said_by(session: Session, watch: Watch, incident: Incident) -> bool:
    """Whether the breaker's own incident speaks for this one: it broke in the same shift, and has been told of so."""
    row = system.cluster_row(session, watch.cluster)
    if row is None or not row.breaker or row.breaker_at is None or incident.kind == KIND:
        return False
    return unix(incident.opened_at) >= unix(row.breaker_at) - watch.rules.limits.shift_s


def reset(session: Session, watch: Watch, by: str, reason: str) -> str:
    """A person closes it, and its incident with it. Returns why it had been tripped, "" where it was closed."""
    now = watch.clock.now()
    was = system.reset_breaker(session, watch.cluster, by, now)
    for row in incidents.live(session, watch.cluster) if was else ():
        if row.kind == KIND:
            row.resolving_by, row.clear_s, row.blind = by, watch.rules.hold_s, False
            session.add(row)
            incidents.tell(session, row, now, "reset", f"{by} reset the breaker: {reason}", by)
    return was
