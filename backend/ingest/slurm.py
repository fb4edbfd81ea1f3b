"""Slurm as a source: nodes with their states and owners, jobs with their nodes, and reboots as events."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from backend.clients.slurm import SlurmCli, SlurmError
from backend.clients.slurm_records import holders
from backend.clock import Clock, unix
from backend.facts import Batch, NodeFacts, RawEvent
from backend.ingest.base import SourceError
from detectors.model import Need

#: slurmd derives the boot time from its uptime, so it may jitter by seconds; a real reboot takes longer than this, s.
BOOT_JITTER_S = 30.0


class SlurmSource:
    """Reads all nodes and all jobs the controller remembers. Remembers boot times; one source belongs to one loop."""

    def __init__(self, cli: SlurmCli, clock: Clock, name: str = "slurm") -> None:
        self._cli = cli
        self._clock = clock
        self._name = name
        self._boots: dict[str, float] = {}

    @property
    def name(self) -> str:
        return self._name

    def read(self, needs: Set[Need], start: float, end: float) -> Batch:
        """What Slurm says now, whatever ``needs``: its commands know no past. Raises SourceError.

        A boot event is told once, when a node's boot time moved, or lies after ``start`` at the first read.
        """
        try:
            attempts = self._cli.jobs()
            listed = self._cli.nodes()
        except SlurmError as failed:
            raise SourceError(str(failed), permanent=failed.permanent) from failed
        held = holders(attempts)
        read_at = unix(self._clock.now())
        nodes = [replace(node, jobs=held.get(node.name, ()), read_at=read_at) for node in listed]
        return Batch(self._name, start, end, (), self._rebooted(nodes, start), tuple(nodes), tuple(attempts))

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


def _boot(node: str, at: float) -> RawEvent:
    text = "Slurm reports a new boot time"
    return RawEvent(at, node, "boot", "boot", text, dedupe=f"slurm boot {node} {at:.0f}", attrs={"source": "slurm"})
