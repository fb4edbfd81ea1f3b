"""Alerts as REST and their page show them: what was sent to whom and why, what is held back, silences, what was given
up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlmodel import Session

from backend.model.alerts import AlertGroup, AlertMember, Silence
from backend.model.incidents import Incident
from backend.model.messages import Delivery, Message
from backend.notify.silences import match_of
from backend.store import alerts, messages

#: Rows of one page of the log.
PAGE = 25


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group that is open: what leads it, how many incidents it tells of, and when it speaks next."""

    group: AlertGroup
    lead: Incident
    told: int
    waiting: int
    held: int


@dataclass(frozen=True, slots=True)
class AlertsAnswer:
    """Everything of the page of one cluster, newest first."""

    log: Sequence[tuple[Message, Delivery]]
    dead: Sequence[tuple[Message, Delivery]]
    waiting: Sequence[tuple[Message, Delivery]]
    groups: Sequence[GroupRow]
    held: Sequence[tuple[AlertMember, Incident]]
    silences: Sequence[Silence]
    counts: dict[str, int]


def alerts_answer(session: Session, cluster: str, now: datetime, before: int | None = None) -> AlertsAnswer:
    counts: dict[str, int] = {}
    for (_, state), number in messages.outbox_counts(session, cluster).items():
        counts[state] = counts.get(state, 0) + number
    return AlertsAnswer(
        log=messages.sent_log(session, cluster, ("sent",), PAGE, before),
        dead=messages.sent_log(session, cluster, ("dead",), PAGE),
        waiting=messages.sent_log(session, cluster, messages.UNSETTLED, PAGE),
        groups=group_rows(session, cluster),
        held=alerts.held_members(session, cluster),
        silences=alerts.silences(session, cluster, now),
        counts=counts,
    )


def group_rows(session: Session, cluster: str) -> tuple[GroupRow, ...]:
    rows = alerts.open_groups(session, cluster)
    counts = alerts.counts_of(session, [group.id or 0 for group, _ in rows])
    return tuple(
        GroupRow(group, lead, *(counts.get((group.id or 0, state), 0) for state in ("told", "waiting", "held")))
        for group, lead in rows
    )


def sent_row(message: Message, delivery: Delivery) -> dict[str, Any]:
    """A delivery with what it carries, for REST."""
    body = message.body
    return {
        "id": delivery.id,
        "at": delivery.sent_at or message.created_at,
        "kind": message.kind,
        "incident": message.incident_id or None,
        "severity": body.get("severity", ""),
        "headline": body.get("headline", ""),
        "why": body.get("why", ""),
        "route": message.route,
        "channel": delivery.channel,
        "to": list(delivery.to),
        "state": delivery.state,
        "tries": delivery.attempts,
        "answer": str(delivery.receipt.get("text", "")),
        "error": delivery.error,
        "message_id": body.get("id", ""),
    }


def silence_row(row: Silence) -> dict[str, Any]:
    return {
        "id": row.id,
        "kind": row.kind,
        "matches": row.matches,
        "words": match_of(row.matches).words(),
        "comment": row.comment,
        "by": row.created_by,
        "created_at": row.created_at,
        "starts_at": row.starts_at,
        "ends_at": row.ends_at,
        "ended_at": row.ended_at,
        "ended_by": row.ended_by,
    }


def held_row(member: AlertMember, incident: Incident) -> dict[str, Any]:
    return {
        "incident": incident.id,
        "headline": incident.headline,
        "severity": incident.severity,
        "why": member.why,
        "until": member.held_until,
    }


def group_row(row: GroupRow) -> dict[str, Any]:
    group = row.group
    return {
        "id": group.id,
        "route": group.route,
        "key": group.key,
        "lead": group.lead,
        "headline": row.lead.headline,
        "told": row.told,
        "waiting": row.waiting,
        "held": row.held,
        "opened_at": group.opened_at,
        "told_at": group.told_at,
        "next_at": group.due_at,
        "escalates_at": group.escalate_at,
        "step": group.step,
    }
