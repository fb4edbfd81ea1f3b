"""Arrays as Plotly reads them fastest: base64 typed arrays. Tables twins as CSV."""

from __future__ import annotations

import base64
import csv
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frontend.contexts import Chip, Twin
from frontend.words import NB

_TYPES = {"uint8": "u1", "float32": "f4", "float64": "f8", "int32": "i4"}


def typed(values: NDArray[Any]) -> dict[str, str]:
    """``{"dtype", "bdata"[, "shape"]}`` of a uint8, int32, float32 or float64 array; NaN stays a gap."""
    plain = np.ascontiguousarray(values)
    found = {"dtype": _TYPES[plain.dtype.name], "bdata": base64.b64encode(plain.tobytes()).decode()}
    return found | ({"shape": ", ".join(str(n) for n in plain.shape)} if plain.ndim > 1 else {})


def milliseconds(unix_s: NDArray[np.float64]) -> dict[str, str]:
    """Times for a date axis: float64 unix seconds to milliseconds UTC."""
    return typed(np.asarray(unix_s, np.float64) * 1000.0)


def as_csv(twin: Twin) -> str:
    """The rows of a table twin. A cell that a spreadsheet would take for a formula is quoted off."""
    out = io.StringIO()
    sheet = csv.writer(out, lineterminator="\r\n")
    sheet.writerow([column.lstrip("#") for column in twin.columns])
    sheet.writerows([[_cell(cell) for cell in row] for row in twin.rows])
    return out.getvalue()


def _cell(cell: str | Chip) -> str:
    return plain_cell((cell.word if isinstance(cell, Chip) else cell).replace(NB, " "))


def plain_cell(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    return "'" + text if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
