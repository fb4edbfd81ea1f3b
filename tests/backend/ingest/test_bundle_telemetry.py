"""Telemetry of a bundle: every block gives what its lines say, one by one; scrapes become what a live read makes."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.clients.promql import Answer, PrometheusReader, RawSeries
from backend.facts import Batch
from backend.ingest.bundle.bundle import Prepared, open_bundle
from backend.ingest.bundle.openmetrics import Book, Scanner, number, sample_of
from backend.ingest.bundle.reading import BadRows
from backend.ingest.bundle.telemetry import Gaps, wanted_names
from backend.ingest.labels import Targets
from backend.ingest.prometheus import PrometheusSource
from backend.ingest.samples import Scraped, assemble
from detectors.catalogue import load
from detectors.model import Need
from tests.bundles import TEMP, T, bundle, gpu, series, up

CATALOGUE = load()
POWER, UTIL, XID = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_XID_ERRORS"
SMALL = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def prepared(folder: Path, **limits: int) -> Prepared:
    return open_bundle(folder).prepare(folder / "work", CATALOGUE, **limits)  # type: ignore[arg-type]


def read(folder: Path, text: str | bytes, round_s: float = 0.0, **limits: int) -> list[tuple[float, Batch]]:
    with prepared(bundle(folder, telemetry={"a": text}), **limits) as found:
        return list(found.batches(round_s=round_s))


def said(batch: Batch) -> list[tuple[object, ...]]:
    return sorted((s.metric, str(s.label), s.times.tolist(), repr(s.values.tolist())) for s in batch.series)


# --- lines ----------------------------------------------------------------------------------------------------------

LABELS = [b"", b'{gpu="0",UUID="GPU-a"}', b'{gpu="1",UUID="GPU-b",x="a } b 1 2 # \\" \\\\ \\n"}', b"{}", b'{a="\xe9"}']
NUMBERS = [b"1", b"0.5", b"-3e2", b"NaN", b"+Inf", b"1_0", b"x", b"", b"9.223372036854775792e18", b"0x10", b"007"]
ENDS = [b"", b" ", b"\r", b' # {t="1"} 1 2', b" 5", b"\x00"]
LINE = st.one_of(
    st.tuples(
        st.sampled_from([TEMP.encode(), b"up", b"other_metric", b"1bad"]),
        st.sampled_from([*LABELS, b'{a="b', b"{a=b}"]),
        st.sampled_from(NUMBERS),
        st.sampled_from([b"1770000000", b"1770000030.25", b"1770000000000", b"", b"t", b"NaN"]),
        st.sampled_from(ENDS),
    ).map(lambda part: part[0] + part[1] + b" " + part[2] + b" " + part[3] + part[4]),
    st.sampled_from([b"# TYPE up gauge", b"", b"# EOF", b"\x00\xff", b" up 1 1770000000", b"up\t1\t1770000000"]),
)
STRETCH = st.tuples(LINE, st.integers(1, 5)).map(lambda pair: [pair[0]] * pair[1])


@SMALL
@given(st.lists(STRETCH, max_size=12), st.integers(1, 300))
def test_every_block_gives_what_its_lines_say_one_by_one(stretches: list[list[bytes]], cut: int) -> None:
    lines = [line for stretch in stretches for line in stretch]
    wanted = wanted_names(CATALOGUE, None)
    book, bad = Book(wanted), BadRows()
    scanner = Scanner("a.om", book, bad, Counter())
    found: list[tuple[bytes, float, float]] = []
    for at in range(0, len(lines), cut):
        ids, times, values = scanner.feed(b"".join(line + b"\n" for line in lines[at : at + cut]))
        found += [(repr(book.labels(i)).encode(), t, v) for i, t, v in zip(ids.tolist(), times, values, strict=True)]
    plain, refused = one_by_one(lines, wanted)
    assert repr(found) == repr(plain)
    assert sorted(row.line for row in bad.told) == refused


def one_by_one(
    lines: list[bytes], wanted: frozenset[str]
) -> tuple[list[tuple[bytes, np.float64, np.float64]], list[int]]:
    book = Book(wanted)
    found, refused = [], []
    for place, line in enumerate(lines):
        if not line or line.startswith(b"#") or line.split(b"{")[0].split(b" ")[0] == b"other_metric":
            continue
        try:
            name, labels, value, time = sample_of(line)
            if not 946_684_800 <= time <= 4_102_444_800:
                raise ValueError
            found.append((repr(book.labels(book.number(name, labels))).encode(), np.float64(time), np.float64(value)))
        except ValueError:
            refused.append(place + 1)
    return found, refused


def test_a_line_of_another_series_in_between_stays_its_own() -> None:
    """Labels of the same length: only the text tells them apart."""
    for places in range(1, 2**9):
        lines = [f'up{{a="{places >> n & 1}"}} {n} 1770000000' for n in range(9)]
        book = Book(frozenset({"up"}))
        ids, _, values = Scanner("a", book, BadRows(), Counter()).feed("\n".join([*lines, ""]).encode())
        assert [int(book.labels(i)["a"]) for i in ids.tolist()] == [places >> n & 1 for n in range(9)]
        assert values.tolist() == list(range(9))


@SMALL
@given(st.floats(), st.integers(-(2**70), 2**70), st.sampled_from(["r", "e", "f"]))
def test_numbers_read_in_bulk_are_those_that_float_reads(value: float, whole: int, form: str) -> None:
    words = [repr(value) if form == "r" else f"{value:.17{form}}", str(whole)]
    book = Book(frozenset({"up"}))
    text = "".join(f"up {word} 1770000000.{place}\n" for place, word in enumerate(words))
    found = Scanner("a.om", book, BadRows(), Counter()).feed(text.encode())
    assert repr(found.values.tolist()) == repr([float(word) for word in words])


def test_what_float_would_take_and_openmetrics_does_not_is_no_number() -> None:
    for word in (b"1_000", "١".encode(), b"0x10", b"", b"1,5"):
        with pytest.raises(ValueError, match="is no number"):
            number(word)


# --- scrapes --------------------------------------------------------------------------------------------------------

VALUE = st.sampled_from(["50", "61.5", "NaN", "+Inf", "9.223372036854775792e18", "-1000", "0"])
MORE: list[dict[str, str]] = [{}, {"hpc_job": "7"}, {"hpc_job": "8"}, {"pod": "b"}, {"GPU_I_ID": "1"}]
WHO = st.tuples(st.sampled_from(["n1", "n2"]), st.integers(0, 1), st.sampled_from(MORE))
SERIES = st.tuples(
    st.sampled_from([TEMP, UTIL, XID, "node_load1", "up", "node_nothing"]),
    WHO,
    st.lists(st.tuples(st.integers(0, 5), VALUE), min_size=1, max_size=6),
)


def lines_of(name: str, who: tuple[str, int, dict[str, str]], samples: list[tuple[int, str]], step_s: float) -> str:
    node, index, more = who
    placed = [(T + at * step_s, value) for at, value in samples]
    if name.startswith(("up", "node_")):
        return series(name, placed, instance=f"{node}:{9100 + index * 300}")
    return gpu(name, placed, node, index, **more)


@SMALL
@given(
    st.lists(SERIES, min_size=1, max_size=10), st.sampled_from([0.0, 30.0]), st.integers(1, 40), st.integers(20, 900)
)
def test_scrapes_are_what_assemble_makes_of_the_same_samples(
    tmp_path_factory: pytest.TempPathFactory,
    told: list[tuple[str, tuple[str, int, dict[str, str]], list[tuple[int, str]]]],
    round_s: float,
    max_rows: int,
    block_bytes: int,
) -> None:
    """Whatever the limits: nothing lost, nothing twice, in order; ``up`` speaks for the nodes it was seen with."""
    text = "".join(lines_of(*one, step_s=10.0) for one in told)
    folder = tmp_path_factory.mktemp("bundle")
    found = read(folder, text, round_s, max_rows=max_rows, block_bytes=block_bytes)
    plain = assembled(text, round_s)
    assert [at for at, _ in found] == sorted(at for at, _, _ in plain)
    for (_, batch), (_, expected, dropped) in zip(found, plain, strict=True):
        assert said(batch) == said(expected)
        assert batch.dropped == dropped


@pytest.mark.parametrize("metric", [TEMP, POWER])
@pytest.mark.parametrize("more", [*MORE[2:], {}])
def test_a_device_under_two_label_sets_is_what_assemble_makes_of_it(
    tmp_path: Path, metric: str, more: dict[str, str]
) -> None:
    """Two exporters, scraped at their own moments; one of them now first, now second."""
    for first, second in ((0.0, 5.0), (5.0, 0.0)):
        one = gpu(
            TEMP,
            [(T + 30 * i + 1 + first, i) for i in range(4)],
            "gpu-0001",
            0,
            **({"pod": "a"} if "pod" in more else MORE[1]),
        )
        again = [(T + 30 * i + 1 + (second if i % 2 else first), 50 + i) for i in range(4)]
        text = one + gpu(metric, again, "gpu-0001", 0, **more)
        found, plain = read(tmp_path, text, 30.0), assembled(text, 30.0)
        assert [said(batch) for _, batch in found] == [said(batch) for _, batch, _ in plain]


def assembled(text: str, round_s: float) -> list[tuple[float, Batch, Counter[str]]]:
    """The same by hand: samples by turn, those of a series together, its times rising, each once."""
    turns: dict[float, dict[bytes, dict[float, float]]] = {}
    for line in text.encode().splitlines():
        name, labels, value, time = sample_of(line)
        if name.decode() in CATALOGUE.alias:
            turn = np.ceil(time / round_s) if round_s else time
            turns.setdefault(turn, {}).setdefault(name + labels, {}).setdefault(time, value)
    again = Counter[tuple[bytes, float]](
        (name + labels, time) for name, labels, _, time in map(sample_of, text.encode().splitlines())
    )
    book, targets = Book(wanted_names(CATALOGUE, None)), Targets()
    found = []
    for turn, by_series in sorted(turns.items()):
        scraped: list[Scraped] = []
        for key, samples in by_series.items():
            name, brace, rest = key.partition(b"{")
            times = np.array(sorted(samples))
            scraped.append((book.labels(book.number(name, brace + rest)), times, np.array([samples[t] for t in times])))
        scraped.sort(key=lambda one: CATALOGUE.alias[one[0]["__name__"]])
        made, dropped = assemble(scraped, CATALOGUE, targets)
        twice = sum(again[key, at] - 1 for key, samples in by_series.items() for at in samples)
        dropped += Counter({"said twice": twice})
        end = max(at for samples in by_series.values() for at in samples)
        found.append((end, Batch("prometheus", turn, end, made), dropped))
    return found


class Recorded(PrometheusReader):
    """Answers from a bundle's samples, as Prometheus would."""

    def __init__(self, lines: bytes) -> None:
        self._book = Book(wanted_names(CATALOGUE, None))
        ids, self._times, self._values = Scanner("a", self._book, BadRows(), Counter()).feed(lines)
        self._ids = ids

    def query_range_raw(self, selector: str, start: float, end: float) -> Answer:
        found = []
        for which in range(len(self._book)):
            labels = self._book.labels(which)
            here = (self._ids == which) & (self._times > start) & (self._times <= end)
            if here.any() and labels["__name__"] in selector.replace('"', "|").split("|"):
                found.append(RawSeries(labels, self._times[here], self._values[here]))
        return Answer(tuple(found))


