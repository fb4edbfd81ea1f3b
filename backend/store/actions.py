"""Exclusions, decisions and orders: every query about them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy.orm import aliased
from sqlmodel import Session, col, func, or_, select

from backend.model.actions import Decision, Exclusion, Order
from backend.model.incidents import Incident
from backend.store.claims import claim

#: An order is tried this often when the cluster does not answer; then it has failed.
MOST_ATTEMPTS = 8
#: Orders that may still change something.
PENDING = ("waiting", "claimed", "sent")
#: The verb of orders that only look at a node, in a loop of their own.
CHECK = "check"
#: An order that ends like this never ran, so nothing that waits for it may run either.
FAILED = ("refused", "failed", "cancelled", "uncertain")


def live_exclusions(session: Session, cluster: str, now: datetime) -> Sequence[Exclusion]:
    """Neither lifted nor expired, oldest first."""
    query = select(Exclusion).where(
        col(Exclusion.cluster) == cluster, col(Exclusion.lifted_at).is_(None), col(Exclusion.until) > now
    )
    return session.exec(query.order_by(col(Exclusion.id))).all()


def exclusions_of(session: Session, incident_id: int) -> Sequence[Exclusion]:
    """Not yet lifted exclusions that an incident made."""
    query = select(Exclusion).where(col(Exclusion.incident_id) == incident_id, col(Exclusion.lifted_at).is_(None))
    return session.exec(query).all()


def latest_decision(session: Session, incident_id: int) -> Decision | None:
    query = select(Decision).where(col(Decision.incident_id) == incident_id)
    return session.exec(query.order_by(col(Decision.id).desc()).limit(1)).first()


def latest_plan(session: Session, incident_id: int) -> Decision | None:
    """The latest decision that called for a step; where none ever did, the latest."""
    query = select(Decision).where(col(Decision.incident_id) == incident_id).order_by(col(Decision.id).desc())
    rows = session.exec(query).all()
    return next((row for row in rows if row.plan), rows[0] if rows else None)


def told_decision(session: Session, incident: Incident) -> Decision | None:
    """The decision that tells the story: the newest while it lives, the last that called for a step once it ended."""
    if incident.closed_at is None:
        return latest_decision(session, incident.id or 0)
    return latest_plan(session, incident.id or 0)


def proposed(session: Session, cluster: str) -> Sequence[Decision]:
    """Decisions that wait for a person, oldest first."""
    query = select(Decision).where(col(Decision.cluster) == cluster, col(Decision.state) == "proposed")
    return session.exec(query.order_by(col(Decision.id))).all()


def decisions(session: Session, cluster: str, states: Sequence[str], limit: int) -> Sequence[Decision]:
    query = select(Decision).where(col(Decision.cluster) == cluster)
    if states:
        query = query.where(col(Decision.state).in_(states))
    return session.exec(query.order_by(col(Decision.id).desc()).limit(limit)).all()


def orders_of(session: Session, incident_id: int) -> Sequence[Order]:
    query = select(Order).where(col(Order.incident_id) == incident_id)
    return session.exec(query.order_by(col(Order.id))).all()


def orders(session: Session, cluster: str, states: Sequence[str], limit: int, before: int = 0) -> Sequence[Order]:
    """Newest first; no states = all. ``before`` turns the page."""
    query = select(Order).where(col(Order.cluster) == cluster)
    query = query.where(col(Order.id) < before) if 0 < before < 2**62 else query
    if states:
        query = query.where(col(Order.state).in_(states))
    return session.exec(query.order_by(col(Order.id).desc()).limit(limit)).all()


def orders_since(session: Session, cluster: str, since: datetime) -> Sequence[Order]:
    """Orders that were sent since then: what cooldown and the ladder's memory look at."""
    query = select(Order).where(col(Order.cluster) == cluster, col(Order.sent_at) >= since)
    return session.exec(query.order_by(col(Order.id))).all()


def standing_drains(session: Session, cluster: str, node: str) -> Sequence[Order]:
    """Drains of a node that were carried out and not given back since, oldest first, whatever incident asked.

    A resume gives back the drain that it names and all before it. By number, not by time: clocks step back.
    """
    done = (col(Order.cluster) == cluster, col(Order.node) == node, col(Order.state) == "done")
    returned = session.exec(select(func.max(Order.undoes_id)).where(*done, col(Order.verb) == "resume")).one() or 0
    drains = select(Order).where(*done, col(Order.verb) == "drain", col(Order.id) > returned)
    return session.exec(drains.order_by(col(Order.id))).all()


def undos_of(session: Session, drain: Order) -> Sequence[Order]:
    """Orders that were to give this drained node back, oldest first, whichever incident asked."""
    query = select(Order).where(col(Order.cluster) == drain.cluster, col(Order.undoes_id) == drain.id)
    return session.exec(query.order_by(col(Order.id))).all()


def checks_of(session: Session, drain: Order) -> Sequence[Order]:
    """Checks before this drain was to be lifted, oldest first."""
    query = select(Order).where(col(Order.cluster) == drain.cluster, col(Order.key).startswith(f"o{drain.id}:check:"))
    return session.exec(query.order_by(col(Order.id))).all()


def order_by_key(session: Session, cluster: str, key: str) -> Order | None:
    return session.exec(select(Order).where(col(Order.cluster) == cluster, col(Order.key) == key)).first()


def due_orders(
    session: Session, cluster: str, now: datetime, limit: int = 20, *, checks: bool = False
) -> Sequence[Order]:
    """Waiting orders whose time has come, oldest first, and that wait for no order which may still change; how that
    one ended is looked at by the caller. ``checks``: only checks of nodes, else all others."""
    first = aliased(Order)
    behind = select(first.id).where(col(first.id) == col(Order.after_id), col(first.state).in_(PENDING)).exists()
    query = select(Order).where(
        col(Order.cluster) == cluster, col(Order.state) == "waiting", col(Order.not_before) <= now, ~behind
    )
    query = query.where((col(Order.verb) == CHECK) if checks else (col(Order.verb) != CHECK))
    return session.exec(query.order_by(col(Order.id)).limit(limit)).all()


def lost_orders(session: Session, cluster: str, now: datetime) -> Sequence[Order]:
    """Claimed or sent orders whose lease ran out: their process died."""
    query = select(Order).where(
        col(Order.cluster) == cluster,
        col(Order.state).in_(("claimed", "sent")),
        or_(col(Order.lease_until).is_(None), col(Order.lease_until) <= now),
    )
    return session.exec(query.order_by(col(Order.id))).all()


def claim_order(session: Session, order: Order, who: str, now: datetime, lease_s: float) -> bool:
    """Waiting to claimed, for one claimant only."""
    return claim(
        session,
        Order,
        order.id,
        {"state": "waiting"},
        {
            "state": "claimed",
            "claimed_by": who,
            "claimed_at": now,
            "lease_until": now + timedelta(seconds=lease_s),
            "attempts": order.attempts + 1,
        },
    )


def standing(session: Session, cluster: str) -> Sequence[Decision]:
    """The newest decision of each live incident, where it still is only a plan: proposed, or observed."""
    real = (col(Incident.closed_at).is_(None), col(Incident.drill) == "")
    live = select(Incident.id).where(col(Incident.cluster) == cluster, *real)
    newest = (
        select(func.max(Decision.id))
        .where(col(Decision.cluster) == cluster, col(Decision.incident_id).in_(live))
        .group_by(col(Decision.incident_id))
    )
    query = select(Decision).where(col(Decision.id).in_(newest), col(Decision.state).in_(("proposed", "observed")))
    return session.exec(query.order_by(col(Decision.id))).all()
