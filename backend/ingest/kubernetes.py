"""Kubernetes as a source: nodes and who holds them, attempts on their GPUs, events, versions, announced work."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from backend.clients.kubernetes import KubeClient, KubeError
from backend.clients.kubernetes_conventions import Conventions, conventions
from backend.clients.kubernetes_json import objects, text
from backend.clients.kubernetes_nodes import NodeRecord, node_of, read_again, with_work
from backend.clients.kubernetes_pods import Pod, job_id, pod_of
from backend.clients.kubernetes_work import OWNERS, Owner, claim_of, owner_of
from backend.clock import Clock, unix
from backend.facts import AttemptFacts, Batch, NodeFacts
from backend.ingest.base import SourceError
from backend.ingest.kubernetes_attempts import Lives, Room, Work
from backend.ingest.kubernetes_events import Said, Told, said_of
from backend.ingest.kubernetes_mirror import Mirror
from detectors.model import Need

#: What the cluster serves is asked anew this often, s: somebody may install JobSet.
DISCOVER_S = 600.0
#: Lists that are brought up to date at the same time.
THREADS = 8
#: Which kind of owner a pod's controller is, by the resource that holds it.
RESOURCE = {"Job": "batch/jobs", "JobSet": "jobset.x-k8s.io/jobsets", "RayJob": "ray.io/rayjobs"}
RESOURCE |= {"VolcanoJob": "batch.volcano.sh/jobs", "LeaderWorkerSet": "leaderworkerset.x-k8s.io/leaderworkersets"}
RESOURCE |= {f"{name}Job": f"kubeflow.org/{name.lower()}jobs" for name in ("PyTorch", "MPI", "TF", "JAX")}
TRAINING = tuple(f"kubeflow.org/{name}jobs" for name in ("pytorch", "mpi", "tf", "jax"))


class KubernetesSource:
    """Holds a picture of the cluster, brought up to date by each read; one source belongs to one loop.

    ``namespaces`` limits where work is looked for, () = everywhere; nodes are the cluster's in any case.
    """

    def __init__(
        self,
        client: KubeClient,
        clock: Clock,
        namespaces: Sequence[str] = (),
        name: str = "kubernetes",
        known: Conventions | None = None,
    ) -> None:
        self._client, self._clock, self._name = client, clock, name
        self._known = known or conventions()
        self._places = tuple(f"namespaces/{one}/" for one in namespaces) or ("",)
        self._discovered = float("-inf")
        self._lives, self._told = Lives(), Told()
        self._fresh_start()

    @property
    def name(self) -> str:
        return self._name

    def resume(self, marks: Mapping[str, str]) -> None:
        """Go on from what was committed last; everything is listed anew, so that nothing is lost that was not taken."""
        self._fresh_start()
        self._lives.resume({key.removeprefix("job:"): said for key, said in marks.items() if key.startswith("job:")})
        self._told.resume({key.removeprefix("boot:"): said for key, said in marks.items() if key.startswith("boot:")})

    def counts(self) -> Mapping[str, float]:
        """Rows held, lists read anew, and lists that we may not read."""
        every = self._every()
        held = {"nodes": len(self._nodes.rows), "pods": sum(len(one.rows) for one in self._pods)}
        refused = sum(bool(one.refused) for one in every)
        return {**held, "relists": sum(one.relists for one in every), "refused": refused}

    def read(self, needs: Set[Need], start: float, end: float) -> Batch:
        """What Kubernetes says now, and what changed since the last read, whatever ``needs``. Raises SourceError."""
        try:
            self._discover()
            self._sync()
        except KubeError as failed:
            raise SourceError(str(failed), permanent=failed.permanent) from failed
        read_at = unix(self._clock.now())
        records = self._records(read_at)
        pods = self._all(self._pods)
        nodes = tuple(self._with_work(records, pods))
        attempts = self._attempts(pods, records, read_at)
        events = [*self._told.conditions(records, read_at), *self._events(pods, records)]
        moved: dict[str, str | None] = {f"job:{job}": mark for job, mark in self._lives.marks().items()}
        moved |= {f"boot:{node}": boot for node, boot in self._told.marks().items()}
        return Batch(
            self._name,
            start,
            end,
            events=tuple(events),
            nodes=nodes,
            attempts=tuple(attempts),
            dropped=self._dropped(),
            versions=(*self._told.versions(records, read_at), *self._told.images(pods, read_at)),
            maintenances=tuple(self._told.notices(records, read_at)),
            marks=moved,
            listing=True,
        )

    # --- lists ------------------------------------------------------------------------------------------------------

    def _fresh_start(self) -> None:
        self._rejected = Counter[str]()
        self._nodes: Mirror[NodeRecord] = Mirror("/api/v1/nodes", self._node, needed=True)
        self._pods: list[Mirror[Pod]] = self._mirrors("/api/v1/{}pods", self._pod, needed=True)
        warnings = self._mirrors("/api/v1/{}events", said_of, params={"fieldSelector": "type=Warning"}, keep=False)
        of_nodes = Mirror[Said]("/api/v1/events", said_of, {"fieldSelector": "involvedObject.kind=Node"}, keep=False)
        self._said = [*warnings, of_nodes]
        self._owners: dict[str, list[Mirror[Owner]]] = {}
        self._claims: list[Mirror[tuple[str, tuple[int, ...]]]] = []
        self._discovered = float("-inf")

    def _node(self, found: Any) -> NodeRecord | None:
        record = node_of(found, self._known, 0.0)
        self._rejected["nodes whose name no host can have"] += record is None
        return record

    def _pod(self, found: Any) -> Pod | None:
        """Pods that ask for no accelerator are not kept: on most clusters these are nine of ten."""
        pod = pod_of(found, self._known)
        self._rejected["pods without a name"] += pod is None
        return pod if pod is not None and pod.accelerated else None

    def _mirrors(self, path: str, parse: Any, **more: Any) -> list[Mirror[Any]]:
        return [Mirror(path.format(place), parse, **more) for place in self._places]

    def _every(self) -> list[Mirror[Any]]:
        owners = [one for mirrors in self._owners.values() for one in mirrors]
        return [self._nodes, *self._pods, *self._said, *owners, *self._claims]

    def _discover(self) -> None:
        """Which owners and claims the cluster serves; lists that exist already stay."""
        if time.monotonic() < self._discovered + DISCOVER_S:
            return
        groups = {text(one, "name"): one for one in objects(self._client.get("/apis"), "groups")}
        for group, resource in (*OWNERS, ("resource.k8s.io", "resourceclaims")):
            version = text(groups.get(group), "preferredVersion", "version")
            key = f"{group}/{resource}"
            if not version or key in self._owners or (resource == "resourceclaims" and self._claims):
                continue
            served = objects(self._client.get(f"/apis/{group}/{version}"), "resources")
            if resource not in {text(one, "name") for one in served}:
                continue
            path = f"/apis/{group}/{version}/{{}}{resource}"
            if resource == "resourceclaims":
                self._claims = self._mirrors(path, claim_of)
            else:
                self._owners[key] = self._mirrors(path, partial(owner_of, kind=resource, known=self._known))
        self._discovered = time.monotonic()

    def _sync(self) -> None:
        """All lists at once; the first failure counts, because a picture of half the cluster would mislead."""
        with ThreadPoolExecutor(THREADS, thread_name_prefix=f"{self._name} lists") as pool:
            for done in [pool.submit(one.sync, self._client) for one in self._every()]:
                done.result()

    @staticmethod
    def _all(mirrors: Sequence[Mirror[Pod]]) -> list[Pod]:
        return [pod for one in mirrors for pod in one.rows.values()]

    def _dropped(self) -> dict[str, int]:
        """What could not be read since the last time, by reason."""
        found, self._rejected = self._rejected, Counter()
        for one in self._every():
            found += one.rejected
            one.rejected.clear()
            if one.refused:
                found[f"may not list {one.path.rpartition('/')[2]}"] += 1
        return {reason: count for reason, count in found.items() if count}

    # --- nodes and work ---------------------------------------------------------------------------------------------

    def _records(self, read_at: float) -> list[NodeRecord]:
        found = [read_again(one, read_at) for one in self._nodes.rows.values()]
        return sorted(found, key=lambda one: one.facts.name)

    def _with_work(self, records: Sequence[NodeRecord], pods: Sequence[Pod]) -> Iterator[NodeFacts]:
        on: dict[str, list[Pod]] = {}
        for pod in pods:
            if pod.holds and pod.accelerated:
                on.setdefault(pod.node, []).append(pod)
        for record in records:
            here = sorted(on.get(record.facts.name, []), key=lambda pod: (pod.created or 0.0, pod.id))
            jobs = tuple(dict.fromkeys(pod.id for pod in here))
            used = sum(pod.gpus or len(pod.claims) for pod in here)
            yield with_work(record, jobs, used, any(pod.deleting for pod in here))

    def _attempts(self, pods: Sequence[Pod], records: Sequence[NodeRecord], read_at: float) -> list[AttemptFacts]:
        mine: dict[str, list[Pod]] = {}
        gone: dict[str, list[Pod]] = {}
        for into, found in ((mine, pods), (gone, [pod for one in self._pods for pod in one.gone])):
            for pod in found:
                if not pod.daemon and pod.accelerated:
                    into.setdefault(pod.id, []).append(pod)
        owners = self._owners_by_job(mine)
        jobs = [*mine, *(job for job in (*owners, *gone) if job not in mine)]
        works = [Work(job, mine.get(job, ()), gone.get(job, ()), owners.get(job)) for job in dict.fromkeys(jobs)]
        claims = {key: indices for one in self._claims for key, indices in one.rows.values()}
        room = Room({one.facts.name: one.facts.expected_gpus for one in records}, claims)
        return self._lives.follow(works, room, read_at)

    def _owners_by_job(self, mine: Mapping[str, Sequence[Pod]]) -> dict[str, Owner]:
        """The object that owns each job, by the job's id; also of jobs that wait for GPUs and have no pods yet."""
        named = {
            (key, owner.namespace, owner.name): owner
            for key, mirrors in self._owners.items()
            for one in mirrors
            for owner in one.rows.values()
        }
        found: dict[str, Owner] = {}
        for job, pods in mine.items():
            pod = pods[0]
            resources = (RESOURCE[pod.kind],) if pod.kind in RESOURCE else TRAINING
            for key in resources:
                if owner := named.get((key, pod.namespace, pod.run if pod.kind == "LeaderWorkerSet" else pod.job)):
                    found[job] = owner
                    break
        for (key, namespace, name), owner in named.items():
            top = not owner.parent and not key.startswith("leaderworkerset")
            if top and (owner.gpus or self._lives.knows(job_id(namespace, name))):
                found.setdefault(job_id(namespace, name), owner)
        return found

    def _events(self, pods: Sequence[Pod], records: Sequence[NodeRecord]) -> Iterator[Any]:
        """Events of nodes, and of pods that work on GPUs; each is told once for each time that it is counted up."""
        by_uid = {pod.uid: pod for pod in (*pods, *(pod for one in self._pods for pod in one.gone))}
        nodes = {record.facts.name for record in records}
        seen = set[str]()
        for one in (said for mirror in self._said for said in mirror.fresh):
            event = one.event(nodes, by_uid)
            if event is not None and event.dedupe not in seen:
                seen.add(event.dedupe)
                yield replace(event, attrs={**event.attrs, "source": self._name})
