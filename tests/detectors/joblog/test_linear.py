"""What a line costs grows with its length and no faster, whatever somebody prints to make it cost more."""

from __future__ import annotations

import re
import time

import pytest

from detectors.joblog.phrases import MAX_CHARS
from detectors.joblog.rules import Rule, classify_lines
from tests.detectors.joblog.reads import rules, sheet, verdict

#: An escape, a set, or a repeat that may go on without end.
_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(?P<endless>[*+]|\{\d+,\})")
#: Most for one line of the longest that is looked at, in seconds; it takes a hundredth on an idle machine.
MOST_S = 1.5


@pytest.mark.parametrize("rule", rules().table.rules, ids=lambda rule: rule.name)
def test_every_repeat_of_a_rule_has_a_bound(rule: Rule) -> None:
    endless = [found.start() for found in _TOKEN.finditer(rule.pattern.pattern) if found["endless"]]
    assert not endless, f"{rule.name}: {rule.pattern.pattern[max(0, endless[0] - 20) : endless[0] + 5]!r}"


@pytest.mark.parametrize("between", ["", " ", "x"])
def test_a_line_made_of_a_rules_own_words_costs_no_more_than_it_must(between: str) -> None:
    slow = []
    for rule in rules().table.rules:
        for literal in rule.literals[:12]:
            line = ((literal + between) * MAX_CHARS)[:MAX_CHARS]
            began = time.process_time()
            rule.pattern.search(line)
            if (took := time.process_time() - began) > MOST_S:
                slow.append((rule.name, literal, took))
    assert not slow


def test_a_quoted_line_of_a_traceback_is_told_in_linear_time() -> None:
    lines = ['File "a.py", line 3, in f', "x" * MAX_CHARS, 'File "a.py", line 3, in f', "a " * MAX_CHARS]
    began = time.process_time()
    assert classify_lines(rules().table, lines * 20) is None
    assert time.process_time() - began < MOST_S


@pytest.mark.parametrize(
    "log",
    [
        b"\x1b[" * 500_000,
        b"\x1b]" + b"x" * 1_000_000,
        b"{" * 200_000 + b"\n" + b'{"message":' * 40_000 + b"\n",
        b"\0" * 1_000_000,
        "\ufeffTraceback\nKeyError: 1\n".encode("utf-16-be") * 10_000,
        b"\r" * 300_000,
        b"HYD_" * 100_000,
        b'  File "x", line 1, in f\n' * 40_000,
        b"\x80" * 300_000,
    ],
    ids=["ansi", "osc", "json", "nul", "utf-16", "returns", "words", "frames", "bytes"],
)
def test_absurd_logs_are_read_to_their_end(log: bytes) -> None:
    began = time.process_time()
    verdict(log)
    assert time.process_time() - began < 20


@pytest.mark.parametrize("shift", range(0, 60, 7))
def test_a_line_is_read_whole_wherever_the_reader_cuts(shift: int) -> None:
    said = "RuntimeError: CUDA error: device-side assert triggered\n"
    filler = "x" * 99 + "\n"
    log = filler * 10_485 + "y" * (1_048_576 - 1_048_500 - 1 - shift) + "\n" + said + filler * 20_000
    for size in (len(log), 1 << 20, 700_001):
        found = sheet(log, size=size)
        assert [(hit.log_class, hit.line) for hit in found.hits] == [("device_side_assert", 10_487)]


@pytest.mark.parametrize("end", ["", "\n"])
def test_lines_are_numbered_as_an_editor_does_also_behind_very_long_ones(end: str) -> None:
    bar = "\r".join(f" 10%|#  | {n}/9000 [00:01<00:10]" for n in range(40_000))
    found = sheet("z" * 3_000_000 + "\n" + bar + "\n" + "KeyError: 'a'" + end)
    assert ([hit.line for hit in found.hits], found.lines) == ([3], 3)
