"""classify: the object others rely on, the lines people read, and paths that are no logs."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backend.cli import main
from tests.corpora.joblogs import healthy, job

XID = "gpu-7 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"
KEYS = {
    "path", "class", "confidence", "component", "culprit", "xids", "exclude_node", "first_cause", "evidence",
    "suggestion", "alternates",
}  # fmt: skip


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert main(["classify", "--json", *words]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_path_gives_one_object_of_the_contract(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "train.log"
    log.write_text("step 1 loss 2\n" + XID)
    (found,) = asked(capsys, str(log))
    assert set(found) == KEYS
    assert found["class"] == "gpu_fallen_off_bus"
    assert found["component"] == "gpu"
    assert found["xids"] == [79]
    assert found["exclude_node"] is True
    assert 0.9 < found["confidence"] <= 1
    assert found["culprit"] == {"node": "gpu-7", "rank": None, "gpu": None}
    assert found["first_cause"] == {"file": str(log), "line": 2, "text": XID.strip()}
    assert found["evidence"][0]["value"] == XID.strip()
    assert "gpu-7" in found["suggestion"]


def test_a_folder_is_one_job_and_its_other_files_are_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = job(3, "KeyError: 'input_ids'", skew_s=5.0)
    for name, text in made.logs.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "model.pt").write_bytes(b"CUDA out of memory. Tried to allocate\n")
    (tmp_path / ".hidden").write_text("CUDA out of memory. Tried to allocate\n")
    (found,) = asked(capsys, str(tmp_path))
    assert found["class"] == "user_code_exception"
    assert found["culprit"]["rank"] == made.rank
    assert found["culprit"]["node"] == made.node
    assert found["first_cause"]["file"].endswith(f"rank_{made.rank}.log")


@pytest.mark.parametrize(("pack", "end"), [(gzip.compress, "gz"), (bz2.compress, "bz2"), (lzma.compress, "xz")])
def test_packed_logs_are_read(pack, end: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / f"train.log.{end}"
    log.write_bytes(pack(XID.encode()))
    assert asked(capsys, str(log))[0]["class"] == "gpu_fallen_off_bus"


def test_a_packed_log_that_breaks_off_is_said_and_the_rest_is_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(b"x" * 5000)[:-12])
    (tmp_path / "b.log").write_text(XID)
    assert main(["classify", "--json", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["class"] == "gpu_fallen_off_bus"
    assert "a.log.gz cannot be read" in said.err


def test_stdin_is_a_log(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(XID.encode())))
    assert asked(capsys, "-")[0]["path"] == "-"


def test_an_error_file_of_torchelastic_names_its_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "attempt_0" / "3"
    folder.mkdir(parents=True)
    message = {"message": "x", "extraInfo": {"py_callstack": "Traceback\nKeyError: 'x'", "timestamp": "1735725600"}}
    (folder / "error.json").write_text(json.dumps({"message": message}))
    (found,) = asked(capsys, str(tmp_path))
    assert (found["class"], found["culprit"]["rank"]) == ("user_code_exception", 3)


def test_the_words_for_people_start_with_the_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "train.log"
    log.write_text("\x1b]0;evil\x07" + XID)
    assert main(["classify", str(log)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{log}: gpu_fallen_off_bus, ")
    assert "without gpu-7" in lines[1]
    assert "\x1b" not in "".join(lines)


def test_a_healthy_log_says_so_in_two_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "train.log"
    log.write_text(healthy(3))
    assert main(["classify", str(log)]) == 0
    assert "No failure" in capsys.readouterr().out.splitlines()[1]


def test_the_end_state_is_taken_into_account(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "train.log"
    log.write_text("step 1 loss 2\n")
    assert asked(capsys, str(log), "--state", "OUT_OF_MEMORY")[0]["class"] == "host_oom_killed"


def test_a_path_that_is_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["classify", str(tmp_path / "nowhere")]) == 1
    assert main(["classify", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "does not exist" in said
    assert "holds none" in said


def test_a_name_cannot_write_to_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "rank_3\n\x1b[31mroot# .log"
    log.write_text("KeyError: '\x1b]0;title\x07'\n")
    main(["classify", str(log), str(tmp_path / "not\x1b[2Jthere")])
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err and not any(line.startswith("root#") for line in said.out.splitlines())
