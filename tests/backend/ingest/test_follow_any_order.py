"""Files are followed in any order of writes, rotations, truncations and crashes: each whole line comes once."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.ingest.follow import LOST, Budget
from backend.ingest.track import MAX_LINE_BYTES
from tests.backend.ingest.following import Reader, T


class Site:
    """A log, its writer and its rotation, and every line that was written whole."""

    def __init__(self, folder: Path, budget: Budget) -> None:
        self.log = folder / "kern.log"
        self.clock = count(1)
        self.numbers = count()
        self.written: list[str] = []
        self.begun = ""
        self.writes_to = self.log
        self.log.touch()
        self.reader = Reader(self.log, budget=budget)
        self.line()
        self.reader.turn()

    def put(self, text: str) -> None:
        with self.writes_to.open("ab") as file:
            file.write(text.encode())
        self.stamp(self.writes_to)

    def stamp(self, path: Path) -> None:
        """Files written one after another have different times, as on a real system."""
        at = T + next(self.clock)
        os.utime(path, (at, at))

    def line(self, length: int = 0) -> None:
        text = f"{next(self.numbers)}:" + "x" * length
        self.written.append((self.begun + text)[:MAX_LINE_BYTES])
        self.begun = ""
        self.put(text + "\n")

    def long_line(self) -> None:
        self.line(100_000)

    def some(self) -> None:
        for _ in range(50):
            self.line(30)

    def part(self) -> None:
        text = f"[part {next(self.numbers)}]"
        self.begun += text
        self.put(text)

    def _break(self) -> None:
        """What was begun stays a line of its own."""
        if self.begun:
            self.written.append(self.begun)
            self.begun = ""

    def _shift(self) -> None:
        for n in range(30, 0, -1):
            old = self.log.with_name(f"kern.log.{n}")
            if old.exists():
                old.rename(self.log.with_name(f"kern.log.{n + 1}"))

    def rename(self) -> None:
        """The writer keeps its file until it is told."""
        if not self.log.exists() or self.writes_to != self.log:
            return self.reopen()
        self._shift()
        self.log.rename(self.log.with_name("kern.log.1"))
        self.writes_to = self.log.with_name("kern.log.1")

    def reopen(self) -> None:
        if self.writes_to != self.log:
            self._break()
            self.writes_to = self.log
            self.log.touch()
            self.stamp(self.log)

    def create_early(self) -> None:
        """The new file is there while the writer still writes the old one."""
        if self.writes_to != self.log and not self.log.exists():
            self.log.touch()
            self.stamp(self.log)

    def copy_and_truncate(self) -> None:
        self.reopen()
        self.line()
        self.reader.drain()  # nobody could tell that a file was emptied of which nothing was read
        self.line()
        self._shift()
        shutil.copyfile(self.log, self.log.with_name("kern.log.1"))
        self.stamp(self.log.with_name("kern.log.1"))
        os.truncate(self.log, 0)
        self._break()
        self.line(7)

    def turn(self) -> None:
        self.reader.turn()

    def crash(self) -> None:
        self.reader.turn(crash=True)

    def restart(self) -> None:
        self.reader.start()


DEEDS: list[Callable[[Site], None]] = [
    Site.line, Site.line, Site.some, Site.long_line, Site.part, Site.rename, Site.create_early, Site.reopen,
    Site.copy_and_truncate, Site.turn, Site.turn, Site.crash, Site.restart,
]  # fmt: skip


def play(folder: Path, deeds: list[Callable[[Site], None]], budget: Budget) -> None:
    site = Site(folder, budget)
    for deed in deeds:
        deed(site)
    site.reopen()
    site.line()
    site.reader.drain()
    assert sorted(site.reader.lines) == sorted(site.written)
    assert site.reader.follower.counts[LOST] == 0
    for name in list(site.reader.marks):
        assert "#" not in name, "a file that left is remembered for ever"


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    deeds=st.lists(st.sampled_from(DEEDS), max_size=40),
    open_files=st.sampled_from([0, 256]),
    tight=st.booleans(),
)
def test_every_whole_line_comes_once_in_any_order_of_writes_rotations_and_crashes(
    tmp_path: Path, deeds: list[Callable[[Site], None]], open_files: int, tight: bool
) -> None:
    size = 70_000 if tight else 262_144
    with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
        play(Path(folder), deeds, Budget(bytes=size, chunk_bytes=size, open_files=open_files))
