"""The service's own log: JSON where it is asked for, no secret ever, and no line that a sender wrote."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from backend import logs


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    found = logging.getLogger()
    before, level = list(found.handlers), found.level
    yield found
    found.handlers[:], found.level = before, level


def said(form: logs.Form, text: str, *words: object, error: bool = False) -> str:
    out = io.StringIO()
    logs.begin(form, out)
    try:
        raise ValueError("password=hunter22 was wrong")
    except ValueError:
        logging.getLogger("watchkeeper.test").warning(text, *words, exc_info=error)
    return out.getvalue()


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_secret_reaches_the_log(root: logging.Logger, form: logs.Form) -> None:
    out = said(form, "token=%s", "wk_abcdefghijklmnopqrstuvwxyz012345", error=True)
    assert "abcdefghij" not in out and "hunter22" not in out and "***" in out


def test_json_is_one_object_a_record(root: logging.Logger) -> None:
    (line,) = said("json", "lines\nof %s", "a sender", error=True).splitlines()
    row = json.loads(line)
    assert (row["level"], row["logger"], row["message"]) == ("warning", "watchkeeper.test", "lines\nof a sender")
    assert row["ts"].endswith("+00:00") and "ValueError" in row["error"]


def test_a_sender_writes_no_line_of_its_own(root: logging.Logger) -> None:
    out = said("text", "host %s", "x\n2026-01-01 00:00:00 ERROR forged")
    assert len(out.splitlines()) == 1 and "\\n2026" in out
