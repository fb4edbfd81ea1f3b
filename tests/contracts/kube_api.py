"""What a kube-apiserver does, as far as we lean on it: checks that the fake and a real one both pass.

Each check takes a Served with an empty namespace of its own; names of nodes are made unique by it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import pytest

from backend.clients.kubernetes import PAGE, KubeClient, KubeError, pool_of
from backend.clients.kubernetes_access import Access
from tests.services.kube_fake import ADMIN

Object = dict[str, Any]


class Serves(Protocol):
    """Something that gives access to one API server."""

    def access(self, token: str = ADMIN) -> Access: ...


@dataclass
class Served:
    """One server with a mark that makes names unique; ``client`` is an administrator's."""

    kube: Serves
    mark: str = field(default_factory=lambda: uuid.uuid4().hex[:6])

    def __post_init__(self) -> None:
        self.client = KubeClient(self.kube.access(), 10.0)
        self.http = pool_of(self.kube.access())
        self.namespace = f"ns-{self.mark}"
        self.client.create("/api/v1/namespaces", {"metadata": {"name": self.namespace}})

    def named(self, name: str) -> str:
        return f"{name}-{self.mark}"

    def pods(self, name: str = "", sub: str = "") -> str:
        return "/".join(filter(None, (f"/api/v1/namespaces/{self.namespace}/pods", name, sub)))

    def node(self, name: str, **more: Any) -> Object:
        meta = {"name": self.named(name), "labels": {"mark": self.mark}, **more}
        return dict(self.client.create("/api/v1/nodes", {"metadata": meta}))

    def pod(self, name: str, node: str = "", phase: str = "Running", **more: Any) -> Object:
        spec = {"containers": [{"name": "train", "image": "train"}], "nodeName": node, **more.pop("spec", {})}
        made = self.client.create(self.pods(), {"metadata": {"name": name, **more}, "spec": spec})
        if phase:
            self.client.patch(self.pods(name, "status"), {"status": {"phase": phase}})
        return dict(made)

    def send(self, method: str, path: str, body: Any = None, manager: str = "kubectl-cordon", **params: str) -> Any:
        """What somebody else asks of the server."""
        access = self.kube.access()
        headers = {"Authorization": f"Bearer {access.token()}", "Content-Type": "application/merge-patch+json"}
        if method != "PATCH":
            headers["Content-Type"] = "application/json"
        query = "&".join(f"{key}={said}" for key, said in {"fieldManager": manager, **params}.items())
        sent = None if body is None else json.dumps(body)
        answer = self.http.request(method, f"{access.server}{path}?{query}", body=sent, headers=headers, timeout=10)
        assert answer.status < 300, answer.data
        return answer.json()

    def end(self, pod: str) -> None:
        """What a kubelet does once a pod's processes are gone."""
        self.send("DELETE", self.pods(pod), {"gracePeriodSeconds": 0})


def evict(served: Served, pod: str, uid: str = "") -> Mapping[str, Any]:
    found = served.client.get("/api/v1")
    version = next(one["version"] for one in found["resources"] if one["name"] == "pods/eviction")
    body: Object = {"apiVersion": f"policy/{version}", "kind": "Eviction"}
    body |= {"metadata": {"name": pod, "namespace": served.namespace}}
    if uid:
        body["deleteOptions"] = {"preconditions": {"uid": uid}}
    return served.client.create(served.pods(pod, "eviction"), body)


