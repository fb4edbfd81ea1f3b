"""Source and hand on a real API server, with no more rights than the manifest grants. Run by `make test-kubernetes`."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import yaml

from backend.act.kubernetes import KubernetesBackend
from backend.clients.kubernetes import KubeClient
from backend.clients.kubernetes_rights import lacking, manifest, version
from backend.clock import SystemClock, unix
from backend.facts import Batch, Verb
from backend.ingest.kubernetes import KubernetesSource
from tests.contracts.cluster_backend import claimed, order
from tests.services.kube_fake import ADMIN
from tests.services.kube_real import FOLDER, VIEWER, RealKube, real_kube
from tests.services.kube_world import KubeWorld

pytestmark = pytest.mark.slow
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture(scope="module")
def kube() -> Iterator[RealKube]:
    """The viewer has what the manifest grants."""
    if not os.environ.get(FOLDER):
        pytest.skip(f"{FOLDER} names no folder with a kube-apiserver; to build and run one: make test-kubernetes")
    with real_kube() as running:
        admin = KubeClient(running.access(ADMIN), 10.0)
        for one in yaml.safe_load_all(manifest(act=True)):
            if one["kind"] == "ClusterRole":
                admin.create(f"{RBAC}/clusterroles", one)
            if one["kind"] == "ClusterRoleBinding":
                one["subjects"] = [{"kind": "User", "name": "viewer", "apiGroup": "rbac.authorization.k8s.io"}]
                admin.create(f"{RBAC}/clusterrolebindings", one)
        yield running


@pytest.fixture
def client(kube: RealKube) -> KubeClient:
    return KubeClient(kube.access(VIEWER), 10.0)


def read(source: KubernetesSource) -> Batch:
    end = unix(SystemClock().now())
    return source.read(frozenset(), end - 15, end)


def test_the_manifest_is_enough_and_the_server_says_so(client: KubeClient) -> None:
    assert lacking(client, act=True) == [] and version(client).startswith("v1.")


def test_a_job_is_followed_through_an_eviction_with_the_rights_of_the_manifest(
    kube: RealKube, client: KubeClient
) -> None:
    world = KubeWorld(kube)
    job, node = world.busy()
    source, backend = KubernetesSource(client, SystemClock()), KubernetesBackend(client, SystemClock())
    first = read(source)
    assert not first.dropped and {one.name for one in first.nodes} >= set(world.nodes)
    assert [(one.state, one.nodes) for one in first.attempts if one.job == job] == [("RUNNING", (node,))]
    assert backend.perform(claimed(backend, order(Verb.DRAIN, node))).changed
    assert backend.perform(claimed(backend, order(Verb.REQUEUE, node, job, exclude=(node,)))).changed
    assert world.runs_on(job) not in ((), (node,))
    second = read(source)
    told = [one for one in second.attempts if one.job == job]
    assert max(one.restart for one in told) == 1 or told[-1].state == "RUNNING"
    assert next(one for one in second.nodes if one.name == node).reason_owner == "watchkeeper"
    assert backend.perform(claimed(backend, order(Verb.RESUME, node))).changed
    third = read(source)
    assert not next(one for one in third.nodes if one.name == node).out
    assert source.counts()["relists"] == len(source._every())


def test_events_come_in_both_forms(kube: RealKube, client: KubeClient) -> None:
    world = KubeWorld(kube, nodes=1)
    (name,) = world.nodes
    source = KubernetesSource(client, SystemClock())
    read(source)
    about = {"kind": "Node", "name": name, "apiVersion": "v1", "namespace": "default"}
    old = {"involvedObject": about, "reason": "NodeNotReady", "message": "m", "count": 2, "type": "Normal"}
    old |= {"lastTimestamp": "2026-03-01T12:00:00Z", "source": {"component": "node-controller"}}
    world.served.client.create("/api/v1/namespaces/default/events", {"metadata": {"name": f"old.{name}"}, **old})
    new = {"regarding": about, "reason": "GpuLost", "note": "m", "type": "Warning", "action": "Look"}
    new |= {"eventTime": "2026-03-01T12:00:00.123456Z", "reportingController": "site.io/x", "reportingInstance": "x-1"}
    path = "/apis/events.k8s.io/v1/namespaces/default/events"
    world.served.client.create(path, {"metadata": {"name": f"new.{name}"}, **new})
    events = {one.code: one for one in read(source).events if one.host == name}
    assert set(events) == {"NodeNotReady", "GpuLost"}
    assert events["NodeNotReady"].attrs["count"] == "2" and events["GpuLost"].at % 1 > 0.1
