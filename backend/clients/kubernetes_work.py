"""The objects that own pods (Job, JobSet, PyTorchJob, RayJob ...) and the claims of their GPUs, as records."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from backend.clients.kubernetes_conventions import Conventions
from backend.clients.kubernetes_json import at, dig, flag, objects, quantity, table, text, whole
from backend.clients.kubernetes_pods import End, Pod

#: Resources that own the pods of training: (API group, resource). Those that a cluster does not serve are not asked.
OWNERS = (
    ("batch", "jobs"),
    ("jobset.x-k8s.io", "jobsets"),
    ("kubeflow.org", "pytorchjobs"),
    ("kubeflow.org", "mpijobs"),
    ("kubeflow.org", "tfjobs"),
    ("kubeflow.org", "jaxjobs"),
    ("ray.io", "rayjobs"),
    ("batch.volcano.sh", "jobs"),
    ("leaderworkerset.x-k8s.io", "leaderworkersets"),
)
#: What a controller's conditions and phases mean, in the words of Slurm.
ENDED = {
    "complete": "COMPLETED",
    "completed": "COMPLETED",
    "succeeded": "COMPLETED",
    "failed": "FAILED",
    "aborted": "CANCELLED",
    "terminated": "CANCELLED",
    "stopped": "CANCELLED",
}
#: Why Kubernetes ended a pod (DisruptionTarget reasons, pod reasons): what that is in the words of Slurm.
DISRUPTIONS = {
    "PreemptionByScheduler": "PREEMPTED",
    "PreemptionByKubeScheduler": "PREEMPTED",
    "Preempting": "PREEMPTED",
    "DeletionByTaintManager": "NODE_FAIL",
    "DeletionByPodGC": "NODE_FAIL",
    "NodeLost": "NODE_FAIL",
    "NodeShutdown": "NODE_FAIL",
    "Terminated": "NODE_FAIL",
    "Shutdown": "NODE_FAIL",
    "TerminationByKubelet": "NODE_FAIL",
    "EvictionByEvictionAPI": "REQUEUED",
    "DeadlineExceeded": "TIMEOUT",
    "UnexpectedAdmissionError": "LAUNCH_FAILED",
    "NodeAffinity": "LAUNCH_FAILED",
    "OutOfnvidia.com/gpu": "LAUNCH_FAILED",
}
#: Ends that follow from another's end: SIGTERM and SIGKILL, as sent to the ranks that are left.
FOLLOWERS = frozenset({9, 15})
#: Parts of a spec that are looked through for resources.
MOST_PARTS = 5000
_DEVICE = re.compile(r"(?:^|[^0-9a-z])(?:gpu|card|accel|device|nvidia)[-_]?([0-9]{1,3})(?![0-9a-z])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Owner:
    """One object that owns pods. state: in Slurm's words, "" = not over; ``restarts``: how often it began all its pods
    anew, None = it does not count that. failed: pods that failed, as far as it counts them."""

    kind: str
    namespace: str
    name: str
    uid: str
    parent: str
    parent_uid: str
    created: float | None
    state: str
    reason: str
    ended: float | None
    suspended: bool
    restarts: int | None
    most_restarts: int | None
    failed: int
    limit_s: float | None
    gpus: bool


def owner_of(found: Any, kind: str, known: Conventions | None = None) -> Owner | None:
    """One owner; None where it has no name or uid. ``known`` tells which of its resources are GPUs."""
    name, namespace, uid = (text(found, "metadata", key) for key in ("name", "namespace", "uid"))
    if not (name and uid):
        return None
    parents = [*objects(found, "metadata", "ownerReferences")]
    parent: Mapping[str, Any] = next((one for one in parents if flag(one, "controller")), {})
    state, reason, ended = _state(found)
    return Owner(
        kind,
        namespace,
        name,
        uid,
        text(parent, "name"),
        text(parent, "uid"),
        at(found, "metadata", "creationTimestamp"),
        state,
        reason[:300],
        ended,
        flag(found, "spec", "suspend") or flag(found, "spec", "runPolicy", "suspend"),
        _restarts(found, kind),
        _limit(found, kind),
        max(0, whole(found, "status", "failed") or 0),
        quantity(dig(found, "spec", "activeDeadlineSeconds"))
        or quantity(dig(found, "spec", "runPolicy", "activeDeadlineSeconds")),
        known is not None and any(known.is_whole(name) or known.is_shared(name) for name in _asked(found)),
    )


def _asked(found: Any) -> Iterator[str]:
    """Names of the resources that its pod templates ask for, wherever in its spec they stand."""
    left: list[Any] = [dig(found, "spec")]
    for _ in range(MOST_PARTS):
        if not left:
            return
        part = left.pop()
        if isinstance(part, Mapping):
            yield from table(part, "resources", "limits")
            left += [inner for inner in part.values() if isinstance(inner, Mapping | list)]
        elif isinstance(part, list):
            left += [inner for inner in part if isinstance(inner, Mapping | list)]


def _state(found: Any) -> tuple[str, str, float | None]:
    for one in objects(found, "status", "conditions"):
        state = ENDED.get(text(one, "type").lower(), "")
        if state and text(one, "status") == "True":
            reason, message = text(one, "reason"), text(one, "message")
            state = "TIMEOUT" if "DeadlineExceeded" in reason and state == "FAILED" else state
            ended = at(found, "status", "completionTime") or at(one, "lastTransitionTime")
            return state, ": ".join(filter(None, (reason, message))), ended
    for path in (("status", "state", "phase"), ("status", "jobStatus"), ("status", "phase")):
        if state := ENDED.get(text(found, *path).lower(), ""):
            ended = at(found, "status", "endTime") or at(found, "status", "state", "lastTransitionTime")
            return state, text(found, "status", "reason") or text(found, "status", "message"), ended
    return "", "", None


def _restarts(found: Any, kind: str) -> int | None:
    paths = {"jobsets": ("status", "restarts"), "rayjobs": ("status", "failed")}
    if kind in paths:
        return max(0, whole(found, *paths[kind]) or 0)
    return whole(found, "status", "retryCount") if "retryCount" in table(found, "status") else None


def _limit(found: Any, kind: str) -> int | None:
    """How many more failures its controller forgives; None where it names no limit."""
    paths = (("spec", "failurePolicy", "maxRestarts"), ("spec", "backoffLimit"), ("spec", "runPolicy", "backoffLimit"))
    for path in (*paths, ("spec", "maxRetry")):
        if (limit := whole(found, *path)) is not None:
            return limit
    return {"jobs": 6, "jobsets": 0}.get(kind)


def claim_of(found: Any) -> tuple[str, tuple[int, ...]] | None:
    """(namespace/name, GPU indices) of a resource claim that was given devices; None for any other."""
    name, namespace = text(found, "metadata", "name"), text(found, "metadata", "namespace")
    devices = {text(one, "device") for one in objects(found, "status", "allocation", "devices", "results")}
    if not (name and devices - {""}):
        return None
    indices = {int(match[1]) for device in devices if (match := _DEVICE.search(device))}
    return f"{namespace}/{name}", tuple(sorted(indices))


# --- how it ended ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verdict:
    """How an attempt ended, told by the pod that failed first. state "" = nothing failed."""

    state: str
    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None
    at: float | None = None
    by: str = ""


def verdict_of(pods: list[Pod]) -> Verdict:
    """The first failure among the pods; ranks that were only told to stop after it do not count as the cause."""
    found = sorted((one for pod in pods for one in _failures(pod)), key=_first)
    return found[0] if found else Verdict("")


def _first(verdict: Verdict) -> tuple[bool, float]:
    follower = verdict.state == "FAILED" and verdict.signal in FOLLOWERS
    return follower, verdict.at if verdict.at is not None else float("inf")


def _failures(pod: Pod) -> Iterator[Verdict]:
    where = f"{pod.name}{f' on {pod.node}' if pod.node else ''}"
    why = DISRUPTIONS.get(pod.disrupted) or DISRUPTIONS.get(pod.reason, "")
    if why or pod.reason == "Evicted":
        said = ": ".join(filter(None, (pod.disrupted or pod.reason, pod.message)))
        state = why or ("OUT_OF_MEMORY" if "memory" in pod.message.lower() else "FAILED")
        yield Verdict(state, f"{where}: {said}", at=pod.ended, by=pod.disrupted)
    for end in pod.ends:
        if end.code or end.signal:
            yield _ended(end, where)
    if pod.phase == "Failed" and not why and not pod.ends and pod.reason != "Evicted":
        yield Verdict("FAILED", ": ".join(filter(None, (where, pod.reason, pod.message))), at=pod.ended)


def _ended(end: End, where: str) -> Verdict:
    state = "OUT_OF_MEMORY" if end.reason == "OOMKilled" else "FAILED"
    how = f"signal {end.signal}" if end.signal else f"exit code {end.code}"
    said = f"{end.reason} " if end.reason and end.reason != "Error" else ""
    return Verdict(state, f"{where}, {end.container}: {said}({how})", end.code, end.signal, end.at)
