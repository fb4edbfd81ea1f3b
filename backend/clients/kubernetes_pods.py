"""A pod's JSON as a record: whose work it is, which GPUs it holds, how often it was begun, how it ended."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backend.clients.hostlist import is_host
from backend.clients.kubernetes_conventions import Conventions
from backend.clients.kubernetes_json import at, dig, flag, objects, quantity, table, text, texts, whole, words

#: Labels by which controllers say whose pod it is: (label of the name, kind), best first. Names: JobSet, KubeRay,
#: Kubeflow trainer, Volcano, LeaderWorkerSet and the Job controller, each in its own API reference.
OWNERS = (
    ("jobset.sigs.k8s.io/jobset-name", "JobSet"),
    ("ray.io/originated-from-cr-name", "RayJob"),
    ("ray.io/cluster", "RayCluster"),
    ("leaderworkerset.sigs.k8s.io/name", "LeaderWorkerSet"),
    ("training.kubeflow.org/job-name", "TrainingJob"),
    ("volcano.sh/job-name", "VolcanoJob"),
    ("batch.kubernetes.io/job-name", "Job"),
    ("job-name", "Job"),
)
#: Where a pod's part in its job is said, best first.
ROLES = (
    "jobset.sigs.k8s.io/replicatedjob-name",
    "training.kubeflow.org/replica-type",
    "ray.io/group",
    "ray.io/node-type",
    "volcano.sh/task-spec",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "role",
)
QUEUES = ("kueue.x-k8s.io/queue-name", "volcano.sh/queue-name", "kai.scheduler/queue", "runai/queue", "queue")
USERS = ("user", "owner", "submitted-by", "created-by", "username", "team")
#: Pods that are the node daemons of another scheduler: the work on their GPUs is that scheduler's to tell.
DAEMONS = frozenset({"slurmd", "worker", "nodeset", "compute"})
SCHEDULERS = frozenset({"slurm", "slurmd", "soperator", "sunk", "slinky", "slurm-operator", "slurmcluster"})
#: Controllers whose pods stand for themselves: each is work of its own, and goes on when another ends.
LOOSE = frozenset({"ReplicaSet", "Workflow", "Pod", "Notebook", ""})
#: Annotations in which schedulers that share GPUs write the indices: a JSON list of {"minor": n}, or a list of numbers.
INDEX_NOTES: tuple[str, ...] = (
    "scheduling.koordinator.sh/device-allocated",
    "huawei.com/Ascend910",
    "nvidia.com/gpu-indices",
)
INDEX_NOTES += ("runai-gpu", "gpu-index", "kai.scheduler/gpu-index", "ALIYUN_COM_GPU_MEM_IDX")


@dataclass(frozen=True, slots=True)
class End:
    """How one container ended. ``code`` above 128 is 128 plus the signal where ``signal`` is not said. before: it was
    begun anew since."""

    container: str
    code: int | None
    signal: int | None
    reason: str
    at: float | None
    before: bool = False


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod. Times are unix s. ``gpus``: how many it holds; ``indices``: which, () = not said.

    job, kind, owner_uid: whose work it is, by name, kind of controller and uid of its nearest controller ("" = none).
    slot: its place in that work, the same for the pod that replaces it. lives: how often its containers were begun
    anew. began: when its present life was asked for. attempt: the controller's own count, None = it keeps none.
    """

    namespace: str
    name: str
    uid: str
    node: str
    phase: str
    created: float | None
    started: float | None
    ended: float | None
    began: float | None
    deleting: bool
    job: str
    kind: str
    owner_uid: str
    slot: str
    role: str
    gpus: int
    shares: int
    indices: tuple[int, ...]
    claims: tuple[str, ...]
    lives: int
    attempt: int | None
    reason: str
    message: str
    disrupted: str
    ends: tuple[End, ...]
    run: str
    user: str
    queue: str
    limit_s: float | None
    excluded: tuple[str, ...]
    outputs: tuple[str, ...]
    daemon: bool
    image: str = ""

    @property
    def id(self) -> str:
        return job_id(self.namespace, self.job)

    @property
    def over(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def accelerated(self) -> bool:
        """Whether it asks for GPUs, slices of them, or devices by claim."""
        return bool(self.gpus or self.shares or self.claims)

    @property
    def holds(self) -> bool:
        """Whether it holds its node's GPUs now."""
        return bool(self.node) and not self.over and not self.daemon


def job_id(namespace: str, name: str) -> str:
    """``namespace.name``: no namespace has a dot in it, and no path or address trips over one."""
    return f"{namespace}.{name}"


def pod_of(found: Any, known: Conventions) -> Pod | None:
    """One pod; None where it has no name, namespace or uid."""
    name, namespace = text(found, "metadata", "name"), text(found, "metadata", "namespace")
    uid = text(found, "metadata", "uid")
    if not (name and namespace and uid):
        return None
    labels, notes = texts(found, "metadata", "labels"), texts(found, "metadata", "annotations")
    owner, owner_kind, owner_uid = _owner(found)
    job, kind, run = _work(name, labels, notes, owner, owner_kind)
    gpus, shares = _devices(found, known)
    node = text(found, "spec", "nodeName")
    statuses = [*objects(found, "status", "containerStatuses")]
    lives, began = _life(found, statuses)
    return Pod(
        namespace=namespace,
        name=name,
        uid=uid,
        node=node if is_host(node) else "",
        phase=text(found, "status", "phase") or "Pending",
        created=at(found, "metadata", "creationTimestamp"),
        started=_started(found, lives, began),
        ended=_ended(found, statuses),
        began=began,
        deleting="deletionTimestamp" in table(found, "metadata"),
        job=job,
        kind=kind,
        owner_uid=owner_uid,
        slot=_slot(name, labels, notes, kind),
        role=next((labels[key] for key in ROLES if labels.get(key)), "")[:60],
        gpus=gpus,
        shares=shares,
        indices=_indices(notes),
        claims=tuple(_claims(found)),
        lives=lives,
        attempt=_attempt(labels, notes),
        reason=text(found, "status", "reason"),
        message=text(found, "status", "message")[:300],
        disrupted=_disrupted(found),
        ends=tuple(_ends(statuses)),
        run=run,
        user=next((said for key in USERS if (said := _by_tail(labels | notes, key))), "")[:60],
        queue=next((both[key] for both in (labels, notes) for key in QUEUES if both.get(key)), "")[:60],
        limit_s=quantity(dig(found, "spec", "activeDeadlineSeconds")),
        excluded=tuple(_excluded(found)),
        outputs=tuple(_outputs(namespace, name, uid, statuses)),
        daemon=owner_kind in ("DaemonSet", "Node")
        or "kubernetes.io/config.mirror" in notes
        or _is_daemon(labels, owner_kind),
        image=_image(found, statuses, known),
    )


# --- whose work -----------------------------------------------------------------------------------------------------


def _owner(found: Any) -> tuple[str, str, str]:
    """(name, kind, uid) of the controller."""
    owners = [*objects(found, "metadata", "ownerReferences")]
    for one in sorted(owners, key=lambda one: not flag(one, "controller")):
        return text(one, "name"), text(one, "kind"), text(one, "uid")
    return "", "", ""


def _work(
    pod: str, labels: Mapping[str, str], notes: Mapping[str, str], owner: str, owner_kind: str
) -> tuple[str, str, str]:
    """(job, kind, run): by what controllers say in labels, else by the controller itself, else the pod alone."""
    for key, kind in OWNERS:
        name = labels.get(key) or notes.get(key, "")
        if not name:
            continue
        if kind == "LeaderWorkerSet" and (group := labels.get("leaderworkerset.sigs.k8s.io/group-index")):
            return f"{name}-{group}", kind, name
        kind = labels.get("ray.io/originated-from-crd", kind) if kind == "RayJob" else kind
        kind = owner_kind if kind == "TrainingJob" and owner_kind.endswith("Job") and owner_kind != "Job" else kind
        return name, kind, name
    if owner_kind in LOOSE:
        hashed = labels.get("pod-template-hash", "")
        return pod, owner_kind or "Pod", owner.removesuffix(f"-{hashed}") if hashed and owner else owner or pod
    return owner, owner_kind, owner


def _slot(pod: str, labels: Mapping[str, str], notes: Mapping[str, str], kind: str) -> str:
    """The place of a pod in its job, the same for the pod that takes it over."""
    index = labels.get("batch.kubernetes.io/job-completion-index") or notes.get(
        "batch.kubernetes.io/job-completion-index", ""
    )
    if index:
        of = labels.get("batch.kubernetes.io/job-name") or labels.get("job-name", "")
        of = "" if kind == "Job" else of
        return f"{of}/{index}"
    replica, number = (
        labels.get("training.kubeflow.org/replica-type", ""),
        labels.get("training.kubeflow.org/replica-index", ""),
    )
    return f"{replica}/{number}" if number else pod


def _attempt(labels: Mapping[str, str], notes: Mapping[str, str]) -> int | None:
    """How often the controller says that it began the whole job anew."""
    for key in ("jobset.sigs.k8s.io/restart-attempt", "volcano.sh/job-retry-count"):
        found = whole(labels, key)
        found = whole(notes, key) if found is None else found
        if found is not None and 0 <= found < 1_000_000:
            return found
    return None


def _is_daemon(labels: Mapping[str, str], owner_kind: str) -> bool:
    """Whether the pod is a slurmd: Slinky, SUNK and soperator run Slurm's nodes as pods that hold all GPUs."""
    name, part = labels.get("app.kubernetes.io/name", "").lower(), labels.get("app.kubernetes.io/component", "").lower()
    of = labels.get("app.kubernetes.io/part-of", "").lower()
    if owner_kind in ("NodeSet", "SlurmNodeSet") or name == "slurmd" or part == "slurmd":
        return True
    return part in DAEMONS and bool({name, of} & SCHEDULERS)


def _by_tail(entries: Mapping[str, str], tail: str) -> str:
    return next((said for key, said in sorted(entries.items()) if key.rpartition("/")[2].lower() == tail), "")


# --- its devices ----------------------------------------------------------------------------------------------------


def _devices(found: Any, known: Conventions) -> tuple[int, int]:
    """(whole GPUs, slices): the larger of what one init container asks for and what those that run together do."""
    together, alone = [0.0, 0.0], [0.0, 0.0]
    for kind in ("containers", "initContainers"):
        for container in objects(found, "spec", kind):
            asked = table(container, "resources", "limits") or table(container, "resources", "requests")
            units = [_sum(asked, known.is_whole), _sum(asked, known.is_shared)]
            if kind == "containers" or text(container, "restartPolicy") == "Always":  # a sidecar runs beside them
                together = [a + b for a, b in zip(together, units, strict=True)]
            else:
                alone = [max(a, b) for a, b in zip(alone, units, strict=True)]
    whole_gpus, slices = (int(max(a, b)) for a, b in zip(together, alone, strict=True))
    return min(whole_gpus, 10_000), min(slices, 10_000)


def _sum(asked: Mapping[str, Any], of_kind: Any) -> float:
    return sum(quantity(said) or 0.0 for name, said in asked.items() if of_kind(name))


def _claims(found: Any) -> Iterator[str]:
    """Names of the resource claims that the pod uses (dynamic resource allocation)."""
    made = {
        text(one, "name"): text(one, "resourceClaimName") for one in objects(found, "status", "resourceClaimStatuses")
    }
    for one in objects(found, "spec", "resourceClaims"):
        given = text(one, "resourceClaimName") or text(one, "source", "resourceClaimName")
        if name := made.get(text(one, "name")) or given:
            yield name


def _indices(notes: Mapping[str, str]) -> tuple[int, ...]:
    """GPU indices, where a scheduler that shares GPUs wrote them down."""
    for key in INDEX_NOTES:
        said = notes.get(key, "")
        if not said:
            continue
        if said.lstrip()[:1] in ("{", "["):
            return tuple(sorted(set(_minors(said))))
        pieces = [re.fullmatch(r"(?:.*[^0-9.])?([0-9]{1,3})\s*", piece) for piece in said[:2000].split(",")]
        return tuple(sorted({int(piece[1]) for piece in pieces if piece is not None}))
    return ()


def _minors(said: str) -> Iterator[int]:
    try:
        document = json.loads(said)
    except (ValueError, RecursionError):
        return
    lists = document.values() if isinstance(document, Mapping) else [document]
    for one in lists:
        for entry in one if isinstance(one, Sequence) and not isinstance(one, str) else ():
            minor = whole(entry, "minor") if isinstance(entry, Mapping) else entry
            if isinstance(minor, int) and not isinstance(minor, bool) and 0 <= minor < 1000:
                yield minor


def _image(found: Any, statuses: Sequence[Mapping[str, Any]], known: Conventions) -> str:
    """What its first container with GPUs runs: the image as it was resolved, else as it was asked for."""
    listed = [*objects(found, "spec", "containers")]
    main = next((one for one in listed if any(map(known.is_whole, table(one, "resources", "limits")))), None)
    main = main or next(iter(listed), {})
    name = text(main, "name")
    resolved = next((text(one, "imageID") for one in statuses if text(one, "name") == name), "")
    digest = resolved.rpartition("@")[2] if "@sha256:" in resolved else ""
    asked = text(main, "image")
    return (f"{asked}@{digest}" if digest and "@" not in asked else asked)[:255]


# --- its life -------------------------------------------------------------------------------------------------------


def _life(found: Any, statuses: Sequence[Mapping[str, Any]]) -> tuple[int, float | None]:
    """(how often containers were begun anew, when the present life began to be asked for)."""
    lives = max((whole(one, "restartCount") or 0 for one in statuses), default=0)
    again = [at(one, "state", "running", "startedAt") for one in statuses if whole(one, "restartCount")]
    latest = max((moment for moment in again if moment is not None), default=None)
    return max(0, lives), latest if lives and latest is not None else at(found, "metadata", "creationTimestamp")


def _started(found: Any, lives: int, began: float | None) -> float | None:
    """When its present life began to hold its node: when it got the node, or when it was begun anew there."""
    if lives:
        return began
    if (taken := at(found, "status", "startTime")) is not None:
        return taken
    for one in objects(found, "status", "conditions"):
        if text(one, "type") == "PodScheduled" and text(one, "status") == "True":
            return at(one, "lastTransitionTime")
    return at(found, "metadata", "creationTimestamp") if text(found, "spec", "nodeName") else None


def _ended(found: Any, statuses: Sequence[Mapping[str, Any]]) -> float | None:
    if text(found, "status", "phase") not in ("Succeeded", "Failed"):
        return None
    times = [moment for one in statuses if (moment := at(one, "state", "terminated", "finishedAt")) is not None]
    moved = [at(one, "lastTransitionTime") for one in objects(found, "status", "conditions")]
    return max(times, default=None) or max((m for m in moved if m is not None), default=None)


def _ends(statuses: Sequence[Mapping[str, Any]]) -> Iterator[End]:
    """How containers ended: in the present life, and in the one before."""
    for one in statuses:
        for state in ("state", "lastState"):
            over = table(one, state, "terminated")
            if over:
                code, signal = whole(over, "exitCode"), whole(over, "signal")
                signal = signal or (code - 128 if code is not None and 128 < code < 193 else None)
                yield End(
                    text(one, "name"), code, signal, text(over, "reason"), at(over, "finishedAt"), state == "lastState"
                )


def _disrupted(found: Any) -> str:
    """Why Kubernetes itself ended the pod (the DisruptionTarget condition), "" where it did not."""
    for one in objects(found, "status", "conditions"):
        if text(one, "type") == "DisruptionTarget" and text(one, "status") == "True":
            return text(one, "reason")
    return ""


# --- where it may run, where it writes ------------------------------------------------------------------------------


def _excluded(found: Any) -> Iterator[str]:
    """Nodes that it must not get: NotIn terms on the host name, in every alternative of its node affinity."""
    affinity = table(found, "spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    avoided: list[set[str]] = []
    for term in objects(affinity, "nodeSelectorTerms"):
        names = set[str]()
        for kind in ("matchExpressions", "matchFields"):
            for one in objects(term, kind):
                if text(one, "key") in ("kubernetes.io/hostname", "metadata.name") and text(one, "operator") == "NotIn":
                    names |= {name for name in words(one, "values") if is_host(name)}
        avoided.append(names)
    yield from sorted(set.intersection(*avoided)) if avoided else ()


def _outputs(namespace: str, name: str, uid: str, statuses: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Where its node keeps its logs (kubelet: /var/log/pods), one file a container and life."""
    for one in statuses:
        if container := text(one, "name"):
            life = whole(one, "restartCount") or 0
            yield f"/var/log/pods/{namespace}_{name}_{uid}/{container}/{life}.log"
