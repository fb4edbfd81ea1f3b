"""Nodes, pods and their owners: what each convention means, and that nothing odd in JSON ever raises."""

from __future__ import annotations

from typing import Any

import pytest

from backend.clients.kubernetes_conventions import conventions
from backend.clients.kubernetes_holds import ANNOTATIONS, held
from backend.clients.kubernetes_nodes import NodeRecord, moment, node_of, with_work
from backend.clients.kubernetes_pods import Pod, pod_of
from backend.clients.kubernetes_work import verdict_of

KNOWN = conventions()
NOW = 1_800_000_000.0
READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-03-01T12:00:00Z"}


def a_node(
    labels: dict[str, str] | None = None,
    notes: dict[str, str] | None = None,
    spec: dict[str, Any] | None = None,
    conditions: list[dict[str, str]] | None = None,
    capacity: dict[str, str] | None = None,
) -> NodeRecord:
    meta = {"name": "gpu-1", "uid": "u", "labels": labels or {}, "annotations": notes or {}}
    status = {"conditions": [READY, *(conditions or [])], "capacity": capacity or {"nvidia.com/gpu": "8"}}
    found = node_of({"metadata": meta, "spec": spec or {}, "status": status}, KNOWN, NOW)
    assert found is not None
    return found


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> dict[str, Any]:
    return {"taints": [{"key": key, "value": value, "effect": effect}]}


# --- who holds a node -----------------------------------------------------------------------------------------------

CORDON = {"unschedulable": True}
HOLDS: list[tuple[str, dict[str, Any], str, str]] = [
    (
        "nvsentinel",
        {
            "notes": {"quarantineHealthEventIsCordoned": "True"},
            "labels": {"k8saas.nvidia.com/cordon-by": "NVSentinel", "k8saas.nvidia.com/cordon-reason": "GpuMemWatch"},
            "spec": CORDON,
        },
        "nvsentinel",
        "GpuMemWatch",
    ),
    ("the autoscaler", {"spec": taint("ToBeDeletedByClusterAutoscaler", "17")}, "cluster-autoscaler", "removing"),
    ("karpenter", {"spec": taint("karpenter.sh/disrupted")}, "karpenter", "replacing"),
    (
        "a driver upgrade",
        {"labels": {"nvidia.com/gpu-driver-upgrade-state": "drain-required"}, "spec": CORDON},
        "gpu-operator",
        "driver upgrade",
    ),
    (
        "kured",
        {"notes": {"weave.works/kured-reboot-in-progress": "2026-03-01T12:00:00Z"}, "spec": CORDON},
        "kured",
        "rebooting",
    ),
    (
        "sunk",
        {"conditions": [{"type": "SlurmDrain", "status": "True", "message": "sunk:verify-undrain gpu"}]},
        "sunk",
        "sunk:verify-undrain gpu",
    ),
    (
        "soperator",
        {"conditions": [{"type": "SlurmNodeReboot", "status": "True", "reason": "NodeNeedReboot"}]},
        "soperator",
        "NodeNeedReboot",
    ),
    (
        "hyperpod",
        {
            "labels": {
                "sagemaker.amazonaws.com/node-health-status": "UnschedulablePendingReboot",
                "sagemaker.amazonaws.com/fault-reason": "NvidiaErrorReboot",
            }
        },
        "hyperpod",
        "NvidiaErrorReboot",
    ),
    (
        "slinky's note",
        {"notes": {"nodeset.slinky.slurm.net/node-cordon-reason": "ECC errors"}, "spec": CORDON},
        "someone",
        "ECC errors",
    ),
    (
        "a site's own words",
        {"notes": {"ops.example.com/cordon-reason": "fan", "ops.example.com/cordoned-by": "alice"}, "spec": CORDON},
        "alice",
        "fan",
    ),
    ("a taint nobody listed", {"spec": taint("example.com/gpu-unhealthy", "xid")}, "example.com", "gpu-unhealthy=xid"),
    ("an eviction taint", {"spec": taint("site/maintenance", effect="NoExecute")}, "site", "maintenance"),
    ("aws", {"spec": taint("aws-node-termination-handler/spot-itn", "1")}, "aws-node-termination-handler", "AWS"),
]


