"""The accounting's JSON and sinfo's tables, of every version, into the same facts."""

from __future__ import annotations

from typing import Any

import pytest

from backend.clients.slurm_http import Tokens
from backend.clients.slurm_kept import KeptByRest, read_kept
from backend.clients.slurm_rest import SlurmRest
from backend.clients.slurm_sinfo import parse_sinfo
from backend.clients.slurm_values import RecordError
from tests.fakes.slurmrestd import Slurmrestd

UNSET = {"set": False, "infinite": False, "number": 0}
RECORD: dict[str, Any] = {
    "job_id": 1207,
    "name": "sweep",
    "user": "ada",
    "account": "ml",
    "partition": "train",
    "nodes": "gpu-[0001-0002]",
    "state": {"current": ["FAILED"], "reason": "NonZeroExitCode"},
    "time": {"submission": 1000, "eligible": 1001, "start": 1010, "end": 1100, "limit": {"set": True, "number": 60}},
    "exit_code": {"return_code": {"set": True, "number": 3}, "signal": {"id": UNSET, "name": ""}},
    "array": {"job_id": 1200, "task_id": {"set": True, "infinite": False, "number": 7}},
    "het": {"job_id": 0, "job_offset": UNSET},
    "submit_line": "sbatch -x gpu-0009 --output=logs/%A_%a.out job.sh",
    "working_directory": "/home/ada",
    "tres": {
        "allocated": [{"type": "gres", "name": "gpu", "count": 16}, {"type": "gres", "name": "gpu:h100", "count": 16}]
    },
}


def test_a_record_is_an_attempt_with_all_that_it_says() -> None:
    (one,) = read_kept({"jobs": [RECORD]}).attempts
    assert (one.job, one.array, one.state, one.restart) == ("1207", "1200_7", "FAILED", -1)
    assert (one.submit, one.start, one.end, one.limit_s) == (1000.0, 1010.0, 1100.0, 3600.0)
    assert one.nodes == ("gpu-0001", "gpu-0002") and one.gpus_per_node == 8 and one.excluded == ("gpu-0009",)
    assert one.outputs == ("/home/ada/logs/1200_7.out",) and (one.exit_code, one.signal) == (3, None)
    assert (one.reason, one.source) == ("NonZeroExitCode", "sacct")


@pytest.mark.parametrize(
    ("current", "end", "state", "ended"),
    [
        (["RUNNING"], 1100, "RUNNING", None),  # the end of the window that was asked for
        (["PENDING", "REQUEUED"], 1100, "REQUEUED", 1100.0),
        (["PENDING"], 0, "PENDING", None),
        ("COMPLETED", 1100, "COMPLETED", 1100.0),
    ],
)
def test_states_and_ends_agree(current: object, end: int, state: str, ended: float | None) -> None:
    time = RECORD["time"] | {"end": end}
    (one,) = read_kept({"jobs": [RECORD | {"state": {"current": current}, "time": time, "restart_cnt": 2}]}).attempts
    assert (one.state, one.end, one.restart) == (state, ended, 2)


def test_a_record_that_makes_no_sense_is_told_and_the_others_kept() -> None:
    told = read_kept({"jobs": [{"name": "x"}, RECORD, "x", RECORD | {"nodes": "n[1"}]})
    assert len(told.attempts) == 1 and len(told.unread) == 3
    assert read_kept({}).attempts == () == read_kept(None).attempts


def test_the_whole_times_of_a_job_are_asked_for_and_not_those_of_the_window() -> None:
    server = Slurmrestd(kept=[RECORD])
    rest = SlurmRest("http://head:6820", Tokens(None, None, lambda: 0.0), send=server.send)
    server.tokens = {""}
    accounts = KeptByRest(rest)
    assert accounts.kept() and [a.job for a in accounts.attempts(900.0, 2000.0).attempts] == ["1207"]
    assert [a.job for a in accounts.of_jobs(["1207"]).attempts] == ["1207"] and accounts.outages(0.0, 1.0) == []
    asked = server.asked[-2][1]
    for said in ("start_time=900", "end_time=2000", "show_duplicates=true", "disable_truncate_usage_time=true"):
        assert said in asked
    server.kept = None
    assert not accounts.kept()


SINFO = """\
AVAIL|FEATURES|GRES |STATE|REASON |USER|PARTITION |NODELIST |STATE |VERSION
up|h100,ib|gpu:h100:8(S:0-1) |drain*|disk swap |ada(1000)|train* |n1 |drained* |24.11.5
up|h100,ib|gpu:h100:8 |drain*|disk swap |ada(1000)|debug |n1 |drained* |24.11.5
up|h100|gpu:h100:8 |mix-|none |Unknown|train* |n[2-3] |mixed- |N/A |
"""


def test_a_table_of_sinfo_is_one_record_a_node() -> None:
    one, two, three = parse_sinfo(SINFO, 5.0)
    assert (one.name, one.state, one.flags) == ("n1", "idle", frozenset({"DRAIN", "NOT_RESPONDING"}))
    assert (one.reason, one.reason_owner, one.partitions) == ("disk swap", "ada", ("train", "debug"))
    assert (one.expected_gpus, one.model, one.labels) == (8, "h100", {"features": "h100,ib", "slurm": "24.11.5"})
    assert (two.name, three.name, two.state, two.flags) == ("n2", "n3", "mixed", frozenset({"PLANNED"}))
    assert two.reason == "" and two.read_at == 5.0 and parse_sinfo("", 0.0) == []
    with pytest.raises(RecordError, match="no header"):
        parse_sinfo("1|2\n3|4\n", 0.0)
