"""Whatever wrote the log, whatever it went through: the same line is found, in bounded memory, in linear time."""

from __future__ import annotations

import json
import random
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.joblog.lines import read_line
from detectors.joblog.names import host_of, rank_of
from detectors.joblog.rules import classify_lines
from tests.corpora.joblogs import holdout
from tests.detectors.joblog.reads import rules, sheet, verdict

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 5 has 79.11 GiB"
LOG = f"step 10 loss 2.0\nstep 20 loss 1.9\n{OOM}\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1"])
def test_an_encoding_hides_nothing(encoding: str) -> None:
    text = "caf\u00e9 starts\n" + LOG * 3
    assert verdict(text.encode(encoding)).log_class == "cuda_oom"


@pytest.mark.parametrize(
    "mangle",
    [
        lambda log: log.replace("\n", "\r\n"),
        lambda log: log.replace("\n", "\r"),
        lambda log: "".join(f"\r{n}%|##| {n}/100 [00:01<00:02]" for n in range(100)) + "\n" + log,
        lambda log: log.replace("CUDA", "\x1b[31m\x1b[1mCUDA\x1b[0m"),
        lambda log: log.replace("memory", "mem\x00ory"),
        lambda log: log.rstrip("\n"),
        lambda log: "\x1b]0;title\x07" + log,
    ],
    ids=["crlf", "cr", "tqdm", "ansi", "nul", "no end", "title"],
)
def test_terminals_and_editors_hide_nothing(mangle) -> None:
    assert verdict(mangle(LOG)).log_class == "cuda_oom"


def test_words_that_a_terminal_cut_at_80_columns_are_whole_again() -> None:
    long = ["x" * 200, OOM + " in total, of which 1.02 GiB is free", "y" * 170, "z" * 300]
    cut = "\n".join(line[n : n + 80] for line in long * 3 for n in range(0, len(line), 80))
    assert "out of memory" not in cut.replace("\n", "\n ") or verdict(cut).log_class == "cuda_oom"
    assert verdict(cut).log_class == "cuda_oom"


def test_line_numbers_are_those_of_an_editor_though_bars_overwrite_themselves() -> None:
    log = (
        "start\n"
        + "\r".join(f"{n}%|#| {n}/9 [1s]" for n in range(9))
        + "\n"
        + "".join(f"line {n}\n" for n in range(5))
        + OOM
    )
    assert verdict(log).first is not None
    assert verdict(log).first.line == 8  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("line", "rank", "host"),
    [
        ("[rank3]:[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] x", 3, ""),
        ("3: x", 3, ""),
        ("[1,3]<stderr>:x", 3, ""),
        ("[1,3]<stdout>:gpu-7:815:864 [0] transport/net_ib.cu:80 NCCL WARN x", 3, "gpu-7"),
        ("(RayTrainWorker pid=411, ip=10.9.1.4) x", None, "10.9.1.4"),
        ("2025-01-01 10:00:00,123 [rank3]: x", 3, ""),
        ("[pod/trainer-3/pytorch] 2025-01-01T10:00:00Z x", None, "trainer-3"),
        ("2025-01-01T10:00:00.000000000Z stderr F [rank3]: x", 3, ""),
        ("[gpu-3:8812 :0:8812] x", None, "gpu-3"),
    ],
)
def test_who_speaks_is_told_by_what_launchers_put_before_a_line(line: str, rank: int | None, host: str) -> None:
    read = read_line(line)
    assert (read.rank, read.host) == (rank, host)
    assert read.text.endswith("x")


@pytest.mark.parametrize(
    ("line", "at"),
    [
        ("2025-01-01 10:00:00,500 x", 1735725600.5),
        ("[2025-01-01 10:00:00] x", 1735725600.0),
        ("2025-01-01T10:00:00.250Z x", 1735725600.25),
        ("2025-01-01T12:00:00+02:00 x", 1735725600.0),
        ("01/01/2025 10:00:00 - INFO - x", 1735725600.0),
        ("W0101 10:00:00.000000 811 api.py:900] x", 1735725600.0),
        ("Jan  1 10:00:00 gpu-1 x", 1735725600.0),
        ("[Wed Jan  1 10:00:00 2025] x", 1735725600.0),
        ("1735725600.125 x", 1735725600.125),
        ("10:00:00 x", 36000.0),
        ("step 10 x", None),
        ("2025-99-99 10:00:00 x", None),
    ],
)
def test_times_of_many_forms_are_one(line: str, at: float | None) -> None:
    assert read_line(line, 2025).at == at