def budget(served: Served, allowed: int, **labels: str) -> None:
    """A disruption budget as its controller would keep it."""
    groups = served.client.get("/apis")["groups"]
    version = next(one["preferredVersion"]["version"] for one in groups if one["name"] == "policy")
    path = f"/apis/policy/{version}/namespaces/{served.namespace}/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": labels}}
    made = served.client.create(path, {"metadata": {"name": "keep"}, "spec": spec})
    status = {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    status["observedGeneration"] = made["metadata"].get("generation", 1)
    served.client.patch(f"{path}/keep/status", {"status": status})


# --- reading --------------------------------------------------------------------------------------------------------


def check_a_list_comes_in_pages_and_whole(served: Served) -> None:
    count = PAGE + 3
    for i in range(count):
        served.pod(f"pod-{i:04d}", phase="")
    pages = list(served.client.pages(served.pods()))
    assert [len(items) for items, _ in pages] == [PAGE, 3]
    assert len({item["metadata"]["name"] for items, _ in pages for item in items}) == count
    assert len({version for _, version in pages}) == 1


def check_an_empty_list_is_empty(served: Served) -> None:
    (page,) = served.client.pages(served.pods())
    assert page[0] == [] and page[1]


def check_what_is_not_there_is_404(served: Served) -> None:
    for path in (
        f"/api/v1/nodes/{served.named('none')}",
        served.pods("none"),
        "/apis/jobset.x-k8s.io/v1alpha2/jobsets",
    ):
        with pytest.raises(KubeError) as failed:
            served.client.get(path)
        assert failed.value.status == 404 and failed.value.permanent


def check_fields_and_labels_select(served: Served) -> None:
    node = served.named("n1")
    served.pod("here", node)
    served.pod("there", served.named("n2"))
    served.pod("done", node, phase="Succeeded")
    asked = {"fieldSelector": f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"}
    ((items, _),) = served.client.pages(served.pods(), asked)
    assert [item["metadata"]["name"] for item in items] == ["here"]
    served.node("marked")
    ((nodes, _),) = served.client.pages("/api/v1/nodes", {"labelSelector": f"mark={served.mark}"})
    assert [item["metadata"]["name"] for item in nodes] == [served.named("marked")]


# --- watching -------------------------------------------------------------------------------------------------------


def listen(served: Served, version: str, count: int) -> list[tuple[str, Mapping[str, Any]]]:
    """Changes of the pods from ``version`` on, by as many watches as it takes."""
    found: list[tuple[str, Mapping[str, Any]]] = []
    for _ in range(10):
        seen = served.client.watch(served.pods(), version)
        found, version = [*found, *seen.events], seen.version
        if len(found) >= count:
            break
    return found


def check_a_watch_tells_what_changed_since_the_list(served: Served) -> None:
    served.pod("old", phase="")
    ((_, version),) = served.client.pages(served.pods())
    served.pod("new", phase="")
    served.client.patch(served.pods("new"), {"metadata": {"labels": {"a": "b"}}})
    served.end("old")
    told = [(change, found["metadata"]["name"]) for change, found in listen(served, version, 4)]
    assert told == [("ADDED", "new"), ("MODIFIED", "new"), ("MODIFIED", "old"), ("DELETED", "old")], told


def check_a_quiet_watch_ends_in_time_and_goes_on(served: Served) -> None:
    ((_, version),) = served.client.pages(served.pods())
    quiet = served.client.watch(served.pods(), version)
    assert quiet.events == ()
    served.pod("late", phase="")
    assert [found["metadata"]["name"] for _, found in served.client.watch(served.pods(), quiet.version).events] == [
        "late"
    ]


# --- writing --------------------------------------------------------------------------------------------------------


def check_a_patch_on_an_old_version_is_a_conflict(served: Served) -> None:
    node = served.node("n1")
    path, version = f"/api/v1/nodes/{node['metadata']['name']}", node["metadata"]["resourceVersion"]
    served.send("PATCH", path, {"spec": {"unschedulable": True}})
    with pytest.raises(KubeError) as failed:
        served.client.patch(path, {"metadata": {"resourceVersion": version}, "spec": {"unschedulable": True}})
    assert failed.value.status == 409 and failed.value.reason == "Conflict" and not failed.value.permanent
    newest = served.client.get(path)["metadata"]["resourceVersion"]
    done = served.client.patch(path, {"metadata": {"resourceVersion": newest, "annotations": {"a": "b"}}})
    assert done["metadata"]["annotations"]["a"] == "b" and done["metadata"]["resourceVersion"] != newest


def check_a_patch_that_changes_nothing_leaves_no_trace(served: Served) -> None:
    node = served.node("n1")
    path = f"/api/v1/nodes/{node['metadata']['name']}"
    first = served.client.patch(path, {"spec": {"unschedulable": True}})
    again = served.send("PATCH", path, {"spec": {"unschedulable": True}})
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert _managers(again) == {"watchkeeper"}


def check_whoever_sets_the_cordon_is_written_down(served: Served) -> None:
    path = f"/api/v1/nodes/{served.node('n1')['metadata']['name']}"
    served.send("PATCH", path, {"spec": {"unschedulable": True}})
    assert _managers(served.client.get(path)) == {"kubectl-cordon"}
    served.send("PATCH", path, {"spec": {"unschedulable": False}})
    assert "unschedulable" not in served.client.get(path).get("spec", {})
    served.client.patch(path, {"spec": {"unschedulable": True}})
    assert _managers(served.client.get(path)) == {"watchkeeper"}


def _managers(node: Mapping[str, Any]) -> set[str]:
    held = node["metadata"].get("managedFields", [])
    return {one["manager"] for one in held if "f:unschedulable" in one.get("fieldsV1", {}).get("f:spec", {})}


def check_null_in_a_patch_takes_away(served: Served) -> None:
    path = f"/api/v1/nodes/{served.node('n1', annotations={'a': '1', 'b': '2'})['metadata']['name']}"
    taint = {"key": "watchkeeper/drained", "value": "x", "effect": "NoSchedule"}
    served.client.patch(path, {"metadata": {"annotations": {"a": None}}, "spec": {"taints": [taint]}})
    node = served.client.get(path)
    assert set(node["metadata"]["annotations"]) & {"a", "b"} == {"b"}
    assert [one["key"] for one in node["spec"]["taints"] if "watchkeeper" in one["key"]] == ["watchkeeper/drained"]
    served.client.patch(path, {"spec": {"taints": []}})
    assert not served.client.get(path).get("spec", {}).get("taints")


# --- evicting -------------------------------------------------------------------------------------------------------


def check_an_eviction_ends_the_pod(served: Served) -> None:
    served.pod("gone", served.named("n1"))
    evict(served, "gone")
    assert served.client.get(served.pods("gone"))["metadata"]["deletionTimestamp"]
    served.end("gone")
    with pytest.raises(KubeError) as failed:
        evict(served, "gone")
    assert failed.value.status == 404


def check_a_budget_that_allows_none_refuses_for_now(served: Served) -> None:
    served.pod("kept", served.named("n1"), labels={"job": "kept"})
    served.client.patch(
        served.pods("kept", "status"), {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    )
    budget(served, 0, job="kept")
    with pytest.raises(KubeError, match="disruption budget") as failed:
        evict(served, "kept")
    assert failed.value.status == 429 and not failed.value.permanent
    assert "deletionTimestamp" not in served.client.get(served.pods("kept"))["metadata"]


def check_another_pod_of_the_same_name_is_not_evicted(served: Served) -> None:
    before = served.pod("again", served.named("n1"))
    served.end("again")
    served.pod("again", served.named("n1"))
    with pytest.raises(KubeError) as failed:
        evict(served, "again", before["metadata"]["uid"])
    assert failed.value.status == 409
    assert "deletionTimestamp" not in served.client.get(served.pods("again"))["metadata"]


# --- rights ---------------------------------------------------------------------------------------------------------


def check_strangers_and_those_without_rights_are_told_apart(served: Served) -> None:
    for token, status in (("no-such-token", 401), ("viewer-token", 403)):
        with pytest.raises(KubeError) as failed:
            KubeClient(served.kube.access(token), 10.0).get("/api/v1/nodes")
        assert failed.value.status == status and failed.value.permanent


def check_a_right_can_be_asked_for(served: Served) -> None:
    wanted = {"spec": {"resourceAttributes": {"verb": "create", "resource": "pods", "subresource": "eviction"}}}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", **wanted}
    for token, allowed in ((ADMIN, True), ("viewer-token", False)):
        client = KubeClient(served.kube.access(token), 10.0)
        answer = client.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
        assert answer["status"].get("allowed", False) is allowed


CHECKS: tuple[Callable[[Served], None], ...] = (
    check_a_list_comes_in_pages_and_whole,
    check_an_empty_list_is_empty,
    check_what_is_not_there_is_404,
    check_fields_and_labels_select,
    check_a_watch_tells_what_changed_since_the_list,
    check_a_quiet_watch_ends_in_time_and_goes_on,
    check_a_patch_on_an_old_version_is_a_conflict,
    check_a_patch_that_changes_nothing_leaves_no_trace,
    check_whoever_sets_the_cordon_is_written_down,
    check_null_in_a_patch_takes_away,
    check_an_eviction_ends_the_pod,
    check_a_budget_that_allows_none_refuses_for_now,
    check_another_pod_of_the_same_name_is_not_evicted,
    check_strangers_and_those_without_rights_are_told_apart,
    check_a_right_can_be_asked_for,
)
