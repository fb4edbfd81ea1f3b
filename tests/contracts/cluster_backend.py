"""What every ClusterBackend must do: the checks that the real Slurm and the simulated cluster both pass.

A test module builds a World and runs each function of CHECKS on a fresh one::

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_slurm_keeps_the_contract(check, world):
        check(world)
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Protocol

import pytest

from backend.act.base import ActionError, ClusterBackend, reason_text
from backend.facts import NodeFacts, OrderFacts, Verb

FOREIGN = "disk swap, back on Monday"
ORDERS = itertools.count(1)


class World(Protocol):
    """A cluster with at least 3 free nodes, and what others may do to it behind our back."""

    def backend(self) -> ClusterBackend:
        """A new backend on this cluster, as after a restart of Watchkeeper."""
        ...

    def free_node(self) -> str:
        """A node where nothing runs and that nobody took out."""
        ...

    def busy(self) -> tuple[str, str]:
        """(job, one of its nodes): a job that runs now and may be requeued."""
        ...

    def drain_by_other(self, node: str, reason: str) -> None: ...

    def requeue_by_other(self, job: str) -> None:
        """Somebody else queues the job again; returns once its restart count shows it."""
        ...

    def end(self, job: str) -> None:
        """The job ends; returns once it holds no node."""
        ...

    def runs_on(self, job: str) -> tuple[str, ...]:
        """The nodes of the job while it runs, () while it waits or after it ended."""
        ...

    def silent(self) -> AbstractContextManager[None] | None:
        """The cluster answers nobody inside the block; None where it cannot fall silent."""
        ...


def order(verb: Verb, node: str = "", job: str = "", incident: int = 812, exclude: tuple[str, ...] = ()) -> OrderFacts:
    """A new order with its own id."""
    reason = reason_text("gpu_bus_loss", "3", incident)
    number = next(ORDERS)
    return OrderFacts(number, "main", verb, node, job, "gpu_bus_loss", incident, reason, exclude=exclude)


def claimed(backend: ClusterBackend, wanted: OrderFacts) -> OrderFacts:
    """The order as it is performed: with the witness that was read before the call."""
    return replace(wanted, witness=backend.witness(wanted))


def poll(what: str, true: Callable[[], bool], within_s: float = 40.0) -> None:
    end = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end, f"no {what} within {within_s} s"
        time.sleep(0.05)


def drained(world: World, node: str, incident: int = 812) -> OrderFacts:
    """The node, drained by us."""
    backend = world.backend()
    sent = claimed(backend, order(Verb.DRAIN, node, incident=incident))
    assert backend.perform(sent).changed
    return sent


def owned_by_other(node: NodeFacts) -> bool:
    return "DRAIN" in node.flags and node.reason == FOREIGN and node.reason_owner not in ("", "watchkeeper")


# --- reading --------------------------------------------------------------------------------------------------------


def check_inventory_and_read_agree(world: World) -> None:
    backend = world.backend()
    listed = backend.inventory()
    names = [n.name for n in listed]
    assert len(set(names)) == len(names) >= 3
    one = backend.read(names[0])
    assert (one.name, one.state, one.expected_gpus) == (names[0], listed[0].state, listed[0].expected_gpus)
    assert one.read_at > 0 and backend.name and backend.can <= frozenset(Verb)


def check_an_unknown_node_is_a_permanent_error(world: World) -> None:
    backend = world.backend()
    gone = order(Verb.DRAIN, "no-such-node")
    for call in (lambda: backend.read(gone.node), lambda: backend.witness(gone), lambda: backend.perform(gone)):
        with pytest.raises(ActionError, match="no-such-node") as refused:
            call()
        assert refused.value.permanent


def check_a_busy_node_names_its_job(world: World) -> None:
    job, node = world.busy()
    backend = world.backend()
    assert backend.read(node).jobs == (job,)
    assert {n.name: n.jobs for n in backend.inventory()}[node] == (job,)


# --- draining -------------------------------------------------------------------------------------------------------


def check_a_drain_carries_our_reason_and_reads_back(world: World) -> None:
    backend, node = world.backend(), world.free_node()
    sent = claimed(backend, order(Verb.DRAIN, node))
    outcome = backend.perform(sent)
    after = backend.read(node)
    assert outcome.changed and node in outcome.text
    assert after.drained and after.reason == sent.reason and after.reason_owner == "watchkeeper"


def check_the_same_drain_changes_the_node_once(world: World) -> None:
    sent = drained(world, world.free_node())
    assert not world.backend().perform(sent).changed
    assert world.backend().read(sent.node).drained


def check_a_busy_node_is_draining_until_its_work_ended(world: World) -> None:
    job, node = world.busy()
    drained(world, node)
    backend = world.backend()
    assert backend.read(node).draining and not backend.read(node).drained
    assert node in world.runs_on(job)
    world.end(job)
    poll("drained node", lambda: backend.read(node).drained)


def check_another_owners_drain_is_left_alone_and_named(world: World) -> None:
    backend, node = world.backend(), world.free_node()
    world.drain_by_other(node, FOREIGN)
    with pytest.raises(ActionError, match=FOREIGN) as refused:
        backend.perform(claimed(backend, order(Verb.DRAIN, node)))
    assert refused.value.permanent and owned_by_other(backend.read(node))


def check_a_drain_by_another_survives_in_every_gap_between_our_calls(world: World) -> None:
    for gap in range(6):
        node = world.free_node()
        for i, step in enumerate(steps_on(node)):
            if i == gap:
                world.drain_by_other(node, FOREIGN)
            with suppress(ActionError):
                step(world.backend())
        assert owned_by_other(world.backend().read(node)), f"undone when it came before step {gap}"


def steps_on(node: str) -> tuple[Callable[[ClusterBackend], object], ...]:
    """All that we ever do to one node, in order."""
    away, back = order(Verb.DRAIN, node), order(Verb.RESUME, node)
    return (
        lambda backend: backend.read(node),
        lambda backend: backend.witness(away),
        lambda backend: backend.perform(claimed(backend, away)),
        lambda backend: backend.settle(claimed(backend, away)),
        lambda backend: backend.perform(claimed(backend, back)),
        lambda backend: backend.settle(claimed(backend, back)),
    )


# --- resuming -------------------------------------------------------------------------------------------------------


def check_our_own_drain_is_lifted_once(world: World) -> None:
    node = drained(world, world.free_node()).node
    backend = world.backend()
    back = claimed(backend, order(Verb.RESUME, node))
    assert backend.perform(back).changed
    assert not backend.read(node).out
    assert not world.backend().perform(back).changed


def check_a_node_that_was_never_drained_needs_no_resume(world: World) -> None:
    backend, node = world.backend(), world.free_node()
    assert not backend.perform(claimed(backend, order(Verb.RESUME, node))).changed
    assert not backend.read(node).out


def check_another_owners_drain_is_never_lifted(world: World) -> None:
    backend, node = world.backend(), world.free_node()
    world.drain_by_other(node, FOREIGN)
    with pytest.raises(ActionError, match=FOREIGN) as refused:
        backend.perform(claimed(backend, order(Verb.RESUME, node)))
    assert refused.value.permanent and owned_by_other(backend.read(node))


# --- requeueing -----------------------------------------------------------------------------------------------------


def check_a_requeued_job_runs_again_without_the_node(world: World) -> None:
    job, node = world.busy()
    drained(world, node)
    backend = world.backend()
    sent = claimed(backend, order(Verb.REQUEUE, node, job, exclude=(node,)))
    outcome = backend.perform(sent)
    assert outcome.changed and job in outcome.text
    poll("job on other nodes", lambda: bool(world.runs_on(job)) and node not in world.runs_on(job))
    assert not world.backend().perform(sent).changed
    assert world.runs_on(job)


def check_a_job_that_restarted_meanwhile_is_not_disturbed(world: World) -> None:
    job, node = world.busy()
    backend = world.backend()
    sent = claimed(backend, order(Verb.REQUEUE, node, job))
    world.requeue_by_other(job)
    poll("job that runs again", lambda: bool(world.runs_on(job)))
    assert not backend.perform(sent).changed
    assert world.runs_on(job)


def check_a_job_that_ended_is_never_revived(world: World) -> None:
    job, node = world.busy()
    backend = world.backend()
    sent = claimed(backend, order(Verb.REQUEUE, node, job))
    world.end(job)
    with suppress(ActionError):
        assert not backend.perform(sent).changed
    assert world.runs_on(job) == () and backend.read(node).jobs == ()


def check_an_unknown_job_is_a_permanent_error(world: World) -> None:
    with pytest.raises(ActionError, match="4000000000") as refused:
        world.backend().witness(order(Verb.REQUEUE, job="4000000000"))
    assert refused.value.permanent


# --- after a crash --------------------------------------------------------------------------------------------------


def check_a_crash_before_the_call_settles_as_not_done(world: World) -> None:
    job, busy = world.busy()
    backend = world.backend()
    before = [
        claimed(backend, order(Verb.DRAIN, world.free_node())),
        claimed(backend, order(Verb.RESUME, drained(world, world.free_node()).node)),
        claimed(backend, order(Verb.REQUEUE, busy, job)),
    ]
    for sent in before:
        assert world.backend().settle(sent) is None, sent.verb


def check_a_crash_after_the_call_settles_as_done(world: World) -> None:
    job, busy = world.busy()
    free = world.free_node()
    for wanted in (order(Verb.DRAIN, free), order(Verb.RESUME, free), order(Verb.REQUEUE, busy, job)):
        sent = claimed(world.backend(), wanted)
        world.backend().perform(sent)  # the outcome is lost with the process
        settled = world.backend().settle(sent)
        assert settled is not None and settled.changed, sent.verb


def check_another_owner_after_the_crash_is_never_called_ours(world: World) -> None:
    node = world.free_node()
    sent = claimed(world.backend(), order(Verb.DRAIN, node))
    world.drain_by_other(node, FOREIGN)
    with suppress(ActionError):
        assert world.backend().settle(sent) is None
    assert owned_by_other(world.backend().read(node))


# --- reboots ----------------------------------------------------------------------------------------------------------


def check_a_reboot_is_sent_once_to_what_we_drained_and_leaves_it_drained(world: World) -> None:
    backend = world.backend()
    if Verb.REBOOT not in backend.can:
        return
    node = drained(world, world.free_node()).node
    poll("boot time", lambda: bool(backend.read(node).boot_at))
    sent = claimed(backend, order(Verb.REBOOT, node))
    assert world.backend().settle(sent) is None, "a crash before the call"
    outcome = backend.perform(sent)
    assert outcome.changed and node in outcome.text
    again = world.backend().settle(sent)
    assert again is not None and again.changed, "a crash after the call"
    assert not world.backend().perform(sent).changed
    assert "DRAIN" in backend.read(node).flags and backend.read(node).reason_owner == "watchkeeper"


def check_nobody_elses_node_is_rebooted(world: World) -> None:
    backend = world.backend()
    if Verb.REBOOT not in backend.can:
        return
    node = world.free_node()
    with pytest.raises(ActionError):
        backend.perform(claimed(backend, order(Verb.REBOOT, node)))
    world.drain_by_other(node, FOREIGN)
    with pytest.raises(ActionError, match=FOREIGN) as refused:
        backend.perform(claimed(backend, order(Verb.REBOOT, node)))
    assert refused.value.permanent and owned_by_other(backend.read(node))


def check_a_reboot_that_nothing_can_prove_is_a_permanent_doubt(world: World) -> None:
    backend = world.backend()
    if Verb.REBOOT not in backend.can:
        return
    node = drained(world, world.free_node()).node
    unproven = replace(claimed(backend, order(Verb.REBOOT, node)), witness={"boot_at": "0"})
    with pytest.raises(ActionError) as doubt:
        backend.settle(unproven)
    assert doubt.value.permanent


# --- a cluster that does not answer ---------------------------------------------------------------------------------


def check_silence_is_an_error_that_may_pass(world: World) -> None:
    silent = world.silent()
    if silent is None:
        return
    backend, node = world.backend(), world.free_node()
    sent = claimed(backend, order(Verb.DRAIN, node))
    started = time.monotonic()
    with silent:
        for call in (backend.inventory, lambda: backend.read(node), lambda: backend.perform(sent)):
            with pytest.raises(ActionError) as failed:
                call()
            assert not failed.value.permanent
    assert time.monotonic() - started < 30
    assert not backend.read(node).out
    assert backend.perform(sent).changed


CHECKS: tuple[Callable[[World], None], ...] = (
    check_inventory_and_read_agree,
    check_an_unknown_node_is_a_permanent_error,
    check_a_busy_node_names_its_job,
    check_a_drain_carries_our_reason_and_reads_back,
    check_the_same_drain_changes_the_node_once,
    check_a_busy_node_is_draining_until_its_work_ended,
    check_another_owners_drain_is_left_alone_and_named,
    check_a_drain_by_another_survives_in_every_gap_between_our_calls,
    check_our_own_drain_is_lifted_once,
    check_a_node_that_was_never_drained_needs_no_resume,
    check_another_owners_drain_is_never_lifted,
    check_a_requeued_job_runs_again_without_the_node,
    check_a_job_that_restarted_meanwhile_is_not_disturbed,
    check_a_job_that_ended_is_never_revived,
    check_an_unknown_job_is_a_permanent_error,
    check_a_crash_before_the_call_settles_as_not_done,
    check_a_crash_after_the_call_settles_as_done,
    check_another_owner_after_the_crash_is_never_called_ours,
    check_a_reboot_is_sent_once_to_what_we_drained_and_leaves_it_drained,
    check_nobody_elses_node_is_rebooted,
    check_a_reboot_that_nothing_can_prove_is_a_permanent_doubt,
    check_silence_is_an_error_that_may_pass,
)