@pytest.mark.parametrize(("who", "node", "owner", "reason"), HOLDS, ids=[row[0] for row in HOLDS])
def test_each_controllers_hold_has_its_owner_and_reason(
    who: str, node: dict[str, Any], owner: str, reason: str
) -> None:
    facts = a_node(**node).facts
    assert facts.out and "DRAIN" in facts.flags
    assert facts.reason_owner == owner and reason in facts.reason


FREE: list[tuple[str, dict[str, Any]]] = [
    ("what the node is for", {"spec": taint("nvidia.com/gpu", "present")}),
    ("a pool", {"spec": taint("dedicated", "training")}),
    ("spot", {"spec": taint("kubernetes.azure.com/scalesetpriority", "spot")}),
    ("a preference", {"spec": taint("DeletionCandidateOfClusterAutoscaler", "1", "PreferNoSchedule")}),
    ("a finished upgrade", {"labels": {"nvidia.com/gpu-driver-upgrade-state": "upgrade-done"}}),
    ("an upgrade that waits", {"labels": {"nvidia.com/gpu-driver-upgrade-state": "upgrade-required"}}),
    ("a note without a cordon", {"notes": {"nodeset.slinky.slurm.net/node-cordon-reason": "old"}}),
    ("slurm at work", {"conditions": [{"type": "SlurmRunning", "status": "True"}]}),
    ("a hold that ended", {"conditions": [{"type": "SlurmDrain", "status": "False"}]}),
    ("nvsentinel in dry run", {"notes": {"quarantineHealthEvent": "{}", "quarantineHealthEventAppliedTaints": "[]"}}),
    ("healthy on hyperpod", {"labels": {"sagemaker.amazonaws.com/node-health-status": "Schedulable"}}),
]


@pytest.mark.parametrize(("what", "node"), FREE, ids=[row[0] for row in FREE])
def test_what_takes_no_node_out_leaves_it_free(what: str, node: dict[str, Any]) -> None:
    facts = a_node(**node).facts
    assert not facts.out and facts.reason_owner == ""


def test_the_program_that_cordoned_is_read_from_managed_fields() -> None:
    fields: dict[str, Any] = {"f:spec": {"f:unschedulable": {}}}
    entry = {"manager": "fleet-robot", "operation": "Update", "time": "2026-03-01T12:00:00Z", "fieldsV1": fields}
    node = {"metadata": {"name": "n", "managedFields": [{"manager": "kubelet", "fieldsV1": {}}, entry]}, "spec": CORDON}
    (hold,) = held(node, KNOWN).others
    assert (hold.owner, hold.reason) == ("fleet-robot", "cordoned with fleet-robot at 2026-03-01T12:00:00Z")


def test_our_reason_without_our_taint_and_cordon_holds_nothing() -> None:
    assert not a_node(notes=dict.fromkeys(ANNOTATIONS, "[watchkeeper] x inc=1")).facts.out


def test_our_taint_whose_note_was_taken_off_is_still_ours() -> None:
    found = a_node(spec=taint("watchkeeper/drained", "inc-812"))
    assert found.facts.out and found.facts.reason_owner == "watchkeeper" and "inc=812" in found.facts.reason


CONDITIONS = [("KernelDeadlock", "True", True), ("KernelDeadlock", "False", False), ("Ready", "Unknown", False)]
CONDITIONS += [
    ("NetworkUnavailable", "True", True),
    ("NVLinkStatusInactive", "True", True),
    ("KernelReady", "False", True),
]
CONDITIONS += [("EtcdIsVoter", "True", False), ("GpuUnhealthy", "True", True), ("GpuHealthy", "True", False)]
CONDITIONS += [("XIDErrors", "True", True), ("SlurmRunning", "False", False), ("StorageReady", "True", False)]


@pytest.mark.parametrize(("condition", "status", "bad"), CONDITIONS)
def test_conditions_are_bad_news_by_their_name_and_status(condition: str, status: str, bad: bool) -> None:
    assert KNOWN.is_problem(condition, status) is bad


