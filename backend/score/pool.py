"""Several bundles scored as one: clusters of one fleet that were watched side by side, each under its own name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backend.score.places import word_of
from backend.score.rows import Row

#: Ids of incidents of one bundle; more than any replay opens.
STRIDE = 10_000_000
#: Fields of rows that hold a time (unix s), an entity, a list of entities or nodes, a run.
TIMES = ("ts", "emitted_at", "opened_at", "closed_at", "start", "end", "first_visible", "first_xid")
LISTS = ("entities", "nodes", "exclude", "victims")


@dataclass(frozen=True, slots=True)
class Part:
    """What one bundle gives to a score: rows as they stand in its files, its nodes with what stands above each, how
    many GPUs it has, and from when to when it goes (unix s)."""

    findings: Sequence[Row]
    incidents: Sequence[Row]
    truth: Sequence[Row]
    above: Mapping[str, Sequence[str]]
    gpus: int
    span: tuple[float, float]


def pooled(parts: Mapping[str, Part]) -> Part:
    """One part of many, by name (a word). All begin at once; their spans should be as long as each other, as rates are
    taken over the longest. Runs, jobs, racks and nodes of different parts have nothing to do with each other."""
    begin = min(part.span[0] for part in parts.values())
    longest_s = max(part.span[1] - part.span[0] for part in parts.values())
    findings: list[Row] = []
    incidents: list[Row] = []
    truth: list[Row] = []
    above: dict[str, tuple[str, ...]] = {}
    for place, (name, part) in enumerate(parts.items()):
        shift_s = begin - part.span[0]
        findings += [_moved(row, name, shift_s) for row in part.findings]
        incidents += [{**_moved(row, name, shift_s), "id": place * STRIDE + int(row["id"])} for row in part.incidents]
        truth += [{**_moved(row, name, shift_s), "id": f"{name}-{row['id']}"} for row in part.truth]
        above |= {f"{name}:{node}": tuple(f"{name}:{one}" for one in over) for node, over in part.above.items()}
    gpus = sum(part.gpus for part in parts.values())
    return Part(findings, incidents, truth, above, gpus, (begin, begin + longest_s))


def _moved(row: Row, name: str, shift_s: float) -> dict[str, Any]:
    """A row under the name of its cluster, at the common time."""
    found = dict(row)
    found |= {key: found[key] + shift_s for key in TIMES if isinstance(found.get(key), int | float)}
    found |= {key: [renamed(one, name) for one in found[key]] for key in LISTS if isinstance(found.get(key), list)}
    if found.get("entity"):
        found["entity"] = renamed(found["entity"], name)
    if found.get("run"):
        found["run"] = f"{name}.{found['run']}"
    if "key" in found:
        found["key"] = f"{name} {found['key']}"
    if isinstance(found.get("findings"), list):
        found["findings"] = [f"{name} {key}" for key in found["findings"]]
    return found


def renamed(entity: str, name: str) -> str:
    """``name:entity``, as entities of several clusters print; a run is named anew, so that no two share one."""
    if word_of(entity) in ("run", "rank"):
        return f"{name}:run:{name}.{entity.removeprefix('run:')}"
    return f"{name}:{entity}"
