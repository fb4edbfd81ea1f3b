"""classify --model, whole: verdicts of jobs, what people say of them, the fit, and the class of a log no rule names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import requests

from backend import learn
from backend.auth import Person
from backend.cli import main
from backend.clock import unix
from backend.facts import AttemptFacts, Batch, RawEvent
from backend.ingest.job_verdicts import Verdicts
from backend.ingest.joblogs import JobFile
from backend.pipeline import accept
from backend.writes import label
from detectors.joblog.learned import LEAST, Artefact
from detectors.joblog.reading import Rules
from detectors.joblog.recall import from_file, to_file
from detectors.packaged import log_rules
from tests.backend.commands.conftest import Served
from tests.detectors.joblog.failures import SAYINGS, failure, failures

Out = pytest.CaptureFixture[str]
ADA = Person("ada", "operator")
EACH = 9


def learns(served: Served, each: int = EACH) -> None:
    """Jobs that failed, opened no incident, and were labelled by a person; then one turn of the learn loop."""
    watch = served.parts.watches["main"]
    now = unix(served.parts.clock.now())
    heard = Verdicts(Rules.of(log_rules()))
    events: list[RawEvent] = []
    named: list[tuple[str, str]] = []
    for number, one in enumerate(failures(each)):
        job = str(9000 + number)
        text = one.excerpt.replace("  ", "").encode() + b"\n"
        heard.hear(JobFile(job, 0, f"/logs/{job}.out"), text, "8:1:0", now)
        ended = AttemptFacts(job, 0, state="FAILED", start=now - 60, end=now - 30)
        events += heard.ended(ended, (), now)
        named.append((job, one.cause))
    accept(watch, Batch("jobs", now, now, events=tuple(events)))
    for job, cause in named:
        label(watch, ADA, False, cause, "", job=job)
    assert watch.verdicts is not None
    learn.step(watch.store, watch.clock, watch.cluster, watch.verdicts, {})


def log_of(cause: str, seed: int, folder: Path) -> Path:
    file = folder / f"{cause}.log"
    file.write_text("step 1 of the warm-up\n" + failure(cause, seed).replace("  ", "") + "\n")
    return file


def asked(capsys: Out, *words: str) -> dict[str, Any]:
    assert main(["classify", "--json", *words]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_log_that_no_rule_names_is_classed_by_what_people_said_of_jobs_without_incidents(
    served: Served, tmp_path: Path, capsys: Out
) -> None:
    learns(served)
    cause = "storage_service_error"
    log = log_of(cause, 700, tmp_path)
    assert asked(capsys, str(log), "--exit-code", "1")["class"] == "unknown_insufficient_evidence"
    found = asked(capsys, str(log), "--exit-code", "1", "--model", served.url)
    assert (found["class"], found["by"], found["model"]) == (cause, "resemblance", 1)
    assert 0.5 <= found["confidence"] <= 1.0 and not found["exclude_node"] and found["culprit"] is None
    assert found["similar"][0]["cause"] == cause and found["similar"][0]["ref"].startswith("job:9")
    file = tmp_path / "joblog-model.npz"
    file.write_bytes(requests.get(f"{served.url}/api/v1/labels/model/file", timeout=10).content)
    assert asked(capsys, str(log), "--exit-code", "1", "--model", str(file)) == found
    assert main(["classify", str(log), "--exit-code", "1", "--model", str(file)]) == 0
    assert "resembles job:9" in capsys.readouterr().out


def test_rules_stand_before_memory_and_strange_logs_stay_unknown(served: Served, tmp_path: Path, capsys: Out) -> None:
    learns(served)
    named = tmp_path / "named.log"
    named.write_text(failure("storage_service_error", 3) + "\nCUDA out of memory. Tried to allocate 2.00 GiB\n")
    found = asked(capsys, str(named), "--model", served.url)
    assert (found["class"], found["by"]) == ("cuda_oom", "rules")
    strange = tmp_path / "strange.log"
    strange.write_text("zorbification of quux incomplete\nthe flim was not flammed\n")
    found = asked(capsys, str(strange), "--exit-code", "1", "--model", served.url)
    assert (found["class"], found["by"], found["similar"]) == ("unknown_insufficient_evidence", "rules", [])


def test_few_labels_answer_nothing_but_show_what_resembles(served: Served, tmp_path: Path, capsys: Out) -> None:
    learns(served, LEAST - 1)
    log = log_of(next(iter(SAYINGS)), 700, tmp_path)
    found = asked(capsys, str(log), "--exit-code", "1", "--model", served.url)
    assert found["class"] == "unknown_insufficient_evidence" and found["similar"]


def test_a_server_that_learnt_nothing_and_a_file_that_is_no_model_say_so(
    served: Served, tmp_path: Path, capsys: Out
) -> None:
    log = log_of(next(iter(SAYINGS)), 1, tmp_path)
    assert main(["classify", str(log), "--model", served.url]) == 1
    assert "nothing was learnt" in capsys.readouterr().err
    wrong = tmp_path / "wrong.npz"
    for text in (b"PK\x03\x04 no archive", b"words", b""):
        wrong.write_bytes(text)
        assert main(["classify", str(log), "--model", str(wrong)]) == 1
        assert "model" in capsys.readouterr().err
    assert main(["classify", str(log), "--model", str(tmp_path / "none.npz")]) == 1


def test_a_model_without_its_parts_is_refused() -> None:
    with pytest.raises(ValueError, match="format"):
        from_file(to_file(Artefact({}, {"format": 99}), 1))
    with pytest.raises(ValueError, match="without"):
        from_file(to_file(Artefact({}, {"format": 1}), 1))
