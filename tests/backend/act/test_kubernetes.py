"""The hand on Kubernetes: the contract on the fake and on a real API server, and who may undo whose hold."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from backend.act.base import ActionError
from backend.clients.kubernetes import KubeClient
from backend.clients.kubernetes_holds import ANNOTATIONS, TAINT
from backend.facts import Verb
from tests.contracts.cluster_backend import CHECKS, World, claimed, drained, order
from tests.contracts.kube_api import budget
from tests.services.kube_fake import FakeKube
from tests.services.kube_http import fake_kube
from tests.services.kube_real import FOLDER, RealKube, real_kube
from tests.services.kube_world import KubeWorld


@pytest.fixture
def fake() -> Iterator[FakeKube]:
    with fake_kube() as running:
        yield running


@pytest.fixture
def world(fake: FakeKube) -> KubeWorld:
    return KubeWorld(fake)


@pytest.fixture(scope="module")
def real() -> Iterator[RealKube]:
    if not os.environ.get(FOLDER):
        pytest.skip(f"{FOLDER} names no folder with a kube-apiserver; to build and run one: make test-kubernetes")
    with real_kube() as running:
        yield running


def patience(check: Callable[[World], None]) -> float:
    return 1.5 if "silence" in check.__name__ else 10.0


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_kubernetes_keeps_the_contract(check: Callable[[World], None], fake: FakeKube) -> None:
    check(KubeWorld(fake, timeout_s=patience(check)))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_it_keeps_the_contract_with_a_taint_alone(check: Callable[[World], None], fake: FakeKube) -> None:
    check(KubeWorld(fake, timeout_s=patience(check), cordon=False))


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_a_real_api_server_keeps_the_contract(check: Callable[[World], None], real: RealKube) -> None:
    check(KubeWorld(real, timeout_s=patience(check)))


# --- our mark -------------------------------------------------------------------------------------------------------


def test_a_cordon_says_who_why_and_for_which_order_and_leaves_nothing_behind(world: KubeWorld) -> None:
    path = f"/api/v1/nodes/{world.free[-1]}"
    world.served.send("PATCH", path, {"metadata": {"annotations": {"site": "a"}}})
    sent = drained(world, world.free_node())
    node = world.served.client.get(path)
    notes = node["metadata"]["annotations"]
    assert node["spec"]["unschedulable"] is True
    assert [(one["key"], one["value"], one["effect"]) for one in node["spec"]["taints"]] == [
        (TAINT, "inc-812", "NoSchedule")
    ]
    assert notes["watchkeeper/reason"] == sent.reason and notes["watchkeeper/order"] == str(sent.id)
    backend = world.backend()
    assert backend.perform(claimed(backend, order(Verb.RESUME, sent.node))).changed
    node = world.served.client.get(path)
    assert node["metadata"]["annotations"] == {"site": "a"} and node["spec"] == {}
    assert not set(ANNOTATIONS) & set(node["metadata"]["annotations"])


def test_a_change_between_our_read_and_our_write_is_judged_anew(
    world: KubeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubernetes has a conditional update, so there is no window in which another's cordon could be lost."""
    node = world.free_node()
    backend = world.backend()
    sent = claimed(backend, order(Verb.DRAIN, node))
    patch = KubeClient.patch

    def meddled(self, path, body):
        monkeypatch.setattr(KubeClient, "patch", patch)
        world.drain_by_other(node, "disk swap")
        return patch(self, path, body)

    monkeypatch.setattr(KubeClient, "patch", meddled)
    with pytest.raises(ActionError, match="disk swap") as refused:
        backend.perform(sent)
    assert refused.value.permanent
    assert not set(ANNOTATIONS) & set(world.served.client.get(f"/api/v1/nodes/{node}")["metadata"]["annotations"])


