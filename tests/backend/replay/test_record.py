"""A recording is bounded, ends on its own without harm, and what is there can be replayed at any time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from backend import pipeline
from backend.clock import ManualClock, utc
from backend.facts import Batch
from backend.ingest.bundle.bundle import open_bundle
from backend.replay.record import Recorder
from backend.replay.run import own_store, replay
from backend.watch import Watch
from detectors.catalogue import load
from tests.backend.replay.live import T0, TICK_S, jobs, kernel, label, nodes, scrape, watch_on


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    (tmp_path / "live").mkdir()
    with own_store(tmp_path / "live") as store:
        yield watch_on(store, ManualClock(utc(T0)))


def take(watch: Watch, at: float, batch: Batch) -> None:
    assert isinstance(watch.clock, ManualClock)
    watch.clock.set(utc(at))
    pipeline.accept(watch, batch)
    pipeline.observe(watch)


def test_a_recording_that_is_full_ends_and_the_watch_goes_on(
    tmp_path: Path, watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(watch, tmp_path / "bundle", most_bytes=20_000)
    for n in range(40):
        at = T0 + n * TICK_S
        take(watch, at, scrape(at, [label(0, gpu) for gpu in range(8)]))
    assert recorder.ended == "it has reached its limit of 20000 bytes" and recorder.ended in caplog.text
    size = sum(file.stat().st_size for file in (tmp_path / "bundle").rglob("*") if file.is_file())
    assert 20_000 <= size < 30_000 and recorder.bytes <= size
    assert watch.last_at == T0 + 38 * TICK_S  # nothing held it up
    summary = replay(open_bundle(tmp_path / "bundle"), tmp_path / "out", load())
    assert summary["samples"] > 100 and not summary["bad_rows"]["count"]
    recorder.close()


def test_a_disk_that_fails_ends_the_recording_alone(tmp_path: Path, watch: Watch) -> None:
    recorder = Recorder(watch, tmp_path / "bundle")
    recorder._telemetry.close()
    recorder._telemetry = Full()  # type: ignore[assignment]
    take(watch, T0, scrape(T0, [label(0, 0)]))
    take(watch, T0 + TICK_S, scrape(T0 + TICK_S, [label(0, 0)]))
    assert "takes no more: No space left on device" in recorder.ended
    assert watch.brought["prometheus"]["samples"] == 12


class Full:
    """A file on a disk without room."""

    closed = False

    def writelines(self, _: object) -> None:
        raise OSError(28, "No space left on device")

    def write(self, _: object) -> None:
        raise OSError(28, "No space left on device")

    def close(self) -> None:
        raise OSError(28, "No space left on device")


def test_a_recording_that_begins_late_begins_with_what_is_known(tmp_path: Path, watch: Watch) -> None:
    take(watch, T0, Batch("topology", T0, T0, nodes=nodes(2, 4)))
    take(watch, T0 + 1, jobs(T0, 2))
    assert isinstance(watch.clock, ManualClock)
    watch.clock.set(utc(T0 + 60))
    recorder = Recorder(watch, tmp_path / "bundle")
    take(watch, T0 + 61, kernel(T0 + 61, T0 + 61, 1, 2, 79))
    recorder.close()
    replay(open_bundle(tmp_path / "bundle"), tmp_path / "out", load())
    (incident,) = (tmp_path / "out" / "incidents.jsonl").read_bytes().splitlines()
    assert b'"entity":"gpu-0001/gpu2"' in incident and b'"job":"7"' in incident


def test_a_recording_that_was_cut_off_is_replayed_up_to_there(tmp_path: Path, watch: Watch) -> None:
    recorder = Recorder(watch, tmp_path / "bundle")
    for n in range(8):
        at = T0 + n * TICK_S
        take(watch, at, scrape(at, [label(0, gpu) for gpu in range(2)]))
    arrivals = tmp_path / "bundle" / "arrivals.jsonl"
    cut = arrivals.read_bytes()[:-20]  # as a kill leaves it: no end is said, and half a row
    arrivals.write_bytes(cut)
    summary = replay(open_bundle(tmp_path / "bundle"), tmp_path / "out", load())
    assert summary["ticks"] >= 7 and summary["bad_rows"]["count"] == 1
    recorder.close()
