"""A million random and mutated lines through every parser of training logs, and one line of 100 MB (slow, by hand)."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from detectors.joblog.ends import error_file_lines
from detectors.joblog.lines import expanded, gpu_in, host_in, rank_in
from detectors.joblog.marks import Root, Seen, mark_of, root_of, watchdog_of
from detectors.joblog.masks import masked
from detectors.joblog.names import host_of, rank_of
from detectors.joblog.phrases import ended, step_of
from detectors.joblog.reading import JOINED, LogReader, Sheet
from detectors.joblog.rules import read_lines
from detectors.joblog.stacks import looks_like_stacks, main_stack
from tests.corpora.dressed_joblogs import cases, jobs
from tests.detectors.joblog.reads import rules, sheet

LINES, CHUNK = 1_000_000, 10_000
#: Most for a thousand lines, in seconds of this process; a tenth on an idle machine.
MOST_S = 3.0
ALPHABET = "abcXYZ019 .:,;/\\[](){}<>\"'`|_-=%#@\t\r\x1b\x00\u00e9\u4e2d\ud83d\ufeff"


def mutated(r: random.Random, line: str) -> str:
    """The line, cut, repeated, with strange letters, or with another in it."""
    for _ in range(r.randint(1, 4)):
        at = r.randrange(len(line) + 1)
        how = r.randrange(6)
        if how == 0:
            line = line[:at] + r.choice(ALPHABET) * r.choice((1, 1, 3, 200)) + line[at:]
        elif how == 1:
            line = line[:at] + line[at + r.randint(1, 9) :]
        elif how == 2:
            line = line[:at]
        elif how == 3:
            line = line[at:] + line[:at]
        elif how == 4:
            line = line[:at] + str(r.randrange(10 ** r.randint(1, 30))) + line[at:]
        else:
            line = line[:at] + line[: r.randint(0, 40)] + line[at:]
    return line[:4000]


def lines(count: int, seed: int = 1) -> Iterator[str]:
    """One in four of random letters, the others mutated from lines of failures."""
    r = random.Random(seed)
    known = [
        line
        for case in (*cases("second"), *cases("third"), *jobs("third"))
        for log in case.logs.values()
        for line in log.splitlines()
    ]
    for _ in range(count):
        if r.randrange(4):
            yield mutated(r, r.choice(known))
        else:
            yield "".join(r.choices(ALPHABET, k=r.randint(0, 90)))


def prefixes(line: str) -> None:
    seen = Seen()
    for one in expanded(line):
        seen.take(one)
    host_in(line)
    rank_in(line)
    gpu_in(line)


def marks(line: str) -> None:
    mark_of(line)
    watchdog_of(line, 1)
    root_of(line, Root(open=True))


def phrases(line: str) -> None:
    step_of(line)
    ended(line)
    masked(line)


def names(line: str) -> None:
    rank_of(line)
    host_of(line)


def others(line: str) -> None:
    tuple(error_file_lines(line.encode(errors="replace")))
    looks_like_stacks(line)
    main_stack(line)


PARSERS: tuple[Callable[[str], None], ...] = (prefixes, marks, phrases, names, others)


def chunks(count: int, seed: int) -> Iterator[list[str]]:
    whole = lines(count, seed)
    while part := [line for _, line in zip(range(min(CHUNK, count)), whole, strict=False)]:
        yield part


def read(count: int, parse: Callable[[list[str]], None], seed: int) -> None:
    for part in chunks(count, seed):
        began = time.process_time()
        parse(part)
        assert (time.process_time() - began) * 1000 / len(part) < MOST_S


def whole(part: list[str]) -> None:
    found: Sheet = sheet("\n".join(part).encode(errors="replace"))
    assert len(found.hits) <= 400


def by_the_wrapper(part: list[str]) -> None:
    read_lines(rules().table, [line.replace("\n", " ") for line in part])


def each(parser: Callable[[str], None]) -> Callable[[list[str]], None]:
    def parse(part: list[str]) -> None:
        for line in part:
            parser(line)

    return parse


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: str(parser.__name__))
def test_some_thousand_lines_pass_each_parser(parser: Callable[[str], None]) -> None:
    read(2_000, each(parser), seed=7)


def test_some_thousand_lines_pass_the_reader_and_the_wrapper() -> None:
    read(2_000, whole, seed=8)
    read(1_000, by_the_wrapper, seed=9)


@pytest.mark.slow
@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: str(parser.__name__))
def test_a_million_lines_pass_each_parser(parser: Callable[[str], None]) -> None:
    read(LINES, each(parser), seed=2)


@pytest.mark.slow
def test_a_million_lines_pass_the_reader_of_logs() -> None:
    read(LINES, whole, seed=3)


@pytest.mark.slow
def test_a_million_lines_pass_the_matcher_that_the_wrapper_carries() -> None:
    read(LINES, by_the_wrapper, seed=4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece", [b"x" * 65_536, b"\r" + b"x" * 65_535, b'{"message": [' * 5_000], ids=["x", "bars", "json"]
)
def test_a_line_of_100_mb_is_read_in_the_memory_of_a_block(piece: bytes) -> None:
    reader = LogReader(rules(), "train.log")
    tracemalloc.start()
    for number in range(100_000_000 // len(piece)):
        reader.feed(piece)
        if number == 64:
            tracemalloc.reset_peak()
            held, _ = tracemalloc.get_traced_memory()
    reader.feed(b" CUDA out of memory. Tried to allocate 2.00 GiB\n")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak - held < 8_000_000
    assert {hit.log_class for hit in reader.close().hits} == {"cuda_oom"}


def test_lines_that_a_terminal_cut_are_joined_up_to_a_bound() -> None:
    cut = "\n".join("x" * 80 for _ in range(40 * JOINED)) + "\nend\n"
    said = "short\n" * 20 + "torch.OutOfMemoryError: CUDA out of mem".ljust(80, ".") + "\nKeyError: 'a'\n"
    began = time.process_time()
    assert [hit.log_class for hit in sheet(cut + said).hits][-1:] == ["user_code_exception"]
    assert time.process_time() - began < 5
