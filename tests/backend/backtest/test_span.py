"""A span of the past becomes a recording: read in pieces, told turn by turn, and no job has ended before it ends."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Set
from pathlib import Path

import numpy as np
import pytest

from backend.backtest.span import CHUNK_S, Known, SpanError, checked_span, gather, in_turns
from backend.cli import main
from backend.clients.promql import Answer, PromError
from backend.facts import AttemptFacts, Batch, DeviceLabel, NodeFacts, RawEvent, Series
from backend.ingest.base import SourceError
from backend.ingest.bundle.bundle import open_bundle
from backend.replay.run import replay
from backend.settings import Cluster
from detectors.catalogue import load
from detectors.model import Need
from tests.backend.ingest.test_prometheus import NEEDS, raw, source
from tests.backend.replay.test_run import LOST_AT, SCRAPE_S, SCRAPES, rows, scrapes
from tests.bundles import TEMP, T, gpu
from tests.services.need import need
from tests.services.prometheus import prometheus

END = T + SCRAPES * SCRAPE_S


class Store:
    """Telemetry of one GPU every 15 s, as Prometheus would give it; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, float]] = []

    def past(self, needs: Set[Need], start: float, end: float) -> Batch:
        self.asked.append((start, end))
        times = np.arange(np.floor(start / 15) * 15 + 15, end + 1e-6, 15.0)
        label = DeviceLabel("gpu", "gpu-0001", "GPU-gpu-0001-0", index="0")
        return Batch("prometheus", start, end, (Series("temperature_c", label, times, np.full(times.shape, 60.0)),))


def test_a_span_is_read_in_pieces_and_each_sample_once(tmp_path: Path) -> None:
    reads = Store()
    n = gather(reads, Known(), (T, T + 1500), tmp_path / "span", Cluster(name="main"), load())
    assert reads.asked == [(T, T + CHUNK_S), (T + CHUNK_S, T + 2 * CHUNK_S), (T + 2 * CHUNK_S, T + 1500)]
    assert n == 100
    said = [json.loads(line) for line in (tmp_path / "span" / "arrivals.jsonl").read_text().splitlines()]
    assert sum(row.get("samples", 0) for row in said) == 100
    assert [row["recv_ts"] for row in said] == sorted(row["recv_ts"] for row in said)
    assert open_bundle(tmp_path / "span").cluster == "main"


def test_what_comes_in_a_piece_is_told_turn_by_turn_and_silence_covers_nothing() -> None:
    label = DeviceLabel("node", "n1")
    times = np.array([T + 1.0, T + 15.0, T + 16.0, T + 59.0])
    chunk = Batch("prometheus", T, T + 60, (Series("node_load1", label, times, np.arange(4.0)),))
    turns = list(in_turns(chunk, T, T + 60, 15.0))
    told = [one.series[0].times.tolist() if one.series else [] for one in turns]
    assert told == [[T + 1, T + 15], [T + 16], [], [T + 59]]
    assert [one.start < one.end for one in turns] == [True, True, False, True]


def test_a_job_ends_when_it_ended_and_a_line_comes_when_it_came(tmp_path: Path) -> None:
    job = AttemptFacts("7", state="FAILED", exit_code=1, start=T - 50, end=T + 100, nodes=("gpu-0001",), source="slurm")
    event = RawEvent(T + 40, "gpu-0001", "xid", "79", "GPU has fallen off the bus", "x", attrs={"source": "kernel"})
    known = Known((NodeFacts("gpu-0001"),), (job,), ((T + 41, event),))
    gather(Store(), known, (T, T + 200), tmp_path / "span", Cluster(name="main"), load())
    said = [json.loads(line) for line in (tmp_path / "span" / "arrivals.jsonl").read_text().splitlines()]
    attempts = [(row["recv_ts"], one) for row in said for one in row.get("attempts", ())]
    assert [(at, one["state"], one["end"]) for at, one in attempts] == [
        (T, "RUNNING", None),
        (T + 100, "FAILED", T + 100),
    ]
    assert [row["recv_ts"] for row in said if row.get("events") or row.get("lines")] == [T + 41]


def test_a_span_that_is_too_long_or_empty_says_so(tmp_path: Path) -> None:
    class Nothing(Store):
        def past(self, needs: Set[Need], start: float, end: float) -> Batch:
            return Batch("prometheus", end, end)

    with pytest.raises(SpanError, match="no sample"):
        gather(Nothing(), Known(), (T, T + 60), tmp_path / "none", Cluster(name="main"), load())
    with pytest.raises(SpanError, match="too long"):
        gather(Store(), Known(), (T, T + 3600), tmp_path / "big", Cluster(name="main"), load(), most_bytes=2000)
    for span in ((T, T), (T + 1, T), (T, T + 401 * 86_400), (T, T + 1e9)):
        with pytest.raises(SpanError):
            checked_span(*span, now=T + 5e8)


def test_what_is_too_much_for_one_answer_is_asked_in_halves() -> None:
    full = PromError("http://p: status 422, too many samples", permanent=True, status=422)
    none = Answer(())
    made, reader = source(full, Answer((raw([T + 100]),)), Answer((raw([T + 500]),)), none, none, none)
    batch = made.past(NEEDS, T, T + 600)
    assert sorted(at for one in batch.series for at in one.times.tolist()) == [T + 100, T + 500]
    assert [asked[1:] for asked in reader.asked[:3]] == [(T, T + 600), (T, T + 300), (T + 300, T + 600)]
    refused, _ = source(replace_status(full, 401))
    with pytest.raises(SourceError):
        refused.past(NEEDS, T, T + 600)


def replace_status(error: PromError, status: int) -> PromError:
    return PromError(str(error), permanent=True, status=status)


@pytest.mark.services
def test_a_span_of_a_real_prometheus_replays_as_its_bundle_does_and_is_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = "".join(gpu(TEMP, scrapes(LOST_AT if i == 3 else T + 1e6), index=i) for i in range(8))
    (tmp_path / "past.om").write_text(f"# TYPE {TEMP} gauge\n{lost}# EOF\n")
    promtool = need("promtool", "prometheus")
    made = ["tsdb", "create-blocks-from", "openmetrics", str(tmp_path / "past.om"), str(tmp_path / "tsdb")]
    subprocess.run([promtool, *made], check=True, capture_output=True, timeout=60)
    with prometheus(tmp_path, []) as server:
        span = ["--start", "2026-02-02T02:39:50Z", "--end", "2026-02-02T02:56:00Z"]
        words = ["replay", "--prometheus", server.url, *span, "--out", str(tmp_path / "out")]
        assert main([*words, "--json", "--set", "silence_ticks=40"]) == 0
        assert main(words) == 1  # the recording is there already
        assert main(["replay", "--prometheus", server.url, "--out", str(tmp_path / "x")]) == 1
        assert main([*words[:-1], str(tmp_path / "y"), "--set", "no_such=1"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["today"]["incidents"] > found["tried"]["incidents"] == 0
    assert [one["what"] for one in found["differences"]] == ["not raised"] * found["today"]["incidents"]
    kinds = {row["kind"] for row in rows(tmp_path / "out" / "today", "findings.jsonl")}
    assert kinds == {"gpu_bus_loss"} and not (tmp_path / "y").exists()
    again = replay(open_bundle(tmp_path / "out" / "recording"), tmp_path / "again", load())
    assert again["samples"] == 7 * SCRAPES + int((LOST_AT - T) / SCRAPE_S)
