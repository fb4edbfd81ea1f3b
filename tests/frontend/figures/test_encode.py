"""Typed arrays and CSV."""

from __future__ import annotations

import base64

import numpy as np

from frontend.contexts import Chip, Twin
from frontend.figures.encode import as_csv, milliseconds, typed


def test_an_array_travels_as_its_bytes_with_its_shape() -> None:
    made = typed(np.arange(6, dtype=np.uint8).reshape(2, 3))
    assert made["dtype"] == "u1" and made["shape"] == "2, 3"
    assert base64.b64decode(made["bdata"]) == bytes(range(6))


def test_times_are_milliseconds_in_double_precision() -> None:
    made = milliseconds(np.array([1_772_366_400.5]))
    assert made["dtype"] == "f8"
    assert np.frombuffer(base64.b64decode(made["bdata"]), "<f8")[0] == 1_772_366_400_500.0


def test_a_sheet_never_starts_a_formula() -> None:
    twin = Twin(("Name", "#Count"), (("=HYPERLINK(1)", "1"), ("+x", "2"), ("@y", "-3"), (Chip("ok", "ok"), "4")), "")
    rows = as_csv(twin).split("\r\n")
    assert rows[0] == "Name,Count"
    assert rows[1].startswith("'=") and rows[2].startswith("'+") and rows[3] == "'@y,'-3" and rows[4] == "ok,4"
