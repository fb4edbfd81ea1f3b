"""Verdicts on the logs of jobs as levels: what a job died of stands for a while, so that other signals can join it."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detectors.catalogue import Catalogue, table
from detectors.model import Entity, Event, Evidence, FaultKind, Finding, Fleet, Judged, Need, Severity, Tick

#: The namespace of a verdict: ``code`` is the class, ``text`` the sentence, attrs ``whose``, ``exclude`` (yes or not),
#: ``gpu``, ``rank``, ``confidence``, ``first`` (the line), ``file``, ``line``, ``state``.
NAMESPACE = "log"
#: attrs ``by`` of a verdict that no rule gave, but what people said of past failures: told, never acted upon.
RESEMBLANCE = "resemblance"
#: Verdicts that are held at once; of a storm the newest.
MOST = 4_096
#: How loud a failed job is, by whose fault it was. Its owner sees it with the job; nobody is woken for code, nor for a
#: log that only shows what followed. A hang is told: it has a cause that no log of its own shows.
LOUDNESS: Mapping[str, Severity] = {
    "hardware": Severity.HIGH,
    "platform": Severity.WARNING,
    "unknown": Severity.INFO,
    "yours": Severity.INFO,
    "none": Severity.INFO,
}
ROW = np.dtype(
    [
        ("job", "U128"),
        ("log_class", "U48"),
        ("kind", "U40"),
        ("entity_kind", "U16"),
        ("entity_id", "U256"),
        ("entity_name", "U272"),
        ("node", "U256"),
        ("severity", "i8"),
        ("confidence", "f8"),
        ("since", "f8"),
        ("seq", "i8"),
        ("text", "U600"),
        ("first", "U400"),
        ("place", "U300"),
        ("state", "U64"),
    ]
)


@dataclass(slots=True)
class OutcomeState:
    """``rows``: structured array of dtype ROW, one a verdict that stands; the order carries no meaning."""

    rows: NDArray[Any]


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a class asserts: of the node that a line names as broken, and of the job; "" = nothing."""

    node_kind: FaultKind
    job_kind: FaultKind


