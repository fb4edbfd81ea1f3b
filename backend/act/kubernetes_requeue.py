"""Evicting the pods of a job, and the cases in which that would end the job in place of starting it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from backend.act.base import ActionError
from backend.clients.kubernetes import KubeClient, KubeError
from backend.clients.kubernetes_json import objects, text
from backend.clients.kubernetes_pods import Pod
from backend.clients.kubernetes_work import Owner, owner_of


def evict_all(client: KubeClient, pods: Sequence[Pod]) -> int:
    """Evicts each pod, that very one and no namesake; how many were. Raises ActionError where a disruption budget
    says not now (not permanent), and KubeError."""
    version = _eviction_version(client)
    done = 0
    for pod in pods:
        body: dict[str, Any] = {"apiVersion": f"policy/{version}", "kind": "Eviction"}
        body |= {"metadata": {"name": pod.name, "namespace": pod.namespace}}
        body["deleteOptions"] = {"preconditions": {"uid": pod.uid}}
        try:
            client.create(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/eviction", body)
        except KubeError as refused:
            if refused.status == 429:
                far = f"{done} of {len(pods)} pods were evicted. " if done else ""
                raise ActionError(f"{far}A disruption budget keeps {pod.namespace}/{pod.name}: {refused}") from refused
            if refused.status not in (404, 409):  # gone, or another pod has its name: what was wanted is so
                raise
            continue
        done += 1
    return done


def _eviction_version(client: KubeClient) -> str:
    """Which version of policy its evictions take: v1 since 1.22, v1beta1 before."""
    found = client.get("/api/v1")
    listed = (one for one in objects(found, "resources") if text(one, "name") == "pods/eviction")
    return text(next(listed, {}), "version") or "v1"


def refuse_requeue(client: KubeClient, pods: Sequence[Pod]) -> None:
    """Raises ActionError, permanent, where an evicted pod would not come back, with what its owner can do."""
    for pod in pods:
        if not pod.owner_uid:
            fix = "Ask its owner to run it as a Job, or to end and start it by hand."
            raise ActionError(
                f"Pod {pod.namespace}/{pod.name} has no controller; evicted, it is gone. {fix}", permanent=True
            )
    first = pods[0]
    batch = f"/apis/batch/v1/namespaces/{first.namespace}/jobs"
    if first.kind == "JobSet":
        spent(
            _owner(
                client, f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{first.namespace}/jobsets/{first.job}", "jobsets"
            )
        )
    elif first.kind == "Job":
        found = _get(client, f"{batch}/{first.job}")
        if found is not None and not _forgives_disruption(found):
            spent(owner_of(found, "jobs"))


def spent(owner: Owner | None) -> None:
    """Raises ActionError, permanent, where one more failure would be the controller's last."""
    if owner is None or owner.most_restarts is None:
        return
    used = owner.failed if owner.restarts is None else owner.restarts
    if used >= owner.most_restarts:
        limit = "backoffLimit" if owner.kind == "jobs" else "maxRestarts"
        fix = f"Ask its owner to raise {limit}, or to start it again by hand."
        what = f"{owner.namespace}/{owner.name} has used {used} of {owner.most_restarts} restarts"
        raise ActionError(f"Job {what}; evicted, it would fail for good. {fix}", permanent=True)


def _forgives_disruption(job: Mapping[str, Any]) -> bool:
    """Whether its pod failure policy ignores pods that were evicted."""
    for rule in objects(job, "spec", "podFailurePolicy", "rules"):
        if any(text(one, "type") == "DisruptionTarget" for one in objects(rule, "onPodConditions")):
            return text(rule, "action") == "Ignore"
    return False


def _owner(client: KubeClient, path: str, kind: str) -> Owner | None:
    found = _get(client, path)
    return None if found is None else owner_of(found, kind)


def _get(client: KubeClient, path: str) -> Mapping[str, Any] | None:
    """The object; None where it is not there, or we may not see it: then its limits are its owner's affair."""
    try:
        return client.get(path)
    except KubeError as refused:
        if refused.status in (403, 404):
            return None
        raise
