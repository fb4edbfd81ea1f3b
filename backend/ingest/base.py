"""The Source protocol and its error: one read of the outside world becomes one Batch."""

from __future__ import annotations

from collections.abc import Set
from typing import Protocol

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
