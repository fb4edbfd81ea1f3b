"""A Follower in a test's hands, whose marks are committed as the loop commits them."""

from __future__ import annotations

from pathlib import Path

from backend.ingest.follow import Budget, Follower, Piece
from backend.ingest.track import MAX_LINE_BYTES

T = 1_770_000_000.0
GRACE_S = 10.0


class Reader:
    """A Follower in a test's hands: what it brought counts once it is committed, as in the loop."""

    def __init__(self, *paths: Path, budget: Budget | None = None, rotates: bool = True) -> None:
        self.paths, self.budget, self.rotates = paths, budget, rotates
        self.marks: dict[str, str] = {}
        self.lines: list[str] = []
        self.now = T
        self.start()

    def start(self) -> None:
        self.follower = Follower(self.budget, GRACE_S, rotates=self.rotates)
        for path in self.paths:
            self.follower.want(str(path))
        self.follower.resume(self.marks)

    def turn(self, *, crash: bool = False) -> list[str]:
        self.now += 1
        brought = [line for piece in self.follower.turn(self.now) for line in lines_of(piece)]
        if crash:
            self.start()
            return []
        for name, mark in self.follower.moved().items():
            if mark is None:
                self.marks.pop(name, None)
            else:
                self.marks[name] = mark
        self.lines += brought
        return brought

    def drain(self, most: int = 60) -> list[str]:
        """Until nothing comes any more, and past the grace."""
        brought, idle = [], 0
        for _ in range(most * 20):
            new = self.turn()
            brought += new
            idle = 0 if new or self.follower.more else idle + 1
            if idle == 3:
                self.now += GRACE_S
            if idle > 6:
                break
        return brought


def lines_of(piece: Piece) -> list[str]:
    text = piece.chunk.decode(errors="replace")
    return [line[:MAX_LINE_BYTES] for line in text.removesuffix("\n").split("\n")]


def append(path: Path, *lines: str, end: str = "\n") -> None:
    with path.open("ab") as file:
        for line in lines:
            file.write((line + end).encode())
