"""GPUs in Slurm's words: how many, of which model, and which indices of a node a job holds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

#: Highest index that is believed; Slurm's own limit of one gres on a node is far below it.
MOST_INDEX = 1023

_GPUS = re.compile(
    r"(?:^|,|gres[:/])gpu(?:[:=](?P<model>[A-Za-z0-9_.-]*[A-Za-z_][A-Za-z0-9_.-]*))?(?:[:=](?P<count>[0-9]+))?"
    r"(?=[,(\s]|$)"
)
_TOTAL = re.compile(r"(?:^|,)gres/gpu=([0-9]+)")
_INDICES = re.compile(r"(?:^|[,=/:])gpu(?:[:=][^,()]*)?\(IDX(?:_?\w*)?[:=]([0-9,\s-]*)", re.IGNORECASE)


def parse_gpus(text: str) -> tuple[int, str]:
    """(GPUs, model) of a Gres or TRES text: ``gpu:h100:8(S:0-1)``, ``gres:gpu:8``, ``cpu=2,gres/gpu=16``."""
    found = [(int(m["count"] or 1), m["model"] or "") for m in _GPUS.finditer(text)]
    total = _TOTAL.search(text)  # a TRES text repeats the total by type
    count = int(total[1]) if total else sum(count for count, _ in found)
    return count, next((model for _, model in found if model), "")


def parse_indices(text: str) -> tuple[int, ...]:
    """GPU indices of one node, rising: 0 to 3 and 6 of ``gpu:a100:4(IDX:0-3),gpu:h100:1(IDX:6)``.

    Empty where the text names none (``IDX:N/A``), or where it cannot be read. Other gres (mps, nic) are not GPUs.
    """
    found: set[int] = set()
    for match in _INDICES.finditer(text):
        for piece in match[1].replace(" ", "").split(","):
            low, dash, high = piece.partition("-")
            if low.isdigit() and (high.isdigit() or not dash):
                last = int(high) if dash else int(low)
                found.update(range(int(low), min(last, MOST_INDEX) + 1))
    return tuple(sorted(found))


def held_indices(nodes: Sequence[str], details: Iterable[str]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """(node, indices) of a job: ``details`` (``gres_detail``) has one text a node, in the order of its node list.

    Where the two do not match in number, nothing is said: better none than another node's.
    """
    texts = list(details)
    if len(texts) != len(nodes):
        return ()
    read = {text: parse_indices(text) for text in set(texts)}  # most nodes of a large job hold the same ones
    return tuple((node, read[text]) for node, text in zip(nodes, texts, strict=True) if read[text])
