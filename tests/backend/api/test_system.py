"""Health, readiness, metrics and OpenAPI: every one documented, every one true."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient

from backend.api.system import FAMILIES
from backend.store import system
from tests.backend.api.conftest import NOW, Site, problem
from tests.backend.api.rows import a_plan, an_exclusion, an_incident

LINE = {"ts": NOW.timestamp(), "host": "gpu-001", "source": "kernel", "line": "NVRM: Xid (PCI:0000:9d:00): 79, lost."}


def test_healthz_answers_to_anybody_and_without_a_database(site: Site) -> None:
    assert site.client(("10.1.2.3", 1)).get("/healthz").json() == {"status": "ok"}


def test_readyz_says_which_loop_is_late(site: Site, local: TestClient) -> None:
    with site.parts.store.write() as session:
        system.beat_ok(session, "main", "loop", "observe", NOW, 0.01, {}, every_s=0.25)
    assert local.get("/readyz").json() == {"status": "ready", "late": []}
    site.clock.set(NOW + timedelta(minutes=2))
    assert problem(local.get("/readyz"), 503)["late"] == ["main/loop/observe"]


def samples(text: str) -> dict[str, float]:
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            assert re.fullmatch(r'[a-z_]+(\{([a-z]+="([^"\\]|\\.)*",?)*\})?', name), line
            found[name] = float(value)
    return found


def test_metrics_count_what_came_what_was_left_out_and_what_is_open(site: Site, local: TestClient) -> None:
    cluster = site.watch.cluster
    for _ in range(2):
        local.post("/api/v1/ingest/logs", json=[LINE, {"bad": 1}])
    a_plan(site, an_incident(site))
    an_exclusion(site)
    with site.parts.store.write() as session:
        counts = {"tick_at": NOW.timestamp() - 4, "late": 7, "findings": 3}
        system.beat_ok(session, cluster, "loop", "observe", NOW, 0.01, counts, every_s=0.25)
        system.beat_failed(session, cluster, "source", 'we"ird\n', NOW, "away")
    found = samples(local.get("/metrics").text)
    inside = f'cluster="{cluster}"'
    assert found[f"watchkeeper_ingest_events_total{{{inside}}}"] == 1
    assert found[f"watchkeeper_ingest_duplicates_total{{{inside}}}"] == 1
    assert sum(v for k, v in found.items() if k.startswith("watchkeeper_ingest_dropped_total")) == 2
    assert found[f'watchkeeper_open_incidents{{{inside},severity="critical"}}'] == 1
    assert found[f'watchkeeper_open_incidents{{{inside},severity="info"}}'] == 0
    assert found[f"watchkeeper_waiting_plans{{{inside}}}"] == 1
    assert found[f"watchkeeper_binding_exclusions{{{inside}}}"] == 1
    assert found[f"watchkeeper_late_samples_total{{{inside}}}"] == 7
    assert found[f"watchkeeper_tick_age_seconds{{{inside}}}"] == 4
    assert found["watchkeeper_up"] == 1 and found['watchkeeper_mode{mode="propose"}'] == 1


def test_every_metric_is_documented_and_named_as_prometheus_asks() -> None:
    for family in FAMILIES:
        assert family.name.startswith("watchkeeper_") and len(family.help) > 10
        assert (family.kind == "counter") == family.name.endswith("_total")


# --- OpenAPI --------------------------------------------------------------------------------------------------------


def operations(site: Site) -> list[tuple[str, str, dict[str, Any]]]:
    paths = site.app.openapi()["paths"]
    return [(path, method, what) for path, methods in paths.items() for method, what in methods.items()]


PROMISED = {
    ("GET", "/api/v1/nodes"),
    ("GET", "/api/v1/alerts"),
    ("GET", "/api/v1/alerts/preview"),
    ("POST", "/api/v1/alerts/{delivery_id}/send-again"),
    ("GET", "/api/v1/silences"),
    ("POST", "/api/v1/silences"),
    ("DELETE", "/api/v1/silences/{silence_id}"),
    ("GET", "/api/v1/nodes/{node}"),
    ("POST", "/api/v1/exclusions/query"),
    ("GET", "/api/v1/exclusions"),
    ("POST", "/api/v1/exclusions"),
    ("DELETE", "/api/v1/exclusions/{exclusion_id}"),
    ("PATCH", "/api/v1/exclusions/{exclusion_id}"),
    ("GET", "/api/v1/exclusions/ended"),
    ("GET", "/api/v1/advice"),
    ("POST", "/api/v1/k8s/filter"),
    ("POST", "/api/v1/k8s/prioritize"),
    ("GET", "/api/v1/incidents"),
    ("GET", "/api/v1/incidents/{incident_id}"),
    ("GET", "/api/v1/incidents/{incident_id}/findings"),
    ("POST", "/api/v1/incidents/{incident_id}/ack"),
    ("POST", "/api/v1/incidents/{incident_id}/resolve"),
    ("POST", "/api/v1/incidents/{incident_id}/notes"),
    ("GET", "/api/v1/orders"),
    ("GET", "/api/v1/orders/{order_id}"),
    ("POST", "/api/v1/orders/{order_id}/approve"),
    ("POST", "/api/v1/orders/{order_id}/reject"),
    ("POST", "/api/v1/orders/{order_id}/cancel"),
    ("POST", "/api/v1/orders/{order_id}/undo"),
    ("POST", "/api/v1/ingest/logs"),
    ("POST", "/api/v1/ingest/jobs"),
    ("POST", "/api/v1/ingest/alertmanager"),
    ("POST", "/api/v1/slack/actions"),
    ("POST", "/api/v1/ingest/topology"),
    ("POST", "/api/v1/ingest/remote-write"),
    ("POST", "/api/v1/ingest/wrap"),
    ("POST", "/api/v1/ingest/steps"),
    ("POST", "/api/v1/ingest/checkpoints"),
    ("POST", "/api/v1/ingest/collectives"),
    ("POST", "/api/v1/ingest/otlp/v1/metrics"),
    ("POST", "/api/v1/ingest/otlp/v1/logs"),
    ("GET", "/api/v1/settings"),
    ("GET", "/api/v1/hardware"),
    ("GET", "/api/v1/checks"),
    ("GET", "/api/v1/backtests"),
    ("GET", "/api/v1/backtests/{number}"),
    ("POST", "/api/v1/backtests"),
    ("POST", "/api/v1/backtests/{number}/cancel"),
    ("POST", "/api/v1/backtests/{number}/adopt"),
    ("POST", "/api/v1/backtests/{number}/withdraw"),
    ("GET", "/api/v1/me"),
    ("GET", "/api/v1/runs"),
    ("GET", "/api/v1/runs/{run}"),
    ("GET", "/api/v1/reliability"),
    ("GET", "/api/v1/lemons"),
    ("GET", "/api/v1/reliability/report"),
    ("GET", "/api/v1/rollups"),
    ("GET", "/api/v1/planner"),
    ("GET", "/api/v1/planner/choice"),
    ("GET", "/api/v1/planner/tiers"),
    ("GET", "/api/v1/export/{table}"),
    ("GET", "/api/v1/jobs/{job}/reports"),
    ("GET", "/api/v1/allocations"),
    ("GET", "/api/v1/changes"),
    ("GET", "/api/v1/devices"),
    ("GET", "/api/v1/devices/{device}/history"),
    ("GET", "/api/v1/jobs/{job}/log"),
    ("GET", "/api/v1/jobs/{job}/verdict"),
    ("GET", "/api/v1/labels"),
    ("GET", "/api/v1/labels/model"),
    ("GET", "/api/v1/labels/model/file"),
    ("GET", "/api/v1/labels/quality"),
    ("GET", "/api/v1/nodes/{node}/history"),
    ("GET", "/api/v1/topology"),
    ("GET", "/api/v1/versions"),
    ("POST", "/api/v1/changes"),
    ("POST", "/api/v1/ingest/journal"),
    ("POST", "/api/v1/labels"),
    ("GET", "/api/v1/policy"),
    ("GET", "/api/v1/policy/explain"),
    ("POST", "/api/v1/breaker/reset"),
    ("POST", "/api/v1/drills"),
    ("GET", "/api/v1/users"),
    ("POST", "/api/v1/users"),
    ("PATCH", "/api/v1/users/{name}"),
    ("DELETE", "/api/v1/users/{name}"),
    ("GET", "/api/v1/tokens"),
    ("POST", "/api/v1/tokens"),
    ("DELETE", "/api/v1/tokens/{token_id}"),
    ("GET", "/api/v1/audit"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
}


def test_the_promised_routes_are_there_and_no_other(site: Site) -> None:
    assert {(method.upper(), path) for path, method, _ in operations(site)} == PROMISED


def test_every_route_has_its_own_name_its_words_and_a_real_answer(site: Site) -> None:
    ids = [what["operationId"] for _, _, what in operations(site)]
    assert len(ids) == len(set(ids)) and all(re.fullmatch(r"[a-z_]+", name) for name in ids)
    for path, method, what in operations(site):
        assert what["description"], path
        good = next(answer for status, answer in what["responses"].items() if status.startswith("2"))
        empty = set(what["responses"]) >= {"204"}
        assert empty or any("schema" in body for body in good["content"].values()), path
        if method == "post" and "/ingest/" in path:
            assert what["requestBody"]["content"], path


@pytest.mark.parametrize("part", ["$ref"])
def test_every_reference_of_the_document_leads_somewhere(site: Site, part: str) -> None:
    document = site.app.openapi()

    def walk(piece: Any) -> None:
        if isinstance(piece, dict):
            if part in piece:
                place: Any = document
                for step in piece[part].removeprefix("#/").split("/"):
                    place = place[step]
            for value in piece.values():
                walk(value)
        elif isinstance(piece, list):
            for value in piece:
                walk(value)

    walk(document)


def test_the_page_of_docs_shows_every_route_and_loads_nothing_from_elsewhere(site: Site, local: TestClient) -> None:
    answer = local.get("/docs")
    for path, method, what in operations(site):
        assert f"id='{what['operationId']}'" in answer.text and path.replace("{", "{") in answer.text, method
    assert "fell off the bus" in answer.text and "<script" not in answer.text
    assert not re.findall(r"(?:src|href)=[\"']?(?:https?:)?//", answer.text)
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
