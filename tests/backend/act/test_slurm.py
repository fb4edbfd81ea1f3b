"""The hand on a real Slurm: the contract, the race with other owners, what sinfo and the job show afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from backend.act.base import ActionError, reason_text
from backend.act.slurm import SlurmBackend
from backend.clients.slurm_surface import Slurm
from backend.clock import SystemClock
from backend.facts import Verb
from tests.contracts.cluster_backend import (
    CHECKS,
    FOREIGN,
    World,
    claimed,
    drained,
    order,
    owned_by_other,
)
from tests.services.slurm import SlurmCluster


class SlurmWorld:
    """A real cluster as the contract's World; ``between`` runs before each command that a backend of ours sends."""

    def __init__(self, cluster: SlurmCluster) -> None:
        self.cluster = cluster
        self.between: Callable[[Sequence[str]], None] = lambda command: None
        self.free = list(reversed(cluster.nodes))

    def backend(self, timeout_s: float = 15.0) -> SlurmBackend:
        return SlurmBackend(self.slurm(timeout_s), SystemClock())

    def slurm(self, timeout_s: float) -> Slurm:
        """The way in which a backend of ours reaches the cluster."""
        return self.cluster.cli(timeout_s, lambda command: self.between(command))

    def free_node(self) -> str:
        if not self.free:  # a real cluster has few nodes: hand them out again, cleaned
            self.cluster.clean()
            self.free = list(reversed(self.cluster.nodes))
        return self.free.pop()

    def busy(self) -> tuple[str, str]:
        job = self.cluster.submit("-N1", "--gres=gpu:8")
        self.cluster.wait("running job", lambda: bool(self.runs_on(job)))
        (node,) = self.runs_on(job)
        self.free.remove(node)
        return job, node

    def drain_by_other(self, node: str, reason: str) -> None:
        self.cluster.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}")

    def requeue_by_other(self, job: str) -> None:
        self.cluster.run("scontrol", "requeue", job)

    def end(self, job: str) -> None:
        self.cluster.run("scancel", job)
        self.cluster.wait("end of the job", lambda: not self.cluster.run("squeue", "-h", "-o", "%A").split())

    def runs_on(self, job: str) -> tuple[str, ...]:
        attempts = self.cluster.cli().jobs()
        return next((a.nodes for a in attempts if a.job == job and a.state == "RUNNING"), ())

    @contextmanager
    def silent(self) -> Iterator[None]:
        self.cluster.pause_controller()
        try:
            yield
        finally:
            self.cluster.resume_controller()


class ImpatientWorld(SlurmWorld):
    def backend(self, timeout_s: float = 1.5) -> SlurmBackend:
        return super().backend(timeout_s)


@pytest.mark.services
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_slurm_keeps_the_contract(check: Callable[[World], None], cluster: SlurmCluster) -> None:
    check(ImpatientWorld(cluster) if "silence" in check.__name__ else SlurmWorld(cluster))


@pytest.mark.services
def test_sinfo_shows_our_reason_whole(cluster: SlurmCluster) -> None:
    node = drained(SlurmWorld(cluster), "gpu-0002").node
    listed = cluster.run("sinfo", "-h", "-R", "-o", "%E|%N").splitlines()
    assert listed == [f"[watchkeeper] gpu_bus_loss gpu=3 inc=812|{node}"]


