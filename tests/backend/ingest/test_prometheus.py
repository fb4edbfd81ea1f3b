"""Prometheus as a source: against a fake reader, and against a real Prometheus that scrapes our exporter."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from backend.clients.promql import Answer, PromError, PrometheusReader, RawSeries
from backend.clock import utc
from backend.facts import Batch
from backend.ingest.base import SourceError
from backend.ingest.prometheus import PrometheusSource, selector
from backend.inventory.inventory import Inventory
from backend.ring import Ring
from backend.store.engine import Store
from detectors.catalogue import load
from detectors.model import Need, Tick
from tests.services.exporter import GPUS, Switches, exporter, uuid
from tests.services.prometheus import prometheus, until

CATALOGUE = load()
T = 1_770_000_000.0
NEEDS: frozenset[Need] = frozenset({("gpu", "temperature_c"), ("gpu", "xid_last"), ("node", "node_load1"), "xid"})


class Reader(PrometheusReader):
    """Answers from a list, and remembers what it was asked."""

    def __init__(self, *answers: Answer | PromError) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, float, float]] = []

    def query_range_raw(self, selector: str, start: float, end: float) -> Answer:
        self.asked.append((selector, start, end))
        answer = self.answers.pop(0) if self.answers else Answer((up(end - 1),))
        if isinstance(answer, PromError):
            raise answer
        return answer


def raw(times: Iterable[float], **labels: str) -> RawSeries:
    said = {"__name__": "DCGM_FI_DEV_GPU_TEMP", "UUID": "GPU-a", "gpu": "0", "Hostname": "gpu-0001", **labels}
    at = np.array(list(times))
    return RawSeries(said, at, np.full(at.shape, 50.0))


def up(at: float) -> RawSeries:
    return RawSeries({"__name__": "up", "instance": "localhost:9090"}, np.array([at]), np.array([1.0]))


def source(*answers: Answer | PromError, matchers: str = "") -> tuple[PrometheusSource, Reader]:
    reader = Reader(*answers)
    return PrometheusSource("prometheus", reader, CATALOGUE, matchers), reader


def test_one_query_an_axis_asks_for_exactly_the_needed_names() -> None:
    made, reader = source(matchers='cluster="main"')
    made.read(NEEDS, T, T + 15)
    (gpu, _, _), (node, _, _), *_ = reader.asked
    assert gpu == (
        '{__name__=~"DCGM_FI_DEV_GPU_TEMP|DCGM_FI_DEV_GPU_TEMP_CELSIUS|DCGM_FI_DEV_XID_ERROR|DCGM_FI_DEV_XID_ERRORS'
        "|dcgm_fi_dev_gpu_temp|dcgm_fi_dev_gpu_temp_celsius|dcgm_fi_dev_xid_error|dcgm_fi_dev_xid_errors"
        '|dcgm_gpu_temp|dcgm_xid_errors|gpu_junction_temperature",cluster="main"}'
    )
    assert node == '{__name__=~"node_load1|up",cluster="main"}'


def test_up_is_asked_for_even_where_nothing_needs_it() -> None:
    made, reader = source()
    made.read(frozenset({"xid"}), T, T + 15)
    assert [asked[0] for asked in reader.asked] == [selector(["up"])]


def test_a_scrape_that_showed_late_is_found_and_nothing_comes_twice() -> None:
    """The scrape of T + 14.9 was still going on when we read up to T + 15."""
    made, _ = source(
        Answer((raw([T + 5]),)),
        Answer(()),
        Answer((raw([T + 5, T + 14.9, T + 20]),)),
        Answer(()),
        Answer((raw([T + 20, T + 34.9]), raw([T + 29, T + 34.9], UUID="GPU-b"))),
    )
    spans = [(T, T + 15), (T + 15, T + 30), (T + 30, T + 45)]
    read = [made.read(NEEDS, *span) for span in spans]
    assert [batch.series[0].times.tolist() for batch in read] == [[T + 5], [T + 14.9, T + 20], [T + 34.9]]
    assert read[2].series[1].times.tolist() == [T + 29, T + 34.9]
    assert [(batch.start - T, batch.end - T) for batch in read] == [(0, 5), (5, 20), (20, 44)]


def test_a_partial_answer_covers_nothing() -> None:
    made, _ = source(Answer((raw([T + 5]),), partial=("store 2 unavailable",)))
    batch = made.read(NEEDS, T, T + 15)
    assert batch.start == batch.end and len(batch.series) == 1 and sum(batch.dropped.values()) == 1


@pytest.mark.parametrize("permanent", [True, False])
def test_a_failed_query_is_a_source_error(permanent: bool) -> None:
    made, _ = source(PromError("http://p: status 422, too many samples", permanent=permanent))
    with pytest.raises(SourceError, match="prometheus: http://p: status 422") as caught:
        made.read(NEEDS, T, T + 15)
    assert caught.value.permanent is permanent


def test_a_span_that_is_none_is_refused() -> None:
    made, _ = source()
    for start, end in ((T, T), (T + 1, T), (float("nan"), T)):
        with pytest.raises(SourceError):
            made.read(NEEDS, start, end)


def test_a_store_into_which_nobody_scrapes_is_dark() -> None:
    """The agent that remote-writes has died; the store behind it answers as ever, and nobody may be blamed."""
    made, reader = source()
    for n in range(4):
        made.read(NEEDS, T + n * 15, T + n * 15 + 15)
    reader.answers = [Answer(())] * 10
    for n in (4, 5, 6):
        batch = made.read(NEEDS, T + n * 15, T + n * 15 + 15)
        assert batch.series == () and batch.start == batch.end
    for n in (7, 8):
        with pytest.raises(SourceError, match="no new sample for [0-9]+ s, not even up") as caught:
            made.read(NEEDS, T + n * 15, T + n * 15 + 15)
    assert not caught.value.permanent
    assert made.read(NEEDS, T + 105, T + 150).end == T + 149


@pytest.mark.parametrize("scrape_s", [15, 60, 120, 300])
def test_a_slow_scrape_is_not_taken_for_a_dead_one(scrape_s: int) -> None:
    made, reader = source()
    start, dark = T, []
    for end in np.arange(T + 15, T + 3000, 15):
        due = [at for at in T + np.arange(1, 3000, scrape_s) if start - 10 < at <= end]
        reader.answers = [Answer(tuple(up(at) for at in due)), Answer(())]
        try:
            made.read(NEEDS, start, end)
            start = end
        except SourceError:
            dark.append(end - T)
    assert not [at for at in dark if at > 2 * scrape_s]
    assert not dark or scrape_s > 60


def test_a_store_that_holds_nothing_of_ours_says_what_to_check() -> None:
    made, _ = source(Answer(()), Answer(()))
    with pytest.raises(SourceError, match="Check url and matchers"):
        made.read(NEEDS, T, T + 15)


# --- the real one ----------------------------------------------------------------------------------------------------

ALL: frozenset[Need] = frozenset(metric.key for metric in CATALOGUE.metrics.values())
NODES = 4


class Site:
    """A source, an inventory and a ring on ticks of one second; what the loops and the pipeline do with them."""

    def __init__(self, url: str, store: Store) -> None:
        self.source = PrometheusSource("prometheus", PrometheusReader(url, timeout_s=5), CATALOGUE)
        self.inventory = Inventory("main")
        self.ring = Ring(CATALOGUE.metrics, 1.0, 3.0)
        self.store = store
        self.read_to = time.time() - 2
        self.ticks: list[Tick] = []

    def read(self) -> Batch:
        now = time.time()
        batch = self.source.read(ALL, self.read_to, now)
        self.read_to = now
        with self.store.write() as session:
            self.inventory.absorb(session, batch, utc(now))
        self.ring.accept(batch, self.inventory.slot, now)
        self.ticks += self.ring.due(now)
        return batch

    def slot(self, node: str, gpu: int) -> int:
        return self.inventory.fleet.slots[("gpu", uuid(node, gpu))]

    def seen(self, metric: str, slot: int) -> tuple[bool, float]:
        """(sampled, value) at the newest tick."""
        tick = self.ticks[-1]
        if tick.values[("gpu", metric)].size <= slot:
            return False, float("nan")
        return bool(tick.sampled[("gpu", metric)][slot]), float(tick.values[("gpu", metric)][slot])

    def gone(self, slot: int) -> bool:
        was, value = self.seen("temperature_c", slot)
        return was and np.isnan(value)


@pytest.mark.services
def test_a_real_prometheus_end_to_end(tmp_path: Path, sqlite_store: Store) -> None:
    """Old and new names side by side, one GPU lost, exporter down, Prometheus away: each shows as what it is."""
    with exporter(NODES) as (port, switches), prometheus(tmp_path, [f"127.0.0.1:{port}"]) as server:
        site = Site(server.url, sqlite_store)
        healthy(site, switches)
        one_gpu_is_lost(site, switches)
        the_exporter_goes_down(site, switches)
        server.stop()
        prometheus_is_away(site)


def turn(site: Site) -> bool:
    site.read()
    return len(site.ticks) > 0


def answers(site: Site) -> bool:
    """Whether there is anything to read yet: a Prometheus that has just started holds nothing."""
    try:
        return bool(site.read())
    except SourceError as error:
        assert "Check url and matchers" in str(error)
        return False


def healthy(site: Site, switches: Switches) -> None:
    until(lambda: answers(site), 15)

    def all_sampled() -> bool:
        turn(site)
        slots = [site.slot(n, g) for n in switches.nodes for g in range(GPUS) if site.inventory.fleet.slots]
        return bool(site.ticks) and len(slots) == NODES * GPUS and all(site.seen("power_w", s)[1] > 500 for s in slots)

    until(all_sampled, 30, lambda: f"ticks {len(site.ticks)}, fleet {len(site.inventory.fleet.slots)}")
    batch = site.read()
    fleet = site.inventory.fleet
    assert sorted(fleet.nodes) == list(switches.nodes) and len(fleet.axes["gpu"]) == NODES * GPUS
    assert fleet.axes["gpu"].names[site.slot("gpu-0002", 3)] == "gpu-0002/gpu3"
    assert not {"metric not in the catalogue", "no device or node in the labels"} & set(batch.dropped)
    assert site.ring.late == 0 and not site.ring.dropped
    assert site.seen("xid_last", site.slot("gpu-0001", 0)) == (True, 0.0)
    until(lambda: turn(site) and site.ticks[-1].values[("node", "node_up")].tolist() == [1.0] * NODES, 15)


def one_gpu_is_lost(site: Site, switches: Switches) -> None:
    switches.drop_gpu("gpu-0002", 3)
    switches.set("DCGM_FI_DEV_XID_ERRORS", "gpu-0001", 1, 79)
    lost = site.slot("gpu-0002", 3)
    until(lambda: turn(site) and site.gone(lost), 15, lambda: str(site.seen("temperature_c", lost)))
    others = [site.slot(n, g) for n in switches.nodes for g in range(GPUS) if (n, g) != ("gpu-0002", 3)]
    assert not any(site.gone(slot) for slot in others)
    until(lambda: turn(site) and site.seen("xid_last", site.slot("gpu-0001", 1)) == (True, 79.0), 15)
    switches.restore_gpu("gpu-0002", 3)
    until(lambda: turn(site) and site.seen("temperature_c", lost)[1] > 40, 15)


def the_exporter_goes_down(site: Site, switches: Switches) -> None:
    switches.down = True
    until(lambda: turn(site) and site.ticks[-1].values[("node", "node_up")].tolist() == [0.0] * NODES, 15)
    until(lambda: turn(site) and all(site.gone(s) for s in range(NODES * GPUS)), 15)
    switches.down = False
    until(lambda: turn(site) and site.seen("temperature_c", 0)[1] > 40, 15)


def prometheus_is_away(site: Site) -> None:
    began = time.monotonic()
    with pytest.raises(SourceError):
        site.read()
    assert time.monotonic() - began < 7

    def dark() -> bool:
        site.ticks += site.ring.due(time.time())
        return not any(array.any() for array in site.ticks[-1].sampled.values())

    until(dark, 15)
    assert not any(site.gone(slot) for slot in range(NODES * GPUS))  # blind, and nobody is blamed
