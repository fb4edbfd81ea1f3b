"""Exclusions: who keeps what from whose work, until when; each form, and who may send it; did they prove right?"""

from __future__ import annotations

import csv
import io
from datetime import timedelta

import pytest
from fastapi.testclient import TestClient
from sqlmodel import select

from backend.answers.exclusions import proved
from backend.model.actions import Exclusion, Order
from backend.model.incidents import Incident
from backend.model.learning import Label
from backend.registry import Parts
from backend.store import people
from tests.backend.web.conftest import Reader
from tests.backend.web.test_actions_page import press
from tests.backend.web.test_pages import outline
from tests.backend.web.test_settings_pages import words
from tests.conftest import NOW

NEW = {"node": "gpu-[030-031]", "reason": "riser is swapped", "hours": "8", "scope": ""}


def rows(parts: Parts, owner: str) -> list[Exclusion]:
    with parts.store.read() as session:
        return list(session.exec(select(Exclusion).where(Exclusion.owner == owner)))


@pytest.mark.parametrize("role", ["", "viewer", "operator", "approver"])
def test_the_page_stands_for_every_reader_with_the_forms_they_may_send(reader: Reader, role: str) -> None:
    page = reader(role).get("/exclusions").text
    found, told = outline(page), words(page)
    assert found.h1 == 1 and len(found.ids) == len(set(found.ids)) and not found.inline
    assert "kept from new work" in told and "sbatch --exclude" in told
    assert ('action="/exclusions"' in page) is (role in ("operator", "approver"))
    assert ("Set the end" in told) is (role == "approver")
    for show in ("proposed", "ended", "nonsense"):
        assert reader(role).get("/exclusions", params={"show": show}).status_code == 200


def test_an_operator_excludes_two_nodes_changes_their_end_and_lifts_one(reader: Reader, parts: Parts) -> None:
    operator = reader("operator")
    assert press(operator, "/exclusions", **NEW) == 303
    one, other = rows(parts, "operator")
    assert {one.node, other.node} == {"gpu-030", "gpu-031"} and one.until - one.created_at == timedelta(hours=8)
    assert "riser is swapped" in words(operator.get("/exclusions").text)
    assert press(operator, f"/exclusions/{one.id}/extend", hours="48", reason="part is late") == 303
    assert press(operator, f"/exclusions/{other.id}/lift", reason="swapped") == 303
    one, other = rows(parts, "operator")
    assert one.past[0]["by"] == "operator" and one.past[0]["reason"] == "part is late"
    assert other.lifted_by == "operator"
    told = words(operator.get("/exclusions").text)
    assert "operator changed its end" in told and "gpu-031" not in told
    ended = words(operator.get("/exclusions", params={"show": "ended"}).text)
    assert "gpu-031" in ended and "lifted by operator" in ended and "not known" in ended
    assert press(operator, f"/exclusions/{other.id}/lift") == 409


def test_another_persons_exclusion_is_not_an_operators_to_change(reader: Reader, parts: Parts) -> None:
    assert press(reader("approver"), "/exclusions", **NEW) == 303
    number = rows(parts, "approver")[0].id
    assert press(reader("operator"), f"/exclusions/{number}/lift") == 403
    assert press(reader("operator"), f"/exclusions/{number}/extend", hours="1") == 403
    assert press(reader("admin"), f"/exclusions/{number}/lift") == 303


@pytest.mark.parametrize(
    "wrong",
    [
        {"node": ""},
        {"node": "gpu-[1-"},
        {"node": "gpu-[001-099]"},
        {"node": "a b;c"},
        {"reason": " "},
        {"hours": "x"},
        {"hours": "-1"},
        {"hours": "nan"},
        {"hours": "1e9"},
        {"scope": "nlp"},
        {"scope": "team:nlp"},
    ],
)
def test_a_form_that_makes_no_sense_changes_nothing_and_keeps_what_was_typed(
    reader: Reader, parts: Parts, wrong: dict[str, str]
) -> None:
    before = len(rows(parts, "operator"))
    assert press(reader("operator"), "/exclusions", **{**NEW, **wrong}) == 422
    assert len(rows(parts, "operator")) == before


def test_nodes_of_one_form_are_one_transaction(reader: Reader, parts: Parts) -> None:
    before = len(rows(parts, "operator"))
    assert press(reader("operator"), "/exclusions", **{**NEW, "node": "gpu-[034-036]"}) == 303
    with parts.store.read() as session:
        done = [row.target for row in people.audits(session, 3) if row.action == "exclude"]
    assert len(rows(parts, "operator")) - before == 3
    assert done[:1] == ["node gpu-[034-036]"] and not any(row.startswith("node gpu-03") for row in done)


def test_what_is_kept_from_some_says_so_and_is_on_no_hostlist(reader: Reader) -> None:
    operator: TestClient = reader("operator")
    assert press(operator, "/exclusions", **{**NEW, "node": "gpu-033", "scope": "account:nlp"}) == 303
    told = words(operator.get("/exclusions").text)
    assert "account nlp only" in told and "1 more from the work of some only" in told
    assert "gpu-033" not in operator.get("/api/v1/exclusions?format=hostlist").text
    assert "033" in operator.get("/api/v1/exclusions?format=hostlist&scope=account:nlp").text


@pytest.mark.parametrize("show", ["", "proposed", "ended"])
def test_the_sheet_has_the_rows_of_the_page(reader: Reader, show: str) -> None:
    sheet = list(
        csv.DictReader(io.StringIO(reader("viewer").get("/figures/exclusions.csv", params={"show": show}).text))
    )
    page = reader("viewer").get("/exclusions", params={"show": show}).text
    assert all(f'/nodes/{row["Node"]}"' in page for row in sheet) and (sheet or show)


# --- did it prove right? --------------------------------------------------------------------------------------------

BEGAN, ENDED = NOW - timedelta(days=20), NOW - timedelta(days=10)


def incident(days: float) -> Incident:
    at = BEGAN + timedelta(days=days)
    return Incident(
        id=9, cluster="main", kind="gpu_bus_loss", severity="high", headline="x", entity_kind="gpu", entity_id="g",
        entity_name="n/gpu1", node="n", opened_at=at, changed_at=at, last_asserted_at=at,
    )  # fmt: skip


def check(state: str) -> Order:
    at = BEGAN + timedelta(days=1)
    return Order(
        cluster="main", key="k", decision_id=1, incident_id=1, verb="check", node="n", kind="x", reason="x",
        state=state, created_at=at, not_before=at,
    )  # fmt: skip


def label(right: bool) -> Label:
    return Label(cluster="main", at=NOW, by="mira", incident_id=1, right=right)


@pytest.mark.parametrize(
    ("said", "later", "checks", "ended", "proof"),
    [
        (label(True), [], [], ENDED, "right"),
        (label(False), [incident(1)], [check("failed")], ENDED, "wrong"),
        (None, [], [check("failed")], ENDED, "right"),
        (None, [], [check("done")], ENDED, "open"),
        (None, [incident(2)], [], ENDED, "right"),
        (None, [incident(12)], [], ENDED, "right"),
        (None, [incident(19)], [], ENDED, "open"),
        (None, [], [], NOW - timedelta(days=1), "open"),
    ],
)
def test_the_strongest_witness_says_whether_it_proved_right(
    said: Label | None, later: list[Incident], checks: list[Order], ended: object, proof: str
) -> None:
    row = Exclusion(cluster="main", node="n", owner="dana", origin="approved", reason="x", incident_id=1)
    row.created_at = BEGAN
    found, why = proved(row, ended, NOW, said, later, checks)  # type: ignore[arg-type]
    assert found == proof and why
