"""Checks run side by side: none waits for another, none is silent, none can show a secret."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from backend.doctor.line import Check, Line, State, examine, ok


def test_lines_come_in_the_order_of_their_checks() -> None:
    first_may = threading.Event()

    def late() -> Iterator[Line]:
        assert first_may.wait(10)
        yield ok("first", "done")

    def early() -> Iterator[Line]:
        first_may.set()
        yield ok("second", "done")
        yield ok("second", "and more")

    lines = examine([Check("first", late), Check("second", early)])
    assert [line.check for line in lines] == ["first", "second", "second"]


def test_a_check_that_hangs_costs_only_itself_and_keeps_what_it_had_said() -> None:
    released = threading.Event()

    def hangs() -> Iterator[Line]:
        yield ok("mount", "it is there")
        released.wait(30)

    began = time.monotonic()
    lines = examine([Check("mount", hangs), Check("other", lambda: [ok("other", "fine")])], limit_s=0.2)
    released.set()
    assert time.monotonic() - began < 10
    assert [(line.check, line.state) for line in lines] == [
        ("mount", State.OK),
        ("mount", State.FAILED),
        ("other", State.OK),
    ]
    assert "no answer within 0.2 s" in lines[1].what


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_check_that_breaks_is_a_failed_line_and_the_others_go_on() -> None:
    def breaks() -> Iterator[Line]:
        yield ok("broken", f"{1 / 0}")

    lines = examine([Check("broken", breaks), Check("other", lambda: [ok("other", "fine")])])
    assert [(line.check, line.state) for line in lines] == [("broken", State.FAILED), ("other", State.OK)]


def test_what_a_server_says_is_one_line_and_masked() -> None:
    (line,) = examine([Check("x", lambda: [ok("x", "it said\n  password=sesame1234 \x0b twice")])])
    assert line.what.splitlines() == [line.what] and "sesame" not in line.what