# --- state, place, versions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "state", "flag"), [("False", "down", ""), ("Unknown", "down", "NOT_RESPONDING"), ("", "unknown", "")]
)
def test_a_node_is_up_only_where_its_kubelet_says_so(status: str, state: str, flag: str) -> None:
    ready = {"type": "Ready", "status": status, "message": "PLEG is not healthy"}
    found = node_of({"metadata": {"name": "n"}, "status": {"conditions": [ready]}}, KNOWN, NOW)
    assert found is not None and found.facts.state == state and set(found.facts.flags) == ({flag} - {""})
    assert found.facts.reason_owner == "" and (not found.facts.reason or found.facts.reason.startswith("Not re"))


LABELS: list[tuple[dict[str, str], dict[str, str]]] = [
    (
        {
            "nvidia.com/gpu.product": "NVIDIA-GB200",
            "nvidia.com/gpu.clique": "uuid.7",
            "node.coreweave.cloud/rack": "r9",
        },
        {"model": "NVIDIA-GB200", "clique": "uuid.7", "rack": "r9"},
    ),
    (
        {"topology.k8s.aws/network-node-layer-1": "spine", "topology.k8s.aws/network-node-layer-3": "leaf"},
        {"switch": "leaf"},
    ),
    ({"network.topology.nvidia.com/leaf": "s1", "network.topology.nvidia.com/spine": "s2"}, {"switch": "s1"}),
    ({"fabric.topograph.run/tier-0": "s1", "fabric.topograph.run/tier-1": "s2"}, {"switch": "s1"}),
    ({"oci.oraclecloud.com/host.rack_id": "r1", "oci.oraclecloud.com/rdma.local_block_id": "b"}, {"rack": "r1"}),
    ({"example.com/rack": "A12"}, {"rack": "A12"}),
    ({"amd.com/gpu.product-name": "MI300X", "amd.com/gpu.family": "AI"}, {"model": "MI300X"}),
]


@pytest.mark.parametrize(("labels", "place"), LABELS)
def test_place_and_model_are_read_from_whoever_labels_them(labels: dict[str, str], place: dict[str, str]) -> None:
    facts = a_node(labels=labels).facts
    assert {name: getattr(facts, name) for name in place} == place


def test_versions_come_from_the_kubelet_and_the_gpu_labels() -> None:
    parts = {"major": "580", "minor": "95", "rev": "05"}
    labels = {f"nvidia.com/cuda.driver.{part}": said for part, said in parts.items()}
    assert a_node(labels=labels).versions["driver"] == "580.95.05"
    labels = {"nvidia.com/cuda.driver-version.full": "570.1", "nvidia.com/cuda.runtime-version.full": "12.8"}
    assert {k: a_node(labels=labels).versions[k] for k in ("driver", "cuda")} == {"driver": "570.1", "cuda": "12.8"}
    assert a_node(labels={"amd.com/gpu.driver-version": "6.12.12"}).versions["driver"] == "6.12.12"


def test_cards_are_counted_and_not_their_shares() -> None:
    shared = a_node(labels={"nvidia.com/gpu.count": "8"}, capacity={"nvidia.com/gpu": "32"})
    assert shared.facts.expected_gpus == 8 and shared.usable_gpus is None
    mig = a_node(labels={"nvidia.com/gpu.count": "4"}, capacity={"nvidia.com/gpu": "0", "nvidia.com/mig-1g.5gb": "28"})
    assert mig.facts.expected_gpus == 4
    assert a_node(capacity={"amd.com/gpu": "8"}).facts.expected_gpus == 8
    assert a_node(capacity={"cpu": "8"}).facts.expected_gpus == 0


def test_work_makes_a_node_mixed_or_allocated() -> None:
    record = a_node()
    assert with_work(record, (), 0, False).state == "idle"
    assert with_work(record, ("a",), 4, False).state == "mixed"
    assert with_work(record, ("a", "b"), 8, True).state == "allocated"
    assert "COMPLETING" in with_work(record, ("a",), 8, True).flags


