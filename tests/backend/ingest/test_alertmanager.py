"""Alerts of another system: each one event, the same ones once, on the node that it names."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.ingest.alertmanager import alerts_batch
from backend.ingest.base import SourceError

NOW = 1_772_366_400.0
FIRING = {
    "status": "firing",
    "labels": {"alertname": "NodeFilesystemFull", "instance": "gpu-0412:9100", "severity": "critical", "job": "node"},
    "annotations": {"summary": "/scratch of gpu-0412 is 99 % full"},
    "startsAt": "2026-03-01T11:59:00Z",
    "endsAt": "0001-01-01T00:00:00Z",
    "generatorURL": "http://prometheus:9090/graph",
    "fingerprint": "c4a2f1f1d9e2a7b3",
}
RESOLVED = {**FIRING, "status": "resolved", "endsAt": "2026-03-01T11:59:30Z"}


def posted(*alerts: Any) -> bytes:
    head = {"version": "4", "groupKey": '{}:{alertname="x"}', "truncatedAlerts": 0, "receiver": "watchkeeper"}
    return json.dumps({**head, "status": "firing", "notification_reason": "new", "alerts": list(alerts)}).encode()


def read(body: bytes) -> Any:
    return alerts_batch(body, NOW, {"gpu-0412", "gpu-0413"}.__contains__)


def test_an_alert_is_one_event_of_the_node_that_it_names() -> None:
    batch, rejects = read(posted(FIRING))
    event = batch.events[0]
    assert not rejects
    assert (event.host, event.namespace, event.code, event.job) == ("gpu-0412", "alert", "firing", "")
    assert (event.at, event.text) == (NOW - 60.0, "/scratch of gpu-0412 is 99 % full")
    assert (event.attrs["alert"], event.attrs["severity"]) == ("NodeFilesystemFull", "critical")


def test_a_repeat_is_the_same_and_its_end_is_another() -> None:
    first, again, end = (read(posted(each))[0].events[0] for each in (FIRING, {**FIRING, "annotations": {}}, RESOLVED))
    assert first.dedupe == again.dedupe != end.dedupe
    assert (end.code, end.at) == ("resolved", NOW - 30.0)
    assert first.attrs["fingerprint"] == end.attrs["fingerprint"]


def test_one_that_began_long_ago_is_news_when_it_first_comes() -> None:
    event = read(posted({**FIRING, "startsAt": "2026-02-20T11:59:00Z"}))[0].events[0]
    assert event.at == NOW and event.attrs["began"] == "1771588740.000"


@pytest.mark.parametrize(
    ("labels", "host"),
    [
        ({"node": "gpu-0413", "instance": "gpu-0412:9100"}, "gpu-0413"),
        ({"hostname": "gpu-0412.example.org"}, "gpu-0412"),
        ({"instance": "prometheus-0:9090"}, ""),
        ({}, ""),
    ],
)
def test_only_a_node_that_is_ours_is_named(labels: dict[str, str], host: str) -> None:
    event = read(posted({**FIRING, "labels": {"alertname": "X", **labels}}))[0].events[0]
    assert event.host == host


def test_our_own_alerts_sent_back_open_nothing() -> None:
    ours = {**FIRING, "labels": {"alertname": "WatchkeeperGpuBusLoss", "incident": "812"}}
    batch, _ = read(posted(ours, FIRING))
    assert len(batch.events) == 1 and batch.dropped == {"alerts of our own": 1}


def test_a_bad_alert_is_named_and_the_others_are_kept() -> None:
    batch, rejects = read(posted({"labels": {"alertname": 7}}, FIRING, {"labels": {}}, "x"))
    assert len(batch.events) == 1
    assert [reject.row for reject in rejects] == [0, 2, 3]


@pytest.mark.parametrize("body", [b"", b"not json", b"{}", b'{"alerts": 7}', b"7"])
def test_what_holds_no_alerts_is_refused_whole(body: bytes) -> None:
    with pytest.raises(SourceError) as raised:
        read(body)
    assert raised.value.permanent


JSON = st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=8), lambda x: st.lists(x, max_size=3) | st.dictionaries(st.sampled_from([*FIRING, "a"]), x, max_size=4), max_leaves=12)  # fmt: skip  # noqa: E501


@settings(max_examples=80, deadline=None)
@given(st.lists(JSON, max_size=4))
def test_any_json_is_read_or_named(alerts: list[Any]) -> None:
    try:
        batch, rejects = read(posted(*alerts))
    except SourceError:
        return
    assert len(batch.events) + len(rejects) + batch.dropped.get("alerts of our own", 0) == len(alerts)
