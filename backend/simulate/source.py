"""Reads the make-believe scheduler as the Slurm source reads Slurm: which nodes, who holds them, who drains them."""

from __future__ import annotations

from collections.abc import Set

from backend.act.base import ActionError, ClusterBackend
from backend.facts import Batch
from backend.ingest.base import SourceError

Need = tuple[str, str] | str


class SimulatedSource:
    """A Source over the simulated hand's inventory. Telemetry, lines and jobs are posted to the public routes."""

    def __init__(self, backend: ClusterBackend) -> None:
        self._backend = backend

    @property
    def name(self) -> str:
        return "scheduler"

    def read(self, needs: Set[Need], start: float, end: float) -> Batch:
        try:
            return Batch(self.name, start, end, nodes=tuple(self._backend.inventory()), listing=True)
        except ActionError as error:
            raise SourceError(str(error), permanent=error.permanent) from error