@dataclass(frozen=True, slots=True)
class Outcome:
    """Thresholds: joblog_hold_s."""

    catalogue: Catalogue = field(repr=False)
    meanings: Mapping[str, Meaning] = field(repr=False)
    needs: frozenset[Need] = frozenset({NAMESPACE, "mended"})

    @property
    def name(self) -> str:
        return "joblog/outcome"

    def start(self, fleet: Fleet) -> OutcomeState:
        return OutcomeState(np.zeros(0, ROW))

    def step(self, state: OutcomeState, tick: Tick, fleet: Fleet) -> Judged:
        hold_s = self.catalogue.limit("joblog_hold_s")
        kept = {_key(row): row for row in state.rows if tick.at - row["since"] <= hold_s}
        for event in sorted(tick.events, key=lambda e: (e.at, e.seq)):
            if event.namespace == "mended":
                kept = {key: row for key, row in kept.items() if not _mended(row, event)}
            elif event.namespace == NAMESPACE and not event.late:
                made = self._row(event, fleet)
                kept |= {} if made is None else {_key(made): made}
        if kept or len(state.rows):
            state.rows = _packed(kept.values())
        return Judged(tuple(sorted((self._finding(row, fleet) for row in state.rows), key=lambda f: f.key)))

    def move(self, state: OutcomeState, old: Fleet, new: Fleet) -> OutcomeState:
        gone = set(old.nodes) - set(new.nodes)
        return OutcomeState(_packed(row for row in state.rows if str(row["node"]) not in gone))

    def _row(self, event: Event, fleet: Fleet) -> Any:
        """A verdict as a row; None for one that asserts nothing."""
        attrs, plain = event.attrs, Meaning("", "job_failed")
        learnt = attrs.get("by") == RESEMBLANCE
        whose = "unknown" if learnt else attrs.get("whose", "unknown")
        meaning = plain if learnt else self.meanings.get(event.code, plain)
        entity = _culprit(event, fleet) if attrs.get("exclude") == "yes" and not learnt else None
        kind = meaning.node_kind if entity is not None and meaning.node_kind else meaning.job_kind
        if not kind:
            return None
        severity = LOUDNESS.get(whose, Severity.INFO)
        if kind != plain.job_kind:  # a kind of its own (a hang, a checkpoint that cannot be read) is told
            severity = max(severity, Severity.WARNING)
        if entity is not None and kind == meaning.node_kind:
            severity = self.catalogue.kinds[kind].severity
        else:
            job = attrs.get("job", "")
            entity = Entity(fleet.cluster, "job", job, f"job:{job}", "") if job else event.entity
        row = np.zeros(1, ROW)[0]
        row["job"], row["log_class"], row["kind"], row["severity"] = attrs.get("job", ""), event.code, kind, severity
        row["entity_kind"], row["entity_id"], row["entity_name"] = entity.kind, entity.id, entity.name
        if learnt:
            row["log_class"] = f"{event.code}, by resemblance"
        row["node"], row["since"], row["seq"], row["text"] = entity.host, event.at, event.seq, event.text
        row["confidence"] = _share(attrs.get("confidence", ""))
        row["first"], row["state"] = attrs.get("first", ""), attrs.get("state", "")
        row["place"] = ":".join(part for part in (attrs.get("file", ""), attrs.get("line", "")) if part)
        return row

    def _finding(self, row: Any, fleet: Fleet) -> Finding:
        entity = Entity(
            fleet.cluster, str(row["entity_kind"]), str(row["entity_id"]), str(row["entity_name"]), str(row["node"])
        )
        slot = fleet.slot(entity)
        if slot is not None and entity.kind in fleet.axes:
            entity = replace(fleet.entity(entity.kind, slot), node=entity.node)
        ref, evidence = f"event:{int(row['seq'])}", []
        if row["first"]:
            place = f"First cause, {row['place']}" if row["place"] else "First cause"
            evidence.append(Evidence(place, str(row["first"]), ref=ref, grade="observed"))
        evidence.append(Evidence("Class of the logs", str(row["log_class"]), ref=ref, grade="derived"))
        if row["state"]:
            evidence.append(Evidence("End state", str(row["state"]), ref=ref, grade="observed"))
        severity, score = Severity(int(row["severity"])), float(row["confidence"])
        reason = f"Job {row['job']}: {row['text']}" if row["job"] else str(row["text"])
        return Finding(
            self.name, str(row["kind"]), entity, severity, score, float(row["since"]), reason, tuple(evidence)
        )


def outcome(catalogue: Catalogue) -> Outcome:
    """The detector with the packaged table of meanings."""
    rows = csv.DictReader(line for line in table("joblog_kinds.csv") if not line.startswith("#"))
    return Outcome(catalogue, {row["class"]: Meaning(row["node_kind"], row["job_kind"]) for row in rows})


def _culprit(event: Event, fleet: Fleet) -> Entity | None:
    """The GPU of the node that the verdict names, else the node."""
    node = event.entity.host
    if not node:
        return None
    gpu, axis = event.attrs.get("gpu", ""), fleet.axes.get("gpu")
    if gpu and axis is not None:
        name = f"{node}/gpu{gpu}"
        slot = axis.names.index(name) if name in axis.names else None
        if slot is not None:
            return fleet.entity("gpu", slot)
    return Entity(fleet.cluster, "node", node, node, node)


def _mended(row: Any, event: Event) -> bool:
    """A person said that this entity, or its whole node, is mended: what was heard before is over."""
    if event.at < float(row["since"]) or not event.mends(str(row["kind"])):
        return False
    same = (event.entity.kind, event.entity.id) == (str(row["entity_kind"]), str(row["entity_id"]))
    return same or (event.entity.kind == "node" and bool(row["node"]) and event.entity.id == str(row["node"]))


def _key(row: Any) -> tuple[str, str, str]:
    return str(row["kind"]), str(row["entity_kind"]), str(row["entity_id"])


def _packed(rows: Iterable[Any]) -> NDArray[Any]:
    """In one order, so that equal memories are equal arrays; of too many the newest."""
    ordered = sorted(rows, key=lambda row: (float(row["since"]), *_key(row)))[-MOST:]
    return np.array([row.item() for row in ordered], ROW) if ordered else np.zeros(0, ROW)


def _share(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        return 0.5
    return min(1.0, max(0.0, found)) if found == found else 0.5
