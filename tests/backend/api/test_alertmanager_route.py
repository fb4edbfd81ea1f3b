"""Alerts of another system over REST: kept once, seen by the detectors, over when they are resolved."""

from __future__ import annotations

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