def test_a_replay_brings_what_a_live_source_brings(tmp_path: Path) -> None:
    """Two nodes scraped at their own moments, one GPU falling silent, a counter, a blank, a job that changes."""
    at = [T + 30 * i for i in range(12)]
    text = "".join(
        gpu(name, [(t + 3.25 * n, 40 + i + g) for i, t in enumerate(at) if g == 0 or i < 7], f"gpu-000{n}", g)
        for name in (TEMP, POWER, XID)
        for n in (1, 2)
        for g in (0, 1)
    )
    text += gpu(UTIL, [(t + 3.25, 90) for t in at[:6]], hpc_job="7") + gpu(
        UTIL, [(t + 3.25, 91) for t in at[6:]], hpc_job="8"
    )
    text += up([(t + 3.25, int(i != 4)) for i, t in enumerate(at)]) + up([(t + 6.5, 1) for t in at], "gpu-0002")
    text += series("node_intr_total", [(t + 1, 1e9 * i) for i, t in enumerate(at)], instance="gpu-0001:9100")
    text += gpu("DCGM_FI_DEV_FB_USED", [(t + 3.25, 9.223372036854775792e18) for t in at])
    source = PrometheusSource("prometheus", Recorded(text.encode()), CATALOGUE)
    needs = frozenset(metric.key for metric in CATALOGUE.metrics.values())
    live = [source.read(needs, T + 30 * k, T + 30 * k + 30) for k in range(12)]
    with prepared(bundle(tmp_path, telemetry={"a": text})) as found:
        assert found.interval_s == 30.0
        replayed = [batch for _, batch in found.batches(round_s=30.0)]
    assert [said(batch) for batch in replayed] == [said(batch) for batch in live]
    assert [batch.dropped for batch in replayed] == [batch.dropped for batch in live]
    assert [b.end for b in replayed] == [b.end for b in live]
    assert [b.start for b in replayed[1:]] == [b.end for b in live[:-1]]


