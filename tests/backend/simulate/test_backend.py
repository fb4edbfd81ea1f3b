"""The hand on the make-believe cluster: idempotent, honest, and shy of other people's drains."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from backend.act.base import ActionError
from backend.facts import OrderFacts, Verb
from backend.simulate.backend import SimulatedBackend
from backend.simulate.state import World
from backend.simulate.world import begin, step
from tests.contracts.cluster_backend import CHECKS
from tests.contracts.cluster_backend import World as ContractWorld

START = 1_800_000_000.0
REASON = "[watchkeeper] gpu_bus_loss gpu=3 inc=812"


def order(number: int, verb: Verb, node: str = "", job: str = "", **more: object) -> OrderFacts:
    return OrderFacts(number, "main", verb, node, job, "gpu_bus_loss", 812, REASON, **more)  # type: ignore[arg-type]


@pytest.fixture
def world() -> World:
    made = begin(7, START)
    step(made, START + 1)
    return made


def test_a_drain_is_carried_out_once_and_read_back(world: World) -> None:
    backend = SimulatedBackend(world)
    first = backend.perform(order(1, Verb.DRAIN, "gpu-005"))
    again = backend.perform(order(1, Verb.DRAIN, "gpu-005"))
    other = backend.perform(order(2, Verb.DRAIN, "gpu-005"))
    assert first.changed and not again.changed and not other.changed
    node = backend.read("gpu-005")
    assert node.draining and node.reason == REASON and node.reason_owner == "watchkeeper"


def test_a_foreign_drain_is_neither_taken_over_nor_undone(world: World) -> None:
    world.scheduler.drain("gpu-006", "disk, on my list", "mira")
    backend = SimulatedBackend(world)
    for verb in (Verb.DRAIN, Verb.RESUME):
        with pytest.raises(ActionError) as refused:
            backend.perform(order(3, verb, "gpu-006"))
        assert refused.value.permanent and "mira" in str(refused.value)
    assert backend.read("gpu-006").reason == "disk, on my list"
    assert backend.read("gpu-006").reason_owner == "mira"


def test_a_requeued_job_runs_elsewhere_and_leaves_a_drained_node_drained(world: World) -> None:
    backend = SimulatedBackend(world)
    job = backend.read("gpu-005").jobs[0]
    backend.perform(order(1, Verb.DRAIN, "gpu-005"))
    outcome = backend.perform(order(2, Verb.REQUEUE, "gpu-005", job, exclude=("gpu-005",)))
    assert outcome.changed and not backend.perform(order(3, Verb.REQUEUE, job=job)).changed
    for i in range(5):
        report = step(world, START + 4 + 3 * i)
    assert backend.read("gpu-005").drained
    held = [node.name for node in backend.inventory() if job in node.jobs]
    assert len(held) == 16 and "gpu-005" not in held
    assert report.readings.job_of[4] == ""


class Shared:
    """The simulated cluster as the contract of every backend sees it: it moves on whenever somebody looks at a job."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._taken = 0

    def backend(self) -> SimulatedBackend:
        return SimulatedBackend(self._world)

    def free_node(self) -> str:
        self._taken += 1
        return f"gpu-{40 + self._taken:03d}"

    def busy(self) -> tuple[str, str]:
        job = next(iter(self._world.scheduler.jobs.values()))
        return job.id, job.nodes[0]

    def drain_by_other(self, node: str, reason: str) -> None:
        self._world.scheduler.drain(node, reason, "mira")

    def requeue_by_other(self, job: str) -> None:
        self._world.scheduler.requeue(self._world.scheduler.jobs[job], self._world.now, self._world.world_s)

    def end(self, job: str) -> None:
        world = self._world
        world.scheduler.finish(world.scheduler.jobs[job], "COMPLETED", world.now, world.world_s, wait_s=600)
        self._pass(4)

    def runs_on(self, job: str) -> tuple[str, ...]:
        self._pass(1)
        found = self._world.scheduler.jobs.get(job)
        return tuple(found.nodes) if found is not None and found.runs else ()

    def silent(self) -> None:
        return None

    def _pass(self, seconds: int) -> None:
        self._world.planned.clear()
        step(self._world, self._world.now + seconds)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_simulated_hand_keeps_the_contract_of_every_hand(
    check: Callable[[ContractWorld], None], world: World
) -> None:
    check(Shared(world))


def test_a_drain_of_another_incident_is_not_lifted_by_this_one(world: World) -> None:
    backend = SimulatedBackend(world)
    backend.perform(order(1, Verb.DRAIN, "gpu-005"))
    backend.perform(replace(order(2, Verb.DRAIN, "gpu-005"), reason="[watchkeeper] nvlink_error inc=813"))
    with pytest.raises(ActionError, match="inc=813"):
        backend.perform(order(3, Verb.RESUME, "gpu-005"))
    assert backend.read("gpu-005").out


@pytest.mark.parametrize("verb", [verb for verb in Verb if verb not in (Verb.DRAIN, Verb.RESUME, Verb.REQUEUE)])
def test_what_the_simulated_scheduler_cannot_do_is_neither_done_nor_settled(world: World, verb: Verb) -> None:
    backend = SimulatedBackend(world)
    for deed in (backend.perform, backend.settle):
        with pytest.raises(ActionError) as raised:
            deed(order(1, verb, "gpu-005"))
        assert raised.value.permanent


@pytest.mark.parametrize("verb", [Verb.DRAIN, Verb.RESUME, Verb.REQUEUE])
def test_a_crash_before_the_call_settles_as_not_done_and_after_it_as_done(world: World, verb: Verb) -> None:
    backend = SimulatedBackend(world)
    if verb is Verb.RESUME:
        backend.perform(order(1, Verb.DRAIN, "gpu-005"))
    job = backend.read("gpu-005").jobs[0] if verb is Verb.REQUEUE else ""
    bare = order(2, verb, "gpu-005", job)
    held = order(2, verb, "gpu-005", job, witness=backend.witness(bare))
    assert backend.settle(held) is None
    backend.perform(held)
    world.performed = {}
    settled = backend.settle(held)
    assert settled is not None and settled.text


def test_many_threads_drain_while_the_world_moves(world: World) -> None:
    backend = SimulatedBackend(world)
    names = [f"gpu-{i:03d}" for i in range(1, 41)]
    changed: list[bool] = []

    def drain_all() -> None:
        for i, name in enumerate(names):
            changed.append(backend.perform(order(100 + i, Verb.DRAIN, name)).changed)

    threads = [threading.Thread(target=drain_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for i in range(20):
        step(world, START + 2 + i)
    for thread in threads:
        thread.join(timeout=20)
    assert sum(changed) == len(names)
    assert all(backend.read(name).out for name in names)
