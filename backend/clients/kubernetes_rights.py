"""The rights that we need in a Kubernetes cluster: as a manifest to apply, and asked of the server one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from backend.clients.kubernetes import KubeClient
from backend.clients.kubernetes_json import flag, objects, text
from backend.clients.kubernetes_work import OWNERS

REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass(frozen=True, slots=True)
class Right:
    """Verbs on one resource ("pods/eviction" is a subresource). needed: without it nothing works, else less is known.
    cluster: it is asked for the whole cluster even where work is looked for in some namespaces only."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    why: str
    needed: bool = True
    cluster: bool = False


WATCHES = ("list", "watch")
OBSERVE: tuple[Right, ...] = (
    Right("", "nodes", WATCHES, "see the nodes", cluster=True),
    Right("", "pods", WATCHES, "see who runs where"),
    Right("", "pods/log", ("get",), "read what jobs print", needed=False),
    Right("", "events", WATCHES, "see what Kubernetes says", needed=False),
    Right("resource.k8s.io", "resourceclaims", WATCHES, "see which GPUs a claim got", needed=False),
    *(Right(group, resource, WATCHES, f"see {resource} and their restarts", False) for group, resource in OWNERS),
)
ACT: tuple[Right, ...] = (
    Right("", "nodes", ("get", "patch"), "cordon, and lift our own cordon", cluster=True),
    Right("", "pods/eviction", ("create",), "start a job again without a node"),
    Right("batch", "jobs", ("get",), "see whether an evicted job would come back", False),
    Right("jobset.x-k8s.io", "jobsets", ("get",), "see whether an evicted job would come back", False),
)


def rights(act: bool) -> tuple[Right, ...]:
    return (*OBSERVE, *ACT) if act else OBSERVE


def manifest(act: bool, namespace: str = "watchkeeper") -> str:
    """YAML of an account and the smallest role that lets it watch, and with ``act`` also cordon and evict."""
    return "\n".join((*_head(namespace, act), *_rules(act), *_binding(namespace), ""))


def _head(namespace: str, act: bool) -> Iterator[str]:
    may = "watches, cordons and evicts" if act else "watches and writes nothing"
    yield f"# The account of Watchkeeper: it {may}. Apply it with kubectl apply -f, run Watchkeeper as a pod with"
    yield f"# serviceAccountName watchkeeper in namespace {namespace}; set in_cluster = true in [cluster.kubernetes]."
    yield from ("apiVersion: v1", "kind: Namespace", "metadata:", f"  name: {namespace}", "---")
    yield from ("apiVersion: v1", "kind: ServiceAccount", "metadata:", "  name: watchkeeper")
    yield from (f"  namespace: {namespace}", "---", "apiVersion: rbac.authorization.k8s.io/v1", "kind: ClusterRole")
    yield from ("metadata:", "  name: watchkeeper", "rules:")


def _rules(act: bool) -> Iterator[str]:
    found: dict[tuple[str, str], dict[str, None]] = {}
    for right in rights(act):
        found.setdefault((right.group, right.resource), {}).update(dict.fromkeys(right.verbs))
    for (group, resource), verbs in found.items():
        yield f'  - apiGroups: ["{group}"]'
        yield f'    resources: ["{resource}"]'
        listed = ", ".join(f'"{verb}"' for verb in sorted(verbs))
        yield f"    verbs: [{listed}]"


def _binding(namespace: str) -> Iterator[str]:
    yield from ("---", "apiVersion: rbac.authorization.k8s.io/v1", "kind: ClusterRoleBinding", "metadata:")
    yield from ("  name: watchkeeper", "roleRef:", "  apiGroup: rbac.authorization.k8s.io", "  kind: ClusterRole")
    yield from ("  name: watchkeeper", "subjects:", "  - kind: ServiceAccount", "    name: watchkeeper")
    yield f"    namespace: {namespace}"


def lacking(client: KubeClient, act: bool, namespaces: Sequence[str] = ()) -> list[tuple[Right, str, str]]:
    """(right, verb, namespace) of all that we may not; asked, not tried. Raises KubeError."""
    served = {text(one, "name") for one in objects(client.get("/apis"), "groups")} | {""}
    found = []
    for right in rights(act):
        if right.group not in served:
            continue
        for place in ("",) if right.cluster else (namespaces or ("",)):
            found += [(right, verb, place) for verb in right.verbs if not may(client, right, verb, place)]
    return found


def may(client: KubeClient, right: Right, verb: str, namespace: str = "") -> bool:
    resource, _, sub = right.resource.partition("/")
    asked = {"verb": verb, "group": right.group, "resource": resource, "subresource": sub, "namespace": namespace}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    answer = client.create(REVIEW, {**body, "spec": {"resourceAttributes": {k: v for k, v in asked.items() if v}}})
    return flag(answer, "status", "allowed")


def version(client: KubeClient) -> str:
    """What the server calls itself: ``v1.31.0``. Raises KubeError."""
    return text(client.get("/version"), "gitVersion") or "unknown"
