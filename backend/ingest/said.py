"""What one line of a log says, whatever form it had."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Said:
    """``at`` in unix s, None where the line bears no time; ``host`` and ``source`` (kernel, or a program's name) are ""
    where it does not say. attrs, as far as said: boot, seq, monotonic_us, uptime_s, level, stream, part, job, rank."""

    at: float | None
    text: str
    host: str = ""
    source: str = ""
    attrs: Mapping[str, str] = field(default_factory=dict)
