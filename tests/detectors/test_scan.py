"""Every engine finds the same lines as `re`, one by one."""

from __future__ import annotations

import io
import re
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.scan import ENGINES, Engine, Scanner, chunks

LITERALS = ("Xid", "SXid (", "fallen off the bus", "aa", "aaa", "é")
BITS = st.sampled_from((*LITERALS, "a", "\n", "\n", "x", " ", "X", "id", "\r", "\x00"))


def by_hand(chunk: bytes, literals: tuple[str, ...]) -> list[bytes]:
    pattern = re.compile(b"|".join(re.escape(literal.encode()) for literal in literals))
    return [line for line in chunk.split(b"\n") if pattern.search(line)]


@pytest.mark.parametrize("engine", ENGINES)
@given(bits=st.lists(BITS, max_size=60))
@settings(max_examples=120, deadline=None)
def test_hits_are_the_lines_that_re_finds(engine: Engine, bits: list[str]) -> None:
    chunk, scanner = "".join(bits).encode(), Scanner(LITERALS, engine)
    assert [chunk[start:end] for start, end in scanner.hits(chunk)] == by_hand(chunk, LITERALS)
    for start, end, held in scanner.lines(chunk):
        assert held == scanner.which(chunk[start:end])
    for line in chunk.split(b"\n"):
        assert scanner.which(line) == {n for n, literal in enumerate(LITERALS) if literal.encode() in line}
        assert (line in scanner) == bool(scanner.which(line))


@pytest.mark.parametrize("engine", ENGINES)
def test_threads_may_share_one(engine: Engine) -> None:
    scanner, chunk = Scanner(LITERALS, engine), b"x\nXid\n" * 2000
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.extend(len(scanner.hits(chunk)) for _ in range(20))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [2000] * 80


@pytest.mark.parametrize("wrong", ["", "a\nb"])
def test_what_is_no_literal_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="is no literal"):
        Scanner((wrong,))


def test_no_literals_find_nothing() -> None:
    assert Scanner(()).hits(b"Xid\n") == []


@given(lines=st.lists(st.binary(max_size=40), max_size=40), size=st.integers(1, 64))
@settings(max_examples=200, deadline=None)
def test_chunks_lose_nothing_and_cut_only_behind_newlines(lines: list[bytes], size: int) -> None:
    text = b"\n".join(line.replace(b"\n", b"") for line in lines)
    pieces = list(chunks(io.BytesIO(text), size))
    assert b"".join(pieces) == text
    longest = max((len(line) for line in text.split(b"\n")), default=0)
    assert all(piece.endswith(b"\n") or longest >= size or piece is pieces[-1] for piece in pieces)