def test_a_label_set_of_a_scrape_costs_once_however_often_it_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Series of known scrapes skip ``assemble``; what it says of ``up`` is still asked each time."""
    asked: list[int] = []

    def counted(scraped: list[Scraped], *rest: object) -> object:
        asked.append(len(scraped))
        return assemble(scraped, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr("backend.ingest.bundle.assembly.assemble", counted)
    times = [T + 30 * i for i in range(10)]
    text = gpu(TEMP, [(t, 50 if i % 2 else "NaN") for i, t in enumerate(times)]) + up([(t, 1) for t in times])
    found = read(tmp_path, text)
    assert asked == [1, *[1] * 10]
    assert [len(batch.series) for _, batch in found] == [2] * 10


def test_only_what_is_needed_is_kept_and_up(tmp_path: Path) -> None:
    text = gpu(TEMP, [(T, 1)]) + gpu(POWER, [(T, 1)]) + up([(T, 1)]) + gpu("node_unheard_of", [(T, 1), (T + 1, 1)])
    folder = bundle(tmp_path, telemetry={"a": text})
    needs: frozenset[Need] = frozenset({("gpu", "power_w"), "xid"})
    with open_bundle(folder).prepare(tmp_path / "work", CATALOGUE, needs) as found:
        ((_, batch),) = found.batches()
        assert [s.metric for s in batch.series] == ["power_w", "node_up"]
        assert found.left_out == {"metric that no detector asks for": 3}


def test_a_gap_in_which_nobody_scraped_is_not_covered_and_dark(tmp_path: Path) -> None:
    found = read(tmp_path, gpu(TEMP, [(T + at, 50) for at in (0, 15, 30, 300, 315)]))
    told = [(b.start - T, b.end - T) for _, b in found if b.source == "prometheus"]
    assert told == [(0, 0), (0, 15), (15, 30), (300, 300), (300, 315)]
    missing = ("topology", "jobs", "logs", "job_logs", "training", "checkpoints")
    assert [(at - T, b.dark) for at, b in found if b.dark is not None] == [
        (90, tuple(sorted({*missing, "telemetry"}))),
        (300, missing),
    ]


@pytest.mark.parametrize(("begin", "end", "dark"), [(0, 330, []), (-200, 500, [(-140, True), (0, False), (375, True)])])
def test_telemetry_is_dark_before_its_first_and_after_its_last_sample(
    tmp_path: Path, begin: float, end: float, dark: list[tuple[float, bool]]
) -> None:
    text = gpu(TEMP, [(T + at, 50) for at in range(0, 316, 15)])
    folder = bundle(tmp_path, described={"start": T + begin, "end": T + end}, telemetry={"a": text})
    with prepared(folder) as ready:
        found = [(at - T, "telemetry" in b.dark) for at, b in ready.batches() if b.dark is not None]
    assert found == dark


def test_packed_files_are_read_and_one_that_breaks_off_gives_what_came_before(tmp_path: Path) -> None:
    text = gpu(TEMP, [(T + 15 * i, i % 90) for i in range(4000)]).encode()
    packed = gzip.compress(text, mtime=0)
    whole = bundle(tmp_path / "1", files={"telemetry/a.om.gz": packed})
    with prepared(whole) as found:
        assert found.samples == 4000 and not found.bad.count
    broken = bundle(tmp_path / "2", files={"telemetry/a.om.gz": packed[: len(packed) // 2]})
    with prepared(broken, block_bytes=10_000) as found:
        assert 0 < found.samples < 4000
        assert "breaks off" in " ".join(row.why for row in found.bad.told)


def test_a_line_without_end_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.ingest.bundle.reading.MAX_LINE_BYTES", 500)
    monkeypatch.setattr("backend.ingest.bundle.openmetrics.MAX_LINE_BYTES", 500)
    long = 'up{instance="' + "a" * 5000 + '"} 1 1770000000\n'
    text = gpu(TEMP, [(T, 1)]) + long + gpu(TEMP, [(T + 15, 2)]) + long[:-1]
    for block_bytes in (10, 64, 100_000):
        with prepared(bundle(tmp_path, telemetry={"a": text}), block_bytes=block_bytes) as found:
            assert found.samples == 2
            assert [row.line for row in found.bad.told] == [2, 4]


@pytest.mark.parametrize(
    ("gaps", "median"),
    [
        ([30.001, 29.99, 30.004], 30.0),
        ([15.0] * 3 + [30.0] * 2, 15.0),
        ([0.2] * 5, 1.0),
        ([1.5] * 3, 1.5),
        ([3600.0], 3600.0),
    ],
)
def test_ticks_stand_as_far_apart_as_the_median_gap(tmp_path: Path, gaps: list[float], median: float) -> None:
    times = np.cumsum([T, *gaps])
    together = gpu(TEMP, [(t, 1) for t in times]) + gpu(POWER, [(t, 1) for t in times])
    by_time = "".join(gpu(name, [(t, 1)]) for t in times for name in (TEMP, POWER))
    for place, text in enumerate((together, by_time)):
        with prepared(bundle(tmp_path / str(place), telemetry={"a": text}), block_bytes=200) as found:
            assert found.interval_s == median


def test_without_two_samples_of_a_series_the_usual_interval_stands() -> None:
    assert Gaps().interval_s() == 15.0


def test_a_blank_now_and_then_costs_only_itself(tmp_path: Path) -> None:
    """Scrapes in which other samples mean nothing each time are what a read of each would make, from one plan."""
    blanks = [(T + 15 * n, "9223372036854775794" if n % 3 == 0 else 50 + n) for n in range(6)]
    text = "".join(gpu(TEMP, blanks if i == 1 else [(at, 60) for at, _ in blanks], index=i) for i in range(4))
    text += gpu(POWER, [(at, 9000 if n == 4 else 500) for n, (at, _) in enumerate(blanks)], index=2)
    text += gpu(POWER, [(at, 500) for at, _ in blanks], node="", index=3, UUID="", Hostname="")  # names nobody
    found = read(tmp_path, text + up([(at, 1) for at, _ in blanks]))
    for n, (_, batch) in enumerate(found):
        told = {(s.metric, s.label.index) for s in batch.series if s.label.axis == "gpu"}
        wanted = {("temperature_c", str(i)) for i in range(4) if not (i == 1 and n % 3 == 0)}
        assert told == wanted | ({("power_w", "2")} if n != 4 else set())
        dropped = {"no device or node in the labels": 1} | ({"blank": 1} if n % 3 == 0 else {})
        assert batch.dropped == dropped | ({"out of range": 1} if n == 4 else {})
        assert [s.label.node for s in batch.series if s.metric == "node_up"] == ["gpu-0001"]
