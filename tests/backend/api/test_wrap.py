"""POST ingest/wrap: reports are kept once, the ranks of an attempt joined, one verdict told."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlmodel import select

from backend import joining, pipeline
from backend.clock import ManualClock, unix
from backend.facts import AttemptFacts, Batch
from backend.model.events import Event
from backend.model.reports import WrapReport
from backend.model.work import Attempt
from tests.backend.api.conftest import NOW, Site

AT = unix(NOW)
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB."
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
NCCL = "[rank0]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error"
ROUTE = "/api/v1/ingest/wrap"


def report(task: int | None = None, tasks: int | None = None, text: str = OOM, **more: Any) -> dict[str, Any]:
    host = f"gpu-{(task or 0):04d}"
    row: dict[str, Any] = {
        "version": 1,
        "id": f"71/0/{task}/{host}",
        "ts": AT - 5,
        "start": AT - 600,
        "host": host,
        "job": "71",
        "restart": 0,
        "task": task,
        "tasks": tasks,
        "rank": task,
        "name": "train",
        "exit_code": 1,
        "class": "cuda_oom",
        "confidence": 0.9,
        "excerpt": [{"line": 40, "at": 9_000, "text": "step 39 loss 2.1\n" + text}] if text else [],
    }
    return row | more


def events(site: Site) -> list[Event]:
    with site.parts.store.read() as session:
        found = list(session.exec(select(Event).where(Event.namespace == "log")))
        session.expunge_all()
    return found


def send(site: Site, *rows: dict[str, Any]) -> dict[str, Any]:
    answer = site.client().post(ROUTE, json=list(rows))
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert isinstance(found, dict)
    return found


def attempt(site: Site, state: str = "RUNNING", **more: Any) -> None:
    told = AttemptFacts("71", 0, state=state, start=AT - 620, nodes=("gpu-0000", "gpu-0001"), source="slurm", **more)
    pipeline.accept(site.watch, Batch("slurm", AT, AT, attempts=(told,)))


def test_a_report_that_stands_alone_is_a_verdict_at_once(site: Site) -> None:
    assert send(site, report())["accepted"] == 1
    joining.join(site.watch)
    (event,) = events(site)
    assert (event.code, event.job, event.attrs["line"], event.attrs["whose"]) == ("cuda_oom", "71", "41", "yours")
    with site.parts.store.read() as session:
        (row,) = session.exec(select(Attempt))
        assert (row.job, row.state, row.exit_code, row.run) == ("71", "FAILED", 1, "train")


def test_the_same_report_told_twice_is_one(site: Site) -> None:
    assert send(site, report(), report())["duplicates"] == 1
    assert send(site, report())["duplicates"] == 1
    joining.join(site.watch)
    assert send(site, report())["duplicates"] == 1
    joining.join(site.watch)
    assert len(events(site)) == 1


def test_ranks_are_waited_for_and_the_first_cause_among_them_is_told(site: Site) -> None:
    send(site, report(0, 2, NCCL))
    joining.join(site.watch)
    assert not events(site)
    send(site, report(1, 2, ECC, ts=AT - 6))
    joining.join(site.watch)
    (event,) = events(site)
    assert (event.code, event.node, event.attrs["rank"], event.attrs["exclude"]) == (
        "ecc_uncorrectable",
        "gpu-0001",
        "1",
        "yes",
    )


def test_ranks_that_never_report_are_waited_for_only_so_long(site: Site) -> None:
    send(site, report(1, 8, ECC))
    site.clock.set(NOW + timedelta(seconds=joining.RANKS_S - 1))
    joining.join(site.watch)
    assert not events(site)
    site.clock.set(NOW + timedelta(seconds=joining.RANKS_S + 1))
    joining.join(site.watch)
    assert [event.code for event in events(site)] == ["ecc_uncorrectable"]


def test_a_report_and_the_schedulers_word_are_one_verdict_whichever_comes_first(site: Site) -> None:
    attempt(site)
    send(site, report())
    joining.join(site.watch)
    attempt(site, "FAILED", end=AT - 4, exit_code=1)
    (event,) = events(site)
    assert event.code == "cuda_oom" and event.dedupe == f"verdict 71/0 {AT - 620:.0f}"


def test_the_schedulers_end_that_comes_first_is_judged_with_the_reports_that_are_there(site: Site) -> None:
    attempt(site)
    send(site, report(1, 2, ECC))
    attempt(site, "FAILED", end=AT - 4, exit_code=1)
    (event,) = events(site)
    assert (event.code, event.node) == ("ecc_uncorrectable", "gpu-0001")
    send(site, report(0, 2, NCCL))
    joining.join(site.watch)
    assert len(events(site)) == 1


def test_a_running_attempt_learns_its_exit_code_and_runs_on(site: Site) -> None:
    attempt(site)
    send(site, report(exit_code=137, signal=9))
    joining.join(site.watch)
    with site.parts.store.read() as session:
        (row,) = session.exec(select(Attempt))
        assert (row.state, row.exit_code, row.signal, row.end) == ("RUNNING", 137, 9, None)


def test_what_was_told_to_end_and_shows_no_cause_is_left_to_its_scheduler(site: Site) -> None:
    send(site, report(text="step 40 loss 2.0", exit_code=143, signal=15, asked_to_end=True))
    joining.join(site.watch)
    assert not events(site)


def test_ranks_told_to_end_after_one_failed_do_not_hide_it(site: Site) -> None:
    send(site, report(0, 2, "step 40 loss 2.0", exit_code=143, signal=15, asked_to_end=True), report(1, 2, ts=AT - 9))
    joining.join(site.watch)
    (event,) = events(site)
    assert event.code == "cuda_oom" and event.attrs["rank"] == "1"


def test_a_killed_process_whose_cgroup_ran_out_of_memory_is_host_memory(site: Site) -> None:
    send(site, report(text="step 40 loss 2.0", exit_code=137, signal=9, oom_kills=1))
    joining.join(site.watch)
    assert [event.code for event in events(site)] == ["host_oom_killed"]


def test_runs_that_ended_well_tell_nothing_and_are_not_asked_again(site: Site) -> None:
    send(site, report(text="", exit_code=0))
    joining.join(site.watch)
    assert not events(site)
    with site.parts.store.read() as session:
        assert all(row.joined for row in session.exec(select(WrapReport)))


def test_a_job_without_an_id_is_told_by_itself(site: Site) -> None:
    send(site, report(job=""), report(job="", id="another", host="gpu-0009"))
    joining.join(site.watch)
    assert len(events(site)) == 2
    with site.parts.store.read() as session:
        assert not list(session.exec(select(Attempt)))


def test_an_earlier_job_of_the_same_id_is_another_job(site: Site) -> None:
    send(site, report(ts=AT - 90_000, start=AT - 99_000, text=ECC))
    joining.join(site.watch)
    attempt(site)
    send(site, report(id="new"))
    joining.join(site.watch)
    assert [event.code for event in events(site)][-1] == "cuda_oom"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", ""),
        ("host", "no host!"),
        ("exit_code", 300),
        ("start", AT + 9_000),
        ("ts", "yesterday"),
        ("task", -1),
        ("excerpt", [{"line": 1}]),
        ("excerpt", [{"line": 1, "at": 0, "text": "x"}] * 401),
        ("environment", {"A": 7}),
        ("confidence", "NaN"),
    ],
)
def test_a_bad_row_is_named_and_the_good_one_kept(site: Site, field: str, value: object) -> None:
    found = send(site, report(), report(id="bad") | {field: value})
    assert found["accepted"] == 1 and found["rejected"][0]["row"] == 1
    assert found["rejected"][0]["field"].split(".")[0] in (field, "ts", "start")


def test_secrets_are_masked_though_the_sender_did_not(site: Site) -> None:
    send(site, report(command="train --password hunter22222", environment={"A": "api_key=abcdefgh12345"}))
    with site.parts.store.read() as session:
        (row,) = session.exec(select(WrapReport))
        assert "hunter2" not in str(row.report) and "abcdefgh" not in str(row.report)


def test_an_ingest_token_is_asked_for_off_loopback(site: Site) -> None:
    away = ("10.0.0.9", 50_000)
    assert site.client(away).post(ROUTE, json=[report()]).status_code == 401
    assert site.program("read", away).post(ROUTE, json=[report()]).status_code == 403
    assert site.program("ingest", away).post(ROUTE, json=[report()]).status_code == 200


def test_a_launcher_that_starts_the_ranks_again_is_not_over(site: Site) -> None:
    send(site, report(0, 1, environment={"TORCHELASTIC_MAX_RESTARTS": "3"}))
    joining.join(site.watch)
    assert not events(site)
    site.clock.set(NOW + timedelta(seconds=joining.LAUNCHER_S + 1))
    joining.join(site.watch)
    assert len(events(site)) == 1


def test_the_reports_of_a_job_are_read_failed_ones_first(site: Site) -> None:
    send(
        site, report(0, 2, "", exit_code=0), report(1, 2, sentence="Memory.", tail=[{"stream": "stderr", "text": OOM}])
    )
    found = site.client().get("/api/v1/jobs/71/reports").json()
    assert [(row["rank"], row["exit_code"]) for row in found["reports"]] == [(1, 1), (0, 0)]
    assert found["reports"][0]["tail"][0]["text"] == OOM and found["reports"][0]["sentence"] == "Memory."
    assert site.client().get("/api/v1/jobs/72/reports").json()["reports"] == []
    assert site.client(("10.0.0.9", 50_000)).get("/api/v1/jobs/71/reports").status_code == 401


def test_a_thousand_ranks_are_joined_into_one_verdict(site: Site) -> None:
    for first in range(0, 1000, 250):
        rows = [report(n, 1000, NCCL, id=f"r{n}") for n in range(first, first + 250) if n != 617]
        send(site, *rows)
    send(site, report(617, 1000, ECC, id="r617"))
    joining.join(site.watch)
    (event,) = events(site)
    assert (event.code, event.attrs["rank"], event.node) == ("ecc_uncorrectable", "617", "gpu-0617")


def test_reports_are_forgotten_long_after_their_verdict(site: Site) -> None:
    send(site, report())
    joining.join(site.watch)
    assert isinstance(site.watch.clock, ManualClock)
    site.watch.clock.set(site.watch.clock.now() + timedelta(seconds=joining.KEPT_S + 2 * joining.LOOK_S))
    while joining.join(site.watch):
        pass
    with site.parts.store.read() as session:
        assert session.exec(select(WrapReport)).all() == []
    assert len(events(site)) == 1, "the verdict stays"
