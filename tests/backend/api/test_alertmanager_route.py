"""Alerts of another system over REST: kept once, seen by the detectors, over when they are resolved."""

from __future__ import annotations

from datetime import timedelta

from fastapi.testclient import TestClient

from backend import pipeline
from tests.backend.api.conftest import NOW, Site, problem
from tests.backend.api.rows import a_node

ROUTE = "/api/v1/ingest/alertmanager"
ALERT = {
    "status": "firing",
    "labels": {"alertname": "NodeFilesystemFull", "node": "gpu-001", "severity": "critical"},
    "annotations": {"summary": "/scratch of gpu-001 is full"},
    "startsAt": NOW.isoformat(),
    "endsAt": "0001-01-01T00:00:00Z",
    "fingerprint": "c4a2f1f1d9e2a7b3",
}


def posted(*alerts: object) -> dict[str, object]:
    return {"version": "4", "status": "firing", "alerts": list(alerts)}


def test_an_alert_is_kept_once_opens_an_incident_and_excludes_nobody(site: Site, local: TestClient) -> None:
    a_node(site)
    first, again = (local.post(ROUTE, json=posted(ALERT)).json() for _ in range(2))
    assert (first["accepted"], again["accepted"], again["duplicates"]) == (1, 0, 1)
    pipeline.observe(site.watch)
    found = local.get("/api/v1/incidents").json()["items"]
    assert [(one["kind"], one["severity"]) for one in found] == [("outside_alert", "high")]
    assert "NodeFilesystemFull" in found[0]["headline"]
    assert local.get("/api/v1/exclusions").json()["items"] == []


def test_a_body_without_alerts_is_refused_in_words(local: TestClient) -> None:
    assert "alerts" in problem(local.post(ROUTE, json={"status": "firing"}), 400)["detail"]
    assert "labels.alertname" in problem(local.post(ROUTE, json=posted({"labels": {}})), 422)["detail"]


def test_an_alert_without_its_times_fires_again_after_its_end_and_a_repeat_is_none(
    site: Site, local: TestClient
) -> None:
    a_node(site)
    fires = {name: value for name, value in ALERT.items() if name not in ("startsAt", "endsAt")}
    ends = {**fires, "status": "resolved"}
    told = [fires, fires, ends, ends, fires, fires, ends, fires]
    found = [local.post(ROUTE, json=posted(each)).json() for each in told]
    assert [one["accepted"] for one in found] == [1, 0, 1, 0, 1, 0, 1, 1]
    both = local.post(ROUTE, json=posted(ends, fires)).json()
    assert both["accepted"] == 2
    hold = timedelta(seconds=site.watch.catalogue.limit("alert_hold_s") + 60)
    site.clock.set(site.clock.now() + hold)
    assert local.post(ROUTE, json=posted(fires)).json()["accepted"] == 1, "what stood before stands no more"
