"""Slurm as a source: nodes with states, owners and places, jobs with their GPUs, maintenance, reboots, drains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from backend.clients.drain_reasons import parse_reason
from backend.clients.slurm import SlurmError
from backend.clients.slurm_records import holders
from backend.clients.slurm_surface import Slurm
from backend.clients.slurm_text import Place, maintenances, placed
from backend.clock import Clock, unix
from backend.facts import Batch, MaintenanceFacts, NodeFacts, RawEvent, VersionFacts
from backend.ingest.base import SourceError
from detectors.model import Need

#: slurmd derives the boot time from its uptime, so it may jitter by seconds; a real reboot takes longer than this, s.
BOOT_JITTER_S = 30.0
#: Reservations and topology change seldom: they are read this often, in s.
SLOW_EVERY_S = 300.0
#: Labels of a node that are versions of what it runs, by the ledger's word.
VERSIONS = {"slurm": "slurm", "kernel": "kernel"}


class SlurmSource:
    """Reads all nodes and all jobs the controller remembers. Remembers boot times, reasons and versions as last told;
    one source belongs to one loop."""

    def __init__(self, slurm: Slurm, clock: Clock, name: str = "slurm") -> None:
        self._slurm = slurm
        self._clock = clock
        self._name = name
        self._boots: dict[str, float] = {}
        self._reasons: dict[str, str] | None = None
        self._versions: dict[tuple[str, str], str] = {}
        self._places: Mapping[str, Place] = {}
        self._slow_at: float | None = None

    @property
    def name(self) -> str:
        return self._name

    def read(self, needs: Set[Need], start: float, end: float) -> Batch:
        """What Slurm says now, whatever ``needs``: it knows no past. Raises SourceError.

        A boot event is told once, when a node's boot time moved, or lies after ``start`` at the first read; a drain
        when its reason changed, or was set after ``start``.
        """
        try:
            attempts = self._slurm.jobs()
            listed = self._slurm.nodes()
        except SlurmError as failed:
            raise SourceError(str(failed), permanent=failed.permanent) from failed
        announced, dropped = self._slowly(end)
        held = holders(attempts)
        read_at = unix(self._clock.now())
        nodes = [
            placed(replace(node, jobs=held.get(node.name, ()), read_at=read_at), self._places.get(node.name))
            for node in listed
        ]
        return Batch(
            self._name,
            start,
            end,
            events=(*self._rebooted(nodes, start), *self._drained(nodes, start, read_at)),
            nodes=tuple(nodes),
            attempts=tuple(attempts),
            dropped=dropped,
            versions=self._changed(nodes, read_at),
            maintenances=announced,
            listing=True,
        )

    def _slowly(self, end: float) -> tuple[tuple[MaintenanceFacts, ...], dict[str, int]]:
        """Maintenance that is announced, and the topology, now and then. Neither holds up nodes and jobs: one that
        cannot be read is counted, and what was known of it stays."""
        if self._slow_at is not None and 0 <= end - self._slow_at < SLOW_EVERY_S:
            return (), {}
        self._slow_at = end
        dropped: dict[str, int] = {}
        announced: tuple[MaintenanceFacts, ...] = ()
        try:
            announced = maintenances(self._slurm.reservations())
        except SlurmError:
            dropped["reservations that could not be read"] = 1
        try:
            self._places = self._slurm.topology()
        except SlurmError:
            dropped["topologies that could not be read"] = 1
        return announced, dropped

    def _rebooted(self, nodes: Sequence[NodeFacts], start: float) -> tuple[RawEvent, ...]:
        found = []
        for node in nodes:
            if node.boot_at is None:
                continue
            known = self._boots.get(node.name)
            if node.boot_at > (start if known is None else known + BOOT_JITTER_S):
                found.append(_boot(node.name, node.boot_at))
            if known is None or node.boot_at > known + BOOT_JITTER_S:
                self._boots[node.name] = node.boot_at
        return tuple(found)

    def _drained(self, nodes: Sequence[NodeFacts], start: float, now: float) -> tuple[RawEvent, ...]:
        """Nodes that were taken out since the last read, with who says why."""
        before, self._reasons = self._reasons, {node.name: node.reason for node in nodes if node.out}
        found = []
        for node in nodes:
            at = float(node.labels.get("reason_at", now))
            fresh = at > start if before is None else before.get(node.name) != node.reason
            if node.out and node.reason and fresh:
                found.append(_drain(node, min(at, now)))
        return tuple(found)

    def _changed(self, nodes: Sequence[NodeFacts], now: float) -> tuple[VersionFacts, ...]:
        found = []
        for node in nodes:
            for label, item in VERSIONS.items():
                value = node.labels.get(label, "")
                if value and self._versions.get((node.name, item)) != value:
                    self._versions[(node.name, item)] = value
                    found.append(VersionFacts(node.name, item, value, now, source=self._name))
        return tuple(found)


def _boot(node: str, at: float) -> RawEvent:
    text = "Slurm reports a new boot time"
    return RawEvent(at, node, "boot", "boot", text, dedupe=f"slurm boot {node} {at:.0f}", attrs={"source": "slurm"})


def _drain(node: NodeFacts, at: float) -> RawEvent:
    said = parse_reason(node.reason, node.reason_owner)
    attrs = {
        "source": "slurm",
        "told_by": "slurmctld",
        "state": node.state,
        "flags": ",".join(sorted(node.flags)),
        "by": node.reason_owner,
    }
    if said is not None:
        attrs |= {"who": said.who, "kind": said.kind}
        attrs |= {"xid": str(said.xids[0])} if said.xids else {}
        attrs |= {"gpu": str(said.gpus[0])} if said.gpus else {}
    dedupe = f"slurm out {node.name} {at:.0f} {node.reason}"[:255]
    return RawEvent(at, node.name, "slurm", "node_out", node.reason, dedupe, attrs=attrs)
