"""What an incident has to say to people: one message at open, when it matters, and at close."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from backend.clock import unix
from backend.model.actions import Decision
from backend.model.events import Finding
from backend.model.incidents import Incident
from backend.tidings import MessageFacts, MessageKind
from detectors.model import Severity

#: A message shows this many pieces of evidence; the page shows them all.
MOST_EVIDENCE = 8


def span_words(seconds: float) -> str:
    """``22 min``, ``1 h 43 min``, ``3 d 4 h``: how people read a duration."""
    minutes = int(seconds // 60)
    if seconds < 60:
        return f"{int(seconds)} s"
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"


def message_of(
    incident: Incident,
    decision: Decision | None,
    findings: Sequence[Finding],
    kind: MessageKind,
    now: datetime,
    url: str,
    *,
    simulated: bool,
    why: str = "",
    moments: Sequence[tuple[float, str]] = (),
) -> MessageFacts:
    """Everything a channel needs, looked up once. ``why`` says what this message adds (for changed and closed);
    ``moments`` are (unix s, words) of its timeline."""
    link = f"{url.rstrip('/')}/incidents/{incident.id}" if url else ""
    thread = f"{incident.cluster}-inc-{incident.id}"
    return MessageFacts(
        id=f"{thread}-{kind}-{_number(incident, kind)}",
        thread=thread,
        kind=kind,
        cluster=incident.cluster,
        incident=incident.id or 0,
        severity=Severity.of(incident.severity),
        headline=incident.headline,
        why=why or _cause(incident),
        facts=_facts(incident, kind, now),
        evidence=_evidence(findings),
        advice=_advice(decision, kind),
        url=link,
        at=unix(now),
        simulated=simulated,
        state=incident.state,
        fault=incident.kind,
        node=incident.node,
        job=incident.job,
        decision=decision.id or 0 if decision is not None and decision.state == "proposed" else 0,
        moments=tuple(moments),
    )


def _evidence(findings: Sequence[Finding]) -> tuple[str, ...]:
    """What was seen, once each: ``Kernel line: NVRM: Xid ...``, ``Temperature: 91 C, expected 62 C``."""
    said = dict.fromkeys(_piece(piece) for f in findings if not f.victim for piece in f.evidence)
    return tuple(said)[:MOST_EVIDENCE]


def _piece(piece: Mapping[str, Any]) -> str:
    unit = f" {piece['unit']}" if piece.get("unit") else ""
    expected = f", expected {piece['expected']}{unit}" if piece.get("expected") else ""
    return f"{piece['what']}: {piece['value']}{unit}{expected}"


def _number(incident: Incident, kind: MessageKind) -> int:
    return incident.revision if kind == "changed" else 0


def _cause(incident: Incident) -> str:
    if not incident.victims:
        return ""
    if len(incident.victims) == 1:
        return "1 other follows from it and needs nothing of its own."
    return f"{len(incident.victims)} others follow from it and need nothing of their own."


def _facts(incident: Incident, kind: MessageKind, now: datetime) -> tuple[tuple[str, str], ...]:
    facts = [("Node", incident.node or "none"), ("Job", incident.job or "none")]
    facts.append(("Since", incident.opened_at.strftime("%Y-%m-%d %H:%M:%S UTC")))
    if kind == "closed" and incident.closed_at:
        facts.append(("Repaired in", span_words((incident.closed_at - incident.opened_at).total_seconds())))
    elif kind != "opened":
        facts.append(("Open for", span_words((now - incident.opened_at).total_seconds())))
    facts.append(("Dark sources", ", ".join(incident.dark) or "none"))
    return tuple(facts)


def _advice(decision: Decision | None, kind: MessageKind) -> str:
    if kind == "closed":
        return "Nothing more to do."
    if decision is None or not decision.plan:
        return " ".join(decision.advice) if decision else ""
    if decision.state == "proposed":
        return f"{decision.sentence} It waits for an approver."
    if decision.state == "observed":
        return f"{decision.sentence} Watchkeeper only observes here: this is for you to do."
    return decision.sentence
