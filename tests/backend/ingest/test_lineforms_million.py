"""A million random and mutated lines through every line form: no exception, and time linear in the line."""

from __future__ import annotations

import os
import random
from time import perf_counter

import pytest

from backend.ingest.lineforms import FORMS, read_line
from backend.ingest.linetimes import Origin

ORIGIN = Origin("head", 1_770_000_000.0, None)
#: How many; fewer for a look.
LINES = int(os.environ.get("WATCHKEEPER_TEST_LINES", "1000000"))
SEEDS = (
    "6,1234,5678,-;NVRM: Xid (PCI:0000:9d:00): 79, x", "<6>[   12.345678] text",
    "kern  :err   : [   1.000001] [T12] text",
    "[Mon Mar  2 10:11:12 2026] text", "[Mar 2 10:11] text", "[  +0.000012] text",
    "2026-03-02T10:11:12,345678+01:00 text", "<34>Mar  2 10:11:12 host tag[7]: text",
    "2026-03-02T10:11:12.345+01:00 host kernel: [ 1.2] text", "Mon 2026-03-02 10:11:12 CET host tag[7]: text",
    "1772445072.123456 host kernel: text", '<3>1 2026-03-02T10:11:12Z host app 7 - [a b="\\]"] text',
    "2026-03-02T10:11:12.345678901Z stdout F text", "[2026-03-02T10:11:12.345] error: text",
    "[Mar 02 2026 10:11:12] [INFO] [tid 1] text", '{"log":"text\\n","stream":"stdout","time":"2026-03-02T10:11:12Z"}',
    '{"ts":1,"host":"a","source":"kernel","line":"x"}', '{"__REALTIME_TIMESTAMP":"1","MESSAGE":[1,2,3]}',
)  # fmt: skip
PIECES = '0123456789[]<>{}:;,.-+TZ" \\\t\x00\x1b\ufffdéab'


def mutated(draw: random.Random) -> str:
    line = list(draw.choice(SEEDS))
    for _ in range(draw.randrange(6)):
        place = draw.randrange(len(line) + 1)
        line[place : place + draw.randrange(3)] = draw.choice(PIECES) * draw.choice((1, 1, 1, 40))
    return "".join(line) if draw.random() < 0.9 else "".join(draw.choices(PIECES, k=draw.randrange(80)))


def read_some(count: int, seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(count):
        line = mutated(draw)
        for form in FORMS:
            read_line(form, line, ORIGIN)


def test_two_thousand_mutated_lines_raise_in_no_form() -> None:
    read_some(2_000, 1)


@pytest.mark.slow
def test_a_million_mutated_lines_raise_in_no_form() -> None:
    read_some(LINES, 2)


@pytest.mark.parametrize("piece", ["[", "<1>", "1", "2026-03-02T", '{"a":', "a ", "\\", '"]', ": "])
def test_time_grows_no_faster_than_the_line(piece: str) -> None:
    """Eight times as long may take at most thirty times as long, which leaves room for a busy machine."""
    short, long = ("".join(seed[:12] + piece * n for seed in SEEDS[:3]) for n in (2_000, 16_000))

    def least(line: str) -> float:
        times = []
        for _ in range(3):
            begun = perf_counter()
            for form in FORMS:
                read_line(form, line, ORIGIN)
            times.append(perf_counter() - begun)
        return min(times)

    assert least(long) < 30 * max(least(short), 2e-4)
