"""The ClusterBackend protocol and its error: what every scheduler we act through must do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from backend.facts import TAG as TAG
from backend.facts import NodeFacts, OrderFacts, Outcome, Verb
from backend.facts import owner_of as owner_of


class ActionError(Exception):
    """A cluster refused or did not answer. ``permanent`` True: sending the same order again cannot work."""

    def __init__(self, message: str, *, permanent: bool = False) -> None:
        super().__init__(message)
        self.permanent = permanent


class ClusterBackend(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def can(self) -> frozenset[Verb]: ...

    def inventory(self) -> Sequence[NodeFacts]:
        """All nodes, read now. Raises ActionError."""
        ...

    def read(self, node: str) -> NodeFacts:
        """One node, read now. Raises ActionError, permanent where the node does not exist."""
        ...

    def witness(self, order: OrderFacts) -> dict[str, str]:
        """What to remember before the call, so that a crash can be settled after it. Raises ActionError."""
        ...

    def perform(self, order: OrderFacts) -> Outcome:
        """Carry the order out and read it back. Idempotent by order id; never undoes another owner's drain.

        Raises ActionError: permanent where the cluster said no, not permanent where it did not answer.
        """
        ...

    def settle(self, order: OrderFacts) -> Outcome | None:
        """After a crash between call and outcome: the outcome if the witness proves the order was carried out, None
        if it proves that it was not. Raises ActionError(permanent=True) where nothing can tell: it becomes uncertain.
        """
        ...


def unable(name: str, verb: Verb) -> ActionError:
    """What a backend says of a verb that is not among those it ``can``."""
    return ActionError(f"{name} cannot {verb}", permanent=True)


def reason_text(kind: str, gpu: str, incident: int) -> str:
    """``[watchkeeper] gpu_bus_loss gpu=3 inc=812``: what stands in the scheduler's reason field."""
    middle = f" gpu={gpu}" if gpu else ""
    return f"{TAG} {kind}{middle} inc={incident}"
