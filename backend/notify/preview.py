"""Who would get this, and why: an alert that nobody had, through the very function that sends."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlmodel import Session

from backend.model.incidents import Incident
from backend.notify import gather, groups
from backend.notify.groups import Desk
from backend.notify.routing import Choice, Plan
from backend.notify.silences import Alert
from detectors.model import Severity


@dataclass(frozen=True, slots=True)
class Asked:
    """What would be told: a kind on a node (or of a job) at a moment. All texts may be empty."""

    kind: str
    severity: Severity
    at: datetime
    node: str = ""
    job: str = ""


def tried(session: Session, desk: Desk, asked: Asked) -> tuple[Alert, Plan]:
    """The alert as routing sees it, and every route's word about it. Nothing is written."""
    return judged(session, desk, _as_incident(desk, asked), asked.at)


def judged(session: Session, desk: Desk, incident: Incident, at: datetime) -> tuple[Alert, Plan]:
    """The same for an incident that there is."""
    alert = gather.alert_of(session, incident, desk.routing, at)
    return alert, groups.judge(session, desk, incident, at)


def _as_incident(desk: Desk, asked: Asked) -> Incident:
    """An incident of that kind; never added to a session."""
    kind, name = ("node", asked.node) if asked.node else ("job", f"job:{asked.job}") if asked.job else ("", "")
    return Incident(
        cluster=desk.cluster,
        kind=asked.kind,
        severity=asked.severity.word,
        headline="",
        entity_kind=kind,
        entity_id="",
        entity_name=name,
        node=asked.node,
        job=asked.job,
        opened_at=asked.at,
        changed_at=asked.at,
        last_asserted_at=asked.at,
    )


def answer_words(found: Plan) -> str:
    """In one sentence: who gets it, and when."""
    told = [choice for choice in found.taken if choice.route.channels]
    if found.held is not None:
        until = f" until {found.held.until:%Y-%m-%d %H:%M} UTC" if found.held.until else ""
        return f"Nobody is told now: {found.held.why}{until}."
    if not told:
        return "Nobody is told: no route takes it to a channel."
    return "; ".join(f"{_channels(choice)} {when_words(choice)}, by route {choice.route.name}" for choice in told) + "."


def when_words(choice: Choice) -> str:
    """``at once``, ``after 30 s``, ``in the digest at 08:00``."""
    route = choice.route
    if route.digest is not None:
        return f"in the digest at {route.digest:%H:%M} {route.hours.zone}"
    return "at once" if not choice.wait_s else f"after {choice.wait_s:g} s"


def _channels(choice: Choice) -> str:
    return " and ".join(f"{name}{_to(choice.route.to.get(name, ()))}" for name in choice.route.channels)


def _to(names: tuple[str, ...]) -> str:
    return f" ({', '.join(names)})" if names else ""


def choice_row(choice: Choice) -> dict[str, Any]:
    """A route's word for REST and pages."""
    route = choice.route
    return {
        "route": route.name,
        "takes": choice.takes,
        "why": choice.why,
        "channels": list(route.channels) if choice.takes else [],
        "to": {name: list(who) for name, who in route.to.items()} if choice.takes else {},
        "group": choice.key,
        "wait_s": choice.wait_s,
        "when": when_words(choice) if choice.takes and route.channels else "",
        "then": then_words(choice) if choice.takes and route.channels else "",
    }


def then_words(choice: Choice) -> str:
    """What follows while nobody acknowledges."""
    route = choice.route
    steps = [f"{step.after_s / 60:g} min later {' and '.join(step.channels)}" for step in route.escalate]
    again = [f"again every {route.repeat_s / 3600:g} h"] if route.repeat_s and route.digest is None else []
    return f"Unless acknowledged: {', '.join([*steps, *again])}." if steps or again else ""
