"""What of a failing log is worth keeping: the lines around the first that a rule names, and its last ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from detectors.joblog.lines import expanded
from detectors.joblog.masks import masked

#: Lines of one log, and characters of a line, that are kept. A traceback and what led to it fit.
MOST_LINES, MOST_CHARS = 24, 300
#: Lines and characters of a whole job, whatever its number of ranks.
JOB_LINES, JOB_CHARS = 40, 6_000
#: Bytes that are looked at: before and behind the first line that a rule names, and at the end of the log.
BEFORE, BEHIND, TAIL = 1_600, 800, 8_192
#: Lines at the very end that are kept whatever they say: how a log stops tells something, too.
LAST = 4
#: A line of fewer characters is a rule's only where it is the whole of it.
WHOLE = 12
#: Marks a line that a rule names; what is learnt is learnt from the others.
NAMED, PLAIN = "! ", "  "
_ERROR = re.compile(
    r"error|exception|fail|fatal|abort|panic|critical|traceback|cannot|can't|could ?n[o']t|unable|den(?:ied|y)|refused"
    r"|time[d -]{0,2}out|no such|not (?:found|enough|supported|available)|invalid|mismatch|corrupt|kill|signal|assert"
    r"|lost|unreachable|overflow|exceed|missing|illegal|broken|stale|stuck|unexpected|quota|full\b|\b[EFW]\d{4}\b",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Window:
    """The end of a log that is being read, and what stands around its first hit. O(1) memory."""

    tail: bytes = b""
    around: bytes = b""
    begin: int = 0
    wants: int = 0

    def hit(self, block: bytes, start: int) -> None:
        """A rule names the line at ``start`` of the block that is taken next; the first one counts."""
        if not self.around:
            before = (self.tail + block[:start] if start < BEFORE else block[:start])[-BEFORE:]
            self.around = before if len(before) < BEFORE else before.partition(b"\n")[2]
            self.begin, self.wants = start, BEHIND

    def take(self, block: bytes) -> None:
        """The next plain block of the log."""
        if self.wants:
            piece = block[self.begin : self.begin + self.wants]
            self.around += piece or b"\n"
            self.begin, self.wants = 0, self.wants - len(piece)
        tail = block[-TAIL:] if len(block) >= TAIL else (self.tail + block)[-TAIL:]
        self.tail = tail if len(tail) < TAIL else tail.partition(b"\n")[2] or tail

    def lines(self, named: Iterable[str]) -> tuple[str, ...]:
        """The distinct lines that look like an error, in order, each marked NAMED or PLAIN. ``named``: texts of the
        lines that a rule names."""
        known = [text for text in named if text]
        found: dict[str, str] = {}
        around = b"" if self.around in self.tail else self.around
        for text in (*_telling(around), *_telling(self.tail, LAST)):
            mark = NAMED if any(_same(text, one) for one in known) else PLAIN
            found.setdefault(masked(text), mark + text[:MOST_CHARS])
        lines = list(found.values())
        head = lines[: MOST_LINES // 3]
        return tuple(lines if len(lines) <= MOST_LINES else head + lines[-(MOST_LINES - len(head)) :])


def _same(text: str, named: str) -> bool:
    """Whether a line without its prefix is the one that a rule names, with or without it."""
    return text[:MOST_CHARS] in named if len(text) >= WHOLE else text == named


def _telling(blob: bytes, last: int = 0) -> Iterator[str]:
    """Lines that look like an error, and the ``last`` ones whatever they say."""
    raw = [line[: 4 * MOST_CHARS].decode("utf-8", "replace").lstrip("\x02") for line in blob.split(b"\n")]
    texts = [line.text.rstrip() for one in raw for line in expanded(one)]
    said = [text for text in texts if text.strip()]
    for place, text in enumerate(said):
        if place >= len(said) - last or _ERROR.search(text[:MOST_CHARS]):
            yield text


def excerpt_of(logs: Iterable[tuple[str, ...]]) -> str:
    """One excerpt of all logs of a job, the likeliest culprit's first; what an earlier one said is left out."""
    found: dict[str, str] = {}
    size = 0
    for line in (line for log in logs for line in log):
        key = masked(line[len(NAMED) :])
        if key not in found and len(found) < JOB_LINES and size + len(line) <= JOB_CHARS:
            found[key], size = line, size + len(line) + 1
    return "\n".join(found.values())
