"""Puts what an incident has to say into its groups, and what groups say into the outbox, in the transaction that made
it true."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from sqlmodel import Session

from backend import breaker
from backend.clock import unix
from backend.incidents.message import message_of
from backend.model.actions import Decision
from backend.model.alerts import AlertGroup
from backend.model.incidents import Incident
from backend.notify import groups, outbox
from backend.notify.groups import Desk
from backend.notify.routing import fallback_of
from backend.store import actions, alerts, findings, incidents, messages
from backend.tidings import MessageFacts, MessageKind
from backend.watch import Watch

#: How long a page waits for the plan that is being made: it is told with it, and without it where none comes.
PLAN_S = 0.5
#: A message shows so many moments of a timeline.
MOST_MOMENTS = 12
#: Groups that one step tells, each in a transaction of its own.
MOST_GROUPS = 50


def desk_of(watch: Watch) -> Desk:
    """What telling needs to know of a cluster."""
    rules = watch.rules
    return Desk(
        cluster=watch.cluster,
        routing=rules.routing,
        fallback=fallback_of(rules.channels, rules.notify_from),
        compose=partial(compose, watch),
        muted=partial(_muted, watch),
    )


def compose(watch: Watch, session: Session, incident: Incident, kind: MessageKind, why: str) -> MessageFacts:
    """An incident as a message, with its newest plan, what was found and its timeline."""
    number, rules = incident.id or 0, watch.rules
    lines = incidents.timeline(session, number)[:MOST_MOMENTS]
    return message_of(
        incident,
        actions.latest_decision(session, number),
        findings.of_incident(session, number),
        kind,
        watch.clock.now(),
        rules.url,
        simulated=rules.simulated,
        why=why or (incident.close_note if kind == "closed" else ""),
        moments=[(unix(line.at), line.text) for line in lines],
    )


def _muted(watch: Watch, session: Session, incident: Incident) -> str:
    return "the breaker's own incident speaks for it" if breaker.said_by(session, watch, incident) else ""


def expect(session: Session, watch: Watch, touched: Sequence[Incident]) -> None:
    """What has just opened is put among what is to be told, in the transaction that opened it."""
    fresh = [row for row in touched if row.state == "open" and not row.decided_revision]
    if not fresh or not watch.rules.channels:
        return
    known = alerts.in_groups(session, [row.id or 0 for row in fresh])
    rows = [row for row in fresh if row.id not in known]
    groups.expect(session, desk_of(watch), rows, watch.clock.now(), PLAN_S)


def announce(
    session: Session, watch: Watch, incident: Incident, decision: Decision | None, kind: MessageKind, why: str = ""
) -> None:
    """An incident opened, changed (told once a revision) or closed: its groups say so, at once or when their moment
    comes. What no route takes is kept for the incident's page."""
    now, desk = watch.clock.now(), desk_of(watch)
    quiet = bool(messages.of_incident(session, incident.cluster, incident.id or 0))
    found = groups.stir(session, desk, incident, now)
    for group in found:
        if quiet and group.told_at is None and group.lead == incident.id:
            group.why = f"It opened quietly and is {incident.severity} now."
    if kind == "changed":
        _note(session, incident, why)
    for group in found:
        if group.due_at is not None and group.due_at <= now:
            groups.flush(session, desk, group, now)
    if not found and not alerts.groups_of(session, incident.id or 0):
        _keep(session, watch, incident, decision, kind, why)


def _note(session: Session, incident: Incident, why: str) -> None:
    """Each group of an incident has news of it; once a revision."""
    for group, member in alerts.groups_of(session, incident.id or 0):
        if group.state == "open" and member.changed_revision < incident.revision:
            member.changed_revision = incident.revision
            group.stirred, group.why = True, why
            session.add_all([group, member])


def _keep(
    session: Session, watch: Watch, incident: Incident, decision: Decision | None, kind: MessageKind, why: str
) -> None:
    """A message that nobody gets: what the page of a quiet incident shows."""
    known = messages.of_incident(session, incident.cluster, incident.id or 0)
    revision = incident.revision if kind == "changed" else 0
    if any(m.kind == kind and m.revision == revision for m in known):
        return
    now, rules = watch.clock.now(), watch.rules
    found = findings.of_incident(session, incident.id or 0)
    said = message_of(incident, decision, found, kind, now, rules.url, simulated=rules.simulated, why=why)
    outbox.put(session, said, revision, {}, now)


def tell_due(watch: Watch) -> bool:
    """One step of the alerts loop: groups whose moment has come say what they have to. True = there may be more."""
    now = watch.clock.now()
    with watch.store.read() as session:
        due = alerts.due_groups(session, watch.cluster, now, MOST_GROUPS)
    for number in due:
        with watch.turn() as session:
            watch.fence(session)
            group = session.get(AlertGroup, number)
            if group is not None and group.state == "open" and group.due_at is not None and group.due_at <= now:
                groups.flush(session, desk_of(watch), group, now)
    return len(due) == MOST_GROUPS
