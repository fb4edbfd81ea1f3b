"""The last line of a traceback is the failure; a source line quoted in it is not, however it was prefixed."""

from __future__ import annotations

import pytest

from detectors.joblog.phrases import quoted
from detectors.joblog.rules import classify_lines
from tests.detectors.joblog.reads import rules, verdict

SAID = "RuntimeError: CUDA error: an illegal memory access was encountered"


@pytest.mark.parametrize("prefix", ["", "[rank3]: ", "3: ", "2025-08-11 09:00:01,551 ", "[default1]:", "\x1b[31m"])
@pytest.mark.parametrize("where", ["<stdin>", "<frozen runpy>", "/w/fused.so", "<string>"])
def test_an_exception_whose_source_is_not_at_hand_is_still_read(prefix: str, where: str) -> None:
    lines = ["Traceback (most recent call last):", f'  File "{where}", line 1, in <module>', SAID]
    log = "".join(f"{prefix}{line}\n" for line in lines)
    assert verdict(log).log_class == "illegal_memory_access"
    hit = classify_lines(rules().table, log.splitlines())
    assert hit is not None and hit.log_class == "illegal_memory_access"


@pytest.mark.parametrize("prefix", ["", "[rank3]: ", "2025-08-11 09:00:01,551 "])
def test_a_quoted_source_line_is_no_failure(prefix: str) -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "/w/t.py", line 3, in f',
        f'    fail("{SAID}")',
        "KeyError: 'x'",
    ]
    assert verdict("".join(f"{prefix}{line}\n" for line in lines)).log_class == "user_code_exception"


@pytest.mark.parametrize(
    ("before", "line", "is_source"),
    [
        ('  File "a.py", line 3, in f', "    x = y", True),
        ('  File "a.py", line 3, in f', "ValueError: x", False),
        ('  File "a.py", line 3, in f', "torch.OutOfMemoryError", False),
        ('File "a.py", line 3, in f', "assert 'out of memory'", True),
        ('File "a.py", line 3, in f', "ValueError: out of memory", False),
        ("x = 1", "    y = 2", False),
        ('  File "a.py", line 3, in f', "", False),
    ],
)
def test_source_lines_are_told_by_their_indent(before: str, line: str, is_source: bool) -> None:
    assert quoted(before, line) is is_source
