"""What every hand beside a scheduler must do: once an order, never twice after a crash, no guess where none can be.

A test module builds a World of a site's own service, command or BMC, and runs each function of CHECKS on a fresh one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol

import pytest

from backend.act.base import ActionError
from backend.act.hands import Hand
from backend.facts import OrderFacts, Verb
from tests.contracts.cluster_backend import order


class World(Protocol):
    """The other side of a hand."""

    def hand(self) -> Hand:
        """A new hand, as after a restart of Watchkeeper."""
        ...

    def verb(self) -> Verb: ...

    def happened(self) -> int:
        """How often the other side did what it was asked for."""
        ...

    def refusing(self) -> AbstractContextManager[None]:
        """Inside the block the other side says no."""
        ...

    def silent(self) -> AbstractContextManager[None]:
        """Inside the block it does not answer."""
        ...


def claimed(hand: Hand, wanted: OrderFacts) -> OrderFacts:
    return replace(wanted, witness=hand.witness(wanted))


def new(world: World, node: str = "gpu-0001") -> OrderFacts:
    return order(world.verb(), node)


def check_it_says_what_it_can(world: World) -> None:
    assert world.verb() in world.hand().can and world.hand().name


def check_an_order_happens_once_however_often_it_is_performed(world: World) -> None:
    sent = claimed(world.hand(), new(world))
    first = world.hand().perform(sent)
    assert first.changed and first.text
    assert not world.hand().perform(sent).changed
    assert world.happened() == 1


def check_two_orders_are_two(world: World) -> None:
    for wanted in (new(world), new(world, "gpu-0002")):
        assert world.hand().perform(claimed(world.hand(), wanted)).changed
    assert world.happened() == 2


def check_a_crash_before_the_call_settles_as_not_done(world: World) -> None:
    assert world.hand().settle(claimed(world.hand(), new(world))) is None
    assert world.happened() == 0


def check_a_crash_after_the_call_settles_as_done(world: World) -> None:
    sent = claimed(world.hand(), new(world))
    world.hand().perform(sent)
    settled = world.hand().settle(sent)
    assert settled is not None and settled.changed and world.happened() == 1


def check_a_no_is_final(world: World) -> None:
    sent = claimed(world.hand(), new(world))
    with world.refusing(), pytest.raises(ActionError) as refused:
        world.hand().perform(sent)
    assert refused.value.permanent and world.happened() == 0


def check_silence_may_pass(world: World) -> None:
    sent = claimed(world.hand(), new(world))
    with world.silent(), pytest.raises(ActionError) as lost:
        world.hand().perform(sent)
    assert not lost.value.permanent
    assert world.happened() == 0
    assert world.hand().perform(sent).changed


CHECKS: tuple[Callable[[World], None], ...] = (
    check_it_says_what_it_can,
    check_an_order_happens_once_however_often_it_is_performed,
    check_two_orders_are_two,
    check_a_crash_before_the_call_settles_as_not_done,
    check_a_crash_after_the_call_settles_as_done,
    check_a_no_is_final,
    check_silence_may_pass,
)
