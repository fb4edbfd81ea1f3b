"""What schedulers and people read: verdicts, exclusions, incidents, orders, and who may read them."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from fastapi.testclient import TestClient

from tests.backend.api.conftest import NOW, Site, problem
from tests.backend.api.rows import a_finding, a_node, a_plan, an_exclusion, an_incident, an_order

API = "/api/v1"


def test_one_node_answers_in_the_promised_shape(site: Site, local: TestClient) -> None:
    a_node(site)
    incident = an_incident(site)
    an_exclusion(site, incident_id=incident)
    assert local.get(f"{API}/nodes/gpu-001").json() == {
        "node": "gpu-001",
        "verdict": "exclude",
        "binding": True,
        "score": 1.0,
        "reasons": [
            "Excluded by dana: bus loss",
            f"GPU 3 of gpu-001 fell off the bus. (incident {incident}, critical)",
        ],
        "incidents": [incident],
        "until": (NOW + timedelta(days=7)).isoformat(),
        "as_of": NOW.isoformat(),
    }


def test_a_node_nobody_knows_is_unknown_and_no_error(local: TestClient) -> None:
    found = local.get(f"{API}/nodes/never-heard-of")
    assert found.status_code == 200 and found.json()["verdict"] == "unknown" and found.json()["score"] is None


def test_all_nodes_are_listed_and_can_be_kept_by_verdict(site: Site, local: TestClient) -> None:
    for name in ("gpu-002", "gpu-001", "gpu-003"):
        a_node(site, name)
    an_incident(site, "gpu-002")
    words = {row["node"]: row["verdict"] for row in local.get(f"{API}/nodes").json()["items"]}
    assert words == {"gpu-001": "ok", "gpu-002": "suspect", "gpu-003": "ok"} and list(words) == sorted(words)
    kept = local.get(f"{API}/nodes", params={"verdict": ["suspect", "exclude"]}).json()["items"]
    assert [row["node"] for row in kept] == ["gpu-002"]
    problem(local.get(f"{API}/nodes", params={"verdict": "fine"}), 422)


def test_a_scheduler_asks_with_a_hostlist_and_gets_one(site: Site, local: TestClient) -> None:
    for i in range(1, 7):
        a_node(site, f"gpu-00{i}")
    an_exclusion(site, "gpu-002")
    an_exclusion(site, "gpu-003", origin="person")
    a_plan(site, an_incident(site, "gpu-005"), "gpu-005")
    found = local.post(f"{API}/exclusions/query", json={"nodes": "gpu-[001-005,009]", "job": "41207"}).json()
    assert found["exclude"] == ["gpu-002", "gpu-003"] and found["avoid"] == ["gpu-005"]
    assert found["unknown"] == ["gpu-009"] and found["hostlist"] == "gpu-[002-003]" and found["binding"] is True
    assert set(found["reasons"]) == {"gpu-002", "gpu-003", "gpu-005", "gpu-009"} and found["as_of"]
    again = local.post(f"{API}/exclusions/query", json={"hostlist": "gpu-[001-005,009]"}).json()
    assert again["exclude"] == found["exclude"]
    both = {"hostlist": "gpu-001", "nodes": ["gpu-001"]}
    problem(local.post(f"{API}/exclusions/query", json=both), 422)
    advised = local.post(f"{API}/exclusions/query?advisory=1", json={"nodes": ["gpu-002", "gpu-005"]}).json()
    assert (advised["hostlist"], advised["binding"]) == ("gpu-[002,005]", False)


def test_without_names_all_known_nodes_are_meant_and_a_job_means_its_nodes(site: Site, local: TestClient) -> None:
    row = {"job": "9", "restart": 1, "state": "RUNNING", "start": NOW.timestamp() - 9, "nodes": "gpu-[003-004]"}
    old = {
        **row,
        "restart": 0,
        "nodes": "gpu-007",
        "state": "FAILED",
        "end": NOW.timestamp() - 20,
        "start": NOW.timestamp() - 99,
    }
    assert local.post(f"{API}/ingest/jobs", json=[old, row]).status_code == 200
    an_exclusion(site, "gpu-003")
    an_exclusion(site, "gpu-007")
    assert local.post(f"{API}/exclusions/query", json={"job": "9"}).json()["exclude"] == ["gpu-003"]
    assert local.post(f"{API}/exclusions/query", json={}).json()["exclude"] == ["gpu-003", "gpu-007"]
    problem(local.post(f"{API}/exclusions/query", json={"job": "777"}), 404)


@pytest.mark.parametrize(
    "body", [{"nodes": "gpu-[1-"}, {"nodes": "gpu-[1-99999999]"}, {"nodes": ["a b"]}, {"nodes": 3}, {"node": "a"}, []]
)
def test_a_question_that_makes_no_sense_says_where(local: TestClient, body: object) -> None:
    assert problem(local.post(f"{API}/exclusions/query", json=body), 422)["errors"]


def test_lists_of_exclusions_hold_binding_ones_only_unless_asked(site: Site, local: TestClient) -> None:
    an_exclusion(site, "gpu-003")
    an_exclusion(site, "gpu-010", origin="act")
    an_exclusion(site, "gpu-004", lifted_at=NOW)
    a_plan(site, an_incident(site, "gpu-005"), "gpu-005")

    def text(**params: str) -> str:
        return local.get(f"{API}/exclusions", params=params).text

    assert text(format="hostlist") == "gpu-[003,010]\n" and text(format="lines") == "gpu-003\ngpu-010\n"
    assert text(format="hostlist", advisory="1") == "gpu-[003,005,010]\n"
    rows = local.get(f"{API}/exclusions", params={"advisory": "1"}).json()["items"]
    assert {row["node"]: row["binding"] for row in rows} == {"gpu-003": True, "gpu-010": True, "gpu-005": False}
    problem(local.get(f"{API}/exclusions", params={"format": "yaml"}), 422)


def test_no_exclusions_are_an_empty_text_that_a_script_can_test_for(local: TestClient) -> None:
    assert local.get(f"{API}/exclusions", params={"format": "hostlist"}).text == ""
    assert local.get(f"{API}/exclusions", params={"format": "lines"}).text == ""


def test_incidents_are_listed_newest_first_a_page_at_a_time(site: Site, local: TestClient) -> None:
    ids = [an_incident(site, f"gpu-00{i}") for i in range(1, 6)]
    gone = an_incident(site, "gpu-009", state="resolved", closed_at=NOW)
    first = local.get(f"{API}/incidents", params={"limit": 3}).json()
    rest = local.get(f"{API}/incidents", params={"limit": 3, "before": first["next"]}).json()
    assert [row["id"] for row in first["items"] + rest["items"]] == ids[::-1] and rest["next"] is None
    closed = local.get(f"{API}/incidents", params={"state": "resolved"}).json()["items"]
    assert [(row["id"], row["mttr_s"]) for row in closed] == [(gone, 300.0)]
    assert len(local.get(f"{API}/incidents", params={"state": "all"}).json()["items"]) == 6


def test_one_incident_tells_cause_timeline_plan_and_findings(site: Site, local: TestClient) -> None:
    incident = an_incident(site)
    a_finding(site, incident)
    plan = a_plan(site, incident)
    found = local.get(f"{API}/incidents/{incident}").json()
    assert found["entity"] == "gpu-001/gpu3" and found["dark_sources"] == ["slurm"]
    assert found["hypotheses"][0]["authority"] == "code" and found["timeline"][0]["what"] == "opened"
    assert found["decision"]["id"] == f"d{plan}" and found["decision"]["guards"][0]["guard"] == "share"
    rows = local.get(f"{API}/incidents/{incident}/findings").json()["items"]
    assert rows[0]["evidence"][0]["value"] == "79"


def test_one_incident_tells_what_changed_before_it(site: Site, local: TestClient) -> None:
    told = {"nodes": [{"name": "gpu-001"}]}
    assert local.post(f"{API}/ingest/topology", json=told).status_code == 200
    incident = an_incident(site)
    body = local.get(f"{API}/incidents/{incident}").json()
    assert body["changed"] == []
    before = datetime.fromisoformat(body["opened_at"]) - timedelta(hours=2)
    rows = [{"ts": before.timestamp(), "nodes": body["node"], "item": "driver", "value": "575.51", "by": "ansible"}]
    assert local.post(f"{API}/changes", json=rows).json()["accepted"] == 1
    (changed,) = local.get(f"{API}/incidents/{incident}").json()["changed"]
    said = {name: changed[name] for name in ("node", "item", "value", "by", "before_s", "nodes", "odd")}
    assert said == {
        "node": body["node"],
        "item": "driver",
        "value": "575.51",
        "by": "ansible",
        "before_s": 7200.0,
        "nodes": 1,
        "odd": False,
    }


def test_plans_and_orders_stand_in_one_list_under_ids_that_mean_one_thing(site: Site, local: TestClient) -> None:
    incident = an_incident(site)
    plan = a_plan(site, incident)
    order = an_order(site, incident, plan, state="done")
    rows = local.get(f"{API}/orders").json()["items"]
    assert [(row["id"], row["type"]) for row in rows] == [(f"d{plan}", "plan"), (str(order), "order")]
    assert local.get(f"{API}/orders/d{plan}").json()["blast"]["gpus"] == 8
    assert local.get(f"{API}/orders/{order}").json()["verb"] == "drain"
    assert [r["id"] for r in local.get(f"{API}/orders", params={"state": "done"}).json()["items"]] == [str(order)]
    assert local.get(f"{API}/orders", params={"state": "rejected"}).json()["items"] == []


@pytest.mark.parametrize(
    "path",
    ["incidents/4711", "incidents/4711/findings", "orders/4711", "orders/d4711", "nothing", "incidents/1/nothing"],
)
def test_what_is_not_there_is_404_and_says_where_to_look(local: TestClient, path: str) -> None:
    problem(local.get(f"{API}/{path}"), 404)


@pytest.mark.parametrize(
    "path", ["incidents/x", "orders/x", "orders/d", "orders/0", "incidents?limit=0", "incidents?before=x"]
)
def test_an_id_of_the_wrong_kind_is_422(local: TestClient, path: str) -> None:
    problem(local.get(f"{API}/{path}"), 422)


def test_a_wrong_method_is_405_and_names_the_right_one(local: TestClient) -> None:
    answer = local.delete(f"{API}/nodes")
    assert "GET" in problem(answer, 405)["detail"] and answer.headers["Allow"] == "GET"


def test_our_own_failure_is_500_without_a_traceback(site: Site, local: TestClient) -> None:
    site.app.state.snapshots = None
    problem(local.get(f"{API}/nodes/gpu-001"), 500)


# --- who may read ---------------------------------------------------------------------------------------------------

FAR = ("10.1.2.3", 50_000)
READS = [f"{API}/nodes", f"{API}/nodes/a", f"{API}/exclusions", f"{API}/incidents", f"{API}/orders", "/metrics"]


@pytest.mark.parametrize("path", READS)
def test_off_loopback_reading_needs_a_name(site: Site, path: str) -> None:
    answer = site.client(FAR).get(path)
    problem(answer, 401)
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    problem(site.program("ingest", FAR).get(path), 403)
    for scope in ("read", "operate", "approve"):
        assert site.program(scope, FAR).get(path).status_code == 200


def test_a_signed_in_viewer_reads(site: Site) -> None:
    assert site.person("viewer").get(f"{API}/nodes").status_code == 200


def test_clusters_do_not_leak_into_each_other(two_clusters: Site) -> None:
    incident = an_incident(two_clusters)
    local = two_clusters.client()
    assert local.get(f"{API}/incidents/{incident}", params={"cluster": "east"}).status_code == 200
    problem(local.get(f"{API}/incidents/{incident}", params={"cluster": "west"}), 404)
    problem(local.get(f"{API}/incidents"), 422)


# --- freshness ------------------------------------------------------------------------------------------------------


def test_a_verdict_is_made_anew_when_something_changed(site: Site, local: TestClient) -> None:
    a_node(site)
    assert local.get(f"{API}/nodes/gpu-001").json()["verdict"] == "ok"
    an_exclusion(site)
    site.parts.changes.publish("incident", "1", site.watch.cluster)
    assert local.get(f"{API}/nodes/gpu-001").json()["verdict"] == "exclude"


def test_between_changes_the_snapshot_is_shared(site: Site, local: TestClient) -> None:
    a_node(site)
    for _ in range(3):
        local.get(f"{API}/nodes/gpu-001")
    kept = site.app.state.snapshots.fresh(site.watch)
    assert kept is not None and kept is site.app.state.snapshots.of(site.watch)
