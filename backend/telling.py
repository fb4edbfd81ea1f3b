"""Puts what an incident has to say into the outbox, in the transaction that made it true."""

from __future__ import annotations

from sqlmodel import Session

from backend.incidents.message import MessageKind, body_of, message_of
from backend.model.actions import Decision
from backend.model.incidents import Incident
from backend.model.messages import Message
from backend.notify import outbox
from backend.notify.routing import route
from backend.store import findings, messages
from backend.watch import Watch
from detectors.model import Severity


def announce(
    session: Session, watch: Watch, incident: Incident, decision: Decision | None, kind: MessageKind, why: str = ""
) -> None:
    """One message of this kind an incident (``changed``: one a revision), on the channels the routing names.

    An incident that was never told is not told to be closed either.
    """
    if Severity.of(incident.severity) < watch.rules.notify_from:
        return
    revision = incident.revision if kind == "changed" else 0
    known = messages.of_incident(session, incident.id or 0)
    if any(m.kind == kind and m.revision == revision for m in known) or (kind != "opened" and not known):
        return
    found = findings.of_incident(session, incident.id or 0)
    now = watch.clock.now()
    rules = watch.rules
    said = message_of(incident, decision, found, kind, now, rules.url, simulated=rules.simulated, why=why)
    channels = route(said, rules.channels, rules.notify_from)
    row = Message(
        cluster=incident.cluster,
        incident_id=incident.id or 0,
        kind=kind,
        revision=revision,
        created_at=now,
        body=body_of(said),
    )
    outbox.enqueue(session, row, channels, now)