@pytest.mark.parametrize(
    ("said", "when"),
    [
        ("1772373600", 1772373600.0),
        ("Preempt Scheduled: Sun, 01 Mar 2026 14:00:00 GMT", 1772373600.0),
        ("window begins 2026-03-01T14:00:00Z, lasts 2 h", 1772373600.0),
        ("soon", None),
        ("2026-03-01T14:00:00", None),
        ("99999999999", None),
    ],
)
def test_the_time_of_announced_work_is_read_in_each_form_and_never_guessed(said: str, when: float | None) -> None:
    assert moment(said) == when


def test_announced_work_of_each_cloud_is_a_notice() -> None:
    azure = {
        "type": "VMEventScheduled",
        "status": "True",
        "message": "Redeploy Scheduled: Sun, 01 Mar 2026 14:00:00 GMT",
    }
    assert [n.start for n in a_node(conditions=[azure]).notices] == [1772373600.0]
    assert a_node(labels={"cloud.google.com/active-node-maintenance": "ONGOING"}).notices
    assert a_node(spec=taint("aws-node-termination-handler/scheduled-maintenance")).notices
    under_way = a_node(labels={"cloud.google.com/active-node-maintenance": "ONGOING"})
    assert "MAINTENANCE" in with_work(under_way, (), 0, False).flags
    assert not a_node(labels={"cloud.google.com/active-node-maintenance": "PENDING"}).notices


# --- pods -----------------------------------------------------------------------------------------------------------


def a_pod(**more: Any) -> Pod:
    meta = {"name": "p-0", "namespace": "ml", "uid": "u1", **more.pop("meta", {})}
    spec = {"containers": [container({"nvidia.com/gpu": "8"})], "nodeName": "n1", **more.pop("spec", {})}
    found = pod_of({"metadata": meta, "spec": spec, "status": {"phase": "Running", **more}}, KNOWN)
    assert found is not None
    return found


def container(limits: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"limits": limits}, **more}


