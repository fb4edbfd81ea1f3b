"""The hand that only says what it would do: for a cluster that Watchkeeper may look at and must not touch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from backend.act.base import ActionError
from backend.facts import SCHEDULES, NodeFacts, OrderFacts, Outcome, Verb


class DryRunBackend:
    """A ClusterBackend that performs nothing. ``inventory``: what the sources last said about the nodes."""

    def __init__(self, inventory: Callable[[], Sequence[NodeFacts]]) -> None:
        self._inventory = inventory

    @property
    def name(self) -> str:
        return "dry_run"

    @property
    def can(self) -> frozenset[Verb]:
        return SCHEDULES

    def inventory(self) -> Sequence[NodeFacts]:
        return self._inventory()

    def read(self, node: str) -> NodeFacts:
        found = next((n for n in self._inventory() if n.name == node), None)
        if found is None:
            raise ActionError(f"no source has told of a node {node}", permanent=True)
        return found

    def witness(self, order: OrderFacts) -> dict[str, str]:
        return {}

    def perform(self, order: OrderFacts) -> Outcome:
        return Outcome(False, f"Dry run: nothing was sent. It would {_said(order)}.", {"dry_run": "true"})

    def settle(self, order: OrderFacts) -> Outcome | None:
        """Nothing is ever sent, so nothing is ever in doubt."""
        return None


def _said(order: OrderFacts) -> str:
    match order.verb:
        case Verb.DRAIN:
            return f"drain {order.node} with the reason {order.reason!r}"
        case Verb.RESUME:
            return f"resume {order.node}"
        case Verb.REQUEUE:
            avoiding = f", avoiding {', '.join(order.exclude)}" if order.exclude else ""
            return f"requeue job {order.job}{avoiding}"
        case _:
            return f"{order.verb} {order.node}"