@pytest.mark.parametrize(
    ("path", "rank", "host"),
    [
        ("run/gpu-0412_rank3.log", 3, "gpu-0412"),
        ("torchelastic_x/none_y/attempt_0/3/stderr.log", 3, ""),
        ("slurm-9912_7.out", 7, ""),
        ("rank_00012.txt.gz", 12, ""),
        ("node-03.out", None, "node-03"),
        ("job-9912.log", None, ""),
        ("run7/worker-3.log", 3, ""),
        ("train.log", None, ""),
    ],
)
def test_a_file_name_gives_rank_and_host_away_or_nothing(path: str, rank: int | None, host: str) -> None:
    assert (rank_of(path), host_of(path)) == (rank, host)


def test_a_json_record_is_read_with_its_stack() -> None:
    record = {
        "ts": 1735725600.5,
        "level": "ERROR",
        "rank": 6,
        "hostname": "gpu-9",
        "message": "failed",
        "exc_info": OOM,
    }
    read = sheet("\n".join([json.dumps({"message": "step 1 loss 2"}), json.dumps(record)]))
    assert [(hit.log_class, hit.rank, hit.host, hit.at) for hit in read.hits] == [
        ("cuda_oom", 6, "gpu-9", 1735725600.5)
    ]


def test_chunks_of_any_size_give_the_same_sheet() -> None:
    log = (LOG * 40).encode()
    whole = sheet(log)
    for size in (1, 7, 4096, 100_000):
        other = sheet(log, size=size)
        assert [(h.line, h.log_class) for h in other.hits] == [(h.line, h.log_class) for h in whole.hits]


def test_a_line_of_many_megabytes_is_read_in_bounded_time_and_memory() -> None:
    tracemalloc.start()
    started = time.monotonic()
    log = b"x" * 9_000_000 + OOM.encode() + b"y" * 9_000_000
    tracemalloc.reset_peak()
    held, _ = tracemalloc.get_traced_memory()
    read = sheet(log)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [hit.log_class for hit in read.hits][:1] == ["cuda_oom"]
    assert peak - held < 24_000_000
    assert time.monotonic() - started < 20


def test_what_is_kept_of_a_noisy_log_is_bounded() -> None:
    read = sheet("".join(f"[rank{n % 50}]: RuntimeError: boom {n}\nstep {n} loss 2\n" for n in range(20_000)))
    assert len(read.hits) <= 400
    assert len(read.progress) <= 97
    assert read.dropped > 0
    assert read.lines == 40_000


@given(st.binary(max_size=3000))
@settings(max_examples=60, deadline=None)
def test_random_bytes_are_read(raw: bytes) -> None:
    verdict(raw)


@given(st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_mutated_logs_are_read(seed: int) -> None:
    r = random.Random(seed)
    raw = bytearray(r.choice(holdout()).text.encode())
    for _ in range(r.randint(1, 30)):
        raw[r.randrange(len(raw))] = r.randrange(256)
    cut = r.randrange(len(raw))
    verdict(bytes(raw[:cut]) * r.randint(1, 3))


def test_the_wrapper_and_the_server_name_plain_logs_alike() -> None:
    apart = []
    for case in holdout():
        hit = classify_lines(rules().table, case.text.splitlines())
        alone = (
            hit.log_class
            if hit is not None and hit.level != "echo"
            else "unknown_insufficient_evidence"
            if hit
            else "clean_success"
        )
        served = verdict(case.text).log_class
        if alone != served:
            apart.append((case.log_class, alone, served))
    assert len(apart) <= 2, apart
