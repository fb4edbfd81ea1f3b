"""Kubernetes as a source, read from the fake API server: nodes, attempts, events, and what it must survive."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from backend.clients.kubernetes import KubeClient
from backend.clock import ManualClock, unix
from backend.facts import AttemptFacts, Batch, NodeFacts
from backend.ingest.base import SourceError
from backend.ingest.kubernetes import KubernetesSource
from tests.conftest import NOW
from tests.services.kube_fake import API, FakeKube
from tests.services.kube_http import fake_kube
from tests.services.kube_world import KubeWorld

START = unix(NOW)
CRDS = {
    ("jobset.x-k8s.io", "v1alpha2"): {"jobsets": "JobSet"},
    ("kubeflow.org", "v1"): {"pytorchjobs": "PyTorchJob", "mpijobs": "MPIJob"},
    ("resource.k8s.io", "v1"): {"resourceclaims": "ResourceClaim"},
}
LIMITS = {"containers": [{"name": "train", "image": "t", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}


@pytest.fixture
def fake() -> Iterator[FakeKube]:
    with fake_kube(FakeKube(api={**API, **CRDS}, longest_watch_s=0.05)) as running:
        yield running


@pytest.fixture
def world(fake: FakeKube) -> KubeWorld:
    return KubeWorld(fake, nodes=4)


class Reader:
    """A source, its clock, and the marks that a store would keep."""

    def __init__(self, fake: FakeKube, **more: Any) -> None:
        self.fake, self.more = fake, more
        self.clock = ManualClock(NOW)
        self.marks: dict[str, str] = {}
        self.restart()

    def restart(self) -> None:
        """As after a restart of Watchkeeper."""
        self.source = KubernetesSource(KubeClient(self.fake.access(), 5.0), self.clock, **self.more)
        self.source.resume(self.marks)

    def read(self, taken: bool = True) -> Batch:
        self.clock.set(self.clock.now() + timedelta(seconds=15))
        end = unix(self.clock.now())
        batch = self.source.read(frozenset(), end - 15, end)
        if not taken:
            self.source.resume(self.marks)
            return batch
        for name, mark in batch.marks.items():
            if mark is None:
                self.marks.pop(name, None)
            else:
                self.marks[name] = mark
        return batch


def node(batch: Batch, name: str) -> NodeFacts:
    return next(one for one in batch.nodes if one.name == name)


def attempts(batch: Batch, job: str) -> list[AttemptFacts]:
    return sorted((one for one in batch.attempts if one.job == job), key=lambda one: one.restart)


# --- nodes ----------------------------------------------------------------------------------------------------------


def test_nodes_come_with_their_gpus_state_and_work(fake: FakeKube, world: KubeWorld) -> None:
    reader = Reader(fake)
    job, busy = world.busy()
    batch = reader.read()
    assert len(batch.nodes) == 4 and batch.source == "kubernetes"
    at_work, free = node(batch, busy), node(batch, world.free[0])
    assert (at_work.state, at_work.jobs, at_work.expected_gpus) == ("allocated", (job,), 8)
    assert (free.state, free.jobs, free.out, free.read_at > 0) == ("idle", (), False, True)


def test_a_cordon_is_seen_at_the_next_read_with_its_owner(fake: FakeKube, world: KubeWorld) -> None:
    reader = Reader(fake)
    reader.read()
    name = world.free[0]
    world.drain_by_other(name, "disk swap")
    found = node(reader.read(), name)
    assert found.drained and (found.reason, found.reason_owner) == ("disk swap", "someone")


def test_a_node_that_went_is_no_longer_told(fake: FakeKube, world: KubeWorld) -> None:
    reader = Reader(fake)
    assert len(reader.read().nodes) == 4
    world.served.send("DELETE", f"/api/v1/nodes/{world.free[0]}")
    assert len(reader.read().nodes) == 3


def test_a_server_that_forgot_our_version_is_listed_anew(fake: FakeKube, world: KubeWorld) -> None:
    reader = Reader(fake)
    reader.read()
    world.drain_by_other(world.free[0], "disk swap")
    fake.compact()
    assert node(reader.read(), world.free[0]).out
    assert reader.source.counts()["relists"] > 5


def test_a_new_boot_is_told_once_and_after_a_restart_too(fake: FakeKube, world: KubeWorld) -> None:
    reader, name = Reader(fake), world.free[0]
    status = f"/api/v1/nodes/{name}/status"
    for boot in ("a", "b", "c"):
        told = {"status": {"nodeInfo": {"bootID": boot, "kernelVersion": f"6.1-{boot}"}}}
        world.served.client.patch(status, told)
        batch = reader.read()
        boots = [event for event in batch.events if event.namespace == "boot"]
        assert [event.host for event in boots] == ([] if boot == "a" else [name])
        assert [(v.item, v.value) for v in batch.versions] == [("kernel", f"6.1-{boot}")]
        assert not reader.read().events
        if boot == "b":
            reader.restart()


def test_announced_work_is_a_window_that_ends_when_it_is_called_off(fake: FakeKube, world: KubeWorld) -> None:
    reader, name = Reader(fake), world.free[0]
    path = f"/api/v1/nodes/{name}"
    key = "cloud.google.com/scheduled-maintenance-time"
    world.served.send("PATCH", path, {"metadata": {"labels": {key: str(int(START) + 7200)}}})
    (window,) = reader.read().maintenances
    assert (window.nodes, window.start, window.end) == ((name,), START + 7200, None)
    assert not reader.read().maintenances
    world.served.send("PATCH", path, {"metadata": {"labels": {key: None}}})
    (over,) = reader.read().maintenances
    assert over.name == window.name and over.end is not None


def test_what_a_job_runs_is_told_for_each_of_its_nodes(fake: FakeKube, world: KubeWorld) -> None:
    job, busy = world.busy()
    reader = Reader(fake)
    (found,) = (one for one in reader.read().versions if one.item == "image")
    assert (found.node, found.value, found.job) == (busy, "train", job)
    assert not reader.read().versions
    (pod,) = world.pods(job)
    ran = {"name": "train", "imageID": "docker.io/train@sha256:abc", "restartCount": 0}
    world.served.client.patch(
        world.served.pods(pod["metadata"]["name"], "status"), {"status": {"containerStatuses": [ran]}}
    )
    assert [one.value for one in reader.read().versions] == ["train@sha256:abc"]


# --- events ---------------------------------------------------------------------------------------------------------


def say(world: KubeWorld, reason: str, about: dict[str, Any], count: int = 1, **more: Any) -> dict[str, Any]:
    body = {"metadata": {"generateName": "e-"}, "involvedObject": about, "reason": reason, "count": count}
    body |= {"message": f"{reason} happened", "type": "Warning", "lastTimestamp": "2026-03-01T11:59:00Z", **more}
    space = about.get("namespace", "default")
    return dict(world.served.client.create(f"/api/v1/namespaces/{space}/events", body))


def test_events_of_nodes_and_of_gpu_pods_are_told_once_for_each_count(fake: FakeKube, world: KubeWorld) -> None:
    reader = Reader(fake)
    job, busy = world.busy()
    (pod,) = world.pods(job)
    about = {"kind": "Pod", "namespace": world.served.namespace, "uid": pod["metadata"]["uid"], "name": "x"}
    first = say(world, "BackOff", about)
    say(world, "NodeNotReady", {"kind": "Node", "name": busy}, type="Normal")
    say(world, "FailedMount", {**about, "uid": "not-ours"})
    say(world, "Whatever", {"kind": "Node", "name": "nobody"})
    told = {(e.code, e.host, e.job, e.namespace) for e in reader.read().events}
    assert told == {("BackOff", busy, job, "k8s"), ("NodeNotReady", busy, "", "k8s")}
    assert not reader.read().events
    path = f"/api/v1/namespaces/{world.served.namespace}/events/{first['metadata']['name']}"
    world.served.client.patch(path, {"count": 4})
    (again,) = reader.read().events
    assert again.attrs["count"] == "4" and again.at == unix(NOW) - 60


def test_a_rebooted_event_and_the_new_boot_id_are_one_boot(fake: FakeKube, world: KubeWorld) -> None:
    reader, name = Reader(fake), world.free[0]
    ids = ("11111111-2222-3333-4444-555555555555", "66666666-2222-3333-4444-555555555555")
    world.served.client.patch(f"/api/v1/nodes/{name}/status", {"status": {"nodeInfo": {"bootID": ids[0]}}})
    reader.read()
    world.served.client.patch(f"/api/v1/nodes/{name}/status", {"status": {"nodeInfo": {"bootID": ids[1]}}})
    words = f"Node {name} has been rebooted, boot id: {ids[1]}"
    say(world, "Rebooted", {"kind": "Node", "name": name}, message=words)
    boots = [event for event in reader.read().events if event.namespace == "boot"]
    assert len({event.dedupe for event in boots}) == 1 and boots[0].host == name


def test_a_condition_that_turned_bad_is_an_event_and_one_that_is_well_is_none(fake: FakeKube, world: KubeWorld) -> None:
    reader, name = Reader(fake), world.free[0]
    since = "2026-03-01T11:50:00Z"
    bad = [("KernelDeadlock", "True"), ("AcceleratedHardwareReady", "False"), ("GpuXidError", "True")]
    well = [("Ready", "True"), ("ReadonlyFilesystem", "False"), ("NetworkingReady", "True"), ("XIDErrors", "Unknown")]
    listed = [{"type": t, "status": s, "message": "m", "lastTransitionTime": since} for t, s in bad + well]
    world.served.client.patch(f"/api/v1/nodes/{name}/status", {"status": {"conditions": listed}})
    events = reader.read().events
    assert {(event.code, event.at) for event in events} == {(t, unix(NOW) - 600) for t, _ in bad}
    assert not reader.read().events


# --- attempts -------------------------------------------------------------------------------------------------------


def test_a_job_that_restarts_is_two_attempts_with_how_the_first_one_ended(fake: FakeKube, world: KubeWorld) -> None:
    reader = Reader(fake)
    job, _ = world.busy()
    (first,) = attempts(reader.read(), job)
    assert (first.restart, first.state, first.gpus_per_node, first.gpus[0][1]) == (0, "RUNNING", 8, tuple(range(8)))
    fail(world, job, 139)
    (ended,) = attempts(reader.read(), job)
    assert (ended.restart, ended.state, ended.signal) == (0, "FAILED", 11)
    world.start(job.partition(".")[2], world.free_node())
    second = attempts(reader.read(), job)[-1]
    assert (second.restart, second.state, second.unit) == (1, "RUNNING", first.unit)
    assert second.nodes != first.nodes


def fail(world: KubeWorld, job: str, code: int, reason: str = "Error") -> None:
    (pod,) = (one for one in world.pods(job) if one["status"].get("phase") == "Running")
    over = {"exitCode": code, "reason": reason, "finishedAt": "2026-03-01T12:00:10Z"}
    status = {"phase": "Failed", "containerStatuses": [{"name": "train", "state": {"terminated": over}}]}
    world.served.client.patch(world.served.pods(pod["metadata"]["name"], "status"), {"status": status})
    name = job.partition(".")[2]
    path = f"/apis/batch/v1/namespaces/{world.served.namespace}/jobs/{name}/status"
    failed = world.jobs[name].setdefault("failed", 0) + 1
    world.jobs[name]["failed"] = failed
    world.served.client.patch(path, {"status": {"failed": failed}})


def test_out_of_memory_is_told_as_such(fake: FakeKube, world: KubeWorld) -> None:
    reader = Reader(fake)
    job, busy = world.busy()
    reader.read()
    fail(world, job, 137, "OOMKilled")
    (ended,) = attempts(reader.read(), job)
    assert (ended.state, ended.signal, ended.exit_code) == ("OUT_OF_MEMORY", 9, 137)
    assert busy in ended.reason and "OOMKilled" in ended.reason


def test_a_job_that_is_deleted_while_it_runs_was_cancelled(fake: FakeKube, world: KubeWorld) -> None:
    reader = Reader(fake)
    job, _ = world.busy()
    reader.read()
    name = job.partition(".")[2]
    world.served.send("DELETE", f"/apis/batch/v1/namespaces/{world.served.namespace}/jobs/{name}")
    for pod in world.pods(job):
        world.served.end(pod["metadata"]["name"])
    (ended,) = attempts(reader.read(), job)
    assert (ended.state, ended.restart) == ("CANCELLED", 0) and ended.end is not None
    assert not attempts(reader.read(), job) and not [mark for mark in reader.marks if mark.startswith("job:")]


def test_a_job_that_went_while_nobody_looked_is_ended_after_the_restart(fake: FakeKube, world: KubeWorld) -> None:
    reader = Reader(fake)
    job, _ = world.busy()
    reader.read()
    name = job.partition(".")[2]
    world.served.send("DELETE", f"/apis/batch/v1/namespaces/{world.served.namespace}/jobs/{name}")
    world.served.end(world.pods(job)[0]["metadata"]["name"])
    reader.restart()
    (ended,) = attempts(reader.read(), job)
    assert ended.state == "CANCELLED" and ended.start is not None


def test_an_evicted_job_waits_and_runs_again_as_the_next_attempt(fake: FakeKube, world: KubeWorld) -> None:
    reader = Reader(fake)
    job, busy = world.busy()
    reader.read()
    world.requeue_by_other(job)
    told = attempts(reader.read(), job)
    assert [one.restart for one in told][-1] == 0 or told[-1].restart == 1
    last = attempts(reader.read(), job)[-1]
    assert last.nodes != (busy,) and last.state == "RUNNING"


def jobset(world: KubeWorld, name: str, restarts: int) -> None:
    path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{world.served.namespace}/jobsets"
    world.served.client.create(path, {"metadata": {"name": name}, "spec": {}, "status": {"restarts": restarts}})


def test_the_count_of_a_jobset_is_the_number_of_the_attempt(fake: FakeKube, world: KubeWorld) -> None:
    reader = Reader(fake)
    jobset(world, "llama", 0)
    path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{world.served.namespace}/jobsets/llama"
    for attempt in range(3):
        for rank in range(2):
            world.served.pod(
                f"llama-{attempt}-{rank}",
                world.nodes[rank],
                spec=LIMITS,
                labels={
                    "jobset.sigs.k8s.io/jobset-name": "llama",
                    "jobset.sigs.k8s.io/replicatedjob-name": "workers",
                    "jobset.sigs.k8s.io/restart-attempt": str(attempt),
                    "batch.kubernetes.io/job-completion-index": str(rank),
                },
                ownerReferences=[{"kind": "Job", "name": "llama-workers-0", "uid": f"j{attempt}", "controller": True}],
            )
        world.served.client.patch(f"{path}/status", {"status": {"restarts": attempt}})
        last = attempts(reader.read(), world.id("llama"))[-1]
        assert (last.restart, last.state) == (attempt, "RUNNING")
        assert last.nodes == tuple(sorted(world.nodes[:2])) and len(last.gpus) == 2
        assert dict(last.roles) == dict.fromkeys(world.nodes[:2], "workers")
        for rank in range(2):
            world.served.end(f"llama-{attempt}-{rank}")


def test_a_claim_says_which_gpus(fake: FakeKube, world: KubeWorld) -> None:
    path = f"/apis/resource.k8s.io/v1/namespaces/{world.served.namespace}/resourceclaims"
    results = [{"driver": "gpu.nvidia.com", "pool": world.nodes[0], "device": f"gpu-{i}"} for i in (2, 5)]
    given = {"allocation": {"devices": {"results": results}}}
    world.served.client.create(path, {"metadata": {"name": "c1"}, "status": given})
    spec = {"containers": [{"name": "a", "image": "a"}], "resourceClaims": [{"name": "g", "resourceClaimName": "c1"}]}
    world.served.pod("drawn", world.nodes[0], spec=spec)
    (one,) = attempts(Reader(fake).read(), world.id("drawn"))
    assert one.gpus == ((world.nodes[0], (2, 5)),)


def test_a_job_that_waits_for_its_turn_is_pending_before_it_has_pods(fake: FakeKube, world: KubeWorld) -> None:
    path = f"/apis/batch/v1/namespaces/{world.served.namespace}/jobs"
    spec = {"suspend": True, "template": {"spec": {"restartPolicy": "Never", **LIMITS}}}
    world.served.client.create(path, {"metadata": {"name": "later"}, "spec": spec})
    (one,) = attempts(Reader(fake).read(), world.id("later"))
    assert (one.state, one.nodes, one.start) == ("PENDING", (), None) and one.submit is not None


# --- what it must survive -------------------------------------------------------------------------------------------


def test_a_batch_that_was_not_taken_is_told_again(fake: FakeKube, world: KubeWorld) -> None:
    reader = Reader(fake)
    job, _ = world.busy()
    reader.read()
    fail(world, job, 1)
    say(world, "Oops", {"kind": "Node", "name": world.free[0]})
    lost = reader.read(taken=False)
    again = reader.read()
    assert {e.dedupe for e in again.events} == {e.dedupe for e in lost.events} != set()
    assert [(a.state, a.restart) for a in attempts(again, job)] == [("FAILED", 0)]


def test_a_restart_of_watchkeeper_counts_no_attempt_twice(fake: FakeKube, world: KubeWorld) -> None:
    reader = Reader(fake)
    job, _ = world.busy()
    before = attempts(reader.read(), job)
    reader.restart()
    after = attempts(reader.read(), job)
    assert [(a.restart, a.start) for a in before] == [(a.restart, a.start) for a in after]


def test_what_we_may_not_list_is_counted_and_the_rest_still_read(fake: FakeKube, world: KubeWorld) -> None:
    fake.tokens["poor-token"] = "poor"
    fake.rules["poor"] = {(verb, "", what) for verb in ("list", "watch") for what in ("nodes", "pods")}
    source = KubernetesSource(KubeClient(fake.access("poor-token"), 5.0), ManualClock(NOW))
    batch = source.read(frozenset(), START - 15, START)
    assert len(batch.nodes) == 4 and batch.dropped["may not list events"] == 2


@pytest.mark.parametrize("what", ["nodes", "pods"])
def test_without_nodes_or_pods_nothing_works_and_it_says_the_fix(fake: FakeKube, world: KubeWorld, what: str) -> None:
    fake.tokens["poor-token"] = "poor"
    fake.rules["poor"] = {("list", "", {"nodes": "pods", "pods": "nodes"}[what])}
    source = KubernetesSource(KubeClient(fake.access("poor-token"), 5.0), ManualClock(NOW))
    with pytest.raises(SourceError, match="kubernetes-manifest") as failed:
        source.read(frozenset(), START - 15, START)
    assert failed.value.permanent


def test_silence_is_an_error_that_may_pass(fake: FakeKube, world: KubeWorld) -> None:
    source = KubernetesSource(KubeClient(fake.access(), 0.5), ManualClock(NOW))
    with fake.silent(), pytest.raises(SourceError, match="no answer") as failed:
        source.read(frozenset(), START - 15, START)
    assert not failed.value.permanent
    assert len(source.read(frozenset(), START - 15, START).nodes) == 4


def test_only_the_namespaces_that_are_named_are_looked_at(fake: FakeKube, world: KubeWorld) -> None:
    job, _ = world.busy()
    other = KubeWorld(fake, nodes=1)
    hidden, _ = other.busy()
    batch = Reader(fake, namespaces=(world.served.namespace,)).read()
    assert {one.job for one in batch.attempts} == {job} and len(batch.nodes) == 5
    assert hidden not in {one.job for one in batch.attempts}


def test_odd_objects_are_counted_and_everything_around_them_is_read(fake: FakeKube, world: KubeWorld) -> None:
    job, _ = world.busy()
    odd = {"metadata": {"name": "bad name!", "uid": "odd", "resourceVersion": "1"}, "spec": [], "status": "?"}
    fake.objects[("", "nodes", "", "odd")] = odd
    fake.objects[("", "pods", "x", "odd")] = {"metadata": {"uid": "odd", "labels": [1]}, "spec": 7}
    fake.objects[("batch", "jobs", "x", "odd")] = {"metadata": {"name": 3}}
    batch = Reader(fake).read()
    assert len(batch.nodes) == 4 and {one.job for one in batch.attempts} == {job}
    assert batch.dropped["nodes whose name no host can have"] == 1 and batch.dropped["pods without a name"] == 1
    assert batch.dropped["no uid"] == 1
