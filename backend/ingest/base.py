"""The Source protocol and its error: one read of the outside world becomes one Batch."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Protocol, runtime_checkable

from backend.facts import Batch
from detectors.model import Need


class SourceError(Exception):
    """A source could not be read. ``permanent`` True: trying again without a person's help is useless."""

    def __init__(self, message: str, *, permanent: bool = False) -> None:
        super().__init__(message)
        self.permanent = permanent


class Source(Protocol):
    @property
    def name(self) -> str:
        """Stable, shown on System: ``prometheus:main``, ``slurm``."""
        ...

    def read(self, needs: Set[Need], start: float, end: float) -> Batch:
        """All of ``needs`` this source has between two unix times. Raises SourceError; never blocks without limit."""
        ...


@runtime_checkable
class Follows(Protocol):
    """What a source has beside Source where it follows something and keeps ``Batch.marks``."""

    def resume(self, marks: Mapping[str, str]) -> None:
        """Go on from what was committed last. Called before the first read, and after a batch that was not taken."""
        ...

    def counts(self) -> Mapping[str, float]:
        """What it cost and what it left out, for System."""
        ...
