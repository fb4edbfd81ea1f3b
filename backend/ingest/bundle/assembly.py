"""Samples of one scrape become Series by ``samples.assemble``; what it made of the same series before is kept."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.facts import DeviceLabel, Series
from backend.ingest.bundle.openmetrics import Book, Ids
from backend.ingest.labels import Targets, device_label, identity
from backend.ingest.samples import UP, Scraped, assemble, readable
from detectors.catalogue import Catalogue, blank

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

#: Series in all kept plans together; a plan takes some 30 bytes for each.
MOST_PLANNED = 1_000_000


@dataclass(frozen=True, slots=True)
class _Plan:
    """What ``assemble`` makes of one sample of each of certain series: whose samples stand for whom.

    take: place of the sample of each Series; metrics, labels, parts: what it is of; pair: of each sample, which of
    ``heard`` (exporter, node) it shows, -1 = none; reason: of each sample, for which of ``reasons`` it is left out,
    -1 = for none.
    """

    take: NDArray[np.intp]
    metrics: tuple[str, ...]
    labels: tuple[DeviceLabel, ...]
    parts: tuple[str, ...]
    pair: NDArray[np.int32]
    heard: tuple[tuple[str, str], ...]
    reason: NDArray[np.int32]
    reasons: tuple[str, ...]

    def of(self, sound: Mask) -> tuple[NDArray[np.intp], dict[str, set[str]], Counter[str]]:
        """Of the samples that are ``sound``: which Series they make, nodes by exporter, what is left out."""
        which = np.flatnonzero(sound[self.take]) if not sound.all() else np.arange(self.take.size)
        seen: dict[str, set[str]] = {}
        for place in np.unique(self.pair[sound & (self.pair >= 0)]):
            exporter, node = self.heard[place]
            seen.setdefault(exporter, set()).add(node)
        counts = np.bincount(self.reason[sound & (self.reason >= 0)], minlength=len(self.reasons)).tolist()
        return which, seen, Counter({why: count for why, count in zip(self.reasons, counts, strict=True) if count})


class Assembly:
    """Turns scrapes into Series, one after the other; it remembers who stands behind which exporter.

    A scrape mostly holds the same series as others before it, one sample each. Then only the numbers are new, and they
    take the places that ``assemble`` gave them the first time; everything else goes through ``assemble`` itself.
    """

    def __init__(self, book: Book, catalogue: Catalogue) -> None:
        self._book = book
        self._catalogue = catalogue
        self._targets = Targets()
        names = sorted({catalogue.alias[name] for name in book.names})
        self._metrics = tuple(catalogue.metrics[name] for name in names)
        numbers = {name: number for number, name in enumerate(names)}
        by_name = np.array([numbers[catalogue.alias[name]] for name in book.names], np.int32)
        self._metric_of = by_name[np.array(book.name_of, np.int32)]
        self._rank = np.empty(len(book), np.int32)
        self._rank[np.argsort(self._metric_of, kind="stable")] = np.arange(len(book), dtype=np.int32)
        self._low = np.array([metric.low for metric in self._metrics])
        self._high = np.array([metric.high for metric in self._metrics])
        self._blanks = np.array([metric.axis == "gpu" for metric in self._metrics], np.bool_)
        self._up = numbers.get(UP, -1)
        self._plans: OrderedDict[bytes, _Plan | None] = OrderedDict()
        self._planned = 0

    def series(self, ids: Ids, times: Floats, values: Floats) -> tuple[tuple[Series, ...], Counter[str]]:
        """Series of the samples of one read, in order of metric, and what was dropped, by reason. Times are finite.

        Of two samples of a series at the same instant the first counts.
        """
        dropped: Counter[str] = Counter()
        order = np.lexsort((times, self._rank[ids]))
        ids, times, values = ids[order], times[order], values[order]
        again = ids[1:] == ids[:-1]
        if again.any():
            twice = np.concatenate([[False], again & (times[1:] == times[:-1])])
            dropped["said twice"] += int(np.count_nonzero(twice))
            ids, times, values = ids[~twice], times[~twice], values[~twice]
            again = ids[1:] == ids[:-1]
        if again.any():
            return self._whole(ids, times, values, dropped)
        return self._planned_series(ids, times, values, dropped)

    def _planned_series(
        self, ids: Ids, times: Floats, values: Floats, dropped: Counter[str]
    ) -> tuple[tuple[Series, ...], Counter[str]]:
        """One sample of each series."""
        metrics = self._metric_of[ids]
        refused: Counter[str] = Counter()
        sound = self._sound(metrics, times, values, refused)
        ups = metrics == self._up
        here = np.flatnonzero(~ups)
        plan = self._plan(ids[here])
        if plan is None:
            return self._whole(ids, times, values, dropped)
        which, heard, left_out = plan.of(sound[here])
        self._targets.learn(heard)
        rows = here[plan.take[which]]
        whose = which.tolist()
        made = tuple(
            map(
                Series,
                [plan.metrics[one] for one in whose],
                [plan.labels[one] for one in whose],
                times[rows].reshape(-1, 1),
                values[rows].reshape(-1, 1),
                [plan.parts[one] for one in whose],
            )
        )
        of_targets, more = assemble(self._scraped(ids[ups], times[ups], values[ups]), self._catalogue, self._targets)
        return made + of_targets, dropped + left_out + refused + more

    def _whole(
        self, ids: Ids, times: Floats, values: Floats, dropped: Counter[str]
    ) -> tuple[tuple[Series, ...], Counter[str]]:
        series, more = assemble(self._scraped(ids, times, values), self._catalogue, self._targets)
        return series, dropped + more

    def _scraped(self, ids: Ids, times: Floats, values: Floats) -> list[Scraped]:
        """The samples by series; those of one series stand together, their times rising."""
        edges = np.flatnonzero(ids[1:] != ids[:-1]) + 1
        begins = [0, *edges.tolist()] if ids.size else []
        ends = [*begins[1:], ids.size]
        return [(self._book.labels(int(ids[a])), times[a:b], values[a:b]) for a, b in zip(begins, ends, strict=False)]

    def _sound(self, metrics: NDArray[np.int32], times: Floats, values: Floats, refused: Counter[str]) -> Mask:
        """Which samples mean something. The few that may not are judged, and counted, by ``readable``; those of ``up``
        are left to ``assemble``."""
        good = (values >= self._low[metrics]) & (values <= self._high[metrics])
        good &= ~(blank(values) & self._blanks[metrics])
        doubtful = ~good & (metrics != self._up)
        if not doubtful.any():
            return good
        for which in np.unique(metrics[doubtful]):
            rows = doubtful & (metrics == which)
            readable(self._metrics[which], [({}, times[rows], values[rows])], refused)
        return good | np.isnan(values)

    # --- plans ------------------------------------------------------------------------------------------------------

    def _plan(self, ids: Ids) -> _Plan | None:
        """The plan for one sample of each of ``ids``; None where the times of the samples would matter too."""
        key = ids.tobytes()
        if key in self._plans:
            self._plans.move_to_end(key)
            return self._plans[key]
        plan = self._plans[key] = self._made(ids)
        self._planned += ids.size
        while self._planned > MOST_PLANNED and len(self._plans) > 1:
            oldest, _ = self._plans.popitem(last=False)
            self._planned -= len(oldest) // ids.itemsize
        return plan

    def _made(self, ids: Ids) -> _Plan | None:
        """``assemble`` of samples that are all alike in time, and possible; which of them it hands on says the rest."""
        metrics = [self._metrics[which] for which in self._metric_of[ids]]
        probe: list[Scraped] = [
            (self._book.labels(series), np.zeros(1), np.array([metric.low]))
            for series, metric in zip(ids.tolist(), metrics, strict=True)
        ]
        series, left_out = assemble(probe, self._catalogue)
        place = {id(values): i for i, (_, _, values) in enumerate(probe)}
        take = [place.get(id(one.values), -1) for one in series]
        named = [device_label(metric.axis, said) for metric, (said, _, _) in zip(metrics, probe, strict=True)]
        if -1 in take or len(take) + left_out.total() != len(probe) or not _told_apart(named):
            return None
        pairs: dict[tuple[str, str], int] = {}
        reasons: dict[str, int] = {}
        pair, reason = np.full(len(probe), -1, np.int32), np.full(len(probe), -1, np.int32)
        for row, (label, (said, _, _)) in enumerate(zip(named, probe, strict=True)):
            exporter = said.get("instance", "")
            if label is not None and label.axis == "gpu" and label.node and exporter:
                pair[row] = pairs.setdefault((exporter, label.node), len(pairs))
        for row in sorted(set(range(len(probe))) - set(take)):
            reason[row] = reasons.setdefault(_why_not(probe[row], self._catalogue), len(reasons))
        metrics_, labels = tuple(one.metric for one in series), tuple(one.label for one in series)
        parts = tuple(one.part for one in series)
        return _Plan(np.array(take, np.intp), metrics_, labels, parts, pair, tuple(pairs), reason, tuple(reasons))


def _why_not(one: Scraped, catalogue: Catalogue) -> str:
    """For which reason ``assemble`` leaves a sample out that it does not hand on."""
    _, left_out = assemble([one], catalogue)
    return next(iter(left_out), "")


def _told_apart(named: list[DeviceLabel | None]) -> bool:
    """Whether every device has one label only, so that no sample's time decides which label is the newest."""
    labels = set(named) - {None}
    return len(labels) == len({identity(label) for label in labels if label is not None})
