"""Pushed log lines: hits become events, the rest is counted, and nothing broken costs its neighbours."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.facts import Batch
from backend.ingest.base import SourceError
from backend.ingest.logs import MAX_AHEAD_S, JobTails, LogRow, logs_batch, read_rows
from backend.ingest.rows import Rows
from detectors.kernel.lines import parse

NOW = 1_770_000_000.0
XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid=1234, name=python3, GPU has fallen off the bus."


def row(line: str = XID, **more: Any) -> dict[str, Any]:
    return {"ts": NOW - 1, "host": "gpu-0001", "source": "kernel", "line": line, **more}


def pushed(*rows: Any, content_type: str = "application/json") -> Rows[LogRow]:
    return read_rows(json.dumps(rows).encode(), content_type, NOW)


def batch(found: Rows[LogRow], tails: JobTails | None = None) -> Batch:
    return logs_batch(found, NOW, parse, tails)


def test_a_line_that_a_rule_hits_is_an_event() -> None:
    (event,) = batch(pushed(row(job="77", rank=3))).events
    assert (event.at, event.host, event.namespace, event.code) == (NOW - 1, "gpu-0001", "xid", "79")
    assert (event.pci, event.job) == ("0000:9b:00", "77")
    assert event.attrs["source"] == "kernel" and event.attrs["rank"] == "3"
    assert event.text == XID


def test_json_lines_are_taken_as_well_as_an_array() -> None:
    lines = b"\n".join(orjson.dumps(row()) for _ in range(3)) + b"\n\n"
    for content_type in ("application/x-ndjson", "application/json", "text/plain", ""):
        assert len(read_rows(lines, content_type, NOW).rows) == 3


def test_the_same_line_said_twice_has_one_key() -> None:
    one, two, later = batch(pushed(row(), row(), row(ts=NOW - 2))).events
    assert one.dedupe == two.dedupe != later.dedupe


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ({"ts": "yesterday"}, "ts"),
        ({"ts": True}, "ts"),
        ({"ts": None}, "ts"),
        ({"ts": (NOW - 1) * 1000}, "ts"),
        ({"ts": NOW + MAX_AHEAD_S + 1}, "ts"),
        ({"ts": "2026-03-01T12:00:00"}, "ts"),
        ({"host": ""}, "host"),
        ({"host": 7}, "host"),
        ({"host": "gpu 1"}, "host"),
        ({"host": "gpu-1\n"}, "host"),
        ({"host": "g" * 256}, "host"),
        ({"host": "-rf"}, "host"),
        ({"source": None}, "source"),
        ({"line": 5}, "line"),
        ({"line": ["x"]}, "line"),
        ({"job": {"id": 1}}, "job"),
        ({"job": "7\n8"}, "job"),
    ],
)
def test_a_bad_row_is_named_and_its_neighbours_are_kept(bad: dict[str, Any], field: str) -> None:
    found = pushed(row(), row() | bad, row())
    assert len(found.rows) == 2 and found.rejected == 1
    (reject,) = found.rejects
    assert (reject.row, reject.field) == (1, field)
    assert reject.problem


@pytest.mark.parametrize("bad", [5, "line", None, [], {}])
def test_what_is_no_row_is_named(bad: object) -> None:
    found = pushed(row(), bad)
    assert len(found.rows) == 1 and found.rejects[0].row == 1


def test_a_job_given_as_a_number_is_taken() -> None:
    assert pushed(row(job=727751)).rows[0].job == "727751"


def test_times_are_taken_in_both_forms() -> None:
    assert pushed(row(ts="2026-02-02T02:39:59Z")).rows[0].ts == 1_769_999_999.0


@pytest.mark.parametrize("body", [b"", b"  \n ", b"[1, 2", b"[" * 5000, b'[{"ts": NaN}]'])
def test_a_body_that_cannot_be_read_at_all_is_refused(body: bytes) -> None:
    with pytest.raises(SourceError) as caught:
        read_rows(body, "application/json", NOW)
    assert caught.value.permanent and "Traceback" not in str(caught.value)


def test_a_broken_line_costs_only_itself() -> None:
    body = orjson.dumps(row()) + b'\n{"ts": 17700000\n' + orjson.dumps(row())
    found = read_rows(body, "application/x-ndjson", NOW)
    assert len(found.rows) == 2
    assert found.rejects[0].row == 1 and "JSON" in found.rejects[0].problem


def test_bytes_that_are_no_utf8_are_replaced_and_counted() -> None:
    latin = orjson.dumps(row(XID + " temp 80 \u00b0C")).replace("\u00b0".encode(), b"\xb0")
    found = read_rows(orjson.dumps(row()) + b"\n" + latin, "application/x-ndjson", NOW)
    assert found.replaced == 1
    made = batch(found)
    assert len(made.events) == 2 and "\ufffd" in made.events[1].text
    assert made.dropped == {"rows with bytes that are no UTF-8": 1}
    assert read_rows(b"[" + latin + b"]", "application/json", NOW).replaced == 1


def test_a_ten_megabyte_line_is_cut_and_counted() -> None:
    made = batch(pushed(row("x" * 10_000_000), row()))
    assert len(made.events) == 1
    assert made.dropped == {"lines cut to the longest that is looked at": 1}


def test_a_nul_never_reaches_the_database() -> None:
    (event,) = batch(pushed(row("\0" + XID))).events
    assert "\0" not in event.text and event.code == "79"


def test_a_record_of_the_kernel_that_is_sent_again_under_another_time_is_the_same_event() -> None:
    record = "4,1023,5140900,-;" + XID
    first, again, other = (
        batch(pushed(row(line, ts=at))).events[0]
        for line, at in ((record, NOW - 900), (record, NOW - 1), (record.replace("1023", "1024"), NOW - 1))
    )
    assert first.dedupe == again.dedupe != other.dedupe
    banner = "5,0,0,-;Linux version 5.15.0-91-generic (build@host) (gcc 11.4.0) #101 SMP"
    boots = [batch(pushed(row(banner, ts=at))).events[0].dedupe for at in (NOW - 900, NOW - 1)]
    assert boots[0] != boots[1], "the first record of two boots is two boots"


def test_a_message_of_several_lines_tells_each_of_its_codes() -> None:
    found = batch(pushed(row(XID + "\n\n" + XID.replace(" 79", " 45") + "\nsomething else"), row()))
    assert [event.code for event in found.events] == ["79", "45", "79"]
    assert len({event.dedupe for event in found.events}) == 2, "the first line is the same event as the second row"


def test_at_most_a_hundred_bad_rows_are_described_and_all_are_counted() -> None:
    found = pushed(*[5] * 1000)
    assert found.rejected == 1000 and len(found.rejects) == 100
    assert batch(found).dropped == {"rows that could not be read": 1000}


def test_an_old_line_is_taken_with_its_own_time() -> None:
    """Whoever stores it marks it late by its arrival; here it must only not be lost or redated."""
    (event,) = batch(pushed(row(ts=NOW - 7200))).events
    assert event.at == NOW - 7200


# --- tails -----------------------------------------------------------------------------------------------------------


def test_other_lines_are_counted_and_kept_for_their_job() -> None:
    tails = JobTails()
    made = batch(pushed(row("step 1", job="7"), row("step 2", job="7"), row("no job"), row()), tails)
    assert len(made.events) == 1
    assert tails.lines == 3 and tails.tail("7") == ("step 1", "step 2") and tails.tail("8") == ()


def test_tails_are_bounded_in_lines_bytes_and_jobs() -> None:
    tails = JobTails(most_lines=200, most_bytes=1000, most_jobs=3)
    for n in range(500):
        tails.add("7", f"line {n}")
    assert tails.tail("7")[-1] == "line 499" and sum(len(x) for x in tails.tail("7")) <= 1000
    tails.add("7", "\u00e9" * 5000)
    assert sum(len(x.encode()) for x in tails.tail("7")) <= 1000
    for job in ("8", "9", "10"):
        tails.add(job, "x")
    assert len(tails) == 3 and tails.tail("7") == () and tails.forgotten_jobs == 1


# --- properties ------------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(["application/json", "application/x-ndjson"]))
def test_no_body_raises_anything_but_a_source_error(body: bytes, content_type: str) -> None:
    for tried in (body, b"[" + body + b"]", orjson.dumps(row()) + b"\n" + body):
        try:
            batch(read_rows(tried, content_type, NOW))
        except SourceError as error:
            assert error.permanent


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {}, optional={name: json_values for name in ("ts", "host", "source", "line", "job", "rank")}
        ),
        max_size=5,
    )
)
def test_every_row_is_kept_or_named(rows: list[dict[str, Any]]) -> None:
    rows.append(row())
    found = pushed(*rows)
    assert len(found.rows) + found.rejected == len(rows)
    assert {*found.places, *(r.row for r in found.rejects)} == set(range(len(rows)))
    assert batch(found).events[-1].code == "79"


def test_what_a_job_prints_is_never_the_kernels_word() -> None:
    assert batch(pushed(row(source="job", job="77"), row(source="stderr", job="77"))).events == ()


@pytest.mark.parametrize(
    "source", ["STDOUT", "Job", "trainer", "pytorch-worker-3", "/home/lena/slurm-77.out", "python3"]
)
def test_a_job_is_not_taken_for_the_kernel_under_any_name_of_its_output(source: str) -> None:
    found = batch(pushed(row(source=source, job="77")))
    assert not found.events and [line.text for line in found.printed] == [XID]


@pytest.mark.parametrize(
    "source", ["kernel", "dmesg", "/var/log/kern.log", "syslog", "journal", "nv-fabricmanager", "Kernel"]
)
def test_a_machine_is_heard_though_a_collector_adds_the_job_that_ran(source: str) -> None:
    assert [event.code for event in batch(pushed(row(source=source, job="77"))).events] == ["79"]


def test_a_loss_that_the_driver_prints_over_several_lines_is_one_event_with_its_gpu() -> None:
    parts = (
        "NVRM: The NVIDIA GPU 0000:9b:00.0",
        "NVRM: (PCI ID: 10de:2330) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
    )
    (event,) = batch(pushed(*(row(line=part) for part in parts))).events
    assert event.pci == "0000:9b:00"


@pytest.mark.parametrize("body", [b"[" + b"0," * 260_000 + b"0]", b"0\n" * 260_000], ids=["array", "lines"])
def test_a_body_of_more_rows_than_anybody_sends_is_refused_whole(body: bytes) -> None:
    with pytest.raises(SourceError, match="at most 250,000") as raised:
        read_rows(body, "application/json", NOW)
    assert raised.value.permanent


def test_lines_of_slurms_daemons_are_events_of_the_nodes_they_are_about() -> None:
    rows = [
        {"ts": 1_772_366_400.0, "host": "head", "source": "slurmctld", "line": "error: Nodes n[1-2] not responding"},
        {"ts": 1_772_366_401.0, "host": "n3", "source": "slurmd", "line": "error: [job 77] prolog failed status=1:0"},
        {"ts": 1_772_366_402.0, "host": "head", "source": "slurmctld", "line": "sched: Allocate JobId=7 NodeList=n1"},
    ]
    body = b"\n".join(json.dumps(row).encode() for row in rows)
    batch = logs_batch(read_rows(body, "application/x-ndjson", 1_772_366_400.0), 1_772_366_400.0, lambda line: None)
    assert [(e.host, e.namespace, e.code, e.job) for e in batch.events] == [
        ("n1", "slurm", "node_not_responding", ""),
        ("n2", "slurm", "node_not_responding", ""),
        ("n3", "slurm", "prolog_failed", "77"),
    ]
