"""What people may do about alerts: silence for a while, announce work, end either, send again what was given up."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from backend.auth import Person
from backend.clock import utc
from backend.model.alerts import Silence
from backend.model.base import LARGEST_ID
from backend.model.messages import Delivery
from backend.notify import outbox
from backend.notify.silences import Match, match_row
from backend.proposals import Conflict
from backend.store import alerts
from backend.store.claims import claim
from backend.watch import Watch
from backend.writes import Invalid, Missing, writing

#: Longest silence, and longest announced work; either can be made again.
SILENCE_MOST = timedelta(days=31)
#: Longest comment, in characters.
COMMENT_MAX = 1000


@dataclass(frozen=True, slots=True)
class Wanted:
    """A silence or announced work as somebody asks for it; times aware UTC."""

    kind: Literal["silence", "maintenance"]
    match: Match
    starts_at: datetime
    ends_at: datetime
    comment: str


def silence(watch: Watch, person: Person, wanted: Wanted) -> Silence:
    """Hold back what it matches until it ends. Incidents go on, are decided and shown; nobody is told of them.

    Raises Invalid where it matches everything, has no comment, or ends before it begins or too late.
    """
    now, comment = watch.clock.now(), wanted.comment.strip()
    if not wanted.match.narrow:
        raise Invalid("This would silence everything. Name a node, job, kind, switch, rack, owner or team.")
    if not comment or len(comment) > COMMENT_MAX:
        raise Invalid(f"A comment of 1 to {COMMENT_MAX:,} characters says why; the next person on duty will ask.")
    if wanted.ends_at <= max(now, wanted.starts_at):
        raise Invalid("It ends before it begins; give a later end.")
    if wanted.ends_at > max(now, wanted.starts_at) + SILENCE_MOST:
        raise Invalid(f"It lasts {SILENCE_MOST.days} days at most; give an earlier end.")
    with writing(watch, person, "operator", wanted.kind, wanted.match.words()) as session:
        row = Silence(
            cluster=watch.cluster,
            kind=wanted.kind,
            matches=match_row(wanted.match),
            comment=comment,
            created_by=person.name,
            created_at=now,
            starts_at=wanted.starts_at,
            ends_at=wanted.ends_at,
        )
        session.add(row)
        session.flush()
        alerts.wake_held(session, watch.cluster, now)
        return row


def end_silence(watch: Watch, person: Person, silence_id: int) -> Silence:
    """End it now: what it held back is told. Ending twice is a Conflict."""
    with writing(watch, person, "operator", "end silence", f"silence {silence_id}") as session:
        row = session.get(Silence, silence_id) if silence_id <= LARGEST_ID else None
        if row is None or row.cluster != watch.cluster:
            raise Missing(f"No silence {silence_id} in cluster {watch.cluster}.")
        now = watch.clock.now()
        change = {"ended_at": now, "ended_by": person.name}
        if row.ends_at <= now or not claim(session, Silence, silence_id, {"ended_at": None}, change):
            raise Conflict(f"Silence {silence_id} is over already.")
        session.refresh(row)
        alerts.wake_held(session, watch.cluster, now)
        return row


def send_again(watch: Watch, person: Person, delivery_id: int) -> Delivery:
    """A message that was given up goes once more, under the same id."""
    with writing(watch, person, "operator", "send again", f"delivery {delivery_id}") as session:
        row = session.get(Delivery, delivery_id) if delivery_id <= LARGEST_ID else None
        if row is None or row.cluster != watch.cluster:
            raise Missing(f"No delivery {delivery_id} in cluster {watch.cluster}.")
        if not outbox.send_again(session, delivery_id, watch.clock.now()):
            raise Conflict(f"Delivery {delivery_id} is {row.state}; only one that was given up is sent again.")
        session.refresh(row)
        return row


def span_of(
    start: datetime | None, end: datetime | None, hours: float | None, now: datetime
) -> tuple[datetime, datetime]:
    """From when to when: ``end``, or so many ``hours`` after the start (2 where neither is given). Raises Invalid."""
    if end is not None and hours is not None:
        raise Invalid("Give either an end or hours, not both.")
    begins = start or now
    try:
        return begins, end or begins + timedelta(hours=2 if hours is None else hours)
    except OverflowError:
        return begins, utc(253_402_300_000)
