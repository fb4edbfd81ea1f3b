"""What Slurm can be asked and told, whichever way it is reached: by its commands, or by slurmrestd."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from backend.clients.slurm_records import Job
from backend.clients.slurm_text import Place, Reservation
from backend.facts import AttemptFacts, NodeFacts


class Slurm(Protocol):
    """Every method raises SlurmError. The writes say, as a clause, by which other way they went and why; "" = none."""

    def version(self) -> tuple[int, int, int]: ...

    def nodes(self) -> list[NodeFacts]: ...

    def node(self, name: str) -> NodeFacts:
        """One node with the jobs that hold it; permanent where Slurm knows no such node."""
        ...

    def jobs(self) -> list[AttemptFacts]: ...

    def job(self, job: str) -> Job | None: ...

    def reservations(self) -> list[Reservation]: ...

    def topology(self) -> Mapping[str, Place]:
        """Where each node hangs; empty where Slurm was told of no topology."""
        ...

    def drain(self, name: str, reason: str) -> str: ...

    def resume(self, name: str) -> str: ...

    def requeue(self, job: str) -> str: ...

    def exclude(self, job: str, nodes: Sequence[str]) -> str: ...

    def reboots(self) -> bool:
        """Whether this cluster can reboot nodes: it names a RebootProgram, and scontrol may be used."""
        ...

    def reboot(self, name: str) -> str: ...
