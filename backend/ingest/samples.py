"""From scraped series to Series: names made canonical, sentinels and impossible values dropped, duplicates merged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from backend.facts import DeviceLabel, Series
from backend.ingest.labels import Targets, device_label, host_name, identity, is_instance, joined
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

    metric: Metric
    parts: list[Scraped] = field(default_factory=list)
    of_instances: int = 0


def assemble(
    scraped: Iterable[Scraped], catalogue: Catalogue, targets: Targets | None = None
) -> tuple[tuple[Series, ...], Counter[str]]:
    """Series of one read, one for each metric of each device, and what was dropped, by reason.

    ``targets`` carries what earlier reads knew about who stands behind which exporter; None knows only this read.
    """
    gathering = _Gathering(catalogue, targets or Targets())
    for labels, times, values in scraped:
        gathering.add(labels, times, values)
    return gathering.series(), gathering.dropped


class _Gathering:
    def __init__(self, catalogue: Catalogue, targets: Targets) -> None:
        self.dropped: Counter[str] = Counter()
        self._catalogue = catalogue
        self._targets = targets
        self._rows: dict[tuple[str, tuple[str, ...]], _Row] = {}
        self._labels: dict[tuple[str, ...], list[tuple[float, DeviceLabel]]] = {}
        self._ups: list[tuple[str, str, Floats, Floats]] = []
        self._seen: dict[str, set[str]] = {}

    def add(self, labels: Mapping[str, str], times: Floats, values: Floats) -> None:
        name = self._catalogue.alias.get(labels.get("__name__", ""))
        if name is None:
            self.dropped["metric not in the catalogue"] += times.size
            return
        metric = self._catalogue.metrics[name]
        times, values = readable(metric, times, values, self.dropped)
        if not times.size:
            return
        if metric.name == UP:
            self._ups.append((labels.get("instance", ""), host_name(labels.get("instance", "")), times, values))
            return
        label = device_label(metric.axis, labels)
        if label is None:
            self.dropped["no device or node in the labels"] += times.size
            return
        self._keep(metric, label, labels, times, values)

    def _keep(
        self, metric: Metric, label: DeviceLabel, labels: Mapping[str, str], times: Floats, values: Floats
    ) -> None:
        key = identity(label)
        if label.axis != "node" and label.node and (instance := labels.get("instance")):
            self._seen.setdefault(instance, set()).add(label.node)
        row = self._rows.setdefault((metric.name, key), _Row(metric))
        if metric.name in PER_INSTANCE and is_instance(labels):
            row.of_instances += times.size
        else:
            row.parts.append((labels, times, values))
        self._labels.setdefault(key, []).append((float(times[-1]), label))

    def series(self) -> tuple[Series, ...]:
        """Everything gathered, devices in the order they came."""
        self._targets.learn(self._seen)
        merged = {key: joined(label for _, label in newest_first(said)) for key, said in self._labels.items()}
        made: list[Series] = []
        for (name, key), row in self._rows.items():
            self.dropped["of a MIG instance"] += row.of_instances
            if row.parts:
                made.append(Series(name, merged[key], *merge(row.parts)))
        self.dropped += Counter()  # forgets the reasons that counted nothing
        return (*made, *self._node_ups())

    def _node_ups(self) -> Iterable[Series]:
        """``up`` of the target that carries a node's GPUs decides; without one, any target on that host does."""
        carried = self._targets.all()
        by_node: dict[str, list[tuple[Floats, Floats]]] = {}
        for instance, host, times, values in self._ups:
            behind = self._targets.nodes(instance) or ({host} - carried if host else frozenset())
            for node in behind:
                by_node.setdefault(node, []).append((times, values))
        for node, parts in by_node.items():
            times, values = max(parts, key=lambda part: (float(part[1][-1]), part[0].size))
            yield Series(UP, DeviceLabel("node", node), times, values)


def newest_first(said: list[tuple[float, DeviceLabel]]) -> list[tuple[float, DeviceLabel]]:
    return sorted(said, key=lambda pair: -pair[0])


def readable(metric: Metric, times: Floats, values: Floats, dropped: Counter[str]) -> tuple[Floats, Floats]:
    """The samples that mean something. DCGM's blanks, infinities and impossible values go and are counted in
    ``dropped``; NaN stays: it says that the series reported nothing at that time."""
    missing = np.isnan(values)
    infinite = np.isinf(values) | ~np.isfinite(times)
    good = (metric.valid(values) | missing) & ~infinite
    dropped["not a number"] += int(np.count_nonzero(missing & (values.view(np.uint64) != STALE)))
    if good.all():
        return times, values
    no_value = ~good & ~infinite & blank(values) if metric.axis == "gpu" else np.zeros(values.shape, np.bool_)
    outside = ~(good | infinite | no_value)
    for reason, which in (("infinite", infinite), ("blank", no_value), ("out of range", outside)):
        dropped[reason] += int(np.count_nonzero(which))
    return times[good], values[good]


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
