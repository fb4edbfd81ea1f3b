"""The hand that acts on the make-believe cluster: drains, resumes and requeues in its world, and reads them back."""

from __future__ import annotations

from collections.abc import Sequence

from backend.act.base import ActionError, owner_of, unable
from backend.facts import SCHEDULES, GpuFacts, NodeFacts, OrderFacts, Outcome, Verb
from backend.simulate.scheduler import Host, Job
from backend.simulate.site import CARD_MODEL, Machine
from backend.simulate.state import World

#: Orders remembered, so that the same one is never carried out twice.
REMEMBERED = 1000


class SimulatedBackend:
    """A ClusterBackend over a World. Safe from any thread."""

    def __init__(self, world: World) -> None:
        self._world = world

    @property
    def name(self) -> str:
        return "simulated"

    @property
    def can(self) -> frozenset[Verb]:
        return SCHEDULES

    def inventory(self) -> Sequence[NodeFacts]:
        with self._world.lock:
            return [node_facts(self._world, machine) for machine in self._world.site.machines]

    def read(self, node: str) -> NodeFacts:
        with self._world.lock:
            return node_facts(self._world, self._machine(node))

    def witness(self, order: OrderFacts) -> dict[str, str]:
        with self._world.lock:
            if order.verb is Verb.REQUEUE:
                return {"restart": str(self._job(order.job).restart)}
            host = self._host(order.node)
            return {"drain": str(host.drain).lower(), "reason": host.reason, "boot_at": f"{host.boot_at:.3f}"}

    def perform(self, order: OrderFacts) -> Outcome:
        with self._world.lock:
            done = self._world.performed.get(str(order.id))
            if done is not None:
                return Outcome(False, str(done["text"]), {"again": "true"})
            outcome = self._carry_out(order)
            performed = self._world.performed
            performed[str(order.id)] = {"text": outcome.text}
            for oldest in list(performed)[:-REMEMBERED]:
                del performed[oldest]
            return outcome

    def settle(self, order: OrderFacts) -> Outcome | None:
        with self._world.lock:
            done = self._world.performed.get(str(order.id))
            if done is not None:
                return Outcome(True, str(done["text"]), {"settled": "remembered"})
            if order.verb is Verb.REQUEUE:
                return self._settle_requeue(order)
            if order.verb not in (Verb.DRAIN, Verb.RESUME):
                raise unable(self.name, order.verb)
            host = self._host(order.node)
            if host.drain and host.reason != order.reason:
                raise ActionError(
                    f"{held_by(host)}; whether our {order.verb} came first, nothing tells", permanent=True
                )
            if order.verb is Verb.DRAIN:
                return Outcome(True, f"{host.name} carries our drain: {host.reason}") if host.drain else None
            return None if host.drain else Outcome(True, f"{host.name} takes work again")

    def _carry_out(self, order: OrderFacts) -> Outcome:
        match order.verb:
            case Verb.DRAIN:
                return self._drain(order)
            case Verb.RESUME:
                return self._resume(order)
            case Verb.REQUEUE:
                return self._requeue(order)
            case _:
                raise unable(self.name, order.verb)

    def _drain(self, order: OrderFacts) -> Outcome:
        host = self._host(order.node)
        self._refuse_foreign(host)
        if host.drain and host.reason == order.reason:
            return Outcome(False, f"{host.name} was already drained: {host.reason}", {"reason": host.reason})
        self._world.scheduler.drain(host.name, order.reason, "watchkeeper")
        return Outcome(True, f"{host.name} is drained: {host.reason}", {"reason": host.reason})

    def _resume(self, order: OrderFacts) -> Outcome:
        host = self._host(order.node)
        self._refuse_foreign(host)
        if not host.drain:
            return Outcome(False, f"{host.name} was not drained")
        if host.reason != order.reason:
            raise ActionError(f"{held_by(host)}: it is another incident's, left alone", permanent=True)
        self._world.scheduler.resume(host.name)
        return Outcome(True, f"{host.name} takes work again")

    def _requeue(self, order: OrderFacts) -> Outcome:
        """Only the attempt that was seen before the call: one that has restarted or moved since is left to run."""
        job = self._world.scheduler.jobs.get(order.job)
        if job is None:
            return Outcome(False, f"job {order.job} has ended; nothing is left to requeue")
        told = {"restart": str(job.restart)}
        if not job.runs:
            job.excluded = sorted({*job.excluded, *order.exclude})
            return Outcome(False, f"job {job.id} was already waiting", told)
        if str(job.restart) != order.witness.get("restart", str(job.restart)):
            return Outcome(False, f"job {job.id} has restarted since", told)
        if order.node and order.node not in job.nodes:
            return Outcome(False, f"job {job.id} no longer runs on {order.node}", told)
        world = self._world
        world.scheduler.requeue(job, world.now, world.world_s, exclude=order.exclude)
        without = f" without {', '.join(order.exclude)}" if order.exclude else ""
        return Outcome(True, f"job {job.id} waits to run again{without}", {"restart": str(job.restart)})

    def _settle_requeue(self, order: OrderFacts) -> Outcome | None:
        before = order.witness.get("restart", "")
        if not before.isdigit():
            raise ActionError(f"no restart count was read before job {order.job} was requeued", permanent=True)
        job = self._job(order.job)
        if job.restart > int(before):
            return Outcome(True, f"job {job.id} is at restart {job.restart}", {"restart": str(job.restart)})
        return None

    def _refuse_foreign(self, host: Host) -> None:
        if host.drain and owner_of(host.reason, host.reason_by) != "watchkeeper":
            raise ActionError(f"{held_by(host)}: left alone", permanent=True)

    def _machine(self, node: str) -> Machine:
        found = next((machine for machine in self._world.site.machines if machine.name == node), None)
        if found is None:
            raise ActionError(f"the simulated cluster has no node {node!r}", permanent=True)
        return found

    def _host(self, node: str) -> Host:
        return self._world.scheduler.hosts[self._machine(node).name]

    def _job(self, job: str) -> Job:
        found = self._world.scheduler.jobs.get(job)
        if found is None:
            raise ActionError(f"the simulated cluster has no job {job!r}; it may have ended", permanent=True)
        return found


def held_by(host: Host) -> str:
    return f"{host.name} is drained by {owner_of(host.reason, host.reason_by)} ({host.reason})"


def node_facts(world: World, machine: Machine) -> NodeFacts:
    """One node as its scheduler shows it now."""
    host, job = world.scheduler.hosts[machine.name], world.scheduler.job_on(machine.name)
    completing = world.scheduler.completing(machine.name, world.world_s)
    flags = {"DRAIN"} if host.drain else set()
    return NodeFacts(
        name=machine.name,
        state="down" if not host.up else "allocated" if job else "idle",
        flags=frozenset(flags | ({"COMPLETING"} if completing else set())),
        reason=host.reason,
        reason_owner=owner_of(host.reason, host.reason_by),
        rack=machine.rack,
        switch=machine.switch,
        model=CARD_MODEL,
        gpus=tuple(GpuFacts(card.index, card.uuid, card.pci, CARD_MODEL) for card in machine.cards),
        expected_gpus=len(machine.cards),
        boot_at=host.boot_at,
        jobs=(job.id,) if job else (),
        read_at=world.now,
    )
