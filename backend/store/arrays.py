"""Arrays as bytes in a row: one npz without objects, so never a pickle."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def pack(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Arrays by name as one compressed npz."""
    out = io.BytesIO()
    np.savez_compressed(out, **{name: np.asarray(array) for name, array in arrays.items()}, allow_pickle=False)
    return out.getvalue()


def unpack(blob: bytes) -> dict[str, NDArray[Any]]:
    with np.load(io.BytesIO(blob), allow_pickle=False) as saved:
        return {name: saved[name] for name in saved.files}
