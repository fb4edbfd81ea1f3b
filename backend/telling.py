"""Puts what an incident has to say into the outbox, in the transaction that made it true."""

from __future__ import annotations

from sqlmodel import Session

from backend.incidents.message import MessageKind, message_of
from backend.model.actions import Decision
from backend.model.incidents import Incident
from backend.notify import outbox
from backend.store import findings, messages
from backend.watch import Watch
from detectors.model import Severity


def announce(
    session: Session, watch: Watch, incident: Incident, decision: Decision | None, kind: MessageKind, why: str = ""
) -> None:
    """One message of this kind an incident (``changed``: one a revision); routing picks the channels. What opened too
    quietly for any channel is told as a change once it has grown loud enough."""
    known = messages.of_incident(session, incident.cluster, incident.id or 0)
    if kind == "opened" and known and unheard(session, watch, incident):
        kind, why = "changed", why or f"It opened quietly and is {incident.severity} now."
    revision = incident.revision if kind == "changed" else 0
    if any(m.kind == kind and m.revision == revision for m in known):
        return
    now, rules = watch.clock.now(), watch.rules
    found = findings.of_incident(session, incident.id or 0)
    said = message_of(incident, decision, found, kind, now, rules.url, simulated=rules.simulated, why=why)
    outbox.tell(session, said, revision, rules.channels, rules.notify_from, now)


def unheard(session: Session, watch: Watch, incident: Incident) -> bool:
    """Loud enough to be told, and no channel has been told."""
    loud = Severity.of(incident.severity) >= watch.rules.notify_from
    return loud and bool(watch.rules.channels) and not messages.channels_told(session, watch.cluster, incident.id or 0)
