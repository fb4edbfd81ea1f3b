"""Pushed job records."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.facts import AttemptFacts
from backend.ingest.base import SourceError
from backend.ingest.jobs import jobs_batch
from backend.ingest.rows import Reject

NOW = 1_770_000_000.0


def pushed(*rows: Any) -> tuple[tuple[AttemptFacts, ...], tuple[Reject, ...]]:
    batch, rejects = jobs_batch(json.dumps(rows).encode(), "application/json", NOW)
    assert batch.start == batch.end == NOW
    return batch.attempts, rejects


def row(**more: Any) -> dict[str, Any]:
    return {"job": "77", "state": "RUNNING", "start": NOW - 60, "nodes": ["gpu-0001"], **more}


def test_a_row_is_an_attempt() -> None:
    (attempt,), rejects = pushed(
        row(
            restart=2,
            name="pretrain-01",
            user="hana",
            submit="2026-02-02T02:30:00Z",
            eligible=NOW - 90,
            end=None,
            nodes="gpu-[0001-0003]",
            gpus_per_node=8,
            excluded=["gpu-0009"],
        )
    )
    assert attempt == AttemptFacts(
        job="77",
        restart=2,
        run="pretrain-01",
        user="hana",
        state="RUNNING",
        submit=1_769_999_400.0,
        eligible=NOW - 90,
        start=NOW - 60,
        nodes=("gpu-0001", "gpu-0002", "gpu-0003"),
        gpus_per_node=8,
        excluded=("gpu-0009",),
        name="pretrain-01",
    )
    assert not rejects


def test_what_else_a_scheduler_knows_of_an_attempt() -> None:
    (attempt, long), rejects = pushed(
        row(
            gpus={"gpu-0002": [3, 0, 0], "gpu-0001": [1]},
            roles={"gpu-0001": "stage-3"},
            unit="s2A",
            array="1200_7",
            exit_code=1,
            signal=0,
            limit_s=3600,
            outputs=["/home/a/7.out"],
            reason="Node\nDown",
        ),
        row(reason="x" * 10_000, outputs=None, gpus={"bad name": [1]}),
        row(reason="x" * 10_000, dependency=None),
    )
    assert attempt.gpus == (("gpu-0001", (1,)), ("gpu-0002", (0, 3))) and attempt.roles == (("gpu-0001", "stage-3"),)
    assert (attempt.unit, attempt.array, attempt.exit_code, attempt.signal) == ("s2A", "1200_7", 1, None)
    assert (attempt.limit_s, attempt.outputs, attempt.reason) == (3600.0, (), "NodeDown"), (
        "paths are not taken from pushes"
    )
    assert len(long.reason) == 4096 and [reject.row for reject in rejects] == [1]


def test_run_and_name_mean_the_same() -> None:
    (one, two), _ = pushed(row(run="a"), row(name="a"))
    assert one.run == two.run == "a"


def test_states_come_as_slurm_prints_them() -> None:
    (one, two), _ = pushed(row(state="CANCELLED by 1000"), row(state="completed"))
    assert (one.state, two.state) == ("CANCELLED", "COMPLETED")


def test_a_waiting_job_has_no_nodes_and_no_times() -> None:
    (attempt,), _ = pushed({"job": 77, "state": "PENDING", "start": None, "end": "", "nodes": None})
    assert (attempt.job, attempt.start, attempt.end, attempt.nodes) == ("77", None, None, ())


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ({"job": ""}, "job"),
        ({"job": None}, "job"),
        ({"job": "7" * 300}, "job"),
        ({"restart": -1}, "restart"),
        ({"restart": "1"}, "restart"),
        ({"restart": 2**40}, "restart"),
        ({"state": "DANCING"}, "state"),
        ({"state": ""}, "state"),
        ({"start": "soon"}, "start"),
        ({"start": NOW, "end": NOW - 1}, "row"),
        ({"nodes": "gpu-[1-"}, "nodes"),
        ({"nodes": "gpu-[1-99999999]"}, "nodes"),
        ({"nodes": [1, 2]}, "nodes"),
        ({"nodes": ["gpu 1"]}, "nodes"),
        ({"nodes": {"a": 1}}, "nodes"),
        ({"excluded": ["x\n"]}, "excluded"),
        ({"gpus_per_node": 1e9}, "gpus_per_node"),
    ],
)
def test_a_bad_row_is_named_and_its_neighbours_are_kept(bad: dict[str, Any], field: str) -> None:
    attempts, (reject,) = pushed(row(), row() | bad, row(job="78"))
    assert [attempt.job for attempt in attempts] == ["77", "78"]
    assert (reject.row, reject.field) == (1, field) and reject.problem


def test_a_row_without_a_job_says_so() -> None:
    _, (reject,) = pushed({"state": "RUNNING"})
    assert (reject.field, reject.problem) == ("job", "Field required")


def test_a_body_that_is_no_list_is_refused() -> None:
    with pytest.raises(SourceError):
        jobs_batch(b"[{", "application/json", NOW)


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["job", "restart", "state", "nodes", "start", "end", "excluded", "user"]),
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63)
        | st.floats(-1e18, 1e18)
        | st.text(max_size=12)
        | st.just([{}]),
    )
)
def test_nothing_in_a_row_raises(bad: dict[str, Any]) -> None:
    attempts, rejects = pushed(row() | bad, row())
    assert len(attempts) + len(rejects) == 2


def test_what_has_happened_does_not_lie_in_the_future_but_what_is_expected_may() -> None:
    later = NOW + 86_400
    rows = [
        {"job": "1", "state": "PENDING", "submit": later},
        {"job": "2", "state": "RUNNING", "submit": NOW, "start": later},
        {"job": "3", "state": "FAILED", "submit": NOW, "start": NOW, "end": later},
        {"job": "4", "state": "PENDING", "submit": NOW, "eligible": later, "start": later},
        {"job": "5", "state": "RUNNING", "submit": NOW, "start": NOW, "end": later},
    ]
    found, rejects = jobs_batch(json.dumps(rows).encode(), "application/json", NOW)
    assert [attempt.job for attempt in found.attempts] == ["4", "5"]
    assert [(reject.row, reject.field) for reject in rejects] == [(0, "submit"), (1, "start"), (2, "end")]
    assert found.dropped == {"rows that could not be read": 3}