def owned(kind: str, name: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    owner = {"kind": kind, "name": name, "uid": "o", "controller": True}
    return {"ownerReferences": [owner], "labels": labels or {}}


OWNERS: list[tuple[dict[str, Any], tuple[str, str, str]]] = [
    (owned("Job", "train"), ("train", "Job", "p-0")),
    (
        owned("Job", "llama-w-0", {"jobset.sigs.k8s.io/jobset-name": "llama",
                                   "batch.kubernetes.io/job-name": "llama-w-0",
                                   "batch.kubernetes.io/job-completion-index": "3"}),
        ("llama", "JobSet", "llama-w-0/3"),
    ),
    (
        owned("PyTorchJob", "bert", {"training.kubeflow.org/job-name": "bert", "training.kubeflow.org/replica-type":
                                     "worker", "training.kubeflow.org/replica-index": "2"}),
        ("bert", "PyTorchJob", "worker/2"),
    ),
    (
        owned("Job", "mpi-launcher", {"training.kubeflow.org/job-name": "mpi", "job-name": "mpi-launcher"}),
        ("mpi", "TrainingJob", "p-0"),
    ),
    (
        owned("RayCluster", "rl-x1", {"ray.io/originated-from-cr-name": "rl", "ray.io/originated-from-crd": "RayJob",
                                      "ray.io/cluster": "rl-x1"}),
        ("rl", "RayJob", "p-0"),
    ),
    (owned("Job", "vc", {"volcano.sh/job-name": "vc"}), ("vc", "VolcanoJob", "p-0")),
    (
        owned("StatefulSet", "lws-1", {"leaderworkerset.sigs.k8s.io/name": "lws",
                                       "leaderworkerset.sigs.k8s.io/group-index": "1"}),
        ("lws-1", "LeaderWorkerSet", "p-0"),
    ),
    (owned("ReplicaSet", "web-abc12", {"pod-template-hash": "abc12"}), ("p-0", "ReplicaSet", "p-0")),
    ({}, ("p-0", "Pod", "p-0")),
    (owned("SparkApplication", "etl"), ("etl", "SparkApplication", "p-0")),
]  # fmt: skip


@pytest.mark.parametrize(("meta", "work"), OWNERS, ids=[row[1][1] for row in OWNERS])
def test_a_pod_belongs_to_the_work_that_its_controller_names(meta: dict[str, Any], work: tuple[str, str, str]) -> None:
    pod = a_pod(meta=meta)
    assert (pod.job, pod.kind, pod.slot) == work and pod.id == f"ml.{work[0]}"


def test_gpus_are_the_larger_of_what_runs_together_and_one_init_container() -> None:
    together = [container({"nvidia.com/gpu": "2"}), container({"nvidia.com/gpu": "2", "cpu": "8"})]
    first = [container({"nvidia.com/gpu": "1"}), container({"nvidia.com/gpu": "1"}, restartPolicy="Always")]
    assert a_pod(spec={"containers": together, "initContainers": first}).gpus == 5
    assert a_pod(spec={"containers": together, "initContainers": [container({"nvidia.com/gpu": "8"})]}).gpus == 8
    mig = a_pod(spec={"containers": [container({"nvidia.com/mig-1g.5gb": "2"})]})
    assert (mig.gpus, mig.shares) == (0, 2)


@pytest.mark.parametrize(
    ("note", "indices"),
    [
        ({"scheduling.koordinator.sh/device-allocated": '{"gpu":[{"minor":3},{"minor":1}]}'}, (1, 3)),
        ({"huawei.com/Ascend910": "Ascend910-0,Ascend910-5"}, (0, 5)),
        ({"nvidia.com/gpu-indices": "0, 2"}, (0, 2)),
        ({"runai-gpu": "4"}, (4,)),
        ({"nvidia.com/gpu-indices": "[[[["}, ()),
        ({}, ()),
    ],
)
def test_indices_are_read_where_a_scheduler_writes_them(note: dict[str, str], indices: tuple[int, ...]) -> None:
    assert a_pod(meta={"annotations": note}).indices == indices


def test_slurms_own_pods_and_daemon_sets_are_not_work() -> None:
    assert a_pod(meta=owned("NodeSet", "slurm-gpu")).daemon
    assert a_pod(meta=owned("DaemonSet", "exporter")).daemon
    assert a_pod(meta=owned("StatefulSet", "w", {"app.kubernetes.io/component": "worker",
                                                 "app.kubernetes.io/part-of": "slurm"})).daemon  # fmt: skip
    assert not a_pod(meta=owned("StatefulSet", "w", {"app.kubernetes.io/component": "worker"})).daemon


def test_nodes_that_a_pod_must_not_get_are_told_only_where_every_alternative_says_so() -> None:
    def term(*names: str) -> dict[str, Any]:
        return {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": list(names)}]}

    def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
        return {"affinity": {"nodeAffinity": required}}

    assert a_pod(spec=affinity(term("a", "b"))).excluded == ("a", "b")
    assert a_pod(spec=affinity(term("a", "b"), term("b"))).excluded == ("b",)
    assert a_pod(spec=affinity(term("a"), {})).excluded == ()


def test_how_a_container_ended_names_the_pod_the_node_and_the_signal() -> None:
    over = {"exitCode": 139, "reason": "Error", "finishedAt": "2026-03-01T12:00:00Z"}
    pod = a_pod(phase="Failed", containerStatuses=[{"name": "c", "state": {"terminated": over}}])
    found = verdict_of([pod])
    assert (found.state, found.signal, found.exit_code) == ("FAILED", 11, 139)
    assert found.reason == "p-0 on n1, c: (signal 11)"
    evicted = a_pod(phase="Failed", reason="Evicted", message="The node was low on resource: memory.")
    assert verdict_of([evicted]).state == "OUT_OF_MEMORY"
    refused = a_pod(phase="Failed", reason="UnexpectedAdmissionError", message="Allocate failed")
    assert verdict_of([refused]).state == "LAUNCH_FAILED"


def test_logs_are_named_where_the_kubelet_keeps_them() -> None:
    pod = a_pod(containerStatuses=[{"name": "c", "restartCount": 2}])
    assert pod.outputs == ("/var/log/pods/ml_p-0_u1/c/2.log",)
