"""Tables that ``sinfo -o`` prints, with its header: one row a node and partition, folded into one record a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from backend.clients.slurm_gres import parse_gpus
from backend.clients.slurm_states import parse_state
from backend.clients.slurm_values import RecordError, names_of, text_of, words_of
from backend.facts import NodeFacts, owner_of

#: Headers that sinfo prints for the same thing; the first that is there and says something counts.
NODE = ("NODELIST", "HOSTNAMES", "NODE_ADDR", "NODEHOST")
STATE = ("STATE", "STATECOMPLETE", "STATELONG")
FEATURES = ("AVAIL_FEATURES", "FEATURES", "ACTIVE_FEATURES")


def parse_sinfo(text: str, read_at: float, delimiter: str = "|") -> list[NodeFacts]:
    """Nodes in the order in which they first stand. A state that is printed short and long counts as the long one.

    Raises RecordError where the header names no node or no state.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    header = [name.strip().upper() for name in lines[0].split(delimiter)] if lines else []
    if lines and not ({*NODE} & {*header} and {*STATE} & {*header}):
        raise RecordError(f"no header of sinfo with NODELIST and STATE: {lines[0][:80]!r}")
    found: dict[str, NodeFacts] = {}
    for line in lines[1:]:
        cells = _cells(header, line.split(delimiter))
        for name in names_of(_first(cells, NODE)):
            fresh = _node(name, cells, read_at)
            known = found.get(name)
            partitions = dict.fromkeys((*(known.partitions if known else ()), *fresh.partitions))
            found[name] = replace(fresh, partitions=tuple(partitions))
    return list(found.values())


def _cells(header: list[str], row: list[str]) -> dict[str, str]:
    """By column; of a column that stands twice the longer text."""
    cells: dict[str, str] = {}
    for name, cell in zip(header, row, strict=False):
        value = cell.strip()
        if len(value) > len(cells.get(name, "")):
            cells[name] = value
    return cells


def _first(cells: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((value for name in names if (value := text_of(cells.get(name)))), "")


def _node(name: str, cells: Mapping[str, str], read_at: float) -> NodeFacts:
    state, flags = parse_state(_first(cells, STATE))
    reason = _first(cells, ("REASON",))
    count, model = parse_gpus(cells.get("GRES", ""))
    labels = {"features": _first(cells, FEATURES), "slurm": _first(cells, ("VERSION",))}
    return NodeFacts(
        name=name,
        state=state,
        flags=flags,
        reason=reason,
        reason_owner=owner_of(reason, _first(cells, ("USER",)).partition("(")[0]),
        model=model,
        expected_gpus=count,
        read_at=read_at,
        partitions=tuple(word.rstrip("*") for word in words_of(cells.get("PARTITION"))),
        labels={key: value for key, value in labels.items() if value},
    )
