"""Alerts that another system raised (Alertmanager) as levels: they stand until it says that they are over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

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
#: Characters of a text that are remembered.
TEXT = 240
NUMBERS: Mapping[str, type[np.generic]] = {"severity": np.int64, "since": np.float64, "seq": np.int64}


class Row(NamedTuple):
    """An alert that stands."""

    fingerprint: str
    alert: str
    entity_kind: str
    entity_id: str
    entity_name: str
    node: str
    severity: int
    since: float
    seq: int
    text: str


@dataclass(slots=True)
class AlertsState:
    """The fields of Row as columns of one length, texts as wide as the longest; the order carries no meaning."""

    fingerprint: NDArray[np.str_]
    alert: NDArray[np.str_]
    entity_kind: NDArray[np.str_]
    entity_id: NDArray[np.str_]
    entity_name: NDArray[np.str_]
    node: NDArray[np.str_]
    severity: NDArray[np.int64]
    since: NDArray[np.float64]
    seq: NDArray[np.int64]
    text: NDArray[np.str_]


@dataclass(frozen=True, slots=True)
class Alerts:
    """Thresholds: alert_hold_s."""

    catalogue: Catalogue = field(repr=False)
    needs: frozenset[Need] = frozenset({NAMESPACE, "mended"})

    @property
    def name(self) -> str:
        return "scheduler/alerts"

    def start(self, fleet: Fleet) -> AlertsState:
        return _packed(())

    def step(self, state: AlertsState, tick: Tick, fleet: Fleet) -> Judged:
        since = tick.at - self.catalogue.limit("alert_hold_s")
        heard = sorted((e for e in tick.events if e.namespace in self.needs), key=lambda e: (e.at, e.seq))
        rows = _rows(state)
        if heard or (len(rows) and float(state.since.min()) < since):
            kept = {row.fingerprint: row for row in rows if row.since >= since}
            for event in heard:
                if event.namespace == "mended":
                    kept = {key: row for key, row in kept.items() if not _mended(row, event)}
                elif event.attrs.get("fingerprint"):
                    _hear(kept, event)
            packed = _packed(kept.values())
            for column in Row._fields:
                setattr(state, column, getattr(packed, column))
            rows = _rows(state)
        by_entity: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for row in rows:
            by_entity[row.entity_kind, row.entity_id].append(row)
        return Judged(tuple(sorted((self._finding(some, fleet) for some in by_entity.values()), key=lambda f: f.key)))

    def move(self, state: AlertsState, old: Fleet, new: Fleet) -> AlertsState:
        gone = set(old.nodes) - set(new.nodes)
        return _packed(row for row in _rows(state) if row.node not in gone)

    def _finding(self, rows: list[Row], fleet: Fleet) -> Finding:
        """All alerts of one entity as one level: the loudest speaks."""
        first = max(rows, key=lambda row: (row.severity, -row.since, row.fingerprint))
        entity = Entity(fleet.cluster, first.entity_kind, first.entity_id, first.entity_name, first.node)
        more = f" {counted(len(rows) - 1, 'other alert')} of it too." if len(rows) > 1 else ""
        return Finding(
            detector=self.name,
            kind="outside_alert",
            entity=entity,
            severity=Severity(first.severity),
            score=SCORE,
            since=min(row.since for row in rows),
            reason=f"Alertmanager says {first.alert} of {entity}: {first.text.rstrip('.')}.{more}",
            evidence=tuple(
                Evidence(row.alert, row.text, ref=f"event:{row.seq}", grade="observed") for row in rows[:SHOWN]
            ),
        )


def _hear(kept: dict[str, Row], event: Event) -> None:
    """A resolved one lets go; one that fires again keeps the time since which it stands."""
    fingerprint, entity = event.attrs["fingerprint"][:64], event.entity
    before = kept.pop(fingerprint, None)
    if event.code == "resolved":
        return
    kept[fingerprint] = Row(
        fingerprint,
        event.attrs.get("alert", "")[:120],
        entity.kind[:16],
        entity.id[:256],
        entity.name[:272],
        entity.host[:256],
        int(LOUDNESS.get(event.attrs.get("severity", "").lower(), Severity.INFO)),
        before.since if before is not None else event.at,
        event.seq,
        event.text[:TEXT],
    )


def _mended(row: Row, event: Event) -> bool:
    """A person said that this entity is mended: what was heard of it before is over."""
    if event.at < row.since:
        return False
    same = (event.entity.kind, event.entity.id) == (row.entity_kind, row.entity_id)
    return same or (event.entity.kind == "node" and bool(row.node) and event.entity.id == row.node)


def _rows(state: AlertsState) -> list[Row]:
    return [Row(*row) for row in zip(*(getattr(state, name).tolist() for name in Row._fields), strict=True)]


def _packed(rows: Iterable[Row]) -> AlertsState:
    """In one order, so that equal memories are equal arrays; of too many the newest."""
    ordered = sorted(rows, key=lambda row: (row.since, row.fingerprint))[-MOST:]
    columns = {name: [getattr(row, name) for row in ordered] for name in Row._fields}
    return AlertsState(**{name: np.array(column, NUMBERS.get(name, np.str_)) for name, column in columns.items()})
