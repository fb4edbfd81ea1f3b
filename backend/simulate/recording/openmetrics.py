"""Telemetry of a recording as OpenMetrics files: family by family, series by series, each sample with its time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import orjson
from numpy.typing import NDArray

from backend.simulate.recording.columns import Columns
from backend.simulate.recording.exporters import Metric, card_labels, gpu_metrics, host_metrics, row_labels, text
from backend.simulate.recording.plant import Plant
from backend.simulate.recording.scrapes import Scrapes

Floats = NDArray[np.float64]
#: From, until (unix s) and what the labels of a node's cards carry then.
Spans = Sequence[tuple[float, float, Mapping[str, str]]]

WHOLE = 2.0**53
TWINNED = frozenset({"util", "power", "xid"})


class Stamps:
    """Times of every scrape as the text that ends a line; ``S17[nodes, ticks]``."""

    def __init__(self, times: Floats) -> None:
        self._text = np.char.mod("%.3f\n", np.ascontiguousarray(times.T)).astype("S18")

    def of(self, node: int, taken: NDArray[np.intp]) -> list[bytes]:
        found: list[bytes] = self._text[node, taken].tolist()
        return found


def block(head: bytes, values: Floats, stamps: list[bytes]) -> bytes:
    """Lines of one series: ``head`` value time."""
    parts = [head] * (4 * len(stamps))
    parts[1::4] = numbers(values)
    parts[2::4] = [b" "] * len(stamps)
    parts[3::4] = stamps
    return b"".join(parts)


def numbers(values: Floats) -> list[bytes]:
    """Each value as text: whole numbers without a point, others by their shortest form."""
    whole = bool((np.abs(values) < WHOLE).all()) and bool((values == np.floor(values)).all())
    listed = values.astype(np.int64) if whole else np.ascontiguousarray(values)
    return orjson.dumps(listed, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].split(b",")


class Telemetry:
    """Writes the telemetry folder of a bundle from columns that were filled tick by tick."""

    def __init__(self, folder: Path, site: Plant, scrapes: Scrapes, columns: Columns) -> None:
        self._folder, self._site, self._scrapes, self._columns = folder, site, scrapes, columns
        self._stamps = {"gpu": Stamps(scrapes.gpu), "node": Stamps(scrapes.node)}

    def cards(
        self, spans: Sequence[Spans], twins: Iterable[tuple[int, float, float]], tell: Callable[[], None]
    ) -> None:
        """``dcgm.om`` and ``amd.om``. ``spans``: per node; ``twins``: (node, from, until) with doubled series."""
        doubled = list(twins)
        for file_name, styles in (("dcgm.om", {"old", "new"}), ("amd.om", {"amd"})):
            nodes = {node.row for node in self._site.nodes if node.style in styles}
            if not nodes:
                continue
            with (self._folder / file_name).open("wb", buffering=1 << 20) as out:
                for metric in gpu_metrics():
                    if styles & set(metric.styles):
                        out.write(f"# TYPE {metric.name} {metric.type}\n".encode())
                        self._family(out, metric, nodes, spans, doubled)
                        tell()
                out.write(b"# EOF\n")

    def _family(self, out: BinaryIO, metric: Metric, nodes: set[int], spans: Sequence[Spans],
                twins: list[tuple[int, float, float]]) -> None:  # fmt: skip
        for row, values in self._columns.series(f"gpu.{metric.reading}"):
            card = self._site.cards[row]
            node = self._site.nodes[card.node]
            if node.row not in nodes or node.style not in metric.styles or (metric.optional and not node.full):
                continue
            times = self._scrapes.gpu[:, node.row]
            there = ~np.isnan(values)
            for extra, taken in _by_labels(spans[node.row], times, there):
                head = text(metric.sample, card_labels(node, card, extra))
                out.write(block(head, values[taken], self._stamps["gpu"].of(node.row, taken)))
            if metric.reading in TWINNED:
                for _, begin, end in [one for one in twins if one[0] == node.row]:
                    taken = np.flatnonzero(there & (times >= begin) & (times < end))
                    pod = {"exported_pod": f"worker-{card.index}", "exported_namespace": "train"}
                    if taken.size:
                        head = text(metric.sample, card_labels(node, card, pod))
                        out.write(block(head, values[taken], self._stamps["gpu"].of(node.row, taken)))

    def hosts(self, tell: Callable[[], None]) -> None:
        """``node.om``."""
        with (self._folder / "node.om").open("wb", buffering=1 << 20) as out:
            before = ""
            for metric in sorted(host_metrics(), key=lambda one: one.name):
                if metric.name != before:
                    out.write(f"# TYPE {metric.name} {metric.type}\n".encode())
                    before = metric.name
                for row, values in self._columns.series(f"{metric.axis}.{metric.reading}"):
                    node, labels = row_labels(self._site, metric.axis, row)
                    self._series(out, text(metric.sample, {**dict(metric.more), **labels}), values, "node", node)
                tell()
            out.write(b"# EOF\n")

    def ups(self, site_jobs: Sequence[str]) -> None:
        """``up.om``: every target's own health, the site's own exporters last (scraped with the first node)."""
        with (self._folder / "up.om").open("wb", buffering=1 << 20) as out:
            out.write(b"# TYPE up gauge\n")
            for exporter, name in (("gpu", "up.gpu"), ("node", "up.node")):
                for row, values in self._columns.series(name):
                    node = self._site.nodes[row]
                    port, job = ("5000", "amd-gpu") if node.style == "amd" else ("9400", "dcgm")
                    if exporter == "node":
                        port, job = "9100", "node"
                    head = text("up", {"instance": f"{node.name}:{port}", "job": job})
                    self._series(out, head, values, exporter, row)
            for row, values in self._columns.series("up.site"):
                head = text("up", {"instance": f"{site_jobs[row]}:9000", "job": site_jobs[row]})
                self._series(out, head, values, "node", 0)
            out.write(b"# EOF\n")

    def _series(self, out: BinaryIO, head: bytes, values: Floats, exporter: str, node: int) -> None:
        taken = np.flatnonzero(~np.isnan(values))
        if taken.size:
            out.write(block(head, values[taken], self._stamps[exporter].of(node, taken)))


def _by_labels(
    spans: Spans, times: Floats, there: NDArray[np.bool_]
) -> list[tuple[Mapping[str, str], NDArray[np.intp]]]:
    """Ticks by what the labels carried then, so that all samples of a series stand together."""
    by_labels: dict[tuple[tuple[str, str], ...], list[NDArray[np.intp]]] = {}
    for begin, end, extra in spans:
        taken = np.flatnonzero(there & (times >= begin) & (times < end))
        if taken.size:
            by_labels.setdefault(tuple(extra.items()), []).append(taken)
    return [(dict(extra), np.concatenate(found)) for extra, found in by_labels.items()]
