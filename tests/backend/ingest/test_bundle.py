"""A bundle as a whole: what is there, in which order it comes, and that nothing of it is lost silently."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.facts import Batch
from backend.ingest.base import SourceError
from backend.ingest.bundle.bundle import Prepared, open_bundle
from backend.ingest.bundle.folder import BundleError
from backend.ingest.bundle.rows import RowReader, log_reader
from backend.ingest.logs import JobTails, logs_batch, read_rows
from backend.ingest.rows import Moment, Row
from detectors.catalogue import load
from detectors.kernel.lines import parse
from tests.bundles import TEMP, T, bundle, gpu, node, row, sacct

CATALOGUE = load()
SMALL = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def prepared(folder: Path, **more: object) -> Prepared:
    return open_bundle(folder).prepare(folder / "work", CATALOGUE, **more)  # type: ignore[arg-type]


def line(at: float, text: str = "hello", **more: object) -> dict[str, object]:
    return {"ts": at, "host": "gpu-0001", "source": "kernel", "line": text, **more}


def xid(code: int = 79) -> str:
    return f"NVRM: Xid (PCI:0000:10:00): {code}, pid=1, name=python3, GPU has fallen off the bus."


def shown(batches: Sequence[tuple[float, Batch]]) -> list[str]:
    """Everything of every batch, as text."""
    return [
        f"{at!r} {b.source} {b.start!r} {b.end!r} {b.nodes} {b.attempts} {b.events} {dict(b.dropped)} "
        + " ".join(f"{s.metric}{s.label}{s.times.tolist()}{s.values.tolist()}" for s in b.series)
        for at, b in batches
    ]


# --- what is there --------------------------------------------------------------------------------------------------


def test_a_bundle_says_what_it_holds_and_what_is_missing(tmp_path: Path) -> None:
    folder = bundle(
        tmp_path,
        described={"version": 1, "cluster": "merlin", "start": T, "end": T + 60, "timezone": "Europe/Berlin"},
        logs={"b": [line(T)], "a": [line(T)]},
        files={"truth.jsonl": "{}", "telemetry/notes.txt": "x", "jobs/logs/7/out.log": "one\ntwo\n"},
    )
    found = open_bundle(folder)
    assert (found.cluster, found.start, found.end, str(found.timezone)) == ("merlin", T, T + 60, "Europe/Berlin")
    assert [file.name for file in found.parts["logs"]] == ["logs/a.jsonl", "logs/b.jsonl"]
    assert found.missing == ("topology", "jobs", "telemetry", "training", "checkpoints")
    assert found.ignored == ("telemetry/notes.txt",)
    with prepared(folder) as ready:
        assert ready.dark == found.missing
        assert [(log.job, log.name, list(log.lines())) for log in ready.job_logs] == [
            ("7", "out", [(0, "one"), (4, "two")])
        ]


def test_a_part_without_one_good_row_is_dark_too(tmp_path: Path) -> None:
    folder = bundle(tmp_path, telemetry={"a": "nonsense\n"}, logs={"a": [line(T)]}, jobs="", nodes=[])
    with prepared(folder) as ready:
        assert ready.dark == ("topology", "jobs", "telemetry", "job_logs", "training", "checkpoints")


@pytest.mark.parametrize(
    ("described", "words"),
    [
        ("{", "is no JSON"),
        ("[]", "valid dictionary"),
        ({"version": 2}, "version 2 is not known"),
        ({"start": T, "end": T - 1}, "end lies before start"),
        ({"start": "soon"}, "start: is no time"),
        ({"timezone": "Mars/Olympus"}, "is not known here"),
        ({"timezone": "../../etc/passwd"}, "is not known here"),
        ({"cluster": 7.5}, "cluster: must be text"),
    ],
)
def test_a_bad_description_is_an_error_that_says_the_fix(tmp_path: Path, described: object, words: str) -> None:
    text = described if isinstance(described, str) else json.dumps(described)
    folder = bundle(tmp_path, logs={"a": [line(T)]}, files={"bundle.json": text})
    with pytest.raises(BundleError, match=words) as caught:
        open_bundle(folder)
    assert caught.value.fix and "bundle.json" in caught.value.where and caught.value.permanent
    assert isinstance(caught.value, SourceError)


def test_what_is_no_bundle_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for folder, words in (
        (tmp_path / "none", "does not exist"),
        (tmp_path / "file", "is no folder"),
        (tmp_path, "no part"),
    ):
        with pytest.raises(BundleError, match=words):
            open_bundle(folder)


def test_a_row_with_a_wrong_clock_is_told_and_not_waited_for(tmp_path: Path) -> None:
    folder = bundle(tmp_path, logs={"a": [line(T), line(T + 10 * 365 * 86_400)]})
    with pytest.raises(BundleError, match="reach from 2026-02-02 to 2036-01-31, 3,650 days") as caught:
        prepared(folder)
    assert "clock" in caught.value.fix and caught.value.permanent


# --- order ----------------------------------------------------------------------------------------------------------


def test_everything_comes_in_the_order_of_its_arrival(tmp_path: Path) -> None:
    folder = bundle(
        tmp_path,
        described={"start": T},
        telemetry={"a": gpu(TEMP, [(T + 30, 1), (T + 60, 2), (T + 90, 3)])},
        logs={"a": [line(T + 61), line(T + 30)], "b": [line(T + 15, recv_ts=T + 75)]},
        jobs=sacct(row(Submit="2026-02-01T00:00:00", Start="2026-02-02T02:40:30", End="2026-02-02T02:41:15")),
        nodes=[node("gpu-0001")],
    )
    with prepared(folder) as ready:
        assert (ready.begin, ready.end) == (T, T + 90)
        found = [(at - T, batch.source) for at, batch in ready.batches()]
    assert found == [
        (0, "topology"),
        (0, "jobs"),
        (30, "jobs"),
        (30, "logs"),
        (30, "prometheus"),
        (60, "prometheus"),
        (61, "logs"),
        (75, "jobs"),
        (75, "logs"),
        (90, "prometheus"),
    ]


def test_without_a_start_the_first_sample_or_line_is_the_beginning(tmp_path: Path) -> None:
    jobs = sacct(row())
    with prepared(bundle(tmp_path / "1", jobs=jobs, logs={"a": [line(T + 300)]})) as ready:
        assert [(at - T, a.state) for at, b in ready.batches() for a in b.attempts] == [
            (300, "RUNNING"),
            (600, "COMPLETED"),
        ]
    with prepared(bundle(tmp_path / "2", jobs=jobs)) as ready:
        assert ready.begin == T
    with prepared(bundle(tmp_path / "3", nodes=[node("gpu-0001")])) as ready:
        assert [(at, b.source) for at, b in ready.batches()] == [(0.0, "topology")]


ROW = st.tuples(st.integers(0, 20), st.sampled_from([None, 0, 0.25, 400]), st.sampled_from(["hello", xid(), xid(31)]))


@SMALL
@given(
    st.lists(ROW, max_size=12),
    st.lists(ROW, max_size=12),
    st.integers(1, 40),
    st.integers(8, 600),
    st.sampled_from([0, 1.0]),
)
def test_no_line_is_lost_and_none_comes_early(
    tmp_path_factory: pytest.TempPathFactory,
    one: list[tuple[int, float | None, str]],
    two: list[tuple[int, float | None, str]],
    max_rows: int,
    block_bytes: int,
    gather_s: float,
) -> None:
    def rows(told: list[tuple[int, float | None, str]], host: str) -> list[dict[str, object]]:
        placed = enumerate(told)
        late = [{} if wait is None else {"recv_ts": T + at + wait} for at, wait, _ in told]
        return [line(T + at, f"{text} {n}", host=host) | late[n] for n, (at, _, text) in placed]

    logs = {"one": rows(one, "gpu-1"), "two": rows(two, "gpu-2")}
    folder = bundle(tmp_path_factory.mktemp("bundle"), logs=logs)
    tails = JobTails()
    with prepared(folder, readers=[log_reader(tails)], max_rows=max_rows, block_bytes=block_bytes) as ready:
        found = list(ready.batches(gather_s=gather_s))
    every = [told for name in ("one", "two") for told in logs[name]]
    ordered = sorted(every, key=lambda told: told.get("recv_ts", told["ts"]))  # type: ignore[arg-type, return-value]
    expected = [told["line"] for told in ordered if "Xid" in str(told["line"])]
    assert [event.text for _, batch in found for event in batch.events] == expected
    assert tails.lines == len(every) - len(expected)
    assert [at for at, _ in found] == sorted(at for at, _ in found)
    arrival = {(told["host"], told["line"]): told.get("recv_ts", told["ts"]) for told in every}
    for at, batch in found:
        for event in batch.events:
            assert 0 <= at - arrival[event.host, event.text] <= gather_s  # type: ignore[operator]


def test_lines_of_one_push_stay_one_push(tmp_path: Path) -> None:
    """What the driver prints over three lines is one event, in a replay as live."""
    parts = [
        "NVRM: The NVIDIA GPU 0000:10:00.0",
        "NVRM: (PCI ID: 10de:2330)",
        "NVRM: fallen off the bus and is not responding.",
    ]
    pushed = [line(T + i / 1000, text) for i, text in enumerate(parts)]
    body = json.dumps(pushed).encode()
    live = logs_batch(read_rows(body, "application/json", T + 3), T + 3, parse)
    for recorded in ({}, {"recv_ts": T + 3}):
        folder = bundle(tmp_path / str(len(recorded)), logs={"a": [told | recorded for told in pushed]})
        with prepared(folder) as ready:
            ((_, batch),) = ready.batches()
        assert batch.events == live.events and len(live.events) == 1


def test_two_readings_are_the_same_byte_for_byte(tmp_path: Path) -> None:
    folder = bundle(
        tmp_path / "a",
        telemetry={"a": gpu(TEMP, [(T + 30 * i, i) for i in range(20)]), "b": gpu(TEMP, [(T + 30, 7)])},
        logs={"a": [line(T + i, xid()) for i in range(30)], "b": [line(T + 7, xid(31))]},
        jobs=sacct(row(), row(JobIDRaw=8)),
        nodes=[node("gpu-0001"), node("gpu-0002")],
    )
    with prepared(folder) as ready, prepared(folder, max_rows=3, block_bytes=50) as again:
        first = shown(list(ready.batches()))
        assert shown(list(ready.batches())) == first
        assert shown(list(again.batches())) == first
        assert again.bad == ready.bad


# --- what cannot be read --------------------------------------------------------------------------------------------


def test_bad_rows_are_listed_counted_and_left_out(tmp_path: Path) -> None:
    logs: list[dict[str, object] | bytes] = [
        line(T, xid()),
        b"{",
        b'{"ts": 1, "host": "a", "source": "kernel", "line": ""}',
        b"",
        line(T + 1, host="no host"),
        line(T + 900, recv_ts=T),
        b'{"ts": %d, "host": "gpu-0001", "source": "kernel", "line": "\xe9 \x00"}' % T,
        json.dumps(line(T + 2, xid())).encode().replace(b"python3", b"\xe9"),
        line(T + 3, xid(31) + "\0" + "x" * 100_000),
        b"\x00\xff",
    ]
    nodes: list[dict[str, object]] = [node("gpu-0001"), {"name": "a b"}, node("gpu-0001")]
    with prepared(bundle(tmp_path, logs={"a": logs}, nodes=nodes)) as ready:
        told = [(bad.file, bad.line) for bad in ready.bad.told]
        assert told == [("topology.json", 2), ("topology.json", 3)] + [("logs/a.jsonl", n) for n in (2, 3, 5, 6, 7, 10)]
        assert ready.bad.by_file == {"topology.json": 2, "logs/a.jsonl": 6}
        batches = list(ready.batches())
        assert [event.code for _, batch in batches for event in batch.events] == ["79", "79", "31"]
        assert sum(batch.dropped.get("rows with bytes that are no UTF-8", 0) for _, batch in batches) == 1


def test_only_the_first_bad_rows_are_described(tmp_path: Path) -> None:
    with prepared(bundle(tmp_path, logs={"a": [b"{"] * 250})) as ready:
        assert (len(ready.bad.told), ready.bad.count) == (100, 250)


def test_a_topology_that_cannot_be_read_costs_only_itself(tmp_path: Path) -> None:
    folder = bundle(tmp_path, logs={"a": [line(T)]}, files={"topology.json": '{"nodes": 7}'})
    with prepared(folder) as ready:
        assert [(bad.file, bad.line) for bad in ready.bad.told] == [("topology.json", 0)]
        assert len(list(ready.batches())) == 1


def test_a_line_over_the_limit_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.ingest.bundle.reading.MAX_LINE_BYTES", 1000)
    folder = bundle(tmp_path, logs={"a": [line(T, xid()), line(T, "x" * 2000), line(T + 1, xid(31))]})
    for block_bytes in (100, 1_000_000):
        with prepared(folder, block_bytes=block_bytes) as ready:
            assert [bad.line for bad in ready.bad.told] == [2]
            assert [e.code for _, batch in ready.batches() for e in batch.events] == ["79", "31"]


@SMALL
@given(st.binary(max_size=300), st.integers(1, 90))
def test_no_bytes_break_the_reading(tmp_path_factory: pytest.TempPathFactory, junk: bytes, block_bytes: int) -> None:
    files: dict[str, str | bytes] = {"logs/a.jsonl": junk, "telemetry/a.om": junk, "topology.json": junk}
    folder = bundle(
        tmp_path_factory.mktemp("bundle"), files=files | {"telemetry/b.om.gz": junk, "training/a.jsonl": junk}
    )
    with prepared(folder, block_bytes=block_bytes) as ready:
        list(ready.batches())


# --- the reading itself ---------------------------------------------------------------------------------------------


def test_progress_runs_to_the_end_and_what_it_raises_stops_the_reading(tmp_path: Path) -> None:
    folder = bundle(tmp_path, logs={"a": [line(T + i) for i in range(50)]}, telemetry={"a": gpu(TEMP, [(T, 1)])})
    told: list[tuple[int, int]] = []
    with prepared(folder, progress=lambda done, total: told.append((done, total)), block_bytes=100):
        pass
    size = open_bundle(folder).size
    assert told == sorted(told) and told[-1] == (size, size) and len(told) > 10

    def stop(done: int, total: int) -> None:
        if done > total // 2:
            raise InterruptedError("no more")

    with pytest.raises(InterruptedError, match="no more"):
        prepared(folder, progress=stop, block_bytes=100)
    assert not list((folder / "work").iterdir())


def test_what_was_sorted_is_gone_at_the_end(tmp_path: Path) -> None:
    folder = bundle(tmp_path, telemetry={"a": gpu(TEMP, [(T, 1)])})
    with prepared(folder) as ready:
        assert list((folder / "work").iterdir()) == [ready.work]
    assert not list((folder / "work").iterdir())


def test_a_file_that_goes_away_while_it_is_replayed_is_said(tmp_path: Path) -> None:
    folder = bundle(tmp_path, logs={"a": [line(T)]})
    with prepared(folder) as ready:
        (folder / "logs" / "a.jsonl").write_bytes(b"{}")
        with pytest.raises(BundleError, match="has become shorter"):
            list(ready.batches())
        (folder / "logs" / "a.jsonl").unlink()
        with pytest.raises(BundleError, match="cannot be read"):
            list(ready.batches())


def test_few_files_are_open_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.ingest.bundle.reading.MOST_OPEN", 3)
    before = len(os.listdir("/proc/self/fd"))
    folder = bundle(tmp_path, logs={str(i): [line(T + 2 * i), line(T + 100 + 2 * i)] for i in range(20)})
    with prepared(folder) as ready:
        batches = ready.batches()
        most = max(len(os.listdir("/proc/self/fd")) for _ in batches)
    assert most <= before + 5


def test_a_part_is_read_by_the_reader_that_is_given_for_it(tmp_path: Path) -> None:
    class Step(Row):
        ts: Moment
        step: int

    bodies: list[bytes] = []

    def batch(body: bytes, arrival: float) -> Batch:
        bodies.append(body)
        return Batch("steps", arrival, arrival)

    files = {"training/a.jsonl": b'{"ts": %d, "step": 1}\n{"ts": %d, "step": "x"}\n' % (T + 1, T + 1)}
    folder = bundle(tmp_path, files=files, logs={"a": [line(T + 2)]})
    with prepared(folder) as ready:
        assert [rows.rows.size for rows in ready.training] == [0]  # neither says whose it is
    with prepared(folder, readers=[log_reader(), RowReader("training", Step, batch)]) as ready:
        assert [b.source for _, b in ready.batches()] == ["steps", "logs"]
        assert not ready.training and ready.bad.by_file == {"training/a.jsonl": 1}
    assert bodies == [b'{"ts": %d, "step": 1}' % (T + 1)]
