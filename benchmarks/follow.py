"""Following log files: throughput against a plain read of the same bytes, memory a file, and a turn that is quiet."""

from __future__ import annotations

import os
import random
import tempfile
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

from backend.ingest.files import FileSource, Where
from backend.ingest.follow import Budget, Follower
from benchmarks.ratio import Ratio, measure
from detectors.kernel.lines import parse, scanner

FILES, PAIRS = 1_000, 15
#: One busy log; and how much each of the many holds at first and grows by.
ONE_BYTES, EACH_BYTES = 67_108_864, 65_536
WORDS = (
    "usb 1-1: new high-speed device",
    "systemd[1]: Started session",
    "audit: type=1400 apparmor",
    "eth0: renamed from veth",
)
NOW = 1_770_000_000.0


def run() -> Iterator[Ratio]:
    """One large file, then a thousand, then a thousand that are quiet."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "kern.log"
        log.write_bytes(lines(ONE_BYTES))
        one = [log]
        yield measure("follow 64 MB of one log", "read() of it", lambda: followed(one), lambda: plain(one), n=PAIRS)
        yield measure("follow and scan 64 MB of it", "read() of it", lambda: heard(log), lambda: plain(one), n=PAIRS)
        log.unlink()
        logs = [Path(folder) / f"{n:04}.log" for n in range(FILES)]
        for each in logs:
            each.write_bytes(lines(EACH_BYTES))
        yield measure(
            f"follow {FILES} logs of 64 kB", "read() of them", lambda: followed(logs), lambda: plain(logs), n=5
        )
        yield quiet(logs)
        memory(logs)


def lines(size: int) -> bytes:
    """Benign kernel lines, always the same ones."""
    chance, made = random.Random(1), bytearray()
    numbers = count()
    while len(made) < size:
        n = next(numbers)
        text = f"kernel: [{n}.1] {chance.choice(WORDS)} {chance.random()}"
        made += f"Mar  1 11:59:{n % 60:02} gpu-{n % 100:04} {text}\n".encode()
    return bytes(made)


def followed(logs: list[Path]) -> None:
    """Every byte of files that are seen for the first time."""
    follower = Follower(Budget(bytes=1 << 40, backlog_bytes=1 << 40))
    for log in logs:
        follower.want(str(log))
    taken = sum(len(piece.chunk) for piece in follower.turn(NOW))
    if taken != sum(log.stat().st_size for log in logs):
        raise RuntimeError(f"{taken} bytes were taken")
    follower.resume({})


def heard(log: Path) -> None:
    """As the source does it: also scanned for what the kernel says of faults."""
    budget = Budget(bytes=1 << 40, backlog_bytes=1 << 40)
    source = FileSource([str(log)], parse, scanner().hits, Where("head"), budget)
    source.resume({"pattern " + str(log): "known"})
    if source.read(frozenset(), NOW, NOW).events:
        raise RuntimeError("benign lines made events")
    source.resume({})


def plain(logs: list[Path]) -> None:
    """What no reader can do without."""
    for log in logs:
        fd = os.open(log, os.O_RDONLY)
        while os.read(fd, 262_144):
            pass
        os.close(fd)


def quiet(logs: list[Path]) -> Ratio:
    """A turn in which nothing was written, against one stat() a file."""
    follower = Follower()
    for log in logs:
        follower.want(str(log))
    while list(follower.turn(NOW)):
        pass
    names = [str(log) for log in logs]

    def ours() -> None:
        if list(follower.turn(NOW)):
            raise RuntimeError("a quiet file was read")

    def peer() -> None:
        for name in names:
            os.stat(name)

    found = measure(f"a quiet turn of {FILES} logs", "stat() of each", ours, peer, n=PAIRS)
    follower.resume({})
    return found


def memory(logs: list[Path]) -> None:
    """Bytes a file once all are read, and once each has grown and been rotated, emptied or copied away."""
    tracemalloc.start()
    begin = tracemalloc.get_traced_memory()[0]
    follower = Follower(Budget(open_files=0), grace_s=0.0)
    for log in logs:
        follower.want(str(log))
    for turn, change in enumerate((stay, rotate, empty, stay, rotate, empty, rotate, stay)):
        for log in logs:
            change(log)
        for n in range(4):
            for _ in follower.turn(NOW + 10 * turn + n):
                pass
        follower.moved()
        held = (tracemalloc.get_traced_memory()[0] - begin) / len(logs)
        print(f"memory after {change.__name__}: {held:.0f} bytes a file of {len(logs)}, of any size")
    tracemalloc.stop()


def stay(log: Path) -> None:
    with log.open("ab") as file:
        file.write(lines(EACH_BYTES))


def rotate(log: Path) -> None:
    with suppress(FileNotFoundError):
        log.with_suffix(".log.1").unlink()
    log.rename(log.with_suffix(".log.1"))
    log.write_bytes(lines(EACH_BYTES))


def empty(log: Path) -> None:
    log.write_bytes(b"Mar  1 12:00:00 gpu-0001 kernel: after\n")
