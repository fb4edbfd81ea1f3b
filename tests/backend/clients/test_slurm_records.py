"""Slurm's output as every version prints it, read into facts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.clients.slurm_records import (
    SUFFIXES,
    RecordError,
    holders,
    parse_gpus,
    parse_jobs,
    parse_nodes,
    parse_state,
)
from backend.facts import AttemptFacts

NODE = (
    "NodeName=gpu-0000 Arch=x86_64 CoresPerSocket=32  CPUAlloc=1 CPUTot=64 Gres=gpu:h100:8(S:0-1) "
    "NodeAddr=127.0.0.1 OS=Linux 6.1 #1 SMP PREEMPT_DYNAMIC @0  State={state} ThreadsPerCore=1 Owner=N/A "
    "BootTime={boot} SlurmdStartTime=1796055096 CfgTRES=cpu=64,mem=16000M AllocTRES=cpu=1{tail} \n"
)
OLD_JOB = {
    "job_id": 48213,
    "array_job_id": 0,
    "array_task_id": None,
    "job_state": "RUNNING",
    "name": "llm-70b",
    "user_name": "ada",
    "restart_cnt": 2,
    "submit_time": 1796055000,
    "eligible_time": 1796055001,
    "start_time": 1796055002,
    "end_time": 1827591220,
    "nodes": "gpu-[0000-0001]",
    "excluded_nodes": "gpu-0003",
    "batch_flag": True,
    "requeue": True,
    "gres_detail": ["gpu:h100:8(IDX:0-7)", "gpu:h100:8(IDX:0-7)"],
    "tres_per_node": "gres:gpu:8",
    "tres_alloc_str": "cpu=2,node=2,billing=2",
}


def set_to(value: int) -> dict[str, object]:
    return {"set": True, "infinite": False, "number": value}


NEW_JOB = OLD_JOB | {
    "job_state": ["RUNNING"],
    "array_task_id": {"set": False, "infinite": False, "number": 0},
    "submit_time": set_to(1796055000),
    "eligible_time": set_to(1796055001),
    "start_time": set_to(1796055002),
    "end_time": set_to(1827591220),
}


def node(state: str = "IDLE", boot: str = "1796053814", tail: str = ""):
    (found,) = parse_nodes(NODE.format(state=state, boot=boot, tail=tail), read_at=5.0)
    return found


@pytest.mark.parametrize(
    ("text", "base", "flags"),
    [
        ("IDLE", "idle", set()),
        ("MIXED+DRAIN", "mixed", {"DRAIN"}),
        ("DOWN*+DRAIN", "down", {"DRAIN", "NOT_RESPONDING"}),
        ("DOWN+DRAIN+NOT_RESPONDING", "down", {"DRAIN", "NOT_RESPONDING"}),
        ("IDLE+CLOUD+POWERED_DOWN", "idle", {"CLOUD", "POWERED_DOWN"}),
        ("ALLOCATED+COMPLETING", "allocated", {"COMPLETING"}),
        ("drained*", "idle", {"DRAIN", "NOT_RESPONDING"}),
        ("draining@", "mixed", {"DRAIN", "REBOOT_REQUESTED"}),
        ("mix-", "mixed", {"PLANNED"}),
        ("inval", "down", {"INVALID_REG"}),
        ("SOMETHING_NEW", "unknown", {"SOMETHING_NEW"}),
        ("", "unknown", set()),
    ],
)
def test_a_state_is_its_base_and_its_flags(text: str, base: str, flags: set[str]) -> None:
    assert parse_state(text) == (base, frozenset(flags))


@pytest.mark.parametrize("suffix", sorted(set(SUFFIXES) - {"+"}))
def test_every_suffix_of_sinfo_becomes_its_flag(suffix: str) -> None:
    assert parse_state(f"idle{suffix}") == ("idle", frozenset({SUFFIXES[suffix]}))
    assert parse_state(f"IDLE{suffix}+DRAIN") == ("idle", frozenset({SUFFIXES[suffix], "DRAIN"}))


def test_drained_means_that_nothing_runs_any_more() -> None:
    assert node("IDLE+DRAIN").drained and node("DOWN*+DRAIN").drained
    for working in ("ALLOCATED+DRAIN", "MIXED+DRAIN", "IDLE+COMPLETING+DRAIN"):
        assert node(working).draining and not node(working).drained


def test_a_node_record_gives_gpus_boot_time_and_owner() -> None:
    ours = node(tail=" Reason=[watchkeeper] gpu_bus_loss gpu=3 inc=812 [root@1796055097]")
    assert (ours.expected_gpus, ours.model, ours.boot_at, ours.read_at) == (8, "h100", 1796053814.0, 5.0)
    assert (ours.reason, ours.reason_owner) == ("[watchkeeper] gpu_bus_loss gpu=3 inc=812", "watchkeeper")
    theirs = node(tail=" Reason=disk x=1 State=DOWN [alice@1796055097] Comment=was [watchkeeper] State=FUTURE")
    assert (theirs.state, theirs.reason, theirs.reason_owner) == ("idle", "disk x=1 State=DOWN", "alice")
    assert node(tail=" Reason=someone wrote this").reason_owner == "someone"
    assert (node().reason, node().reason_owner, node(boot="None").boot_at) == ("", "", None)
    assert node(tail=" Reason=none [root@1]").reason == ""


def test_a_record_without_a_state_is_an_error_that_shows_it() -> None:
    with pytest.raises(RecordError, match="without State.*gpu-9"):
        parse_nodes("NodeName=gpu-9 Arch=x\n", 0.0)
    assert parse_nodes("", 0.0) == [] and parse_nodes("No nodes in the system\n", 0.0) == []


@pytest.mark.parametrize("record", [OLD_JOB, NEW_JOB], ids=["22.05", "23.11 and later"])
def test_a_job_reads_the_same_in_every_version_of_the_json(record: dict[str, object]) -> None:
    (job,) = parse_jobs({"jobs": [record]})
    assert job.attempt == AttemptFacts(
        job="48213",
        restart=2,
        run="llm-70b",
        user="ada",
        state="RUNNING",
        submit=1796055000.0,
        eligible=1796055001.0,
        start=1796055002.0,
        nodes=("gpu-0000", "gpu-0001"),
        gpus_per_node=8,
        excluded=("gpu-0003",),
        name="llm-70b",
        gpus=(("gpu-0000", tuple(range(8))), ("gpu-0001", tuple(range(8)))),
        source="slurm",
    )
    assert job.batch and job.may_requeue and job.holds and not job.waits


def test_a_waiting_job_has_no_start_and_an_ended_one_has_an_end() -> None:
    waiting, ended, ending = parse_jobs(
        {
            "jobs": [
                OLD_JOB | {"job_state": "PENDING", "nodes": "", "gres_detail": [], "end_time": 6091022636},
                OLD_JOB | {"job_state": ["FAILED"], "end_time": set_to(1796055900), "requeue": False},
                OLD_JOB | {"job_state": ["CANCELLED", "COMPLETING"]},
            ]
        }
    )
    assert waiting.waits and waiting.attempt.start is None and waiting.attempt.end is None
    assert waiting.attempt.gpus_per_node == 8
    assert not (ended.holds or ended.waits or ended.may_requeue) and ended.attempt.end == 1796055900.0
    assert ending.attempt.state == "COMPLETING" and ending.holds


@pytest.mark.parametrize(
    "document", [None, [], {}, {"jobs": {}}, {"jobs": ["x"]}, {"jobs": [{"job_state": "RUNNING"}]}]
)
def test_json_of_another_shape_is_an_error(document: object) -> None:
    with pytest.raises(RecordError):
        parse_jobs(document)


def test_a_broken_node_list_is_an_error_that_shows_it() -> None:
    with pytest.raises(RecordError, match="never closed"):
        parse_jobs({"jobs": [OLD_JOB | {"nodes": "gpu-[1"}]})


@pytest.mark.parametrize(
    ("text", "gpus", "model"),
    [
        ("gpu:h100:8(S:0-1)", 8, "h100"),
        ("gpu:8", 8, ""),
        ("gres:gpu:h100:4", 4, "h100"),
        ("gres/gpu:2", 2, ""),
        ("gpu", 1, ""),
        ("cpu=2,mem=1M,gres/gpu=16,gres/gpu:h100=16", 16, "h100"),
        ("gpu:a100:4,gpu:h100:2", 6, "a100"),
        ("gpu:1g.10gb:7", 7, "1g.10gb"),
        ("craynetwork:4,shard:8", 0, ""),
        ("(null)", 0, ""),
    ],
)
def test_gpus_are_counted_in_every_spelling(text: str, gpus: int, model: str) -> None:
    assert parse_gpus(text) == (gpus, model)


def test_only_jobs_that_hold_their_nodes_are_holders() -> None:
    runs = AttemptFacts("1", state="RUNNING", nodes=("a", "b"))
    ends = AttemptFacts("2", state="COMPLETING", nodes=("b",))
    over = AttemptFacts("3", state="COMPLETED", nodes=("a",))
    assert holders([runs, ends, over]) == {"a": ("1",), "b": ("1", "2")}


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="NodeName=State IDLE+DRAIN[@]x*\n\0", max_size=80))
def test_any_output_is_read_or_refused(text: str) -> None:
    try:
        parse_nodes("NodeName=" + text, 0.0)
    except RecordError:
        return


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=12))
def test_any_state_has_a_base(text: str) -> None:
    base, flags = parse_state(text)
    assert base and "" not in flags
