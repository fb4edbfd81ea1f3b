"""Alerts that another system raised (Alertmanager) as levels: they stand until it says that they are over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detectors.catalogue import Catalogue
from detectors.model import Entity, Event, Evidence, Finding, Fleet, Judged, Need, Severity, Tick
from detectors.wording import counted

NAMESPACE = "alert"
#: Alerts that stand at once; of a storm the newest.
MOST = 4_096
#: Of one entity so many alerts are shown as evidence.
SHOWN = 8
#: A label of another house: "critical" there already woke somebody, so here it is high at most.
LOUDNESS: Mapping[str, Severity] = {
    "critical": Severity.HIGH,
    "page": Severity.HIGH,
    "fatal": Severity.HIGH,
    "error": Severity.HIGH,
    "high": Severity.HIGH,
    "warning": Severity.WARNING,
    "major": Severity.WARNING,
}
#: It is another's rule on another's numbers, of which we know nothing.
SCORE = 0.5
ROW = np.dtype(
    [
        ("fingerprint", "U64"),
        ("alert", "U120"),
        ("entity_kind", "U16"),
        ("entity_id", "U256"),
        ("entity_name", "U272"),
        ("node", "U256"),
        ("severity", "i8"),
        ("since", "f8"),
        ("seq", "i8"),
        ("text", "U600"),
    ]
)


@dataclass(slots=True)
class AlertsState:
    """``rows``: structured array of dtype ROW, one an alert that stands; the order carries no meaning."""

    rows: NDArray[Any]


@dataclass(frozen=True, slots=True)
class Alerts:
    """Thresholds: alert_hold_s."""

    catalogue: Catalogue = field(repr=False)
    needs: frozenset[Need] = frozenset({NAMESPACE, "mended"})

    @property
    def name(self) -> str:
        return "scheduler/alerts"

    def start(self, fleet: Fleet) -> AlertsState:
        return AlertsState(np.zeros(0, ROW))

    def step(self, state: AlertsState, tick: Tick, fleet: Fleet) -> Judged:
        hold_s = self.catalogue.limit("alert_hold_s")
        kept = {str(row["fingerprint"]): row for row in state.rows if tick.at - row["since"] <= hold_s}
        for event in sorted(tick.events, key=lambda e: (e.at, e.seq)):
            if event.namespace == "mended":
                kept = {key: row for key, row in kept.items() if not _mended(row, event)}
            elif event.namespace == NAMESPACE and event.attrs.get("fingerprint"):
                _hear(kept, event)
        if kept or len(state.rows):
            state.rows = _packed(kept.values())
        by_entity: dict[tuple[str, str], list[Any]] = defaultdict(list)
        for row in state.rows:
            by_entity[str(row["entity_kind"]), str(row["entity_id"])].append(row)
        return Judged(tuple(sorted((self._finding(rows, fleet) for rows in by_entity.values()), key=lambda f: f.key)))

    def move(self, state: AlertsState, old: Fleet, new: Fleet) -> AlertsState:
        gone = set(old.nodes) - set(new.nodes)
        return AlertsState(_packed(row for row in state.rows if str(row["node"]) not in gone))

    def _finding(self, rows: list[Any], fleet: Fleet) -> Finding:
        """All alerts of one entity as one level: the loudest speaks."""
        first = max(rows, key=lambda row: (int(row["severity"]), -float(row["since"]), str(row["fingerprint"])))
        kind, number, name, node = (str(first[part]) for part in ("entity_kind", "entity_id", "entity_name", "node"))
        entity = Entity(fleet.cluster, kind, number, name, node)
        more = f" {counted(len(rows) - 1, 'other alert')} of it too." if len(rows) > 1 else ""
        text = str(first["text"]).rstrip(".")
        return Finding(
            detector=self.name,
            kind="outside_alert",
            entity=entity,
            severity=Severity(int(first["severity"])),
            score=SCORE,
            since=min(float(row["since"]) for row in rows),
            reason=f"Alertmanager says {first['alert']} of {entity}: {text}.{more}",
            evidence=tuple(
                Evidence(str(row["alert"]), str(row["text"]), ref=f"event:{int(row['seq'])}", grade="observed")
                for row in rows[:SHOWN]
            ),
        )


def _hear(kept: dict[str, Any], event: Event) -> None:
    """A resolved one lets go; one that fires again keeps the time since which it stands."""
    fingerprint = event.attrs["fingerprint"][:64]
    if event.code == "resolved":
        kept.pop(fingerprint, None)
        return
    row = np.zeros(1, ROW)[0]
    entity = event.entity
    row["fingerprint"], row["alert"] = fingerprint, event.attrs.get("alert", "")
    row["entity_kind"], row["entity_id"], row["entity_name"] = entity.kind, entity.id, entity.name
    row["node"], row["seq"], row["text"] = entity.host, event.seq, event.text
    row["severity"] = LOUDNESS.get(event.attrs.get("severity", "").lower(), Severity.INFO)
    row["since"] = kept[fingerprint]["since"] if fingerprint in kept else event.at
    kept[fingerprint] = row


def _mended(row: Any, event: Event) -> bool:
    """A person said that this entity is mended: what was heard of it before is over."""
    if event.at < float(row["since"]) or not event.mends("outside_alert"):
        return False
    same = (event.entity.kind, event.entity.id) == (str(row["entity_kind"]), str(row["entity_id"]))
    return same or (event.entity.kind == "node" and bool(row["node"]) and event.entity.id == str(row["node"]))


def _packed(rows: Iterable[Any]) -> NDArray[Any]:
    """In one order, so that equal memories are equal arrays; of too many the newest."""
    ordered = sorted(rows, key=lambda row: (float(row["since"]), str(row["fingerprint"])))[-MOST:]
    return np.array([row.item() for row in ordered], ROW) if ordered else np.zeros(0, ROW)
