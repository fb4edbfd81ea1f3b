"""A real Alertmanager, both ways: it takes our incidents and ends them; what it sends of others becomes events once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import requests

from backend.ingest.alertmanager import alerts_batch
from backend.notify.alertmanager import AlertmanagerNotifier
from backend.settings import Alertmanager
from tests.backend.notify.story import CLOSED, HOSTILE, OPENED, hostile
from tests.services.alertmanager import alertmanager
from tests.services.http_sink import Receiver, http_sink
from tests.services.prometheus import until

pytestmark = pytest.mark.services
URL = "https://watchkeeper.example.com"
LOST = replace(OPENED, fault="gpu_bus_loss", node="gpu-0412", job="48213")
BACK = replace(CLOSED, fault="gpu_bus_loss", node="gpu-0412", job="48213")


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with http_sink() as running:
        yield running


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[str]:
    with alertmanager(tmp_path_factory.mktemp("alertmanager"), f"{receiver.url}/hook") as url:
        yield url


def notifier(url: str) -> AlertmanagerNotifier:
    return AlertmanagerNotifier(Alertmanager.model_validate({"urls": [url], "labels": {"team": "infra"}}), URL)


def standing(url: str, incident: int) -> list[dict[str, Any]]:
    alerts = requests.get(f"{url}/api/v2/alerts", params={"filter": f'incident="{incident}"'}, timeout=5).json()
    return [alert for alert in alerts if alert["status"]["state"] == "active"]


def test_an_incident_stands_there_told_twice_is_one_and_ends_when_it_closes(running: str) -> None:
    told = notifier(running)
    for _ in range(2):
        told.send(LOST)
    until(lambda: len(standing(running, 812)) == 1, 10)
    alert = standing(running, 812)[0]
    assert alert["labels"]["alertname"] == "WatchkeeperGpuBusLoss" and alert["labels"]["team"] == "infra"
    assert alert["generatorURL"] == f"{URL}/incidents/812"
    told.send(BACK)
    until(lambda: not standing(running, 812), 10)


@pytest.mark.parametrize("place", range(len(HOSTILE)))
def test_hostile_text_is_taken(running: str, place: int) -> None:
    number = 9000 + place
    notifier(running).send(replace(hostile(HOSTILE[place]), incident=number, node=HOSTILE[place], fault="x"))
    until(lambda: len(standing(running, number)) == 1, 10)


def test_what_it_sends_of_others_is_read_and_its_repeats_are_the_same(running: str, receiver: Receiver) -> None:
    began = datetime.now(UTC) - timedelta(seconds=5)
    alert = {
        "labels": {"alertname": "NodeFilesystemFull", "instance": "gpu-0412:9100", "severity": "critical"},
        "annotations": {"summary": "/scratch of gpu-0412 is full"},
        "startsAt": began.isoformat(),
    }
    ours = lambda: [r["raw"] for r in receiver.tape.rows if "NodeFilesystemFull" in r["raw"]]  # noqa: E731
    requests.post(f"{running}/api/v2/alerts", json=[alert], timeout=5).raise_for_status()
    until(lambda: bool(ours()), 15)
    over = {**alert, "endsAt": datetime.now(UTC).isoformat()}
    requests.post(f"{running}/api/v2/alerts", json=[over], timeout=5).raise_for_status()
    until(lambda: any('"resolved"' in raw for raw in ours()), 15)
    found = [alerts_batch(raw.encode(), time.time(), {"gpu-0412"}.__contains__)[0].events for raw in ours()]
    first, last = found[0][0], found[-1][0]
    assert (first.host, first.code, last.code) == ("gpu-0412", "firing", "resolved")
    assert first.attrs["fingerprint"] == last.attrs["fingerprint"]


def test_our_own_alerts_sent_back_are_left_out(running: str, receiver: Receiver) -> None:
    notifier(running).send(replace(LOST, incident=777))
    until(lambda: any('"777"' in row["raw"] for row in receiver.tape.rows), 15)
    raw = next(row["raw"] for row in receiver.tape.rows if '"777"' in row["raw"])
    assert alerts_batch(raw.encode(), time.time(), bool)[0].events == ()
