"""Alerts: what was told and to whom, who would be told, silences by a form, and what was given up sent again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from backend.clock import ManualClock
from backend.model.people import Audit
from backend.registry import Parts
from backend.store import people
from tests.backend.web import site, tales, told_tale
from tests.backend.web.conftest import client_of
from tests.backend.web.test_rights import csrf
from tests.backend.web.test_settings_pages import words
from tests.conftest import NOW


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    made = site.parts_of(tmp_path / "store", ManualClock(NOW))
    tales.fill(made)
    told_tale.tell(made)
    yield made
    made.store.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    """For tests that change nothing."""
    made = site.parts_of(tmp_path_factory.mktemp("alerts") / "store", ManualClock(NOW))
    tales.fill(made)
    told_tale.tell(made)
    yield made
    made.store.close()


@pytest.fixture
def shown(shared: Parts) -> TestClient:
    return client_of(shared, "operator")


@pytest.fixture
def client(parts: Parts) -> TestClient:
    return client_of(parts, "operator")


def audited(parts: Parts) -> list[Audit]:
    with parts.store.read() as session:
        return list(people.audits(session, 5))


def test_it_says_first_what_reached_nobody_and_shows_who_got_what(shown: TestClient) -> None:
    text = words(shown.get("/alerts").text)
    assert "1 message could not be delivered." in text
    assert "400 Invalid routing key" in text
    assert "opened: GPU 3 of gpu-012 is lost on PCIe (Xid 79)" in text


def test_it_works_without_a_script_and_says_the_same_as_json(shown: TestClient) -> None:
    page = shown.get("/alerts")
    assert "<script>" not in page.text and "onclick" not in page.text
    body = shown.get("/api/v1/alerts").json()
    assert body["counts"] == {"dead": 1, "sent": 1}
    dead = shown.get("/api/v1/alerts?state=dead").json()["items"]
    assert [(row["channel"], row["route"], row["tries"]) for row in dead] == [("pagerduty", "on call", 1)]


def test_a_message_that_was_given_up_is_sent_again_by_a_form_and_audited(client: TestClient, parts: Parts) -> None:
    (dead,) = client.get("/api/v1/alerts?state=dead").json()["items"]
    path = f"/alerts/{dead['id']}/send-again"
    assert client.post(path, data={}).status_code == 422
    answer = client.post(path, data={"csrf": csrf(client, "/alerts")})
    assert answer.status_code == 303
    assert client.get("/api/v1/alerts?state=waiting").json()["items"][0]["id"] == dead["id"]
    assert (audited(parts)[0].action, audited(parts)[0].target) == ("send again", f"delivery {dead['id']}")
    assert client.post(path, data={"csrf": csrf(client, "/alerts")}).status_code == 409


def test_a_silence_is_made_and_ended_by_forms(client: TestClient, parts: Parts) -> None:
    asked = {"csrf": csrf(client, "/alerts"), "node": "gpu-00*, gpu-010", "hours": "3", "comment": "cables"}
    assert client.post("/alerts/silences", data=asked).status_code == 303
    rows = client.get("/api/v1/silences").json()["items"]
    assert [(row["words"], row["comment"], row["by"]) for row in rows] == [
        ("node gpu-00* or gpu-010", "cables", "operator"),
        ("node gpu-039", "riser is being swapped", "operator"),
    ]
    assert audited(parts)[0].action == "silence"
    end = f"/alerts/silences/{rows[0]['id']}/end"
    assert client.post(end, data={"csrf": csrf(client, "/alerts")}).status_code == 303
    assert len(client.get("/api/v1/silences").json()["items"]) == 1
    assert audited(parts)[0].action == "end silence"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"node": ""}, "This would silence everything."),
        ({"comment": " "}, "says why"),
        ({"hours": "800"}, "at most 744 hours"),
        ({"hours": "soon"}, "Hours is no number"),
    ],
)
def test_a_silence_that_makes_no_sense_is_refused_and_what_was_written_stays(
    shown: TestClient, change: dict[str, str], why: str
) -> None:
    asked = {"csrf": csrf(shown, "/alerts"), "node": "gpu-001", "hours": "3", "comment": "cables"} | change
    answer = shown.post("/alerts/silences", data=asked)
    assert answer.status_code == 422
    assert why in words(answer.text)
    if "comment" not in change:
        assert 'value="cables"' in answer.text


def test_a_viewer_sees_it_all_and_may_do_nothing(shared: Parts) -> None:
    viewer = client_of(shared, "viewer")
    page = viewer.get("/alerts")
    assert "Send again" not in page.text and "Silencing needs an operator" in page.text
    asked = {"csrf": csrf(viewer, "/settings/account"), "node": "gpu-001", "comment": "x"}
    assert viewer.post("/alerts/silences", data=asked).status_code == 403


def test_the_preview_says_what_the_routes_say(shown: TestClient) -> None:
    text = words(shown.get("/alerts?kind=gpu_bus_loss&severity=critical&node=gpu-001&job=41207").text)
    assert "Email and pagerduty at once, by route on call." in text
    assert "owner lena" in text
    assert "kind gpu_bus_loss is not ib_* or network_*" in text
    held = words(shown.get("/alerts?kind=gpu_bus_loss&node=gpu-039").text)
    assert "Nobody is told now: maintenance 1 (operator: riser is being swapped)" in held
    assert "nonsense is no kind of fault." in words(shown.get("/alerts?kind=nonsense").text)


def test_rest_asks_the_same_function_and_also_of_an_incident_that_there_is(shown: TestClient) -> None:
    body = shown.get("/api/v1/alerts/preview?kind=ib_link_down&severity=high&node=gpu-001").json()
    assert [(row["route"], row["takes"], row["to"]) for row in body["routes"]] == [
        ("fabric", True, {"slack": ["#fabric"]}),
        ("on call", False, {}),
        ("default", False, {}),
    ]
    assert body["answer"] == "slack (#fabric) after 30 s, by route fabric."
    number = shown.get("/api/v1/incidents").json()["items"][0]["id"]
    assert shown.get(f"/api/v1/alerts/preview?incident={number}").json()["answer"].endswith(".")
    assert shown.get("/api/v1/alerts/preview").status_code == 422
    assert shown.get("/api/v1/alerts/preview?incident=999999").status_code == 404
