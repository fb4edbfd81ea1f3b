"""From scraped series to Series: names made canonical, sentinels and impossible values dropped, duplicates merged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from backend.facts import DeviceLabel, Series
from backend.ingest.labels import (
    Targets,
    device_label,
    host_name,
    identity,
    is_instance,
    joined,
    part_of,
)
from detectors.catalogue import Catalogue, Metric, blank

Floats = NDArray[np.float64]
#: Labels with ``__name__``, times (unix s, float64[k]) and values (float64[k]).
Scraped = tuple[Mapping[str, str], Floats, Floats]

#: The axis metric that comes from ``up``; it is about a scrape target, and must be turned to the nodes behind it.
UP = "node_up"
#: Counted per MIG instance by the exporter; everything else it prints there is the whole device's.
PER_INSTANCE = frozenset({"fb_used_mib", "utilisation_pct"})
#: The NaN that Prometheus writes where a series ended.
STALE = np.uint64(0x7FF0000000000002)


@dataclass
class _Row:
    """All series of one metric of one device in one read."""

    parts: list[Scraped] = field(default_factory=list)
    of_instances: int = 0


@dataclass
class _Known:
    """One label set: whom it names, under which identity, and when it was last used."""

    label: DeviceLabel | None
    key: tuple[str, ...]
    last: float = 0.0


def assemble(
    scraped: Iterable[Scraped], catalogue: Catalogue, targets: Targets | None = None
) -> tuple[tuple[Series, ...], Counter[str]]:
    """Series of one read, one for each metric of each device, and what was dropped, by reason.

    ``targets`` carries what earlier reads knew about who stands behind which exporter; None knows only this read.
    """
    dropped: Counter[str] = Counter()
    by_metric: dict[str, list[Scraped]] = {}
    for one in scraped:
        name = catalogue.alias.get(one[0].get("__name__", ""))
        if name is None:
            dropped["metric not in the catalogue"] += one[1].size
        elif one[1].size:
            by_metric.setdefault(name, []).append(one)
    gathering = _Gathering(targets or Targets(), dropped)
    for name, parts in by_metric.items():
        gathering.add(catalogue.metrics[name], readable(catalogue.metrics[name], parts, dropped))
    return gathering.series(), +dropped


class _Gathering:
    """Series of one read by device, however many label sets a device has."""

    def __init__(self, targets: Targets, dropped: Counter[str]) -> None:
        self._targets = targets
        self._dropped = dropped
        self._rows: dict[tuple[str, tuple[str, ...], str], _Row] = {}
        self._known: dict[tuple[str, tuple[tuple[str, str], ...]], _Known] = {}
        self._ups: list[Scraped] = []
        self._seen: dict[str, set[str]] = {}

    def add(self, metric: Metric, parts: Iterable[Scraped]) -> None:
        if metric.name == UP:
            self._ups += parts
            return
        for labels, times, values in parts:
            known = self._who(metric.axis, labels)
            if known.label is None:
                self._dropped["no device or node in the labels"] += times.size
                continue
            known.last = max(known.last, float(times[-1]))
            part = part_of(labels) if metric.join else ""
            row = self._rows.setdefault((metric.name, known.key, part), _Row())
            if metric.name in PER_INSTANCE and is_instance(labels):
                row.of_instances += times.size
            else:
                row.parts.append((labels, times, values))

    def _who(self, axis: str, labels: Mapping[str, str]) -> _Known:
        """Every metric of a device has the same labels: they are read once."""
        said = (axis, tuple(label for label in labels.items() if label[0] != "__name__"))
        known = self._known.get(said)
        if known is None:
            label = device_label(axis, labels)
            known = self._known[said] = _Known(label, identity(label) if label else ())
            if label is not None and axis == "gpu" and label.node and (instance := labels.get("instance")):
                self._seen.setdefault(instance, set()).add(label.node)
        return known

    def series(self) -> tuple[Series, ...]:
        """Everything gathered, devices in the order they came."""
        self._targets.learn(self._seen)
        said: dict[tuple[str, ...], list[_Known]] = {}
        for known in self._known.values():
            said.setdefault(known.key, []).append(known)
        merged = {key: joined(newest_first(all_)) for key, all_ in said.items() if key}
        made: list[Series] = []
        for (name, key, part), row in self._rows.items():
            self._dropped["of a MIG instance"] += row.of_instances
            if row.parts:
                made.append(Series(name, merged[key], *merge(row.parts), part))
        return (*made, *self._node_ups())

    def _node_ups(self) -> Iterable[Series]:
        """``up`` of the target that carries a node's GPUs decides; without one, any target on that host does."""
        carried = self._targets.all() if self._ups else frozenset()
        by_node: dict[str, list[tuple[Floats, Floats]]] = {}
        for labels, times, values in self._ups:
            instance = labels.get("instance", "")
            host = host_name(instance)
            behind = self._targets.nodes(instance) or ({host} - carried if host else frozenset())
            for node in behind:
                by_node.setdefault(node, []).append((times, values))
        for node, parts in by_node.items():
            times, values = max(parts, key=lambda part: (float(part[1][-1]), part[0].size))
            yield Series(UP, DeviceLabel("node", node), times, values)


def newest_first(known: list[_Known]) -> list[DeviceLabel]:
    return [one.label for one in sorted(known, key=lambda one: -one.last) if one.label is not None]


def readable(metric: Metric, parts: list[Scraped], dropped: Counter[str]) -> list[Scraped]:
    """The samples of one metric that mean something. DCGM's blanks, infinities and impossible values go and are counted
    in ``dropped``; NaN stays: it says that the series reported nothing at that time."""
    times, values = np.concatenate([part[1] for part in parts]), np.concatenate([part[2] for part in parts])
    missing = np.isnan(values)
    infinite = np.isinf(values) | ~np.isfinite(times)
    good = (metric.valid(values) | missing) & ~infinite
    dropped["not a number"] += int(np.count_nonzero(missing & (values.view(np.uint64) != STALE)))
    if good.all():
        return parts
    no_value = ~good & ~infinite & blank(values) if metric.axis == "gpu" else np.zeros(values.shape, np.bool_)
    outside = ~(good | infinite | no_value)
    for reason, which in (("infinite", infinite), ("blank", no_value), ("out of range", outside)):
        dropped[reason] += int(np.count_nonzero(which))
    kept: list[Scraped] = []
    at = 0
    for labels, some_times, some_values in parts:
        some = good[at : at + some_times.size]
        at += some_times.size
        if some.any():
            kept.append((labels, some_times[some], some_values[some]))
    return kept


def merge(parts: list[Scraped]) -> tuple[Floats, Floats]:
    """One series of several label sets of the same device: times rise, each instant once.

    The longest part stands, between equals always the same one; others only add what lies outside its span. Two
    exporters read the same counter at slightly different moments, and their samples taken in turn would look like
    resets.
    """
    if len(parts) > 1:
        parts = sorted(parts, key=lambda part: (-part[1].size, sorted(part[0].items())))
    (_, times, values), *others = parts
    for _, more_times, more_values in others:
        outside = (more_times < times[0]) | (more_times > times[-1])
        times = np.concatenate([times, more_times[outside]])
        values = np.concatenate([values, more_values[outside]])
        order = np.argsort(times, kind="stable")
        times, values = times[order], values[order]
    return times, values
