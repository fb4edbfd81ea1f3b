"""The manifest grants exactly what the code asks for: counted on the fake while source and hand do all they can."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from backend.act.base import ActionError
from backend.act.kubernetes import KubernetesBackend
from backend.clients.kubernetes import KubeClient
from backend.clients.kubernetes_rights import lacking, manifest
from backend.clock import SystemClock
from backend.commands.kubernetes import kubernetes_manifest
from backend.facts import Verb
from backend.ingest.kubernetes import KubernetesSource
from backend.ingest.podlogs import PodLogs
from tests.contracts.cluster_backend import claimed, order
from tests.services.kube_fake import API, FakeKube
from tests.services.kube_http import fake_kube
from tests.services.kube_world import KubeWorld

ALL = {
    ("jobset.x-k8s.io", "v1alpha2"): {"jobsets": "JobSet"},
    ("kubeflow.org", "v1"): {f"{name}jobs": "Job" for name in ("pytorch", "mpi", "tf", "jax")},
    ("ray.io", "v1"): {"rayjobs": "RayJob"},
    ("batch.volcano.sh", "v1alpha1"): {"jobs": "Job"},
    ("leaderworkerset.x-k8s.io", "v1"): {"leaderworkersets": "LeaderWorkerSet"},
    ("resource.k8s.io", "v1"): {"resourceclaims": "ResourceClaim"},
}
OURS = "our-token"


def granted(act: bool) -> set[tuple[str, str, str]]:
    """(verb, group, resource) of the role in the manifest."""
    documents = list(yaml.safe_load_all(manifest(act)))
    (role,) = (one for one in documents if one["kind"] == "ClusterRole")
    return {
        (verb, group, what)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for what in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.fixture(params=[True, False], ids=["act", "observe"])
def act(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def fake(act: bool) -> Iterator[FakeKube]:
    kube = FakeKube(api={**API, **ALL}, longest_watch_s=0.05)
    kube.tokens[OURS], kube.rules["ours"] = "ours", granted(act)
    with fake_kube(kube) as running:
        yield running


def test_the_manifest_grants_exactly_what_is_asked_for(fake: FakeKube, act: bool) -> None:
    world = KubeWorld(fake, nodes=4)
    job, node = world.busy()
    jobset(world)
    fake.calls.clear()
    client = KubeClient(fake.access(OURS), 5.0)
    source = KubernetesSource(client, SystemClock())
    for _ in range(2):
        assert not source.read(frozenset(), 0.0, 1.0).dropped
    assert PodLogs(client).read(log_of(fake), "", 1000)[0].endswith(b" step 1\n")
    if act:
        everything_the_hand_does(KubernetesBackend(client, SystemClock()), world, job, node)
    assert lacking(client, act) == []
    asked = {call for call in fake.calls if call[2] != "selfsubjectaccessreviews"}
    assert asked == granted(act)


def log_of(fake: FakeKube) -> str:
    """Where the log of some pod stands, which printed one line."""
    namespace, pod = next(key[2:] for key in fake.objects if key[1] == "pods")
    fake.printed[namespace, pod, "t"] = [(1_770_000_000_000_000_000, "step 1")]
    return f"/var/log/pods/{namespace}_{pod}_1/t/0.log"


def jobset(world: KubeWorld) -> None:
    """A pod whose JobSet has used up its restarts."""
    limits = {"containers": [{"name": "t", "image": "t", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}
    labels = {"jobset.sigs.k8s.io/jobset-name": "set"}
    owner = {"kind": "Job", "name": "set-0", "uid": "o", "controller": True}
    world.served.pod("set-0-0", world.free_node(), spec=limits, labels=labels, ownerReferences=[owner])
    path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{world.served.namespace}/jobsets"
    spec = {"failurePolicy": {"maxRestarts": 2}}
    world.served.client.create(path, {"metadata": {"name": "set"}, "spec": spec, "status": {"restarts": 2}})


def everything_the_hand_does(backend: KubernetesBackend, world: KubeWorld, job: str, node: str) -> None:
    backend.inventory()
    for verb in (Verb.DRAIN, Verb.REQUEUE, Verb.RESUME):
        sent = claimed(backend, order(verb, node, job, exclude=(node,)))
        assert backend.perform(sent).changed
        backend.settle(sent)
    with pytest.raises(ActionError, match="maxRestarts"):
        backend.perform(claimed(backend, order(Verb.REQUEUE, "", world.id("set"))))


def test_what_is_lacking_is_found_without_trying_it(fake: FakeKube, act: bool) -> None:
    fake.rules["ours"] -= {("patch", "", "nodes"), ("watch", "", "pods"), ("create", "", "pods/eviction")}
    found = {(verb, right.resource) for right, verb, _ in lacking(KubeClient(fake.access(OURS), 5.0), act)}
    assert found == {("watch", "pods")} | ({("patch", "nodes"), ("create", "pods/eviction")} if act else set())
    assert {call[0] for call in fake.calls} == {"create"}


def test_looking_alone_grants_nothing_that_writes() -> None:
    assert {verb for verb, _, _ in granted(False)} == {"list", "watch", "get"}
    assert {verb for verb, _, _ in granted(True)} == {"get", "list", "watch", "patch", "create"}


@pytest.mark.parametrize("observe", [True, False])
def test_the_command_prints_the_manifest(observe: bool, capsys: pytest.CaptureFixture[str]) -> None:
    arguments: Any = type("Arguments", (), {"observe": observe, "namespace": "ops"})
    assert kubernetes_manifest(arguments) == 0
    printed = list(yaml.safe_load_all(capsys.readouterr().out))
    assert [one["kind"] for one in printed] == ["Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"]
    assert printed[1]["metadata"]["namespace"] == printed[3]["subjects"][0]["namespace"] == "ops"
