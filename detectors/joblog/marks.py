"""Lines that tell who runs where and what all ranks reached together: for clocks, for culprits, for summaries."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from detectors.joblog.lines import Line, is_address, read_line

_INIT = re.compile(
    r"NCCL INFO comm 0x[0-9a-f]+ rank (\d{1,6}) nranks (\d{1,6}) cudaDev (\d{1,3})(?:[^\n]{0,80}?commId (0x[0-"
    r"9a-f]+))?",
    re.ASCII,
)
_USING = re.compile(r"Bootstrap ?: Using [\w.]{1,40}:(?:\[)?([0-9a-fA-F.:]{3,45}?)(?:\])?<\d+>", re.ASCII)
_STEP_MARK = re.compile(
    r"\b(global_?step|step|iteration|iter|epoch)s?\b['\"]?\s{0,4}[:=\[#|]?\s{0,4}\[?(\d{1,12})",
    re.ASCII | re.IGNORECASE,
)
_BARRIER = re.compile(r"\b(?:barrier|checkpoint|eval\w*|sync\w*)\b[^\n]{0,60}?(\d{1,12})", re.ASCII | re.IGNORECASE)
_WORLD = re.compile(r"\b(?:world[_ ]?size|WORLD_SIZE|nranks|num_processes)\s?[=:]?\s?(\d{1,6})\b", re.ASCII)
_WATCHDOG = re.compile(r"Work\w{0,8}\(SeqNum=(\d{1,12}), OpType=(\w{1,40})", re.ASCII)
_WORK = re.compile(
    r"last enqueued (?:NCCL )?work: (-?\d{1,12}),? (?:[^\n]{0,80}?)last completed (?:NCCL )?work: (-?\d{1,12})",
    re.ASCII,
)
#: ``gn12 rank 3/16`` and ``rank 3/16 on gn12``.
_PLACED = re.compile(
    r"(?:\b(?P<before>[A-Za-z][\w\-]{0,60}\d[\w\-]{0,20}) )?\brank[ =:](?P<rank>\d{1,6})(?:/| of )\d{1,6}\b"
    r"(?: (?:on|at|host|node)[ =:](?P<behind>[A-Za-z][\w\-.]{0,80}))?",
    re.ASCII,
)
_STALLED = re.compile(r"^\s*(\d{1,6}): \[", re.ASCII)
_ROOT = re.compile(
    r"\s{0,8}(?:\[(\d{1,6})\]:)?\s{0,8}(time|host|rank|exitcode|error_file|traceback)\s{0,8}: (.{0,300})"
)


@dataclass(frozen=True, slots=True)
class Watchdog:
    """What a rank's watchdog said of the collective that hung. Missing numbers are -1."""

    rank: int | None
    seq: int = -1
    op: str = ""
    enqueued: int = -1
    completed: int = -1


@dataclass(frozen=True, slots=True)
class Root:
    """The "Root Cause (first observed failure)" block that torchrun prints at the end."""

    open: bool = False
    at: float | None = None
    host: str = ""
    rank: int | None = None
    exit_code: int | None = None


@dataclass(slots=True)
class Seen:
    """Ranks that spoke; hosts by rank, ranks by (host, GPU), hosts by address; ``stalled``: named as missing."""

    ranks: set[int] = field(default_factory=set)
    hosts: dict[int, str] = field(default_factory=dict)
    of_gpu: dict[tuple[str, int], int] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    world: int = 0
    stalled: list[int] = field(default_factory=list)
    listing: bool = False

    def take(self, line: Line) -> None:
        """Learn from one line; each memory is bounded by the world."""
        if line.rank is not None and len(self.ranks) < 100_000:
            self.ranks.add(line.rank)
            if line.host:
                self.hosts.setdefault(line.rank, line.host)
        if self.listing or "issing ranks" in line.text:
            self._missing(line)
        if "NCCL INFO" in line.text:
            self._nccl(line)
        if "rank" in line.text[:400] and (found := _PLACED.search(line.text[:400])):
            self._placed(line, int(found["rank"]), found["behind"] or found["before"] or "")
        if world := _WORLD.search(line.text[:2000]):
            self.world = max(self.world, int(world[1]))

    def _nccl(self, line: Line) -> None:
        if (found := _INIT.search(line.text)) and line.host:
            self.world = max(self.world, int(found[2]))
            if int(found[2]) >= self.world:
                self.hosts[int(found[1])] = line.host
                self.of_gpu[(line.host, int(found[3]))] = int(found[1])
        if (found := _USING.search(line.text)) and line.host:
            self.addresses[found[1]] = line.host

    def _placed(self, line: Line, rank: int, host: str) -> None:
        """A process says where it is; launchers give only its address."""
        if host and is_address(line.host) and len(self.addresses) < 100_000:
            self.addresses.setdefault(line.host, host)
        if host and len(self.hosts) < 100_000:
            self.hosts.setdefault(rank, host)

    def _missing(self, line: Line) -> None:
        """Horovod lists the ranks it waits for, one a line."""
        if not self.listing:
            self.listing = "issing ranks" in line.text
        elif line.rank is not None and line.text.startswith("["):
            self.stalled.append(line.rank)
        elif found := _STALLED.match(line.text):
            self.stalled.append(int(found[1]))
        else:
            self.listing = False


def mark_of(text: str) -> str:
    """A name for what all ranks pass at about the same time, or ""."""
    if found := _INIT.search(text):
        return f"comm {found[4] or found[2]} {'complete' if 'COMPLETE' in text else 'start'}"
    if found := _STEP_MARK.search(text[:300]):
        return f"{found[1].lower().replace('_', '')} {found[2]}"
    if found := _BARRIER.search(text[:300]):
        return " ".join(text[: found.end()].lower().split())[-80:]
    return ""


def watchdog_of(text: str, rank: int | None) -> Watchdog | None:
    """Sequence numbers in a watchdog's line; None for any other line."""
    found, work = _WATCHDOG.search(text), _WORK.search(text)
    if found is None and work is None:
        return None
    return Watchdog(
        rank,
        int(found[1]) if found else -1,
        found[2] if found else "",
        int(work[1]) if work else -1,
        int(work[2]) if work else -1,
    )


def root_of(text: str, root: Root | None) -> Root | None:
    """The summary so far, with one more line of it taken in."""
    if "first observed failure" in text:
        return Root(open=True)
    if root is None or not root.open:
        return root
    found = _ROOT.match(text)
    if not found:
        return replace(root, open=not text.startswith(("---", "===")))
    key, value = found[2], found[3].strip()
    if key == "time":
        return replace(root, at=read_line(value.replace("_", " ") + " ").at)
    if key == "host":
        return replace(root, host=value)
    number = re.match(r"-?\d{1,9}", value)
    if key == "rank" and number:
        return replace(root, rank=int(number[0]))
    if key == "exitcode" and number:
        return replace(root, exit_code=int(number[0]))
    return replace(root, open=key != "traceback")
