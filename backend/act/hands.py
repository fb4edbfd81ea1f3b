"""A scheduler and the hands beside it as one backend: each verb goes to the one that can do it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from backend.act.base import ClusterBackend, unable
from backend.facts import NodeFacts, OrderFacts, Outcome, Verb


class Hand(Protocol):
    """What does some verbs and reads no nodes: a webhook, a command, a BMC. As ClusterBackend says of each method."""

    @property
    def name(self) -> str: ...

    @property
    def can(self) -> frozenset[Verb]: ...

    def witness(self, order: OrderFacts) -> dict[str, str]: ...

    def perform(self, order: OrderFacts) -> Outcome: ...

    def settle(self, order: OrderFacts) -> Outcome | None: ...


class Hands:
    """A ClusterBackend over a scheduler's and more hands. A hand comes before the scheduler for the verbs it names:
    that it was configured says that it is wanted. Nodes are always read from the scheduler."""

    def __init__(self, scheduler: ClusterBackend, hands: Sequence[Hand]) -> None:
        self._scheduler = scheduler
        self._hands = tuple(hands)

    @property
    def name(self) -> str:
        return self._scheduler.name

    @property
    def can(self) -> frozenset[Verb]:
        return self._scheduler.can.union(*(hand.can for hand in self._hands))

    def inventory(self) -> Sequence[NodeFacts]:
        return self._scheduler.inventory()

    def read(self, node: str) -> NodeFacts:
        return self._scheduler.read(node)

    def witness(self, order: OrderFacts) -> dict[str, str]:
        return self._for(order.verb).witness(order)

    def perform(self, order: OrderFacts) -> Outcome:
        return self._for(order.verb).perform(order)

    def settle(self, order: OrderFacts) -> Outcome | None:
        return self._for(order.verb).settle(order)

    def _for(self, verb: Verb) -> Hand | ClusterBackend:
        found = next((hand for hand in self._hands if verb in hand.can), None)
        if found is not None:
            return found
        if verb in self._scheduler.can:
            return self._scheduler
        raise unable(self.name, verb)
