"""OTLP: what an exporter sends as JSON or as protobuf is read as the same rows."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.ingest import otlp
from backend.ingest.base import SourceError
from backend.ingest.otlp import PROTOBUF, answer, log_rows, logs_of, metrics_of, steps_of
from tests.backend.ingest.packing import chunk, fixed, pair

NOW = 1_772_366_500.0
T = 1_772_366_400
JSON = "application/json"
TEXT = """{"resourceMetrics": [{"resource": {"attributes": [
  {"key": "service.name", "value": {"stringValue": "atlas"}}, {"key": "slurm.job.id", "value": {"intValue": "7"}},
  {"key": "host.name", "value": {"stringValue": "gpu-1"}}, {"key": "rank", "value": {"intValue": 3}}]},
  "scopeMetrics": [{"metrics": [
    {"name": "train/loss", "gauge": {"dataPoints": [{"timeUnixNano": "@000000000", "asDouble": 2.5,
      "attributes": [{"key": "step", "value": {"intValue": "12"}}]}]}},
    {"name": "tokens", "sum": {"dataPoints": [{"timeUnixNano": "@000000000", "asInt": "4096",
      "attributes": [{"key": "step", "value": {"intValue": "12"}}]}]}},
    {"name": "latency", "histogram": {"dataPoints": [{}]}}]}]}]}""".replace("@", str(T))


def packed() -> bytes:
    resource = b"".join(
        chunk(1, pair(k, v))
        for k, v in (("service.name", "atlas"), ("slurm.job.id", 7), ("host.name", "gpu-1"), ("rank", 3))
    )
    at, step = fixed(3, struct.pack("<Q", T * 10**9)), chunk(7, pair("step", 12))
    loss = chunk(1, b"train/loss") + chunk(5, chunk(1, at + fixed(4, struct.pack("<d", 2.5)) + step))
    tokens = chunk(1, b"tokens") + chunk(7, chunk(1, at + fixed(6, struct.pack("<q", 4096)) + step))
    other = chunk(1, b"latency") + chunk(9, chunk(1, b""))
    scope = b"".join(chunk(2, metric) for metric in (loss, tokens, other))
    return chunk(1, chunk(1, resource) + chunk(2, scope))


@pytest.mark.parametrize(("body", "kind"), [(TEXT.encode(), JSON), (packed(), PROTOBUF)])
def test_an_export_is_one_row_a_step(body: bytes, kind: str) -> None:
    points, others = metrics_of(body, kind)
    taken = steps_of(points, NOW, others)
    (row,) = taken.rows
    assert (row.at, row.run, row.job, row.step, row.rank) == (T, "atlas", "7", 12, 3)
    assert row.attrs == {"host": "gpu-1", "train/loss": 2.5, "tokens": 4096.0}
    assert +taken.dropped == {otlp.OTHER: 1}


def test_the_step_may_be_a_metric_of_its_own() -> None:
    who = {"run": "r", "rank": "0"}
    points = [otlp.Point("loss", T, 2.0, who), otlp.Point("global_step", T, 40.0, who), otlp.Point("loss", T, 1.0, {})]
    taken = steps_of(points, NOW)
    assert [(row.step, row.attrs) for row in taken.rows] == [(40, {"loss": 2.0})]
    assert +taken.dropped == {otlp.NO_RUN: 1}


def test_log_records_become_rows_of_a_log() -> None:
    text = ('{"resourceLogs": [{"resource": {"attributes": [{"key": "host.name", "value": {"stringValue": "gpu-1"}},'
            '{"key": "job", "value": {"stringValue": "7"}}]}, "scopeLogs": [{"logRecords": [{"timeUnixNano": '
            f'"{T}000000000", "body": {{"stringValue": "iter 5: loss 2.0"}}}}]}}]}}]}}')  # fmt: skip
    record = fixed(1, struct.pack("<Q", T * 10**9)) + chunk(5, chunk(1, b"iter 5: loss 2.0"))
    resource = chunk(1, pair("host.name", "gpu-1")) + chunk(1, pair("job", "7"))
    binary = chunk(1, chunk(1, resource) + chunk(2, chunk(2, record)))
    for body, kind in ((text.encode(), JSON), (binary, PROTOBUF)):
        (row,) = log_rows(logs_of(body, kind))
        assert row == {"ts": T, "host": "gpu-1", "source": "otlp", "line": "iter 5: loss 2.0", "job": "7"}


def test_what_was_rejected_is_said_in_the_language_of_the_request() -> None:
    assert answer(0, "", PROTOBUF, "DataPoints") == (b"", PROTOBUF)
    assert answer(3, "no step", JSON, "DataPoints")[0] == {
        "partialSuccess": {"rejectedDataPoints": "3", "errorMessage": "no step"}
    }
    assert answer(300, "x", PROTOBUF, "DataPoints")[0] == b"\n\x06\x08\xac\x02\x12\x01x"


@settings(max_examples=80, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 200))
def test_no_bytes_break_the_reading(noise: bytes, cut: int) -> None:
    for body in (noise, packed()[:cut] + noise):
        for read in (metrics_of, logs_of):
            for kind in (JSON, PROTOBUF):
                try:
                    read(body, kind)
                except SourceError as error:
                    assert error.permanent
