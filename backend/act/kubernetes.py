"""The hand on Kubernetes: cordons, lifts its own cordons, evicts the pods of a job; never over another's hold.

Every write to a node names the version of it that was judged, so that the API server refuses it where anybody changed
the node since: between our last read and the write there is no window. What nobody can see is a `kubectl cordon` of a
node that we cordoned already, because it changes nothing; with ``cordon`` off we only taint, and it stays visible.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from backend.act.base import ActionError, owner_of, unable
from backend.act.kubernetes_requeue import evict_all, refuse_requeue
from backend.clients.hostlist import is_host, render
from backend.clients.kubernetes import KubeClient, KubeError
from backend.clients.kubernetes_conventions import Conventions, conventions
from backend.clients.kubernetes_holds import (
    ANNOTATIONS,
    BEFORE,
    CORDON,
    INCIDENT,
    ORDER,
    REASON,
    SINCE,
    TAINT,
    held,
    leftovers,
)
from backend.clients.kubernetes_json import objects, text
from backend.clients.kubernetes_nodes import NodeRecord, node_of, with_work
from backend.clients.kubernetes_pods import Pod, pod_of
from backend.clock import Clock, unix
from backend.facts import SCHEDULES, NodeFacts, OrderFacts, Outcome, Verb

#: Pods that still hold something: what the API server can sort out for us.
ALIVE = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
#: How often a node may change under our hands before the order is given back to be tried later.
TRIES = 5
_INCIDENT = re.compile(r"\binc=(\d+)\b")
_JOB = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


class KubernetesBackend:
    """A ClusterBackend over the API server. Keeps no memory: marks on nodes, and uids of pods, tell what was done.

    ``namespaces`` limits where work is looked for, () = everywhere. ``cordon``: set spec.unschedulable too.
    """

    def __init__(
        self,
        client: KubeClient,
        clock: Clock,
        namespaces: Sequence[str] = (),
        cordon: bool = True,
        known: Conventions | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._namespaces = tuple(namespaces)
        self._cordon = cordon
        self._known = known or conventions()

    @property
    def name(self) -> str:
        return "kubernetes"

    @property
    def can(self) -> frozenset[Verb]:
        return SCHEDULES

    def inventory(self) -> Sequence[NodeFacts]:
        with _asking():
            work: dict[str, list[Pod]] = {}
            for pod in self._pods(ALIVE):
                work.setdefault(pod.node, []).append(pod)
            found = [item for items, _ in self._client.pages("/api/v1/nodes") for item in items]
        records = [node_of(item, self._known, unix(self._clock.now())) for item in found]
        return [_working(record, work.get(record.facts.name, [])) for record in records if record is not None]

    def read(self, node: str) -> NodeFacts:
        with _asking():
            on_it = {"fieldSelector": f"spec.nodeName={node},{ALIVE['fieldSelector']}"}
            pods = [pod for pod in self._pods(on_it) if pod.node == node] if is_host(node) else []
            return _working(self._record(self._node(node)), pods)  # the node last: who acts on it has the newest hold

    def witness(self, order: OrderFacts) -> dict[str, str]:
        """drain, resume: who holds the node, its version. requeue: uid and life of each pod that would be evicted."""
        with _asking():
            if order.verb is Verb.REQUEUE:
                pods = self._job(order.job)
                on_node = [pod for pod in pods if not order.node or pod.node == order.node]
                return {"pods": " ".join(sorted(_life(pod) for pod in on_node if not pod.over))}
            found = self._node(order.node)
        holds = held(found, self._known)
        boot = text(found, "status", "nodeInfo", "bootID")
        return {
            "drain": str(holds.out).lower(),
            "reason": holds.reason,
            "version": text(found, "metadata", "resourceVersion"),
            "boot_id": boot,
        }

    def perform(self, order: OrderFacts) -> Outcome:
        with _asking():
            match order.verb:
                case Verb.DRAIN:
                    return self._drain(order)
                case Verb.RESUME:
                    return self._resume(order)
                case Verb.REQUEUE:
                    return self._requeue(order)
                case _:
                    raise unable(self.name, order.verb)

    def settle(self, order: OrderFacts) -> Outcome | None:
        with _asking():
            if order.verb is Verb.REQUEUE:
                return self._settle_requeue(order)
            record = self._record(self._node(order.node))
        node, holds = record.facts, record.held
        mine = _meant(holds.ours, order)
        if order.verb is Verb.DRAIN and mine:
            return Outcome(True, f"{_after(self.read(node.name))} Read after a restart: the cordon had been set.")
        if holds.out and not mine:
            raise ActionError(f"{_holder(node)}; whether our {order.verb} came first, nothing can tell", permanent=True)
        if order.verb is Verb.DRAIN or mine:
            return None
        return Outcome(True, f"{node.name} is not cordoned. Read after a restart.")

    # --- cordon and uncordon ----------------------------------------------------------------------------------------

    def _drain(self, order: OrderFacts) -> Outcome:
        if owner_of(order.reason) != "watchkeeper":
            raise ActionError(f"a cordon without our tag could never be lifted: {order.reason!r}", permanent=True)
        for _ in range(TRIES):
            found = self._node(order.node)
            record = self._record(found)
            if record.held.others:
                raise ActionError(f"{_holder(record.facts)}; Watchkeeper leaves it alone", permanent=True)
            if _meant(record.held.ours, order):
                return Outcome(False, f"{_after(self.read(order.node))} It was already so.", {"reason": order.reason})
            if self._patched(order.node, _mark(found, order, self._clock.now(), self._cordon, self._known)):
                return self._drained(order)
        raise ActionError(f"{order.node} changed {TRIES} times while we tried to cordon it; it is tried again later")

    def _drained(self, order: OrderFacts) -> Outcome:
        after = self.read(order.node)
        if "DRAIN" not in after.flags:
            raise ActionError(f"Kubernetes took the cordon of {order.node}, but does not show it")
        if not _meant(after.reason, order):
            raise ActionError(f"{_holder(after)}, right after our cordon; theirs is left as it is", permanent=True)
        return Outcome(True, _after(after), {"reason": after.reason})

    def _resume(self, order: OrderFacts) -> Outcome:
        for _ in range(TRIES):
            found = self._node(order.node)
            record = self._record(found)
            holds = record.held
            if not holds.out:
                return Outcome(False, f"{order.node} is not cordoned. It was already so.")
            if not _meant(holds.ours, order):
                raise ActionError(f"{_holder(record.facts)}; Watchkeeper lifts only its own cordon", permanent=True)
            if self._patched(order.node, _unmark(found, lift=holds.our_cordon and not holds.others)):
                return self._resumed(order)
        raise ActionError(f"{order.node} changed {TRIES} times while we tried to uncordon it; it is tried again later")

    def _resumed(self, order: OrderFacts) -> Outcome:
        record = self._record(self._node(order.node))
        node = record.facts
        if record.held.ours:
            raise ActionError(f"Kubernetes took the uncordon of {order.node}, but still shows our mark")
        if record.held.others:
            return Outcome(True, f"Our cordon of {node.name} is lifted; {_holder(node)}, and that stays.")
        works = f"but Kubernetes calls it {node.state}: {node.reason or 'no reason'}" if node.out else "and takes work"
        return Outcome(True, f"{node.name} is no longer cordoned, {works}.")

    def _patched(self, node: str, body: Mapping[str, Any]) -> bool:
        """Whether the patch was taken; False where the node changed since it was judged."""
        try:
            self._client.patch(f"/api/v1/nodes/{node}", body)
        except KubeError as refused:
            if refused.status == 409:
                return False
            raise
        return True

    # --- requeue ----------------------------------------------------------------------------------------------------

    def _requeue(self, order: OrderFacts) -> Outcome:
        wanted = _known_lives(order)
        alive = {_life(pod): pod for pod in self._job(order.job, must=False) if not pod.over}
        left = [alive[life] for life in wanted if life in alive]
        if not alive:
            return Outcome(False, f"Job {order.job} has ended, or waits. Nothing is left to requeue.")
        if not left:
            where = render({pod.node for pod in alive.values() if pod.node}) or "no node yet"
            return Outcome(False, f"Job {order.job} restarted before this; it runs on {where}.")
        going = [pod for pod in left if not pod.deleting]
        if not going:
            return Outcome(False, f"Job {order.job} was already told to restart; its pods are ending.")
        refuse_requeue(self._client, going)
        evicted = evict_all(self._client, going)
        after = [pod for pod in self._job(order.job, must=False) if _life(pod) in wanted and not pod.over]
        if staying := [pod.name for pod in after if not pod.deleting]:
            raise ActionError(f"Kubernetes took the eviction of {', '.join(staying)}, but shows no sign of it")
        nodes = render({pod.node for pod in going if pod.node})
        told = f"Job {order.job}: {_count(evicted)} evicted from {nodes}; its controller starts again"
        return Outcome(True, f"{told}{self._avoids(order)}.", {"pods": str(evicted)})

    def _avoids(self, order: OrderFacts) -> str:
        """Kubernetes keeps no list of nodes to avoid for a job that exists: only a hold on the node keeps it away."""
        open_nodes = [name for name in order.exclude if not self._record(self._node(name)).held.out]
        if not order.exclude:
            return ""
        if open_nodes:
            return f", but may get {render(open_nodes)} again, which nobody has cordoned"
        return f" and will not get {render(order.exclude)}"

    def _settle_requeue(self, order: OrderFacts) -> Outcome | None:
        wanted = _known_lives(order)
        left = [pod for pod in self._job(order.job, must=False) if _life(pod) in wanted and not pod.over]
        staying = [pod for pod in left if not pod.deleting]
        if len(staying) == len(wanted):
            return None
        rest = f"; {_count(len(staying))} of it still run" if staying else ""
        return Outcome(True, f"Job {order.job} was told to restart before the restart of Watchkeeper{rest}.")

    # --- reading ----------------------------------------------------------------------------------------------------

    def _node(self, name: str) -> Mapping[str, Any]:
        if not is_host(name):
            raise ActionError(f"{name[:40]!r} is not the name of one node", permanent=True)
        return self._client.get(f"/api/v1/nodes/{name}")

    def _record(self, found: Mapping[str, Any]) -> NodeRecord:
        record = node_of(found, self._known, unix(self._clock.now()))
        if record is None:
            raise ActionError("Kubernetes answered with a node that has no name")
        return record

    def _pods(self, params: Mapping[str, str], namespaces: Sequence[str] = ()) -> Iterator[Pod]:
        for path in pod_paths(namespaces or self._namespaces):
            for items, _ in self._client.pages(path, params):
                found = (pod_of(item, self._known) for item in items)
                yield from (pod for pod in found if pod is not None)

    def _job(self, job: str, *, must: bool = True) -> list[Pod]:
        """The pods of a job; where ``must``, an ActionError where there are none."""
        found: list[Pod] = []
        if _JOB.fullmatch(job):
            found = [pod for pod in self._pods({}, (job.partition(".")[0],)) if pod.id == job and not pod.daemon]
        if must and not found:
            fix = "it ended long ago, or never was; jobs are named namespace.name"
            raise ActionError(f"Kubernetes knows no job {job[:80]}: {fix}", permanent=True)
        return found


def pod_paths(namespaces: Sequence[str]) -> list[str]:
    return [f"/api/v1/namespaces/{name}/pods" for name in namespaces] or ["/api/v1/pods"]


def _working(record: NodeRecord, pods: Sequence[Pod]) -> NodeFacts:
    """The node with the work that holds its accelerators."""
    holding = [pod for pod in pods if pod.holds and pod.accelerated]
    jobs = tuple(dict.fromkeys(pod.id for pod in sorted(holding, key=lambda pod: (pod.created or 0.0, pod.id))))
    used = sum(pod.gpus or len(pod.claims) for pod in holding)
    return with_work(record, jobs, used, any(pod.deleting for pod in holding))


# --- our mark on a node ---------------------------------------------------------------------------------------------


def _mark(
    found: Mapping[str, Any], order: OrderFacts, at: datetime, cordon: bool, known: Conventions
) -> dict[str, Any]:
    """A patch that puts our mark on: the reason for people, a taint for schedulers, a cordon where wanted."""
    notes = {REASON: order.reason, ORDER: str(order.id), INCIDENT: str(order.incident)}
    notes |= {SINCE: at.strftime("%Y-%m-%dT%H:%M:%SZ"), BEFORE: leftovers(found, known)}
    notes |= {CORDON: str(cordon).lower()}
    taints = [taint for taint in objects(found, "spec", "taints") if text(taint, "key") != TAINT]
    taints.append({"key": TAINT, "value": f"inc-{order.incident}", "effect": "NoSchedule"})
    spec = {"taints": taints} | ({"unschedulable": True} if cordon else {})
    return {"metadata": {"resourceVersion": _version(found), "annotations": notes}, "spec": spec}


def _unmark(found: Mapping[str, Any], *, lift: bool) -> dict[str, Any]:
    """A patch that takes off what we put on, and nothing else; ``lift``: the cordon is ours alone."""
    taints = [taint for taint in objects(found, "spec", "taints") if text(taint, "key") != TAINT]
    spec = {"taints": taints} | ({"unschedulable": False} if lift else {})
    notes = dict.fromkeys(ANNOTATIONS)
    return {"metadata": {"resourceVersion": _version(found), "annotations": notes}, "spec": spec}


def _version(found: Mapping[str, Any]) -> str:
    version = text(found, "metadata", "resourceVersion")
    if not version:
        raise ActionError("Kubernetes answered with a node that has no version; it cannot be changed safely")
    return version


@contextmanager
def _asking() -> Iterator[None]:
    """Errors of the client, as this border names them."""
    try:
        yield
    except KubeError as failed:
        raise ActionError(str(failed), permanent=failed.permanent) from failed


def _meant(ours: str, order: OrderFacts) -> bool:
    """Is this our mark, and of the incident that the order's reason names?"""
    on_node, named = _INCIDENT.search(ours), _INCIDENT.search(order.reason)
    same = on_node is not None and named is not None and on_node[1] == named[1]
    return same and owner_of(ours) == "watchkeeper"


def _holder(node: NodeFacts) -> str:
    """Who took the node out and why, as the start of a sentence."""
    return f"{node.name} is cordoned by {node.reason_owner or 'someone'} ({node.reason or 'no reason given'})"


def _after(node: NodeFacts) -> str:
    """A cordoned node in one sentence."""
    if node.jobs:
        return f"{node.name} takes no new work; job {', '.join(node.jobs)} still runs there."
    return f"{node.name} is cordoned; no GPU work runs there."


def _life(pod: Pod) -> str:
    return f"{pod.uid}:{pod.lives}"


def _count(pods: int) -> str:
    return f"{pods} pod{'' if pods == 1 else 's'}"


def _known_lives(order: OrderFacts) -> list[str]:
    found = order.witness.get("pods")
    if found is None:
        raise ActionError(f"no pods of job {order.job} were kept before the call", permanent=True)
    return found.split()
