"""What each exporter calls a reading, of which type it says it is, and the labels its series carry."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from backend.simulate.recording.plant import Card, Node, Plant
from backend.simulate.recording.surroundings import OPERATIONS

Labels = dict[str, str]


@dataclass(frozen=True, slots=True)
class Metric:
    """One reading under one name. ``axis``: gpu, node, nic, call or mount; ``styles``: which exporters print it;
    ``optional``: only where a node has the optional metrics on. A counter's samples end in ``_total``."""

    reading: str
    name: str
    axis: str
    type: str = "gauge"
    styles: tuple[str, ...] = ("old", "new", "amd")
    optional: bool = False
    more: tuple[tuple[str, str], ...] = ()

    @property
    def sample(self) -> str:
        return f"{self.name}_total" if self.type == "counter" else self.name


#: reading, name of older exporters, name since the renaming (empty: the same), type, optional.
DCGM: tuple[tuple[str, str, str, str, bool], ...] = (
    ("util", "DEV_GPU_UTIL", "DEV_GPU_UTIL_RATIO", "gauge", False),
    ("copy_util", "DEV_MEM_COPY_UTIL", "DEV_MEM_COPY_UTIL_RATIO", "gauge", False),
    ("none", "DEV_ENC_UTIL", "DEV_ENC_UTIL_RATIO", "gauge", False),
    ("none", "DEV_DEC_UTIL", "DEV_DEC_UTIL_RATIO", "gauge", False),
    ("clock", "DEV_SM_CLOCK", "", "gauge", False),
    ("memory_clock", "DEV_MEM_CLOCK", "", "gauge", False),
    ("temperature", "DEV_GPU_TEMP", "DEV_GPU_TEMP_CELSIUS", "gauge", False),
    ("memory_temperature", "DEV_MEMORY_TEMP", "DEV_MEMORY_TEMP_CELSIUS", "gauge", False),
    ("power", "DEV_POWER_USAGE", "DEV_BOARD_POWER_WATTS", "gauge", False),
    ("energy", "DEV_TOTAL_ENERGY_CONSUMPTION", "", "unknown", False),
    ("used", "DEV_FB_USED", "", "gauge", False),
    ("free", "DEV_FB_FREE", "", "gauge", False),
    ("reserved", "DEV_FB_RESERVED", "", "gauge", False),
    ("xid", "DEV_XID_ERRORS", "DEV_XID_ERROR", "gauge", False),
    ("replays", "DEV_PCIE_REPLAY_COUNTER", "DEV_PCIE_REPLAY_TOTAL", "unknown", False),
    ("rows_bad", "DEV_UNCORRECTABLE_REMAPPED_ROWS", "DEV_ROW_REMAP_UNCORRECTABLE_TOTAL", "unknown", False),
    ("rows_mended", "DEV_CORRECTABLE_REMAPPED_ROWS", "DEV_ROW_REMAP_CORRECTABLE_TOTAL", "unknown", False),
    ("remap_failed", "DEV_ROW_REMAP_FAILURE", "DEV_ROW_REMAP_FAILED", "gauge", False),
    ("links", "DEV_NVLINK_BANDWIDTH_TOTAL", "DEV_NVLINK_THROUGHPUT_TOTAL", "unknown", False),
    ("gr_active", "PROF_GR_ENGINE_ACTIVE", "PROF_GR_ENGINE_UTIL_RATIO", "gauge", False),
    ("tensor", "PROF_PIPE_TENSOR_ACTIVE", "PROF_TENSOR_UTIL_RATIO", "gauge", False),
    ("dram", "PROF_DRAM_ACTIVE", "PROF_DRAM_UTIL_RATIO", "gauge", False),
    ("pcie_tx", "PROF_PCIE_TX_BYTES", "", "gauge", False),
    ("pcie_rx", "PROF_PCIE_RX_BYTES", "", "gauge", False),
    ("mask", "DEV_CLOCK_THROTTLE_REASONS", "DEV_CLOCKS_EVENT_REASONS", "gauge", True),
    ("sm_active", "PROF_SM_ACTIVE", "PROF_SM_UTIL_RATIO", "gauge", True),
    ("occupancy", "PROF_SM_OCCUPANCY", "PROF_SM_OCCUPANCY_RATIO", "gauge", True),
    ("none", "PROF_PIPE_FP64_ACTIVE", "PROF_PIPE_FP64_UTIL_RATIO", "gauge", True),
    ("fp32", "PROF_PIPE_FP32_ACTIVE", "PROF_PIPE_FP32_UTIL_RATIO", "gauge", True),
    ("fp16", "PROF_PIPE_FP16_ACTIVE", "PROF_PIPE_FP16_UTIL_RATIO", "gauge", True),
    ("sbe", "DEV_ECC_SBE_VOL_TOTAL", "", "unknown", True),
    ("dbe", "DEV_ECC_DBE_VOL_TOTAL", "", "unknown", True),
    ("sbe_all", "DEV_ECC_SBE_AGG_TOTAL", "", "unknown", True),
    ("dbe_all", "DEV_ECC_DBE_AGG_TOTAL", "", "unknown", True),
    ("crc", "DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "DEV_NVLINK_CRC_FLIT_ERROR_TOTAL", "unknown", True),
    ("none", "DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "DEV_NVLINK_CRC_DATA_ERROR_TOTAL", "unknown", True),
    ("none", "DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "DEV_NVLINK_REPLAY_ERROR_TOTAL", "unknown", True),
    ("none", "DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "DEV_NVLINK_RECOVERY_ERROR_TOTAL", "unknown", True),
    ("power_ns", "DEV_POWER_VIOLATION", "", "unknown", True),
    ("thermal_ns", "DEV_THERMAL_VIOLATION", "", "unknown", True),
    ("none", "DEV_SYNC_BOOST_VIOLATION", "", "unknown", True),
    ("none", "DEV_BOARD_LIMIT_VIOLATION", "", "unknown", True),
    ("none", "DEV_RELIABILITY_VIOLATION", "", "unknown", True),
    ("remap_pending", "DEV_ROW_REMAP_PENDING", "", "gauge", True),
    ("recovery", "DEV_GET_GPU_RECOVERY_ACTION", "DEV_GPU_RECOVERY_ACTION", "gauge", True),
    ("fabric", "DEV_FABRIC_HEALTH_SUMMARY", "", "gauge", True),
    ("lanes", "DEV_PCIE_LINK_WIDTH", "", "gauge", True),
    ("pcie_gen", "DEV_PCIE_LINK_GEN", "", "gauge", True),
)
AMD: tuple[tuple[str, str, str], ...] = (
    ("temperature", "gpu_junction_temperature", "gauge"),
    ("memory_temperature", "gpu_memory_temperature", "gauge"),
    ("power", "gpu_package_power", "gauge"),
    ("energy_uj", "gpu_energy_consumed", "unknown"),
    ("util", "gpu_gfx_activity", "gauge"),
    ("copy_util", "gpu_umc_activity", "gauge"),
    ("size", "gpu_total_vram", "gauge"),
    ("used", "gpu_used_vram", "gauge"),
    ("free", "gpu_free_vram", "gauge"),
    ("pcie_gen", "pcie_speed", "gauge"),
    ("replays", "pcie_replay_count", "unknown"),
    ("none", "pcie_recovery_count", "unknown"),
    ("sbe", "gpu_ecc_correct_total", "unknown"),
    ("dbe", "gpu_ecc_uncorrect_total", "unknown"),
    ("dbe_all", "gpu_ecc_uncorrect_umc", "unknown"),
    ("thermal_ns", "gpu_violation_socket_thermal_residency_accumulated", "unknown"),
    ("power_ns", "gpu_violation_ppt_residency_accumulated", "unknown"),
    ("links", "gpu_xgmi_link_tx", "unknown"),
    ("healthy", "gpu_health", "gauge"),
)
HOST: tuple[tuple[str, str, str, str], ...] = (
    ("interrupts", "node_intr", "node", "counter"),
    ("switches", "node_context_switches", "node", "counter"),
    ("running", "node_procs_running", "node", "gauge"),
    ("blocked", "node_procs_blocked", "node", "gauge"),
    ("load1", "node_load1", "node", "gauge"),
    ("paged_out", "node_vmstat_pgpgout", "node", "unknown"),
    ("paged_in", "node_vmstat_pgpgin", "node", "unknown"),
    ("killed", "node_vmstat_oom_kill", "node", "unknown"),
    ("memory_free", "node_memory_MemAvailable_bytes", "node", "gauge"),
    ("memory", "node_memory_MemTotal_bytes", "node", "gauge"),
    ("boot", "node_boot_time_seconds", "node", "gauge"),
    ("time", "node_time_seconds", "node", "gauge"),
    ("offset", "node_timex_offset_seconds", "node", "gauge"),
    ("in_step", "node_timex_sync_status", "node", "gauge"),
    ("free", "node_filesystem_avail_bytes", "mount", "gauge"),
    ("capacity", "node_filesystem_size_bytes", "mount", "gauge"),
    ("state", "node_infiniband_state_id", "nic", "gauge"),
    ("physical", "node_infiniband_physical_state_id", "nic", "gauge"),
    ("rate", "node_infiniband_rate_bytes_per_second", "nic", "gauge"),
    ("downs", "node_infiniband_link_downed", "nic", "counter"),
    ("symbols", "node_infiniband_symbol_error", "nic", "counter"),
    ("rx", "node_infiniband_port_data_received_bytes", "nic", "counter"),
    ("tx", "node_infiniband_port_data_transmitted_bytes", "nic", "counter"),
    ("wait", "node_infiniband_port_transmit_wait", "nic", "counter"),
    ("discards", "node_infiniband_port_discards_transmitted", "nic", "counter"),
    ("calls", "node_mountstats_nfs_operations_requests", "call", "counter"),
    ("queue_s", "node_mountstats_nfs_operations_queue_time_seconds", "call", "counter"),
    ("answer_s", "node_mountstats_nfs_operations_response_time_seconds", "call", "counter"),
    ("call_s", "node_mountstats_nfs_operations_request_time_seconds", "call", "counter"),
    ("sent", "node_mountstats_nfs_operations_sent_bytes", "call", "counter"),
    ("received", "node_mountstats_nfs_operations_received_bytes", "call", "counter"),
    ("backlog", "node_mountstats_nfs_transport_backlog_queue", "node", "counter"),
)
NFS: Labels = {"export": "10.20.0.4:/export/scratch", "protocol": "tcp", "mountaddr": "10.20.0.4"}


def gpu_metrics() -> list[Metric]:
    """By name: a family that keeps its name across exporters is one."""
    found: dict[tuple[str, str], Metric] = {}
    for reading, old, new, kind, optional in DCGM:
        for style, name in (("old", old), ("new", new or old)):
            known = found.get((reading, name))
            styles = (*known.styles, style) if known else (style,)
            found[reading, name] = Metric(reading, f"DCGM_FI_{name}", "gpu", kind, styles, optional)
    return [*found.values(), *(Metric(reading, name, "gpu", kind, ("amd",)) for reading, name, kind in AMD)]


def host_metrics() -> list[Metric]:
    plain = [Metric(reading, name, axis, kind) for reading, name, axis, kind in HOST]
    cpu = [Metric(f"cpu_{mode}", "node_cpu_seconds", "node", "counter", more=(("cpu", "all"), ("mode", word)))
           for mode, word in (("user", "user"), ("system", "system"), ("wait", "iowait"))]  # fmt: skip
    edac = [Metric("edac_ce", "node_edac_correctable_errors", "node", "counter", more=(("controller", "3"),)),
            Metric("edac_ue", "node_edac_uncorrectable_errors", "node", "counter",
                   more=(("controller", "3"),))]  # fmt: skip
    return [*plain, *cpu, *edac]


def card_labels(node: Node, card: Card, extra: Mapping[str, str]) -> Labels:
    """As scraped; ``extra``: what its job or its upgrade adds."""
    pci = f"0000{card.pci.upper()}.0"
    if node.style == "amd":
        found = {
            "serial_number": card.serial,
            "gpu_id": str(card.index),
            "card_model": node.model,
            "hostname": node.name,
        }
        if "hpc_job" in extra:
            found["job_id"] = extra["hpc_job"]
        return {**found, "instance": f"{node.name}:5000", "job": "amd-gpu"}
    return {
        "gpu": str(card.index),
        "UUID": card.uuid,
        "pci_bus_id": pci,
        "device": f"nvidia{card.index}",
        "modelName": node.model,
        "hostname" if node.style == "new" else "Hostname": node.name,
        "DCGM_FI_DRIVER_VERSION": "550.127.05",
        **({"pod": f"dcgm-exporter-{pod_name(node)}"} if node.pods else {}),
        **extra,
        "instance": f"{node.name}:9400",
        "job": "dcgm",
    }


def pod_name(node: Node) -> str:
    return "".join(random.Random(node.name).choices("bcdfghjkmnpqrstvwxz2456789", k=5))


def row_labels(site: Plant, axis: str, row: int) -> tuple[int, Labels]:
    """(node row, labels) of a series of the node exporter."""
    if axis == "nic":
        port = site.ports[row]
        return port.node, {"device": port.name, "port": "1", **_host(site, port.node)}
    if axis == "call":
        return row // 3, {**NFS, "operation": OPERATIONS[row % 3], **_host(site, row // 3)}
    if axis == "mount":
        node, store = row % len(site.nodes), row >= len(site.nodes)
        disk = {"device": NFS["export"], "fstype": "nfs4", "mountpoint": "/scratch"} if store else {
            "device": "/dev/nvme0n1p2", "fstype": "ext4", "mountpoint": "/"}  # fmt: skip
        return node, {**disk, **_host(site, node)}
    return row, _host(site, row)


def _host(site: Plant, node: int) -> Labels:
    return {"instance": f"{site.nodes[node].name}:9100", "job": "node"}


def text(name: str, labels: Mapping[str, str]) -> bytes:
    """``name{a="b"} `` as it begins a line; none of our labels needs escaping."""
    inside = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return f"{name}{{{inside}}} ".encode()
