# ruff: noqa: E501 - documents of tools are as long as they are
"""Calls of communicators in every form that is taken; forms of tools are fixtures in their formats, written by us."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.ingest.base import SourceError
from backend.ingest.collectives import Whose, collectives_batch, operation
from backend.reported import ToldFacts

NOW = 1_772_366_500.0
T = NOW - 60.0


def taken(document: object, **whose: Any) -> tuple[ToldFacts, ...]:
    batch, rejects = collectives_batch(orjson.dumps(document), NOW, Whose(**whose))
    assert rejects == ()
    return batch.told


def test_a_row_of_our_own_keeps_what_it_says() -> None:
    row = {"ts": T, "run": "r", "comm": "dp", "op": "AllReduce", "seq": 7, "rank": 3, "ranks": 8, "host": "gpu-1",
           "bytes": 4096, "start": T - 1.5, "end": T, "src": 3, "dst": 4}  # fmt: skip
    (one,) = taken([row])
    assert (one.namespace, one.code, one.rank, one.host) == ("collective", "all_reduce", 3, "gpu-1")
    assert one.attrs == {"comm": "dp", "seq": "7", "ranks": "8", "src": "3", "dst": "4", "bytes": "4096.0",
                         "start": repr(T - 1.5), "end": repr(T)}  # fmt: skip


def test_a_line_of_nccl_inspector() -> None:
    told = {
        "header": {"id": "0x7f8c496ae9f661", "rank": 2, "n_ranks": 8, "nnodes": 1},
        "metadata": {
            "inspector_output_format_version": "v4.0",
            "dump_timestamp_us": T * 1e6,
            "hostname": "gpu-1",
            "pid": 9,
        },
        "coll_perf": {
            "coll": "AllReduce",
            "coll_sn": 1407,
            "coll_msg_size_bytes": 17179869184,
            "coll_exec_time_us": 61974,
        },
    }
    (one,) = taken(told, run="r")
    assert (one.code, one.rank, one.host, one.attrs["seq"], one.attrs["ranks"]) == (
        "all_reduce",
        2,
        "gpu-1",
        "1407",
        "8",
    )
    assert float(one.attrs["end"]) - float(one.attrs["start"]) == pytest.approx(0.061974, abs=1e-6)


def test_ranks_that_are_ahead_in_ras_wait_for_those_behind() -> None:
    ranks = [
        {"rank": n, "host": "gpu-1", "collective_counts": {"AllReduce": 41 + (n != 2), "Broadcast": 0}}
        for n in range(4)
    ]
    found = taken({"nccl_version": "2.28.3", "communicators": [{"hash": "0xab", "size": 4, "ranks": ranks}]}, job="7")
    assert [(one.rank, one.attrs["seq"], "end" in one.attrs) for one in found] == [
        (0, "42", False), (1, "42", False), (2, "41", True), (3, "42", False),
    ]  # fmt: skip


def test_a_flight_recorder_tells_what_is_done_and_what_is_not() -> None:
    entry = {"pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": 5, "profiling_name": "nccl:all_reduce",
             "time_created_ns": int(T * 1e9), "input_sizes": [[3, 4]], "input_dtypes": ["Float"], "state": "completed",
             "time_discovered_started_ns": int(T * 1e9) + 10**9, "time_discovered_completed_ns": int(T * 1e9) + 3 * 10**9,
             "duration_ms": 500.0, "is_p2p": False}  # fmt: skip
    waits = {**entry, "collective_seq_id": 6, "state": "scheduled", "time_discovered_completed_ns": None}
    sends = {**entry, "is_p2p": True, "p2p_seq_id": 2, "profiling_name": "nccl:send 0->1"}
    whole = {"version": "2.10", "pg_config": {"0": {"name": "0", "ranks": [0, 1, 2]}}, "entries": [entry, waits, sends]}
    done, stuck, sent = taken(whole, run="r", rank=1)
    assert (done.rank, done.attrs["ranks"], done.attrs["bytes"]) == (1, "3", "48.0")
    assert float(done.attrs["end"]) - float(done.attrs["start"]) == pytest.approx(0.5)
    assert "end" not in stuck.attrs
    assert (sent.code, sent.attrs["src"], sent.attrs["dst"], sent.attrs["seq"]) == ("send", "0", "1", "2")


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"ts": T, "rank": 1}, "row"),
        ({"ts": T, "run": "r"}, "row"),
        ({"ts": T, "run": "r", "rank": 1, "start": T, "end": T - 1}, "row"),
        ({"ts": NOW + 9_999, "run": "r", "rank": 1}, "ts"),
        ({"ts": T, "run": "r", "rank": -1}, "rank"),
    ],
)
def test_a_wrong_row_is_named_and_costs_itself(row: dict[str, Any], field: str) -> None:
    batch, (reject,) = collectives_batch(orjson.dumps([row, {"ts": T, "run": "r", "rank": 1}]), NOW, Whose())
    assert (reject.row, reject.field) == (0, field)
    assert len(batch.told) == 1


def test_nothing_is_no_body() -> None:
    with pytest.raises(SourceError, match="empty"):
        collectives_batch(b" ", NOW, Whose())


def test_one_operation_has_one_name() -> None:
    for name in ("AllReduce", "nccl:all_reduce", "ALL_REDUCE", "_allreduce", "ncclAllReduce"):
        assert operation(name) == "all_reduce", name
    assert operation("nccl:_reduce_scatter_base") == "reduce_scatter"


JSON = st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=9), lambda inner: st.lists(inner, max_size=3)
                    | st.dictionaries(st.sampled_from(["entries", "communicators", "ranks", "coll_perf", "header", "ts", "rank",
                                                       "collective_counts", "process_group", "input_sizes", "x"]), inner,
                                      max_size=4), max_leaves=20)  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(JSON)
def test_no_document_breaks_the_reading(document: object) -> None:
    collectives_batch(orjson.dumps(document), NOW, Whose("r", "", 0, ""))
