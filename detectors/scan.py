"""Which lines of a chunk of log are worth reading: literals first, all at once, by the fastest engine at hand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO, Literal

#: hyperscan and ahocorasick are packages (x86 and portable); plain needs nothing. All three find the same.
Engine = Literal["hyperscan", "ahocorasick", "plain"]
ENGINES: tuple[Engine, ...] = ("hyperscan", "ahocorasick", "plain")
#: (index of the literal, offset behind it) of every occurrence, overlapping ones too, in no order.
Finds = Callable[[bytes], Sequence[tuple[int, int]]]
#: Bytes read at a time: measured best between the cost of a call and the caches.
CHUNK_BYTES = 1 << 18


class Scanner:
    """Literals (text without newlines, matched byte for byte in UTF-8) and one engine that looks for all of them.

    Threads may share one. engine: empty = the fastest that is installed. Raises ValueError for an empty literal, one
    with a newline, or an engine that is not installed.
    """

    def __init__(self, literals: Iterable[str], engine: Engine | None = None) -> None:
        self.literals = tuple(literals)
        self._bytes = tuple(literal.encode() for literal in self.literals)
        wrong = [literal for literal in self.literals if not literal or "\n" in literal]
        if wrong:
            raise ValueError(f"{wrong[0]!r} is no literal: it is empty, or holds a newline")
        self.engine, self._finds = _engine(self._bytes, engine)

    def hits(self, chunk: bytes) -> list[tuple[int, int]]:
        """(start, end) of every line of ``chunk`` that holds a literal, in order, without its newline."""
        return [(start, end) for start, end, _ in self.lines(chunk)]

    def lines(self, chunk: bytes) -> list[tuple[int, int, set[int]]]:
        """As ``hits``, with the indices into ``literals`` of those that the line holds."""
        found: list[tuple[int, int, set[int]]] = []
        behind, held = -1, set[int]()
        for index, end in sorted(self._finds(chunk), key=_behind):
            if end > behind:
                start = chunk.rfind(b"\n", 0, end) + 1
                behind = chunk.find(b"\n", end)
                behind = len(chunk) if behind < 0 else behind
                held = set()
                found.append((start, behind, held))
            held.add(index)
        return found

    def which(self, line: bytes) -> frozenset[int]:
        """Indices into ``literals`` of those that stand in one line."""
        return frozenset(index for index, _ in self._finds(line))

    def __contains__(self, line: bytes) -> bool:
        return bool(self._finds(line))


def _behind(found: tuple[int, int]) -> int:
    return found[1]


def chunks(file: BinaryIO, size: int = CHUNK_BYTES) -> Iterator[bytes]:
    """The rest of a file in pieces of about ``size`` bytes that end behind a newline; a longer line comes in pieces."""
    while piece := file.read(size):
        yield piece if piece.endswith(b"\n") else piece + file.readline(size)


def _engine(literals: Sequence[bytes], asked: Engine | None) -> tuple[Engine, Finds]:
    if not literals:
        return "plain", lambda chunk: ()
    makers: dict[Engine, Callable[[Sequence[bytes]], Finds]] = {"hyperscan": _hyperscan, "ahocorasick": _ahocorasick}
    for name in ENGINES if asked is None else (asked,):
        if name not in makers:
            return name, _plain(literals)
        try:
            return name, makers[name](literals)
        except ImportError as error:
            if asked is not None:
                raise ValueError(f"the engine {name} is not installed: {error}") from error
    raise AssertionError("plain needs nothing")


def _hyperscan(literals: Sequence[bytes]) -> Finds:
    """One database for all literals. Its scratch space serves one scan at a time, hence the lock."""
    import hyperscan

    database = hyperscan.Database()
    database.compile(
        expressions=list(literals), ids=list(range(len(literals))), elements=len(literals), flags=0, literal=True
    )
    lock = threading.Lock()

    def finds(chunk: bytes) -> Sequence[tuple[int, int]]:
        found: list[tuple[int, int]] = []

        def take(index: int, start: int, end: int, flags: int, context: object) -> None:
            found.append((index, end))

        if chunk:
            with lock:
                database.scan(chunk, match_event_handler=take)
        return found

    return finds


def _ahocorasick(literals: Sequence[bytes]) -> Finds:
    from ahocorasick_rs import BytesAhoCorasick, Implementation, MatchKind

    automaton = BytesAhoCorasick(list(literals), matchkind=MatchKind.Standard, implementation=Implementation.DFA)

    def finds(chunk: bytes) -> Sequence[tuple[int, int]]:
        return [(index, end) for index, _, end in automaton.find_matches_as_indexes(chunk, overlapping=True)]

    return finds


def _plain(literals: Sequence[bytes]) -> Finds:
    def finds(chunk: bytes) -> Sequence[tuple[int, int]]:
        return [(index, at + len(literal)) for index, literal in enumerate(literals) for at in _places(chunk, literal)]

    return finds


def _places(chunk: bytes, literal: bytes) -> Iterator[int]:
    at = chunk.find(literal)
    while at >= 0:
        yield at
        at = chunk.find(literal, at + 1)
