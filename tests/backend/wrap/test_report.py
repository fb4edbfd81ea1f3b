"""The report: what is in it, what is masked, what is left out and said to be."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.wrap import evidence
from backend.wrap.artifacts import collect
from backend.wrap.streams import ERR, OUT, Log
from detectors.joblog.rules import UNKNOWN
from detectors.packaged import log_rules
from tests.backend.wrap.wrapped import OOM, log, report, shell

TABLE = log_rules()


def test_what_a_report_holds(tmp_path: Path) -> None:
    shell(tmp_path, f"echo step 1 loss 2; echo '{OOM}' >&2; sleep 0.2; echo end; exit 3", "--name", "pretrain")
    found = report(tmp_path)
    assert (found["name"], found["exit_code"], found["signal"], found["ran"]) == ("pretrain", 3, None, True)
    assert (found["class"], found["component"]) == ("cuda_oom", TABLE.classes["cuda_oom"].component)
    assert 0.8 < found["confidence"] <= 1 and 0.2 < found["duration_s"] < 30
    assert found["evidence"][0]["what"] == "first cause" and found["evidence"][0]["text"] == OOM
    assert found["log"]["bytes"] == len(log(tmp_path)) and found["log"]["lost_bytes"] == 0
    assert {row["text"] for row in found["tail"]} == {"step 1 loss 2", OOM, "end"}
    assert found["environment"]["folder"] == str(tmp_path)


@pytest.mark.parametrize(("number", "log_class"), [("SEGV", "segfault"), ("KILL", UNKNOWN)])
def test_an_end_without_a_word_is_named_by_its_signal_alone(tmp_path: Path, number: str, log_class: str) -> None:
    shell(tmp_path, f"ulimit -c 0; kill -{number} $$")
    assert report(tmp_path)["class"] == log_class


def test_secrets_are_masked_everywhere(tmp_path: Path) -> None:
    secret = "hunter2hunter2"
    (tmp_path / "run.txt").write_text(f"password={secret}\n")
    script = f"echo token={secret}; echo 'RuntimeError: api_key={secret}' >&2; exit 1"
    shell(tmp_path, script + f" # --password {secret}", "--artifacts", "*.txt")
    assert secret not in json.dumps(report(tmp_path))


def test_artifacts_are_taken_as_far_as_they_fit_and_the_rest_is_listed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a" * 3000)
    (tmp_path / "b.txt").write_text("".join(f"line {n}\n" for n in range(5000)))
    (tmp_path / "c.txt").write_bytes(b"\0\1\2" * 100)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "e.txt").write_text("deep")
    os.mkfifo(tmp_path / "f.txt")
    (tmp_path / "g.txt").symlink_to("nowhere")
    (tmp_path / "h.txt").write_text("last")
    taken, left = collect([f"{tmp_path}/**/*.txt", f"{tmp_path}/a.txt"], 12_000)
    names = {Path(one["path"]).name: one for one in taken}
    assert set(names) == {"a.txt", "b.txt"} and names["b.txt"]["cut"] == names["b.txt"]["bytes"] - 9_000
    assert names["b.txt"]["text"].endswith("line 4999\n")
    why = {Path(one["path"]).name: one["why"] for one in left}
    assert why == {
        "c.txt": "no room left",
        "e.txt": "no room left",
        "f.txt": "no file",
        "g.txt": "No such file or directory",
        "h.txt": "no room left",
    }
    assert {Path(o["path"]).name: o["why"] for o in collect([f"{tmp_path}/c.txt"], 9999)[1]} == {"c.txt": "no text"}


def test_thousands_of_artifacts_are_counted(tmp_path: Path) -> None:
    for number in range(1200):
        (tmp_path / f"{number}.bin").write_bytes(b"\0")
    taken, left = collect([f"{tmp_path}/*.bin"], 1000)
    assert not taken and len(left) == 101 and "more" in left[-1]["why"]


def test_a_report_is_bounded_whatever_was_printed(tmp_path: Path) -> None:
    line = "RuntimeError: CUDA error: an illegal memory access was encountered " + "x" * 3000
    shell(tmp_path, f"for n in $(seq 2000); do echo '{line}'; done; exit 1")
    assert len(json.dumps(report(tmp_path))) < 400_000


def test_classify_reads_the_folder_of_a_wrapped_job_and_not_its_reports(tmp_path: Path) -> None:
    from backend.commands.classify import logs_in

    for rank in ("0", "1"):
        shell(tmp_path, f"echo '{OOM}'; exit 1", env={"SLURM_JOB_ID": "7", "RANK": rank, "WORLD_SIZE": "2"})
    assert [path.name for path in logs_in(tmp_path)] == ["rank-0.log", "rank-1.log"]


# --- the log ----------------------------------------------------------------------------------------------------------


def written(chunks: list[tuple[int, bytes]], path: Path) -> Log:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    made = Log(fd)
    for stream, chunk in chunks:
        made.take(stream, chunk)
    for stream in (OUT, ERR):
        made.queue.put((stream, None))
    made.write(2)
    os.close(fd)
    return made


def test_a_stream_waits_for_the_line_of_the_other(tmp_path: Path) -> None:
    made = written([(OUT, b"ab"), (ERR, b"x\ny"), (OUT, b"cd\n"), (ERR, b"z\n"), (OUT, b"end")], tmp_path / "log")
    assert (tmp_path / "log").read_bytes() == b"abcd\nx\nyz\nend" and made.size == 13 and not made.lost


@given(st.integers(0, 10_000))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_byte_of_a_stream_is_in_the_log_in_its_order(tmp_path: Path, seed: int) -> None:
    r = random.Random(seed)
    chunks = [
        (r.randrange(2), bytes(r.choices((b"ab\n", b"ab")[r.randrange(2)], k=r.randrange(1, 9)))) for _ in range(40)
    ]
    marked = [(s, bytes(c + 32 * (s == ERR) - 32 if c != 10 else c for c in chunk)) for s, chunk in chunks]
    made = written(marked, tmp_path / "log")
    found = (tmp_path / "log").read_bytes()
    for stream, letters in ((OUT, b"AB"), (ERR, b"ab")):
        said = b"".join(chunk for s, chunk in marked if s == stream).replace(b"\n", b"")
        assert bytes(c for c in found if c in letters) == said
    assert made.size == len(found) and b"".join(text for _, text in made.tail) == found


@given(st.binary(max_size=3000))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_read_back(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "log"
    made = written([(OUT, raw)], path)
    lines, read = evidence.lines_of(made, str(path))
    assert read == len(raw) and all(line.behind <= len(raw) + 1 for line in lines)
    numbers = [line.number for line in lines]
    assert numbers == sorted(numbers) and all(0 < n <= raw.count(b"\n") + 1 for n in numbers)


def test_lines_of_a_long_log_keep_their_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "START", 5_000)
    monkeypatch.setattr(evidence, "END", 7_000)
    path = tmp_path / "log"
    text = [f"{n} {'ERROR' if n % 97 == 0 else 'step'} {'.' * (n % 50)}" for n in range(1, 20_000)]
    made = written([(OUT, "\n".join(text).encode())], path)
    lines, read = evidence.lines_of(made, str(path))
    assert read == path.stat().st_size and 300 < len(lines) < 5_000
    whole = [line for line in lines if line.text and line.text == text[line.number - 1]]
    assert len(whole) >= len(lines) - 2  # a line may be cut where two parts meet
    assert {line.number for line in lines} >= set(range(97, 20_000, 97)) - {n for n in range(20_000) if n > 19_800}
    starts = {n: sum(len(t) + 1 for t in text[:n]) for n in (97, 9_700, 19_400)}
    assert {line.number: line.behind for line in lines if line.number in starts} == starts
