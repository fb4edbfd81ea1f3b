"""Steps, checkpoints and the logs of jobs in a bundle: every good row comes once, at its time, and none is guessed."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.facts import CheckpointFacts, StepFacts
from backend.ingest.bundle.bundle import Prepared, open_bundle
from backend.ingest.bundle.job_logs import JobLog
from backend.ingest.steps import MOST_ATTRS
from detectors.catalogue import load
from tests.bundles import T, bundle

CATALOGUE = load()
SMALL = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def lines(*rows: object) -> bytes:
    return b"".join((row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n" for row in rows)


def prepared(folder: Path, files: dict[str, str | bytes], max_rows: int = 100) -> Prepared:
    bundle(folder, files=files)
    return open_bundle(folder).prepare(folder / "work", CATALOGUE, max_rows=max_rows)


def steps(ready: Prepared, round_s: float = 0.0) -> list[StepFacts]:
    return [step for _, batch in ready.batches(round_s=round_s) for step in batch.steps]


def checkpoints(ready: Prepared) -> list[CheckpointFacts]:
    return [one for _, batch in ready.batches() for one in batch.checkpoints]


def step(at: float = T, **more: object) -> dict[str, object]:
    return {"ts": at, "run": "r", "job": "7", "step": 1, **more}


def test_a_step_row_is_a_fact_with_what_it_says_and_no_more(tmp_path: Path) -> None:
    full: dict[str, object] = {
        "loss": 2.5, "grad_norm": 0.5, "step_time_s": 3, "tokens": 2**40, "rank": 17, "replicas_live": 3,
        "replicas_total": 4, "lr": 3e-4, "phase": "warmup", "flag": True, "deep": {"x": 1},
    }  # fmt: skip
    rows = lines(step() | full, step(T + 1))
    with prepared(tmp_path, {"training/r.jsonl": rows}) as ready:
        whole, bare = steps(ready)
        assert not ready.bad.count and "training" not in ready.dark and "checkpoints" in ready.dark
    assert whole == StepFacts(T, "r", "7", 1, 2.5, 0.5, 3.0, 2.0**40, 17, 3, 4, {"lr": 3e-4, "phase": "warmup"})
    assert bare == StepFacts(T + 1, "r", "7", 1)


def test_a_loss_that_is_no_number_any_more_is_kept_as_such(tmp_path: Path) -> None:
    raw = b'{"ts": %d, "run": "r", "step": 4, "loss": NaN, "grad_norm": Infinity}' % T
    rows = lines(raw, step(T + 1, loss="nan", step_time_s=math.nan), step(T + 2, loss=None))
    with prepared(tmp_path, {"training/r.jsonl": rows}) as ready:
        found = steps(ready)
    assert [math.isnan(one.loss) for one in found if one.loss is not None] == [True, True]
    assert (found[0].grad_norm, found[1].step_time_s, found[2].loss) == (math.inf, None, None)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (b"{", "is not JSON"),
        (b"[1, 2]", "valid dictionary"),
        ({"ts": T, "step": 1}, "needs run or job"),
        ({"ts": T, "run": "r"}, "step: Field required"),
        ({"ts": T * 1000, "run": "r", "step": 1}, "not milliseconds"),
        (step(loss="much"), "loss: must be a number"),
        (step(loss=[1]), "loss: must be a number"),
        (step(step=-1), "step"),
        (step(step=1.5), "step"),
        (step(step=2**60), "step"),
        (step(tokens=-1), "tokens"),
        (step(rank=2**40), "rank"),
        (step(run="a\nb"), "run"),
        (step(recv_ts=T - 4000), "recv_ts"),
    ],
)
def test_a_bad_step_row_is_listed_and_costs_itself(tmp_path: Path, row: object, words: str) -> None:
    with prepared(tmp_path, {"training/r.jsonl": lines(step(T), row, b"", step(T + 1))}) as ready:
        assert [one.at - T for one in steps(ready)] == [0, 1]
        assert [(bad.file, bad.line) for bad in ready.bad.told] == [("training/r.jsonl", 2)]
        assert words in ready.bad.told[0].why


def test_more_fields_than_anybody_reads_are_cut(tmp_path: Path) -> None:
    more = {f"m{n:03d}": n for n in range(200)} | {"text": "x" * 10_000}
    with prepared(tmp_path, {"training/r.jsonl": lines({"text": "y" * 10_000, **step(), **more})}) as ready:
        (one,) = steps(ready)
    assert len(one.attrs) == MOST_ATTRS and len(str(one.attrs["text"])) == 256


def test_checkpoints_are_saves_and_loads_that_finished(tmp_path: Path) -> None:
    rows = lines(
        {"ts": T + 9, "run": "r", "step": 5, "kind": "save", "duration_s": 4.5, "bytes": 180000000000},
        {"ts": T + 2, "run": "r", "job": 7, "step": 4.0, "kind": "load", "duration_s": 1, "blocking": False},
        {"ts": T, "run": "r", "step": 5, "kind": "delete", "duration_s": 1},
        {"ts": T, "run": "r", "step": 5, "kind": "save", "duration_s": -1},
        {"ts": T, "run": "r", "step": 5, "kind": "save"},
    )
    with prepared(tmp_path, {"checkpoints.jsonl": rows}) as ready:
        load, save = checkpoints(ready)
        assert [bad.line for bad in ready.bad.told] == [3, 4, 5]
        assert (ready.begin, ready.end) == (T + 2, T + 9)
    assert save == CheckpointFacts(T + 9, "r", 5, "save", 4.5, 180e9, "")
    assert load == CheckpointFacts(T + 2, "r", 4, "load", 1.0, None, "7", blocking=False)


ROW = st.tuples(st.integers(0, 60), st.sampled_from([None, 0, 0.5, 90]), st.sampled_from(["a", "b"]), st.booleans())


@SMALL
@given(st.lists(ROW, max_size=30), st.integers(1, 40), st.sampled_from([0.0, 15.0]))
def test_every_row_comes_once_in_the_order_of_arrival(
    tmp_path_factory: pytest.TempPathFactory,
    told: list[tuple[int, float | None, str, bool]],
    max_rows: int,
    round_s: float,
) -> None:
    rows = [
        {"ts": T + at, "run": run, "step": n}
        | ({} if wait is None else {"recv_ts": T + at + wait})
        | ({"lr": 0.5} if more else {})
        for n, (at, wait, run, more) in enumerate(told)
    ]
    files = {"training/x.jsonl": lines({"ts": T, "run": "x", "step": 10_000}, *rows)}
    with prepared(tmp_path_factory.mktemp("bundle"), files, max_rows) as ready:  # type: ignore[arg-type]
        batches = list(ready.batches(round_s=round_s))
        assert [shown for _, b in ready.batches(round_s=round_s) for shown in b.steps] == [
            s for _, b in batches for s in b.steps
        ]
    arrived = [at for at, _ in batches]
    assert arrived == sorted(arrived)
    found = [(s.step, s.run, s.at, dict(s.attrs)) for _, b in batches for s in b.steps]
    wanted = sorted(
        [(float(r.get("recv_ts", r["ts"])), n, r) for n, r in enumerate(rows, 1)] + [(T, 0, None)],  # type: ignore[arg-type]
        key=lambda one: one[:2],
    )
    assert [step for step, *_ in found] == [10_000 if r is None else r["step"] for _, _, r in wanted]
    assert [attrs for *_, attrs in found] == [{"lr": 0.5} if r and "lr" in r else {} for _, _, r in wanted]


# --- logs of jobs ---------------------------------------------------------------------------------------------------


def test_a_job_log_is_found_by_its_job_and_read_in_bounded_pieces(tmp_path: Path) -> None:
    text = b"".join(b"line %05d\n" % n for n in range(1000))
    files: dict[str, str | bytes] = {
        "jobs/logs/7/rank0.log": text,
        "jobs/logs/7/rank1.log": b"caf\xe9 10%\rcaf\xe9 20%\nend",
        "jobs/logs/12_3/out.log": b"",
    }
    with prepared(tmp_path, files) as ready:
        assert [(log.job, log.name) for log in ready.job_logs] == [("12_3", "out"), ("7", "rank0"), ("7", "rank1")]
        empty, long, odd = ready.job_logs
        assert "job_logs" not in ready.dark
    assert list(empty.lines()) == []
    assert [line for _, line in odd.lines()] == ["caf\ufffd 10%", "caf\ufffd 20%", "end"]
    assert len(list(long.lines())) == 1000
    some = list(long.lines(head_bytes=25, tail_bytes=30))
    assert [line for _, line in some] == ["line 00000", "line 00001", "lin", "line 00998", "line 00999"]
    assert all(text[at:].startswith(line.encode()) for at, line in some)


@SMALL
@given(st.binary(max_size=400), st.integers(0, 60), st.integers(0, 60))
def test_reading_a_log_never_takes_more_than_it_was_told(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, head: int, tail: int
) -> None:
    folder = bundle(tmp_path_factory.mktemp("log"), files={"jobs/logs/1/a.log": content})
    (log,) = [JobLog("1", "a", file) for file in open_bundle(folder).parts["job_logs"]]
    taken = sum(len(line) for _, line in log.lines(head, tail))
    assert taken <= max(head + tail, 0) if len(content) > head + tail else taken <= len(content)
