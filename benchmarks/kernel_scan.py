"""A kernel log of 200 MB, nearly all of it healthy: our scan against `re` one pattern after the other, and against
ripgrep with the same patterns; whole processes on the same file."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.ratio import Ratio, measure
from detectors.kernel.lines import codes
from detectors.kernel.rules import PIECES, packaged
from detectors.scan import chunks
from tests.detectors.kernel.healthy import lines
from tests.services.need import find

#: Bytes of the file; of the slice that `re` reads (it would need minutes for the whole), both per round.
FILE_BYTES, SLICE_BYTES = 200_000_000, 2_000_000
#: Lines that are made; the file repeats them. One in a thousand is a fault.
MADE, ONE_IN = 100_000, 1000
OURS = (
    "import sys; from detectors.kernel.lines import codes; from detectors.scan import chunks; "
    "print(sum(1 for _ in codes(chunks(open(sys.argv[1], 'rb')))))"
)
_AHEAD = re.compile(r"\(\?!(?:[^()\\\[]|\\.|\[(?:[^\]\\]|\\.)*\]|\((?:[^()\\]|\\.)*\))*\)")


def run() -> Iterator[Ratio]:
    text = "\n".join(log()).encode() + b"\n"
    piece = text[: text.rfind(b"\n", 0, SLICE_BYTES) + 1]
    patterns = [re.compile(pattern.encode(), re.DOTALL) for pattern in plain()]
    words = f"scan of {len(piece) / 1e6:.0f} MB of kernel log, {len(patterns)} patterns"
    ours, peer = (lambda: list(codes(chunks(io.BytesIO(piece))))), (lambda: one_by_one(piece, patterns))
    yield measure(words, "`re` one pattern after the other", ours, peer, n=3, warm=1)
    ripgrep = find("rg")
    if ripgrep is None:
        print("kernel_scan against ripgrep: not measured, ripgrep is not installed")
        return
    with tempfile.TemporaryDirectory() as folder:
        yield from whole(Path(folder), text, ripgrep)


def whole(folder: Path, text: bytes, ripgrep: str) -> Iterator[Ratio]:
    """Processes from start to end, in turns; the file is in the page cache for both."""
    file, patterns = folder / "kern.log", folder / "patterns"
    with file.open("wb") as out:
        for _ in range(FILE_BYTES // len(text)):
            out.write(text)
    patterns.write_text("\n".join(plain(ahead=False)) + "\n")
    mine = [sys.executable, "-c", OURS, str(file)]
    theirs = [str(ripgrep), "--no-unicode", "-c", "-f", str(patterns), str(file)]

    def work(command: list[str]) -> int:
        return int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout)

    print(f"kernel_scan: {work(mine):,} codes, {work(theirs):,} lines of ripgrep in {file.stat().st_size / 1e6:.0f} MB")
    words = f"scan of {file.stat().st_size / 1e6:.0f} MB of kernel log, whole process"
    yield measure(words, "rg --no-unicode -f", lambda: work(mine), lambda: work(theirs), n=7, warm=1)


def log() -> Iterator[str]:
    faults = [line for rule in packaged() for line in rule.matches]
    for place, line in enumerate(lines(11, MADE)):
        yield line
        if place % ONE_IN == 0:
            yield f"Feb  3 11:38:06 gpu-0412 kernel: [   12.345678] {faults[place // ONE_IN % len(faults)]}"


def plain(*, ahead: bool = True) -> list[str]:
    """The patterns without names; for ripgrep in its own ways: no lookahead, and no bounds that only cost it."""
    out = [r"NVRM: Xid \(PCI:[0-9a-f:.]+[^)]*\): [0-9]+", r"SXid \(PCI:[0-9a-f:.]+\): [0-9]+"]
    out += [r"fallen off the bus", r"Linux version [0-9]+\.[0-9]+\S* \("]
    for rule in packaged():
        pattern = rule.pattern
        for name, piece in PIECES.items():
            pattern = pattern.replace(name, piece)
        pattern = re.sub(r"\(\?P<\w+>", "(?:", pattern)
        out.append(pattern if ahead else _AHEAD.sub("", pattern).replace(PIECES["{any}"], ".*"))
    return out


def one_by_one(text: bytes, patterns: list[re.Pattern[bytes]]) -> list[bytes]:
    return [line for line in text.split(b"\n") if any(pattern.search(line) for pattern in patterns)]
