"""Whose fault an attempt's end was: incidents of its nodes around the end, the class of its log, its end state."""

from __future__ import annotations

import tomllib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import accumulate
from typing import Any

from backend.facts import AttemptFacts, IncidentFacts
from backend.reliability.outcomes import NODE_STATES, failed_nodes

#: A cause is looked for from this long before the end of an attempt to this long after it, s (papers.md 3).
BEFORE_S, AFTER_S = 600.0, 300.0


@dataclass(frozen=True, slots=True)
class Cause:
    """An incident as far as it can end an attempt. infra: whose fault, None = either. Seen from begin to end."""

    begin: float
    end: float
    kind: str
    entity: str
    infra: bool | None
    ends_jobs: bool
    nodes: tuple[str, ...]
    job: str
    incident: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """infra as in contracts.md; log_class None = not known; text: one line; cause: the incident it rests on."""

    infra: bool | None
    log_class: str | None
    text: str
    cause: Cause | None = None


@dataclass(frozen=True, slots=True)
class Causes:
    """Which kinds and log classes are the infrastructure's (True) and the user's (False). deadly: kinds of the
    infrastructure's that end a job by themselves."""

    kinds: Mapping[str, bool]
    deadly: frozenset[str]
    classes: Mapping[str, bool]
    log_class: Mapping[str, str]

    def of(self, incidents: Iterable[IncidentFacts]) -> tuple[Cause, ...]:
        """Incidents as causes, by when they began."""
        found = [self._cause(incident) for incident in incidents]
        return tuple(sorted(found, key=lambda c: (c.begin, c.incident, c.entity)))

    def _cause(self, incident: IncidentFacts) -> Cause:
        seen = [incident.opened_at, *(t for t in (incident.asserted_at, incident.closed_at) if t is not None)]
        nodes = [incident.node, *(h.node for h in incident.hypotheses[:1])]
        return Cause(
            begin=incident.opened_at,
            end=incident.asserted_at if incident.asserted_at is not None else max(seen),
            kind=incident.kind,
            entity=incident.entity,
            infra=self.kinds.get(incident.kind),
            ends_jobs=incident.kind in self.deadly,
            nodes=tuple(dict.fromkeys(node for node in nodes if node)),
            job=incident.job,
            incident=incident.id,
        )


def causes_of(table: Mapping[str, Any] | None = None) -> Causes:
    """The packaged table (causes.toml), or one of its shape. Raises ValueError for a name in both lists."""
    if table is None:
        table = tomllib.loads(files("backend.reliability").joinpath("causes.toml").read_text(encoding="utf-8"))
    sides: list[dict[str, bool]] = []
    for part in ("kinds", "classes"):
        ours = [*table[part]["infrastructure"], *table[part].get("harms", ())]
        both = set(ours) & set(table[part]["user"])
        if both:
            raise ValueError(f"causes.toml [{part}]: {', '.join(sorted(both))} stands on both sides; leave one")
        sides.append(dict.fromkeys(ours, True) | dict.fromkeys(table[part]["user"], False))
    return Causes(sides[0], frozenset(table["kinds"]["infrastructure"]), sides[1], dict(table["log_class"]))


class Around:
    """Finds the causes that were seen around a time, on nodes or in a job."""

    def __init__(self, causes: Sequence[Cause]) -> None:
        by_node: defaultdict[str, list[Cause]] = defaultdict(list)
        by_job: defaultdict[str, list[Cause]] = defaultdict(list)
        for cause in sorted(causes, key=lambda c: c.begin):
            for node in cause.nodes:
                by_node[node].append(cause)
            if cause.job:
                by_job[cause.job].append(cause)
        self._by_node = {node: _Queue(rows) for node, rows in by_node.items()}
        self._by_job = {job: _Queue(rows) for job, rows in by_job.items()}

    def find(self, attempt: AttemptFacts, at: float) -> list[Cause]:
        """In the order they began; each once."""
        found: list[Cause] = []
        if self._by_node:
            for node in attempt.nodes:
                if node in self._by_node:
                    found += self._by_node[node].around(at)
        if attempt.job in self._by_job:
            found += self._by_job[attempt.job].around(at)
        if len(found) < 2:
            return found
        return sorted({id(c): c for c in found}.values(), key=lambda c: (c.begin, c.incident, c.entity))


class _Queue:
    """Causes in the order they began; ``_ends``: the latest end of each and all before it."""

    def __init__(self, causes: list[Cause]) -> None:
        self._causes = causes
        self._begins = [c.begin for c in causes]
        self._ends = list(accumulate((c.end for c in causes), max))

    def around(self, at: float) -> list[Cause]:
        place = bisect_right(self._begins, at + AFTER_S)
        found: list[Cause] = []
        while place and self._ends[place - 1] >= at - BEFORE_S:
            place -= 1
            if self._causes[place].end >= at - BEFORE_S:
                found.append(self._causes[place])
        return found


def judge(attempt: AttemptFacts, failed: bool, log_class: str | None, seen: Sequence[Cause], table: Causes) -> Verdict:
    """Whose fault the end of ``attempt`` was. A fault of its own nodes wins over its log, the log over its state:
    a process that lost its GPU ends with a traceback of its own."""
    if attempt.end is None:
        return Verdict(None, None, "still running" if attempt.start is not None else "waiting")
    if attempt.state == "COMPLETED":
        return Verdict(None, None, "completed")
    fault = next((c for c in seen if c.ends_jobs), None)
    if fault is not None:
        said = log_class if log_class and table.classes.get(log_class) else table.log_class.get(fault.kind, log_class)
        return Verdict(True, said, f"{fault.kind} on {fault.entity}", fault)
    if attempt.state in NODE_STATES:
        lost = ", ".join(failed_nodes(attempt)) or "a node"
        return Verdict(True, log_class or "node_fail", f"{attempt.state}: the scheduler lost {lost}")
    whose = table.classes.get(log_class) if log_class else None
    if whose is not None:
        return Verdict(whose, log_class, f"{'infrastructure' if whose else 'user'}: {log_class}")
    own = next((c for c in seen if c.infra is False), None)
    if own is not None:
        return Verdict(False, table.log_class.get(own.kind, log_class), f"{own.kind} on {own.entity}", own)
    harm = next((c for c in seen if c.infra), None)
    if harm is not None:
        said = table.log_class.get(harm.kind, log_class)
        return Verdict(True, said, f"{harm.kind} on {harm.entity}", harm)
    if attempt.state == "OUT_OF_MEMORY":
        return Verdict(False, log_class or "host_oom_killed", "user: out of memory")
    unsure = next((c for c in seen if c.kind == "job_hang"), None)
    hint = f": {unsure.kind} seen" if unsure else ""
    return Verdict(None, log_class, f"cause not known{hint}" if failed else attempt.state.lower())
