"""Telemetry of one step as a Prometheus remote-write 1.0 body: protobuf by hand, snappy in block form.

WriteRequest{1: TimeSeries}; TimeSeries{1: Label, 2: Sample}; Label{1: name, 2: value}; Sample{1: double, 2: int64 ms}.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

import cramjam

from backend.simulate.readings import Readings
from backend.simulate.site import CARD_MODEL, Card, Site

#: The simulation's metric -> the name older exporters print, and the one since DCGM 4.6 where that was renamed.
CARD_NAMES: dict[str, tuple[str, str]] = {
    "temperature": ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS"),
    "memory_temperature": ("DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS"),
    "power": ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS"),
    "clock": ("DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_SM_CLOCK"),
    "memory_clock": ("DCGM_FI_DEV_MEM_CLOCK", "DCGM_FI_DEV_MEM_CLOCK"),
    "utilisation": ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO"),
    "memory_used": ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_USED"),
    "last_xid": ("DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR"),
    "dbe": ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"),
    "remapped_uncorrectable": (
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL",
    ),
    "remapped_correctable": ("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL"),
    "remap_failed": ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "DCGM_FI_DEV_ROW_REMAP_FAILED"),
    "replays": ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "DCGM_FI_DEV_PCIE_REPLAY_TOTAL"),
    "link_bytes": ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL"),
    "clock_events": ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"),
}
NODE_NAMES = {"load1": "node_load1", "running": "node_procs_running", "interrupts": "node_intr_total"}
#: Racks from this one on run the newer exporter, as a fleet in the middle of an upgrade does.
NEW_NAMES_FROM_RACK = 5


class Encoder:
    """Bodies for one site. Labels are encoded once per series; a step only adds values and its time."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._labels: dict[tuple[str, int, str], bytes] = {}

    def body(self, at: float, seen: Readings) -> bytes:
        """Compressed body; series of rows that cannot be read are left out, as a scrape would."""
        time = varint(int(round(at * 1000)))
        return bytes(cramjam.snappy.compress_raw(b"".join(self._series(time, seen))))

    def _series(self, time: bytes, seen: Readings) -> Iterator[bytes]:
        for metric, values in seen.cards.items():
            for card, value, there in zip(self._site.cards, values.tolist(), seen.card_seen.tolist(), strict=True):
                if there:
                    job = seen.job_of[card.row // 8]
                    yield series(self._card_labels(metric, card, job), value, time)
        for row, machine in enumerate(self._site.machines):
            for exporter, port, up in (("node", 9100, seen.node_up[row]), ("dcgm", 9400, seen.exporter_up[row])):
                yield series(
                    self._labelled("up", row, exporter, _target(machine.name, port, exporter)), float(up), time
                )
            if seen.node_up[row]:
                for metric, values in seen.nodes.items():
                    labels = {"__name__": NODE_NAMES[metric], **_target(machine.name, 9100, "node")}
                    yield series(self._labelled(metric, row, "node", labels), float(values[row]), time)

    def _card_labels(self, metric: str, card: Card, job: str) -> bytes:
        known = self._labels.get((metric, card.row, job))
        if known is None:
            known = self._labels[metric, card.row, job] = encode_labels(_card_labels(self._site, metric, card, job))
        return known

    def _labelled(self, metric: str, row: int, exporter: str, labels: Mapping[str, str]) -> bytes:
        key = (f"{exporter}:{metric}", row, "")
        if key not in self._labels:
            self._labels[key] = encode_labels({"__name__": metric, **labels})
        return self._labels[key]


def _target(node: str, port: int, job: str) -> dict[str, str]:
    return {"instance": f"{node}:{port}", "job": job}


def _card_labels(site: Site, metric: str, card: Card, job: str) -> dict[str, str]:
    new = int(site.machines[card.row // 8].rack.removeprefix("rack-")) >= NEW_NAMES_FROM_RACK
    labels = {
        "__name__": CARD_NAMES[metric][new],
        "gpu": str(card.index),
        "UUID": card.uuid,
        "pci_bus_id": f"0000{card.pci.upper()}.0",
        "device": f"nvidia{card.index}",
        "modelName": CARD_MODEL,
        "hostname" if new else "Hostname": card.node,
        **_target(card.node, 9400, "dcgm"),
    }
    return {**labels, "hpc_job": job} if job else labels


def varint(number: int) -> bytes:
    """A non-negative protobuf varint."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _field(number: int, body: bytes) -> bytes:
    return bytes((number << 3 | 2,)) + varint(len(body)) + body


def encode_labels(labels: Mapping[str, str]) -> bytes:
    """Label fields of a TimeSeries, sorted by name as the protocol asks."""
    return b"".join(_field(1, _field(1, k.encode()) + _field(2, v.encode())) for k, v in sorted(labels.items()))


def series(labels: bytes, value: float, time: bytes) -> bytes:
    """One TimeSeries with one sample; ``time`` is the varint of unix ms."""
    sample = b"\x09" + struct.pack("<d", value) + b"\x10" + time
    return _field(1, labels + _field(2, sample))