def test_a_plain_kubectl_cordon_is_somebody_elses(world: KubeWorld) -> None:
    node = world.free_node()
    world.served.send("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
    read = world.backend().read(node)
    assert read.out and read.reason_owner == "kubectl-cordon"
    with pytest.raises(ActionError, match="kubectl-cordon"):
        world.backend().perform(claimed(world.backend(), order(Verb.DRAIN, node)))


def test_somebody_who_cordons_anew_after_lifting_ours_keeps_his(world: KubeWorld) -> None:
    node = drained(world, world.free_node()).node
    path = f"/api/v1/nodes/{node}"
    world.served.send("PATCH", path, {"spec": {"unschedulable": False}})
    world.served.send("PATCH", path, {"spec": {"unschedulable": True}})
    backend = world.backend()
    outcome = backend.perform(claimed(backend, order(Verb.RESUME, node)))
    assert outcome.changed and "that stays" in outcome.text
    after = world.served.client.get(path)
    assert after["spec"] == {"unschedulable": True} and backend.read(node).reason_owner == "kubectl-cordon"


def test_with_a_taint_alone_a_later_kubectl_cordon_is_seen_and_kept(fake: FakeKube) -> None:
    world = KubeWorld(fake, cordon=False)
    node = drained(world, world.free_node()).node
    path = f"/api/v1/nodes/{node}"
    assert "unschedulable" not in world.served.client.get(path)["spec"]
    world.served.send("PATCH", path, {"spec": {"unschedulable": True}})
    backend = world.backend()
    assert backend.read(node).reason_owner == "kubectl-cordon"
    backend.perform(claimed(backend, order(Verb.RESUME, node)))
    assert world.served.client.get(path)["spec"] == {"unschedulable": True}


def test_a_note_that_an_earlier_cordon_left_behind_holds_nothing(world: KubeWorld) -> None:
    node = world.free_node()
    world.drain_by_other(node, "old story")
    world.served.send("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": False}})
    assert not world.backend().read(node).out
    drained(world, node)
    backend = world.backend()
    assert backend.read(node).reason_owner == "watchkeeper"
    assert backend.perform(claimed(backend, order(Verb.RESUME, node))).changed
    assert not backend.read(node).out


def test_taints_that_say_what_a_node_is_for_survive_a_cordon_and_its_undoing(world: KubeWorld) -> None:
    node = world.free_node()
    path = f"/api/v1/nodes/{node}"
    taints = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    world.served.send("PATCH", path, {"spec": {"taints": taints}})
    assert not world.backend().read(node).out
    drained(world, node)
    backend = world.backend()
    backend.perform(claimed(backend, order(Verb.RESUME, node)))
    assert world.served.client.get(path)["spec"]["taints"] == taints


# --- requeue --------------------------------------------------------------------------------------------------------


def test_a_disruption_budget_that_says_not_now_is_an_error_that_may_pass(world: KubeWorld) -> None:
    job, node = world.busy()
    budget(world.served, 0, **{"job-name": job.partition(".")[2]})
    backend = world.backend()
    sent = claimed(backend, order(Verb.REQUEUE, node, job))
    with pytest.raises(ActionError, match="disruption budget") as refused:
        backend.perform(sent)
    assert not refused.value.permanent and world.runs_on(job) == (node,)
    assert backend.settle(sent) is None


def test_a_job_whose_controller_would_give_up_is_not_evicted(world: KubeWorld) -> None:
    job, node = world.busy()
    name = job.partition(".")[2]
    path = f"/apis/batch/v1/namespaces/{world.served.namespace}/jobs/{name}"
    world.served.client.patch(path, {"spec": {"backoffLimit": 0}})
    backend = world.backend()
    with pytest.raises(ActionError, match="backoffLimit") as refused:
        backend.perform(claimed(backend, order(Verb.REQUEUE, node, job)))
    assert refused.value.permanent and world.runs_on(job) == (node,)
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    world.served.client.patch(path, {"spec": {"podFailurePolicy": {"rules": [rule]}}})
    assert backend.perform(claimed(backend, order(Verb.REQUEUE, node, job))).changed


def test_a_pod_without_a_controller_is_never_evicted(world: KubeWorld) -> None:
    node = world.free_node()
    limits = {"resources": {"limits": {"nvidia.com/gpu": "8"}}}
    world.served.pod("alone", node, spec={"containers": [{"name": "a", "image": "a", **limits}]})
    backend = world.backend()
    assert backend.read(node).jobs == (world.id("alone"),)
    with pytest.raises(ActionError, match="no controller") as refused:
        backend.perform(claimed(backend, order(Verb.REQUEUE, node, world.id("alone"))))
    assert refused.value.permanent


def test_only_the_pods_on_the_node_are_evicted_and_the_rest_left_alone(world: KubeWorld) -> None:
    job, node = world.busy()
    other = world.free_node()
    world.start(job.partition(".")[2], other)
    backend = world.backend()
    outcome = backend.perform(claimed(backend, order(Verb.REQUEUE, node, job, exclude=(node,))))
    assert "1 pod evicted" in outcome.text and "may get" in outcome.text
    going = [pod["spec"]["nodeName"] for pod in world.pods(job) if "deletionTimestamp" in pod["metadata"]]
    assert going == [node]


def test_pods_that_run_slurms_daemons_are_not_work_of_kubernetes(world: KubeWorld) -> None:
    node = world.free_node()
    limits = {"resources": {"limits": {"nvidia.com/gpu": "8"}}}
    labels = {"app.kubernetes.io/name": "slurmd", "app.kubernetes.io/component": "worker"}
    world.served.pod("slurm-0", node, spec={"containers": [{"name": "a", "image": "a", **limits}]}, labels=labels)
    assert world.backend().read(node).jobs == ()
