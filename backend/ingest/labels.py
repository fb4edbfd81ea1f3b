"""Whom a series is about: the label spellings of DCGM, AMD and node exporters become one DeviceLabel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from ipaddress import ip_address

from backend.clients.hostlist import is_host
from backend.facts import DeviceLabel
from backend.ingest.parts import part_label
from detectors.kernel.lines import normal_pci

#: Where a host's name may stand, best first. ``exported_`` is what the exporter itself said, where Prometheus had a
#: label of that name already; ``instance`` is only where the exporter was reached.
HOSTS = ("Hostname", "hostname", "nodename", "node", "kubernetes_node", "node_name", "host")
UUIDS = ("UUID", "uuid", "gpu_uuid", "serial_number")
PCIS = ("pci_bus_id", "pci_busid", "pci_address")
INDEXES = ("gpu", "gpu_id", "gpu_index")
MODELS = ("modelName", "model_name", "card_model")
JOBS = ("hpc_job", "job_id")
#: Only the ``exported_`` form counts: ``job`` is the scrape job, and ``pod`` may be the exporter's own pod.
EXPORTED_JOB, EXPORTED_POD, EXPORTED_NAMESPACE = "exported_job", "exported_pod", "exported_namespace"
#: Longest label that is kept, in characters.
MAX_LABEL = 255
#: What tells several series of one row apart, where a metric joins them.
PARTS = frozenset({"controller", "csrow", "chip", "sensor", "zone", "type", "device", "package", "core", "export"})
PARTS |= {"mountaddr", "protocol", "transport", "link", "clock_index", "clock_type", "nbr"}
#: A series of one MIG instance, not of the whole device.
INSTANCES = ("GPU_I_ID", "GPU_I_PROFILE")


def device_label(axis: str, labels: Mapping[str, str]) -> DeviceLabel | None:
    """The device or node that ``labels`` name; None where they name none.

    A GPU needs a UUID or serial, or a node with a PCI address or index. A node needs a name: an address alone is no
    name, it is somebody else's tomorrow. A name that is none (a node of it could stand in no hostlist) names nobody,
    and neither does an endless UUID.
    """
    node = host_of(labels)
    node = node if is_host(node) else ""
    if axis == "node":
        return DeviceLabel("node", node) if node else None
    if axis != "gpu":
        return part_label(axis, node, labels) if node else None
    found = DeviceLabel(
        axis,
        node,
        uuid=_kept(_said(labels, UUIDS)),
        pci=normal_pci(_said(labels, PCIS)),
        index=_kept(_said(labels, INDEXES)),
        model=_kept(_said(labels, MODELS)),
        job=_kept(_said(labels, JOBS) or labels.get(EXPORTED_JOB, "") or _pod_of(labels)),
    )
    return found if found.uuid or (node and (found.pci or found.index)) else None


def _pod_of(labels: Mapping[str, str]) -> str:
    """``namespace.pod``, as jobs of Kubernetes are called; whose pod it is, the inventory finds."""
    pod, namespace = labels.get(EXPORTED_POD, ""), labels.get(EXPORTED_NAMESPACE, "")
    return f"{namespace}.{pod}" if pod and namespace else pod


def host_of(labels: Mapping[str, str]) -> str:
    """Name of the host; empty where the labels hold only an address or a loopback name."""
    return _said(labels, HOSTS) or host_name(labels.get("instance", ""))


def host_name(instance: str) -> str:
    """``gpu-0001:9400`` is gpu-0001; ``10.0.0.7:9400``, ``[fe80::1]:9400`` and ``localhost:9400`` are nobody."""
    host = instance.removeprefix("http://").removeprefix("https://").partition("/")[0]
    host = host.partition("]")[0].strip("[") if host.startswith("[") else host.rpartition(":")[0] or host
    if host.split(".")[0] == "localhost":
        return ""
    try:
        ip_address(host)
    except ValueError:
        return host
    return ""


def is_instance(labels: Mapping[str, str]) -> bool:
    """Whether the series is of one MIG instance."""
    return any(labels.get(name) for name in INSTANCES)


def part_of(labels: Mapping[str, str]) -> str:
    """Which of several series of one row this is, of a metric that joins them: all that its exporter says beside who
    and where it is."""
    return ",".join(sorted(f"{k}={v}" for k, v in labels.items() if k in PARTS or k == "__name__"))


def identity(label: DeviceLabel) -> tuple[str, ...]:
    """What makes two labels the same thing within one read: UUID or serial, else place on the node."""
    if label.axis == "node":
        return ("node", label.node)
    if label.axis == "mount_op":
        return ("mount_op", label.node, label.export, label.operation)
    return (label.axis, label.uuid) if label.uuid else (label.axis, label.node, label.pci or label.index)


def joined(labels: Iterable[DeviceLabel]) -> DeviceLabel:
    """One label of several about the same device, newest first: what the newest leaves out, an older one may say."""
    first, *rest = labels
    for other in rest:
        gaps = {
            name: getattr(other, name)
            for name in ("node", "uuid", "pci", "index", "model", "job")
            if not getattr(first, name) and getattr(other, name)
        }
        first = replace(first, **gaps) if gaps else first
    return first


class Targets:
    """Which nodes stand behind which scrape target, so that ``up`` of an address speaks for a node; and what was told
    of them already.

    Learnt from the GPU series of earlier reads; it holds after the exporter has gone silent.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, frozenset[str]] = {}
        self._said: dict[tuple[str, ...], tuple[str, float]] = {}

    def is_news(self, key: tuple[str, ...], value: str, at: float, again_s: float) -> bool:
        """Whether ``value`` is another than was told last under ``key``, or was told too long ago (unix s, s)."""
        known = self._said.get(key)
        if known is not None and known[0] == value and at < known[1] + again_s:
            return False
        self._said[key] = (value, at)
        return True

    def learn(self, seen: Mapping[str, set[str]]) -> None:
        """``seen``: instance -> nodes of one read. A target with other nodes altogether was given to another host."""
        for instance, nodes in seen.items():
            known = self._nodes.get(instance, frozenset())
            self._nodes[instance] = frozenset(nodes) if known.isdisjoint(nodes) else known | nodes

    def nodes(self, instance: str) -> frozenset[str]:
        return self._nodes.get(instance, frozenset())

    def all(self) -> frozenset[str]:
        """Every node behind a known GPU exporter."""
        return frozenset().union(*self._nodes.values())


def _said(labels: Mapping[str, str], names: tuple[str, ...]) -> str:
    for name in names:
        if value := labels.get(f"exported_{name}") or labels.get(name):
            return value
    return ""


def _kept(text: str) -> str:
    """A label's text as it may be stored and shown; one with control characters, or endless, says nothing."""
    return text if len(text) <= MAX_LABEL and text.isprintable() else ""
