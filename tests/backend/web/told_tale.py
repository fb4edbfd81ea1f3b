"""What the site of the pages told, and could not tell: threads, a silence, a dead letter, something held back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from backend import quieting, telling
from backend.auth import Person
from backend.model.incidents import Incident
from backend.notify.base import NotifyError
from backend.notify.outbox import deliver_one
from backend.notify.routing import Escalation, Route, Routing
from backend.notify.silences import Match
from backend.registry import Parts
from backend.store import incidents
from backend.tidings import MessageFacts, Receipt
from detectors.model import Severity


class Sink:
    """A channel that takes everything, or refuses it for good."""

    def __init__(self, kind: str, refuses: str = "") -> None:
        self.kind = kind
        self.refuses = refuses
        self.took: list[MessageFacts] = []

    def send(self, message: MessageFacts) -> Receipt:
        if self.refuses:
            raise NotifyError(self.refuses, permanent=True)
        self.took.append(message)
        return Receipt("taken")


ROUTES = Routing(
    (
        Route("fabric", Match(kind=("ib_*", "network_*")), channels=("slack",), to={"slack": ("#fabric",)}),
        Route(
            "on call",
            Match(least=Severity.HIGH),
            channels=("email", "pagerduty"),
            escalate=(Escalation(900, ("slack",)),),
        ),
    ),
    edits=frozenset({"slack", "pagerduty"}),
)


def tell(parts: Parts) -> None:
    """Every live incident of the site is told by two routes; PagerDuty knows no such key; one node is silenced."""
    watch = parts.watches["main"]
    watch.rules = replace(watch.rules, channels=("email", "slack", "pagerduty"), routing=ROUTES)
    rows = _live(parts)
    quieting.silence(watch, Person("operator", "operator", csrf="x"), _work(rows[-1].node or "gpu-040", parts))
    with watch.turn() as session:
        for row in rows:
            telling.announce(session, watch, session.get_one(Incident, row.id), None, "opened")
    telling.tell_due(watch)
    sinks = (Sink("email"), Sink("slack"), Sink("pagerduty", "400 Invalid routing key"))
    while deliver_one(parts.store, {one.kind: one for one in sinks}, parts.clock, "test"):
        pass


def _live(parts: Parts) -> list[Incident]:
    with parts.store.read() as session:
        return list(incidents.live(session, "main"))


def _work(node: str, parts: Parts) -> quieting.Wanted:
    now = parts.clock.now()
    return quieting.Wanted("maintenance", Match(node=(node,)), now, now + timedelta(hours=4), "riser is being swapped")
