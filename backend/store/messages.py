"""Queries of the outbox: messages and how far each channel has come with them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, func, update
from sqlalchemy.orm import aliased
from sqlmodel import Session, and_, col, or_, select

from backend.model.alerts import AlertMember
from backend.model.messages import Delivery, Message

#: States in which a delivery still stands before later ones of its incident and channel.
UNSETTLED = ("waiting", "claimed")


def first_of_thread(session: Session, cluster: str, incident_id: int) -> Message | None:
    """The message that began the thread of an incident."""
    ours = (col(Message.cluster) == cluster, col(Message.incident_id) == incident_id)
    return session.exec(select(Message).where(*ours).order_by(col(Message.id)).limit(1)).first()


def of_incident(session: Session, cluster: str, incident_id: int) -> Sequence[Message]:
    """Every message of an incident, oldest first."""
    query = select(Message).where(col(Message.cluster) == cluster, col(Message.incident_id) == incident_id)
    return session.exec(query.order_by(col(Message.id))).all()


def channels_told(session: Session, cluster: str, incident_id: int) -> frozenset[str]:
    """Channels that have, or wait for, a message of this incident; one that gave up on all of them is not told."""
    ours = (col(Delivery.cluster) == cluster, col(Delivery.incident_id) == incident_id)
    return frozenset(session.exec(select(Delivery.channel).where(*ours, col(Delivery.state) != "dead").distinct()))


def due_deliveries(
    session: Session, now: datetime, channels: Collection[str] | None = None, limit: int = 20
) -> Sequence[Delivery]:
    """Deliveries whose time has come or whose lease ran out, longest due first.

    Per thread and channel at most the first unsettled one, so that no message overtakes an earlier one.
    channels: only these; None = all.
    """
    earlier = aliased(Delivery)
    behind = (
        select(earlier.id)
        .where(
            col(earlier.cluster) == col(Delivery.cluster),
            col(earlier.thread) == col(Delivery.thread),
            col(earlier.channel) == col(Delivery.channel),
            col(earlier.message_id) < col(Delivery.message_id),
            col(earlier.state).in_(UNSETTLED),
        )
        .exists()
    )
    wanted = [_due(now), ~behind]
    if channels is not None:
        wanted.append(col(Delivery.channel).in_(channels))
    return session.exec(
        select(Delivery).where(*wanted).order_by(col(Delivery.not_before), col(Delivery.id)).limit(limit)
    ).all()


def receipts_before(session: Session, delivery: Delivery) -> dict[str, str]:
    """What this channel answered earlier in this thread to the same recipients: later answers over earlier ones."""
    mine = (
        col(Delivery.thread) == delivery.thread,
        col(Delivery.channel) == delivery.channel,
        col(Delivery.state) == "sent",
    )
    rows = session.exec(select(Delivery).where(*mine).order_by(col(Delivery.message_id))).all()
    said: dict[str, str] = {}
    for row in rows:
        if list(row.to) == list(delivery.to):
            said |= {key: str(value) for key, value in row.receipt.items() if key != "text"}
    return said


def standing(session: Session, cluster: str, channel: str) -> Sequence[Message]:
    """The newest message of each thread that this channel took and that nothing has ended."""
    took = (col(Delivery.cluster) == cluster, col(Delivery.channel) == channel, col(Delivery.state) == "sent")
    newest = select(func.max(Delivery.message_id)).where(*took, col(Delivery.incident_id) > 0).group_by(Delivery.thread)
    ended = ("closed", "digest", "silenced", "owner", "report", "test")
    query = select(Message).where(col(Message.id).in_(newest), col(Message.kind).not_in(ended))
    return session.exec(query.order_by(col(Message.id))).all()


def in_group(session: Session, group_id: int) -> Sequence[Message]:
    """What a group of incidents was told with, oldest first."""
    return session.exec(select(Message).where(col(Message.group_id) == group_id).order_by(col(Message.id))).all()


def sent_log(
    session: Session, cluster: str, states: Sequence[str] = (), limit: int = 100, before: int | None = None
) -> Sequence[tuple[Message, Delivery]]:
    """Deliveries with what they carry, the newest first; no states = all; ``before``: the id to go on from."""
    ours = [col(Delivery.cluster) == cluster, col(Delivery.message_id) == col(Message.id)]
    ours += [col(Delivery.state).in_(states)] if states else []
    ours += [col(Delivery.id) < before] if before is not None else []
    query = select(Message, Delivery).where(*ours).order_by(col(Delivery.id).desc())
    return session.exec(query.limit(limit)).all()


def oldest_waiting(session: Session, cluster: str) -> dict[str, datetime]:
    """Since when the longest unsettled delivery of each channel waits."""
    ours = (col(Delivery.cluster) == cluster, col(Delivery.state).in_(UNSETTLED))
    joined = col(Delivery.message_id) == col(Message.id)
    query = select(Delivery.channel, func.min(col(Message.created_at))).where(joined, *ours)
    return {name: at for name, at in session.exec(query.group_by(col(Delivery.channel))).all()}


def message_of(session: Session, delivery: Delivery) -> Message:
    """What a delivery carries."""
    return session.get_one(Message, delivery.message_id)


def last_error(session: Session, cluster: str, channel: str) -> str:
    """What the channel answered last to a message that still waits."""
    ours = (col(Delivery.cluster) == cluster, col(Delivery.channel) == channel, col(Delivery.state).in_(UNSETTLED))
    query = select(Delivery.error).where(*ours, col(Delivery.error) != "").order_by(col(Delivery.id)).limit(1)
    return session.exec(query).first() or ""


def was_told(session: Session, cluster: str, kind: str, revision: int, route: str) -> bool:
    """Whether a message about no incident is there already."""
    mine = (col(Message.cluster) == cluster, col(Message.incident_id) == 0, col(Message.kind) == kind)
    query = select(Message.id).where(*mine, col(Message.revision) == revision, col(Message.route) == route)
    return session.exec(query.limit(1)).first() is not None


def told_since_sent(session: Session, cluster: str, kind: str, route: str) -> bool:
    """Whether a message about no incident was made after the last one that this channel took."""
    ours = (col(Delivery.cluster) == cluster, col(Delivery.channel) == route)
    sent = session.exec(select(func.max(col(Delivery.sent_at))).where(*ours)).one()
    mine = [col(Message.cluster) == cluster, col(Message.incident_id) == 0, col(Message.kind) == kind]
    mine += [col(Message.route) == route, *([col(Message.created_at) > sent] if sent is not None else [])]
    return session.exec(select(Message.id).where(*mine).limit(1)).first() is not None


def deliveries_of(session: Session, cluster: str, incident_id: int) -> Sequence[tuple[Message, Delivery]]:
    """All that was, will or could not be said about an incident, in its own messages and in those of its groups, in
    order: what its page shows."""
    groups = select(AlertMember.group_id).where(col(AlertMember.incident_id) == incident_id)
    about = or_(col(Message.incident_id) == incident_id, col(Message.group_id).in_(groups))
    return session.exec(
        select(Message, Delivery)
        .where(col(Message.cluster) == cluster, about, col(Delivery.message_id) == col(Message.id))
        .order_by(col(Message.id), col(Delivery.id))
    ).all()


def dead_deliveries(session: Session, cluster: str, limit: int = 50) -> Sequence[Delivery]:
    """The latest deliveries that were given up: what System shows, with their errors."""
    dead = (col(Delivery.cluster) == cluster, col(Delivery.state) == "dead")
    return session.exec(select(Delivery).where(*dead).order_by(col(Delivery.id).desc()).limit(limit)).all()


def outbox_counts(session: Session, cluster: str) -> dict[tuple[str, str], int]:
    """Deliveries by (channel, state)."""
    rows = session.exec(
        select(Delivery.channel, Delivery.state, func.count())
        .where(col(Delivery.cluster) == cluster)
        .group_by(col(Delivery.channel), col(Delivery.state))
    )
    return {(channel, state): count for channel, state, count in rows}


def hold_channel(session: Session, channel: str, until: datetime) -> None:
    """No delivery of this channel before ``until``: its server asked for a rest."""
    waiting = (col(Delivery.channel) == channel, col(Delivery.state) == "waiting", col(Delivery.not_before) < until)
    session.connection().execute(_change().where(*waiting).values(not_before=until))


def bury_unserved(session: Session, channels: Collection[str], error: str) -> int:
    """Give up deliveries of channels that are not among ``channels``; returns how many."""
    unserved = (col(Delivery.channel).not_in(channels), col(Delivery.state).in_(UNSETTLED))
    return session.connection().execute(_change().where(*unserved).values(state="dead", error=error)).rowcount


def _change() -> Any:
    """An UPDATE of deliveries. Any: the class that sqlalchemy returns is not worth its name here."""
    return update(Delivery).execution_options(synchronize_session=False)


def _due(now: datetime) -> ColumnElement[bool]:
    return or_(
        and_(col(Delivery.state) == "waiting", col(Delivery.not_before) <= now),
        and_(col(Delivery.state) == "claimed", col(Delivery.lease_until) <= now),
    )
