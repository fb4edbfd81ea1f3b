"""What exporters' labels say a node runs: driver, VBIOS, kernel, BIOS, firmware; told when it is news."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from backend.clients.hostlist import is_host
from backend.facts import VersionFacts
from backend.ingest.labels import Targets, device_label, host_of
from backend.ingest.samples import Scraped
from detectors.catalogue import Catalogue

#: Series that exist for their labels: name -> label -> item (node_exporter: uname, dmi, os, infiniband, ethtool;
#: kube-state-metrics: kube_node_info).
INFO: Mapping[str, Mapping[str, str]] = {
    "node_uname_info": {"release": "kernel"},
    "node_dmi_info": {"bios_version": "bios"},
    "node_os_info": {"pretty_name": "os"},
    "node_infiniband_info": {"firmware_version": "firmware"},
    "node_ethtool_info": {"bus_info": "pci"},
    "kube_node_info": {
        "kernel_version": "kernel",
        "kubelet_version": "kubelet",
        "os_image": "os",
        "container_runtime_version": "runtime",
    },
}
#: Of these, each port has one.
OF_PORTS = frozenset({"node_infiniband_info", "node_ethtool_info"})
#: Labels that GPU exporters put on each series, where they are configured to: label -> item. Of the device, or of its
#: node where the whole node has one.
OF_NODE: Mapping[str, str] = {
    "DCGM_FI_DRIVER_VERSION": "driver",
    "driver_version": "driver",
    "DCGM_FI_CUDA_DRIVER_VERSION": "cuda",
    "DCGM_FI_NVML_VERSION": "nvml",
}
OF_DEVICE: Mapping[str, str] = {"DCGM_FI_DEV_VBIOS_VERSION": "vbios", "vbios_version": "vbios"}
#: Each device has this series; the others' labels are the same.
PROBE = "temperature_c"
#: What is known is told again after this long, in s, lest a lost transaction hide it for ever.
AGAIN_S = 6 * 3600.0


def versions_of(scraped: Iterable[Scraped], catalogue: Catalogue, targets: Targets) -> tuple[VersionFacts, ...]:
    """News of one read; ``targets`` carries what earlier reads told. Labels without a node's name tell nothing."""
    found: list[VersionFacts] = []
    for labels, times, values in scraped:
        name = labels.get("__name__", "")
        if not times.size or not values.size:
            continue
        at = float(times[-1])
        if name in INFO:
            device = labels.get("device", "") if name in OF_PORTS else ""
            found += _news(_host(labels), device, labels, INFO[name], at, name.partition("_")[0], targets)
        elif catalogue.alias.get(name) == PROBE:
            found += _of_gpu(labels, at, targets)
    return tuple(found)


def _of_gpu(labels: Mapping[str, str], at: float, targets: Targets) -> list[VersionFacts]:
    if not any(label in labels for label in (*OF_NODE, *OF_DEVICE)):
        return []
    label = device_label("gpu", labels)
    if label is None or not label.node:
        return []
    of_node = _news(label.node, "", labels, OF_NODE, at, "gpu", targets)
    return of_node + (_news(label.node, label.uuid, labels, OF_DEVICE, at, "gpu", targets) if label.uuid else [])


def _news(
    node: str,
    device: str,
    labels: Mapping[str, str],
    items: Mapping[str, str],
    at: float,
    source: str,
    targets: Targets,
) -> list[VersionFacts]:
    if not node:
        return []
    said = {item: labels[label] for label, item in items.items() if labels.get(label)}
    return [
        VersionFacts(node, item, value, at, device, source=f"{source} exporter")
        for item, value in said.items()
        if targets.is_news((node, device, item, source), value, at, AGAIN_S)
    ]


def _host(labels: Mapping[str, str]) -> str:
    found = host_of(labels)
    return found if is_host(found) else ""
