"""Labels over REST: who may say so, of what, and what is asked again of it."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlmodel import select

from backend import learn
from backend.model.events import Event
from backend.model.people import Audit
from tests.backend.api.conftest import NOW, Site, problem
from tests.backend.api.rows import add, an_incident

LABELS = "/api/v1/labels"


def a_verdict(site: Site, job: str = "41207") -> int:
    return add(
        site,
        Event(
            cluster=site.watch.cluster,
            at=NOW,
            received_at=NOW,
            namespace="log",
            code="unknown_insufficient_evidence",
            entity_kind="job",
            entity_id=job,
            entity_name=f"job:{job}",
            job=job,
            dedupe=f"verdict {job}",
        ),
    )


def test_an_operator_says_that_an_incident_was_wrong_and_it_stands_on_its_timeline(
    site: Site, local: TestClient
) -> None:
    number = an_incident(site)
    body = {"incident": number, "right": False, "cause": "network_link_error", "note": "bad cable"}
    answer = site.person("operator").post(LABELS, json=body)
    row = answer.json()
    assert answer.status_code == 201 and (row["by"], row["said"], row["right"]) == ("operator", "gpu_bus_loss", False)
    assert (row["incident"], row["job"], row["verdict"]) == (number, "41207", None)
    told = local.get(f"/api/v1/incidents/{number}").json()["timeline"][-1]
    assert told["what"] == "label" and "it was network link error. bad cable" in told["text"]
    assert local.get(LABELS, params={"incident": number}).json() == {"items": [row], "next": None}
    with site.parts.store.read() as session:
        audit = session.exec(select(Audit)).all()[-1]
    assert (audit.actor, audit.action, audit.target) == ("operator", "label", f"incident {number}")


def test_a_job_is_labelled_by_its_verdict_and_one_without_is_not_known(site: Site) -> None:
    event, operator = a_verdict(site), site.person("operator")
    row = operator.post(LABELS, json={"job": "41207", "right": False, "cause": "disk_full"}).json()
    assert (row["verdict"], row["said"], row["incident"]) == (event, "unknown_insufficient_evidence", None)
    assert "No job 9" in problem(operator.post(LABELS, json={"job": "9", "right": True}), 404)["detail"]
    problem(operator.post(LABELS, json={"incident": 9, "right": True}), 404)


@pytest.mark.parametrize(
    "body",
    [
        {"right": True},
        {"incident": 1, "job": "7", "right": True},
        {"job": "7", "right": True, "cause": "gremlins"},
        {"job": "7"},
        {"job": "7\n", "right": True},
        {"job": "", "right": True},
        {"job": "7", "right": True, "culprit": "x"},
    ],
)
def test_what_names_no_target_or_no_known_cause_is_refused_and_says_why(site: Site, body: dict[str, Any]) -> None:
    a_verdict(site, "7")
    problem(site.person("operator").post(LABELS, json=body), 422)


def test_a_viewer_reads_labels_and_says_nothing(site: Site, local: TestClient) -> None:
    body = {"incident": an_incident(site), "right": True}
    problem(local.post(LABELS, json=body), 401)
    problem(site.person("viewer").post(LABELS, json=body), 403)
    assert site.person("viewer").get(LABELS).json() == {"items": [], "next": None}


def test_labels_come_in_pages_and_of_one_cluster_only(two_clusters: Site) -> None:
    site = two_clusters
    east = {"cluster": "east"}
    numbers = [an_incident(site, f"gpu-{n}") for n in range(3)]
    operator = site.person("operator")
    for number in numbers:
        assert operator.post(LABELS, params=east, json={"incident": number, "right": True}).status_code == 201
    problem(operator.post(LABELS, params={"cluster": "west"}, json={"incident": numbers[0], "right": True}), 404)
    first = operator.get(LABELS, params=east | {"limit": "2"}).json()
    rest = operator.get(LABELS, params=east | {"before": first["next"]}).json()
    assert [row["incident"] for row in (*first["items"], *rest["items"])] == numbers[::-1] and rest["next"] is None
    assert not operator.get(LABELS, params={"cluster": "west"}).json()["items"]


def test_what_a_jobs_logs_came_to_is_read_with_its_lines_and_what_people_said(site: Site, local: TestClient) -> None:
    event = a_verdict(site)
    with site.parts.store.write() as session:
        row = session.get_one(Event, event)
        row.text = "The cause is not in these logs."
        row.attrs = {"confidence": "0.50", "excerpt": "! rank 3 died\n  blobgate: quota exceeded"}
    site.person("operator").post(LABELS, json={"job": "41207", "right": False, "cause": "disk_full"})
    found = local.get("/api/v1/jobs/41207/verdict").json()
    assert (found["class"], found["by"], found["confidence"]) == ("unknown_insufficient_evidence", "rules", 0.5)
    assert found["excerpt"] == ["rank 3 died", "blobgate: quota exceeded"] and found["similar"] == []
    assert [one["cause"] for one in found["labels"]] == ["disk_full"]
    problem(local.get("/api/v1/jobs/9/verdict"), 404)
    assert found["summary"] == ""
    assert "model" in problem(local.get("/api/v1/jobs/41207/verdict", params={"summary": "1"}), 409)["detail"]


def test_what_was_learnt_is_read_in_numbers_and_says_so_while_it_is_nothing(site: Site, local: TestClient) -> None:
    nothing = local.get(f"{LABELS}/model").json()
    assert (nothing["version"], nothing["used"], nothing["ci95"]) == (0, False, None) and "silent" in nothing["summary"]
    event = a_verdict(site)
    with site.parts.store.write() as session:
        session.get_one(Event, event).attrs = {"excerpt": "  blobgate: quota exceeded"}
    site.person("operator").post(LABELS, json={"job": "41207", "right": False, "cause": "disk_full"})
    assert site.watch.verdicts is not None
    learn.step(site.parts.store, site.clock, site.watch.cluster, site.watch.verdicts, {})
    found = local.get(f"{LABELS}/model").json()
    assert (found["version"], found["n"], found["counts"], found["missing"]["disk_full"]) == (1, 1, {"disk_full": 1}, 4)


def test_how_often_we_were_right_is_read_by_kind_with_n_and_interval(site: Site, local: TestClient) -> None:
    operator = site.person("operator")
    for number, right in enumerate((True, True, False)):
        incident = an_incident(site, f"gpu-{number}")
        operator.post(LABELS, json={"incident": incident, "right": not right})
        operator.post(LABELS, json={"incident": incident, "right": right, "cause": "" if right else "driver_mismatch"})
    (row,) = local.get(f"{LABELS}/quality").json()["items"]
    assert (row["said"], row["right"], row["n"], row["rate"]) == ("gpu_bus_loss", 2, 3, 0.6667)
    assert row["ci95"][0] < 0.6667 < row["ci95"][1] and row["really"] == {"driver_mismatch": 1}
