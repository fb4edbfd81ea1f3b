"""What job wrappers and collectives libraries tell, as frozen facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ReportFacts:
    """What the job wrapper tells of one process that ended. ``id`` is the same for the same report told twice.

    ``task`` of ``tasks``: its place among the wrappers of its attempt, None = it stands alone. ``rank`` is None where
    it started the ranks itself. ``excerpt``: spans of its log, (number of the first line, bytes before it, text),
    redacted where it ran. ``more_launches``: its launcher may start the ranks again by itself. ``whole``: the row.
    """

    id: str
    at: float
    host: str
    job: str
    restart: int
    start: float
    exit_code: int
    signal: int | None = None
    relaunch: int = 0
    more_launches: bool = False
    task: int | None = None
    tasks: int | None = None
    rank: int | None = None
    name: str = ""
    log_class: str = ""
    asked_to_end: bool = False
    oom_kills: int = 0
    path: str = ""
    excerpt: tuple[tuple[int, int, str], ...] = ()
    whole: Mapping[str, object] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        return self.exit_code != 0


@dataclass(frozen=True, slots=True)
class ToldFacts:
    """One call of a communicator as a rank saw it, or a phase of a run that begins or ends. ``namespace``
    ``collective`` or ``ckpt``; ``code`` and ``attrs`` as in ``detectors/training/told.py``; ``at`` unix s."""

    at: float
    namespace: str
    code: str
    run: str = ""
    job: str = ""
    rank: int | None = None
    host: str = ""
    attrs: Mapping[str, str] = field(default_factory=dict)
