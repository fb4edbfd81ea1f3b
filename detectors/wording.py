"""How findings speak of devices and numbers, so that every detector sounds the same."""

from __future__ import annotations

import re

from detectors.model import Entity

_INDEX = re.compile(r"/gpu(\d{1,4})$")


def subject(entity: Entity, place: str = "") -> str:
    """``GPU 3 of gpu-0412``; without an index its id; for a node that stands for one of its GPUs, ``A GPU of ...``.

    place: the PCI address a node's kernel line named, where no GPU is known under it.
    """
    if entity.kind == "gpu":
        index = _INDEX.search(entity.name)
        return f"GPU {index[1] if index else entity.id} of {entity.host or 'an unknown node'}"
    return f"The GPU at {place} of {entity}" if place else f"A GPU of {entity}"


def number(value: float, digits: int = 0) -> str:
    """``1,980`` or ``62.4``: digits in groups of three, never minus zero."""
    return f"{round(value, digits) + 0.0:,.{digits}f}"


def counted(n: int, one: str, many: str = "") -> str:
    """``1 GPU``, ``8 GPUs``."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"
