"""A small GPU cluster on an API server, fake or real: here are its kubelet, its scheduler and its Job controller."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from backend.act.kubernetes import KubernetesBackend
from backend.clients.kubernetes import KubeClient
from backend.clients.kubernetes_access import Access
from backend.clock import SystemClock
from tests.contracts.kube_api import Served
from tests.services.kube_fake import ADMIN

GPUS = 8
#: Where Slinky's users write why they cordon a node.
WHY = "nodeset.slinky.slurm.net/node-cordon-reason"


class Kube(Protocol):
    def access(self, token: str = ADMIN) -> Access: ...

    def silent(self) -> AbstractContextManager[None]: ...


class KubeWorld:
    """The World of the contract of backends: nodes of 8 GPUs, Jobs of one pod that take a whole node."""

    def __init__(self, kube: Kube, nodes: int = 8, timeout_s: float = 10.0, cordon: bool = True) -> None:
        self.kube = kube
        self.served = Served(kube)
        self.timeout_s = timeout_s
        self.cordon = cordon
        self.nodes = [self.add_node(f"gpu-{i:04d}") for i in range(nodes)]
        self.free = list(reversed(self.nodes))
        self.jobs: dict[str, dict[str, Any]] = {}
        self.made = 0

    # --- the contract's World ---------------------------------------------------------------------------------------

    def backend(self) -> KubernetesBackend:
        client = KubeClient(self.kube.access(), self.timeout_s)
        return KubernetesBackend(client, SystemClock(), cordon=self.cordon)

    def free_node(self) -> str:
        return self.free.pop()

    def busy(self) -> tuple[str, str]:
        node = self.free_node()
        name = f"train-{len(self.jobs)}"
        path = f"/apis/batch/v1/namespaces/{self.served.namespace}/jobs"
        template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "train", "image": "train"}]}}
        self.jobs[name] = dict(
            self.served.client.create(path, {"metadata": {"name": name}, "spec": {"template": template}})
        )
        self.start(name, node)
        return self.id(name), node

    def drain_by_other(self, node: str, reason: str) -> None:
        body = {"metadata": {"annotations": {WHY: reason}}, "spec": {"unschedulable": True}}
        self.served.send("PATCH", f"/api/v1/nodes/{node}", body)

    def requeue_by_other(self, job: str) -> None:
        for pod in self.pods(job):
            self.served.send("DELETE", self.served.pods(pod["metadata"]["name"]))
        self.reconcile()

    def end(self, job: str) -> None:
        name = job.partition(".")[2]
        for pod in self.pods(job):
            done = {"status": {"phase": "Succeeded"}}
            self.served.client.patch(self.served.pods(pod["metadata"]["name"], "status"), done)
        del self.jobs[name]

    def runs_on(self, job: str) -> tuple[str, ...]:
        self.reconcile()
        running = (pod for pod in self.pods(job) if pod.get("status", {}).get("phase") == "Running")
        return tuple(pod["spec"]["nodeName"] for pod in running if "deletionTimestamp" not in pod["metadata"])

    def silent(self) -> AbstractContextManager[None] | None:
        return self.kube.silent()

    # --- what makes it a cluster ------------------------------------------------------------------------------------

    def id(self, name: str) -> str:
        return f"{self.served.namespace}.{name}"

    def add_node(self, name: str, **more: Any) -> str:
        made = self.served.node(name, **more)["metadata"]["name"]
        resources = {"nvidia.com/gpu": str(GPUS)}
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "lastTransitionTime": "2026-03-01T12:00:00Z",
        }
        status = {"capacity": resources, "allocatable": resources, "conditions": [ready]}
        self.served.client.patch(f"/api/v1/nodes/{made}/status", {"status": status})
        # a server whose admission taints new nodes as not ready leaves that to the node controller, which is us
        self.served.client.patch(f"/api/v1/nodes/{made}", {"spec": {"taints": []}})
        return str(made)

    def start(self, name: str, node: str) -> None:
        """The next pod of a job, running."""
        owner = self.jobs[name]["metadata"]
        self.made += 1
        limits = {"resources": {"limits": {"nvidia.com/gpu": str(GPUS)}, "requests": {"nvidia.com/gpu": str(GPUS)}}}
        by = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": owner["uid"], "controller": True}
        self.served.pod(
            f"{name}-{self.made}",
            node,
            spec={"containers": [{"name": "train", "image": "train", **limits}]},
            labels={"job-name": name},
            # a fake takes a pod's age as it is told: one a minute; a real server knows better
            creationTimestamp=(datetime.now(UTC) - timedelta(minutes=60 - self.made)).strftime("%Y-%m-%dT%H:%M:%SZ"),
            ownerReferences=[by],
        )

    def pods(self, job: str) -> list[dict[str, Any]]:
        asked = {"labelSelector": f"job-name={job.partition('.')[2]}"}
        return [item for items, _ in self.served.client.pages(self.served.pods(), asked) for item in items]

    def reconcile(self) -> None:
        """What is being deleted goes; a job without a pod gets one on a node that takes work."""
        for name in self.jobs:
            found = self.pods(self.id(name))
            for pod in found:
                if "deletionTimestamp" in pod["metadata"]:
                    self.served.end(pod["metadata"]["name"])
            if all("deletionTimestamp" in pod["metadata"] for pod in found):
                self.start(name, self.open_node())

    def open_node(self) -> str:
        for node in [*self.free]:
            spec = self.served.client.get(f"/api/v1/nodes/{node}").get("spec", {})
            if not spec.get("unschedulable") and not spec.get("taints"):
                self.free.remove(node)
                return node
        raise AssertionError("no node takes work")