@pytest.mark.services
def test_only_the_gap_between_the_last_read_and_the_call_can_lose_another_owners_reason(cluster: SlurmCluster) -> None:
    """Commands of a drain: 0 squeue, 1 show, 2 update, 3 squeue, 4 show. Somebody drains just before one of them."""
    lost = []
    for gap in range(6):
        world = SlurmWorld(cluster)
        node, step = cluster.nodes[0], iter(range(99))

        def meddle(command: Sequence[str], world=world, node=node, step=step, gap=gap) -> None:
            if next(step) == gap:
                world.drain_by_other(node, FOREIGN)

        backend = world.backend()
        sent = claimed(backend, order(Verb.DRAIN, node))
        world.between = meddle
        if gap == 2:  # the window: read already, not yet sent
            outcome = backend.perform(sent)
            assert outcome.changed and 0 <= int(outcome.attrs["window_ms"]) < 15_000
            lost.append(gap)
        elif gap == 5:  # after our last command: the outcome is ours, the drain is theirs
            assert backend.perform(sent).changed
            world.drain_by_other(node, FOREIGN)
        else:
            with pytest.raises(ActionError, match=FOREIGN):
                backend.perform(sent)
        if gap not in lost:
            assert owned_by_other(world.backend().read(node))
            with pytest.raises(ActionError, match="lifts only its own"):
                world.backend().perform(claimed(world.backend(), order(Verb.RESUME, node)))
        cluster.clean()
    assert lost == [2]


@pytest.mark.services
def test_a_requeued_job_keeps_the_nodes_that_its_user_excluded(cluster: SlurmCluster) -> None:
    job = cluster.submit("-N2", "--gres=gpu:8", "--exclude=gpu-0003")
    world = SlurmWorld(cluster)
    cluster.wait("running job", lambda: bool(world.runs_on(job)))
    backend, node = world.backend(), world.runs_on(job)[0]
    outcome = backend.perform(claimed(backend, order(Verb.REQUEUE, node, job, exclude=(node,))))
    assert outcome.text == f"Job {job} is queued again and will not get {node}."
    attempt = next(a for a in cluster.cli().jobs() if a.job == job)
    assert attempt.excluded == (node, "gpu-0003") and attempt.restart == 1


@pytest.mark.services
@pytest.mark.parametrize(
    ("option", "words"),
    [("--no-requeue", "Requeue=1"), ("-wgpu-0001", "--nodelist")],
    ids=["not to be requeued", "insists on the node"],
)
def test_a_job_that_cannot_move_is_refused_with_the_fix(cluster: SlurmCluster, option: str, words: str) -> None:
    job = cluster.submit("-N1", "--gres=gpu:8", option)
    world = SlurmWorld(cluster)
    cluster.wait("running job", lambda: bool(world.runs_on(job)))
    (node,) = world.runs_on(job)
    backend = world.backend()
    with pytest.raises(ActionError, match=words) as refused:
        backend.perform(claimed(backend, order(Verb.REQUEUE, node, job, exclude=(node,))))
    assert refused.value.permanent and world.runs_on(job) == (node,)


@pytest.mark.services
def test_a_dead_node_may_be_drained_unless_a_person_took_it_down(cluster: SlurmCluster) -> None:
    world = SlurmWorld(cluster)
    cluster.run("scontrol", "update", "NodeName=gpu-0000", "State=DOWN", "Reason=Not responding")
    drained(world, "gpu-0000")
    cluster.run("scontrol", "update", "NodeName=gpu-0001", "State=DOWN", "Reason=broken fan")
    with pytest.raises(ActionError, match="broken fan") as refused:
        drained(world, "gpu-0001")
    assert refused.value.permanent
    backend = world.backend()
    lifted = backend.perform(claimed(backend, order(Verb.RESUME, "gpu-0000")))
    assert lifted.changed and "Slurm calls it down" in lifted.text and backend.read("gpu-0000").state == "down"


@pytest.mark.services
def test_the_drain_belongs_to_the_incident_that_named_it_last(cluster: SlurmCluster) -> None:
    world, node = SlurmWorld(cluster), "gpu-0000"
    drained(world, node, incident=811)
    drained(world, node, incident=812)
    backend = world.backend()
    assert backend.read(node).reason == reason_text("gpu_bus_loss", "3", 812)
    with pytest.raises(ActionError, match="inc=812"):
        backend.perform(claimed(backend, order(Verb.RESUME, node, incident=811)))
    assert backend.read(node).out
    assert backend.perform(claimed(backend, order(Verb.RESUME, node, incident=812))).changed
