"""The outbox: messages are written with what made them true, and leave in order, at least once, under a stable id."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import asdict, fields, replace
from datetime import datetime, timedelta
from typing import Any

from sqlmodel import Session

from backend.clock import Clock
from backend.model.messages import Delivery, Message
from backend.notify.base import Notifier, NotifyError
from backend.store import messages
from backend.store.claims import claim
from backend.store.engine import Store
from backend.tidings import MessageFacts, Receipt, frozen
from detectors.model import Severity

#: A sender that died is replaced after this; above the longest try of a notifier (50 s).
LEASE_S = 60.0
#: Waits between tries double from the first to the longest.
FIRST_WAIT_S = 5.0
LONGEST_WAIT_S = 900.0
#: With these waits about a day: a mail server that is back in the morning still gets the night's messages.
MAX_TRIES = 100
#: The longest rest that a channel can ask for; a lying Retry-After must not silence it for ever.
LONGEST_REST_S = 3600.0


def put(
    session: Session,
    message: MessageFacts,
    revision: int,
    channels: Mapping[str, Sequence[str]],
    now: datetime,
    *,
    route: str = "",
    group_id: int | None = None,
) -> Message:
    """Write a message and one delivery a channel in the caller's transaction.

    channels: kind of a configured notifier -> who gets it there (empty: those in the settings). A message that no
    channel takes is kept too: the incident's page shows it. Raises IntegrityError where this (incident, kind,
    revision, route) was told before.
    """
    row = row_of(message, revision, now)
    row.route, row.group_id = route, group_id
    first = messages.first_of_thread(session, message.cluster, message.incident)
    began = first.body if first is not None and message.incident else row.body
    row.body = {**row.body, "subject": began.get("subject") or began.get("headline", "")}
    session.add(row)
    session.flush()
    for name, to in channels.items():
        session.add(delivery_of(row, name, to, message.thread, now))
    session.flush()
    return row


def delivery_of(row: Message, channel: str, to: Sequence[str], thread: str, now: datetime) -> Delivery:
    """What one channel has to do about a message."""
    return Delivery(
        cluster=row.cluster,
        message_id=row.id or 0,
        incident_id=row.incident_id,
        channel=channel,
        thread=thread,
        to=list(to),
        not_before=now,
    )


def row_of(message: MessageFacts, revision: int, now: datetime) -> Message:
    """The outbox row of a message."""
    return Message(
        cluster=message.cluster,
        incident_id=message.incident,
        kind=message.kind,
        revision=revision,
        created_at=now,
        body={**asdict(message), "severity": message.severity.word},
    )


def facts_of(body: Mapping[str, Any]) -> MessageFacts:
    """The message in an outbox row, of this release or an older one. Raises KeyError, TypeError or ValueError."""
    known = {field.name: frozen(body[field.name]) for field in fields(MessageFacts) if field.name in body}
    return MessageFacts(
        **{
            **known,
            "severity": Severity.of(body["severity"]),
            "facts": tuple((str(label), str(value)) for label, value in body["facts"]),
            "evidence": tuple(str(line) for line in body["evidence"]),
        }
    )


def claim_next(
    session: Session, now: datetime, who: str, lease_s: float = LEASE_S, channels: Collection[str] | None = None
) -> Delivery | None:
    """The longest due delivery, now held by ``who`` until the lease ends; None where nothing is due.

    A try counts when it is claimed, so a message that kills its sender each time is given up too.
    """
    for row in messages.due_deliveries(session, now, channels):
        seen = {"state": row.state, "attempts": row.attempts, "claimed_by": row.claimed_by}
        if row.attempts >= MAX_TRIES:
            claim(session, Delivery, row.id, seen, {"state": "dead", "error": f"the sender died in try {row.attempts}"})
            continue
        held = {
            "state": "claimed",
            "attempts": row.attempts + 1,
            "claimed_by": who,
            "lease_until": now + timedelta(seconds=lease_s),
        }
        if claim(session, Delivery, row.id, seen, held):
            session.refresh(row)
            return row
    return None


def sent(session: Session, delivery: Delivery, receipt: Receipt, now: datetime) -> bool:
    """Record that the channel took it; False where the lease was lost to another sender meanwhile."""
    taken = {"text": receipt.text, **receipt.attrs}
    return _settle(session, delivery, {"state": "sent", "sent_at": now, "receipt": taken, "error": ""})


def failed(session: Session, delivery: Delivery, error: NotifyError, now: datetime) -> bool:
    """Record a failure: again later, or dead where it is permanent or was tried too often. False: lease lost."""
    if error.permanent or delivery.attempts >= MAX_TRIES:
        return _settle(session, delivery, {"state": "dead", "error": str(error)})
    rest_s = _rest_s(error)
    again = now + timedelta(seconds=max(wait_s(delivery.attempts), rest_s))
    if rest_s:
        messages.hold_channel(session, delivery.channel, now + timedelta(seconds=rest_s))
    return _settle(session, delivery, {"state": "waiting", "not_before": again, "error": str(error)})


def wait_s(attempts: int) -> float:
    """Seconds to wait after so many tries: 5, 10, 20 ... 900."""
    return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(attempts - 1, 20))


def deliver_one(
    store: Store, notifiers: Mapping[str, Notifier], clock: Clock, who: str, lease_s: float = LEASE_S
) -> bool:
    """One step of the notify loop: claim, send, record. True = something was done, there may be more.

    The send stands outside any transaction. A crash after it leaves the lease to run out: the message goes again,
    under the same id, and says that it may have arrived. Call it with one notifier a loop where a slow channel must not
    hold up the others. Nothing is written where nothing is due.
    """
    with store.read() as session:
        if not messages.due_deliveries(session, clock.now(), tuple(notifiers), 1):
            return False
    with store.write() as session:
        delivery = claim_next(session, clock.now(), who, lease_s, tuple(notifiers))
        row = session.get(Message, delivery.message_id) if delivery is not None else None
        earlier = messages.receipts_before(session, delivery) if delivery is not None else {}
    if delivery is None:
        return False
    try:
        receipt = notifiers[delivery.channel].send(addressed(_readable(row), delivery, earlier))
    except NotifyError as error:
        with store.write() as session:
            failed(session, delivery, error, clock.now())
        return True
    with store.write() as session:
        sent(session, delivery, receipt, clock.now())
    return True


def addressed(message: MessageFacts, delivery: Delivery, earlier: Mapping[str, str]) -> MessageFacts:
    """The message as this delivery sends it: to whom, where its thread is, whether a try may have arrived."""
    return replace(message, to=tuple(delivery.to), earlier=earlier, again=delivery.attempts > 1)


def send_again(session: Session, delivery_id: int, now: datetime) -> bool:
    """A delivery that was given up waits again; False where it was not given up. Its next try says that an earlier one
    may have arrived."""
    again = {"state": "waiting", "attempts": 1, "not_before": now, "claimed_by": "", "lease_until": None}
    return claim(session, Delivery, delivery_id, {"state": "dead"}, again)


def drop_unserved(session: Session, channels: Set[str]) -> int:
    """At start: give up what waits for channels that are configured no more; it is shown as dead. Returns how many."""
    return messages.bury_unserved(session, channels, "this channel is no longer configured")


def _readable(row: Message | None) -> MessageFacts:
    try:
        return facts_of(row.body if row is not None else {})
    except (KeyError, TypeError, ValueError) as error:
        raise NotifyError(f"the outbox row cannot be read: {type(error).__name__} {error}", permanent=True) from error


def _settle(session: Session, delivery: Delivery, change: Mapping[str, object]) -> bool:
    """Change the row only while it is still this sender's this try."""
    mine = {"state": "claimed", "claimed_by": delivery.claimed_by, "attempts": delivery.attempts}
    return claim(session, Delivery, delivery.id, mine, {"lease_until": None, **change})


def _rest_s(error: NotifyError) -> float:
    asked = error.retry_after_s
    return min(LONGEST_REST_S, asked) if asked is not None and math.isfinite(asked) and asked > 0 else 0.0
