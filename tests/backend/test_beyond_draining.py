"""Reboots, tickets and checks of a node: what history leads to, what waits for what, and what keeps a node out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from backend import orders, writes
from backend.act.base import ActionError
from backend.act.hands import Hands
from backend.auth import Person
from backend.clock import ManualClock
from backend.facts import OrderFacts, Outcome, Verb
from backend.store.engine import Store
from tests.backend.bench import APPROVER, Bench
from tests.backend.test_orders import broken

ADMIN = Person("root", "admin")


@dataclass
class Mechanic:
    """A hand that reboots, opens tickets and checks; ``sick``: checks fail."""

    done: list[tuple[str, str]] = field(default_factory=list)
    sick: bool = False
    name: str = "helper"
    can: frozenset[Verb] = frozenset({Verb.REBOOT, Verb.TICKET, Verb.CHECK})

    def witness(self, order: OrderFacts) -> dict[str, str]:
        return {}

    def perform(self, order: OrderFacts) -> Outcome:
        if order.verb is Verb.CHECK and self.sick:
            raise ActionError("GEMM of GPU 3 is slow", permanent=True)
        self.done.append((order.verb.value, order.node))
        return Outcome(True, f"{order.verb} of {order.node}")

    def settle(self, order: OrderFacts) -> Outcome | None:
        return None


@pytest.fixture
def helper() -> Mechanic:
    return Mechanic()


@pytest.fixture
def bench(sqlite_store: Store, clock: ManualClock, helper: Mechanic) -> Bench:
    made = Bench(sqlite_store, clock)
    made.watch.backend = Hands(made.backend, [helper])
    made.ticks(3)
    return made


def drained(bench: Bench) -> str:
    node = broken(bench)
    writes.approve(bench.watch, bench.decision().id or 0, APPROVER)
    bench.turn()
    bench.ticks(3, silent={(node, 3)})
    assert bench.backend.read(node).out
    return node


def settled(bench: Bench, ticks: int = 20, more: Callable[[], object] = lambda: None) -> None:
    """Telemetry is well again for a while; the check loop turns as well."""
    for _ in range(ticks):
        bench.ticks(1)
        while orders.check(bench.watch):
            pass
        bench.turn()
        more()


def test_a_node_is_checked_before_it_goes_back(bench: Bench, helper: Mechanic) -> None:
    node = drained(bench)
    settled(bench)
    assert [(o.verb, o.state) for o in bench.orders()][-2:] == [("check", "done"), ("resume", "done")]
    assert helper.done == [("check", node)]
    assert not bench.backend.read(node).out and bench.incident().state == "resolved"


def test_a_check_that_fails_keeps_the_node_out_and_is_not_run_at_every_turn(bench: Bench, helper: Mechanic) -> None:
    helper.sick = True
    node = drained(bench)
    settled(bench)
    checks = [o for o in bench.orders() if o.verb == "check"]
    assert [o.state for o in checks] == ["failed"]
    assert bench.backend.read(node).out and bench.incident().state == "mitigated"
    assert any("GEMM of GPU 3 is slow" in text for text in bench.texts())


def test_a_person_who_says_that_it_is_mended_needs_no_check(bench: Bench, helper: Mechanic) -> None:
    helper.sick = True
    node = drained(bench)
    settled(bench)
    writes.resolve(bench.watch, bench.incident().id or 0, APPROVER)
    settled(bench, 8)
    assert not bench.backend.read(node).out and bench.incident().state == "resolved"


def test_what_comes_back_within_a_day_is_rebooted_once_it_is_empty(bench: Bench, helper: Mechanic) -> None:
    node = drained(bench)
    settled(bench)
    bench.watch.rules = _rested(bench)
    bench.xid(node, 3, 79)
    bench.turn()
    bench.ticks(3, silent={(node, 3)})
    assert bench.decision().recommended == "reboot"
    assert [s["verb"] for s in bench.decision().plan if s["verb"]][-1] == "reboot"
    writes.approve(bench.watch, bench.decision().id or 0, APPROVER)
    bench.turn()
    bench.ticks(6, silent={(node, 3)})
    assert helper.done == [("check", node), ("reboot", node)]
    last = [o for o in bench.orders() if o.verb == "reboot"]
    assert [o.state for o in last] == ["done"]


def _rested(bench: Bench):
    """The rest between two actions on a node is over."""
    return replace(bench.watch.rules, limits=replace(bench.watch.rules.limits, cooldown_s=0.0))
