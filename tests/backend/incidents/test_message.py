"""What an incident says to people: whole, stable in its ids, and only what was seen."""

from __future__ import annotations

from typing import Any

import pytest

from backend.incidents.message import MOST_EVIDENCE, message_of, span_words
from backend.model.actions import Decision
from backend.model.events import Finding as Row
from backend.model.incidents import Incident
from backend.tidings import MessageFacts, MessageKind
from detectors.model import Severity
from tests.backend.incidents.claims import AT, later


def incident(**changed: Any) -> Incident:
    usual: dict[str, Any] = {
        "id": 812,
        "cluster": "main",
        "kind": "gpu_bus_loss",
        "severity": "critical",
        "headline": "GPU 3 of gpu-0001 is lost.",
        "entity_kind": "gpu",
        "entity_id": "GPU-1",
        "entity_name": "gpu-0001/gpu3",
        "node": "gpu-0001",
        "job": "48213",
        "opened_at": AT,
        "changed_at": AT,
        "last_asserted_at": AT,
        "revision": 3,
    }
    return Incident(**usual | changed)


def decision(state: str = "proposed", **changed: Any) -> Decision:
    usual: dict[str, Any] = {
        "cluster": "main",
        "incident_id": 812,
        "revision": 1,
        "at": AT,
        "mode": "propose",
        "state": state,
        "sentence": "Drain gpu-0001 and requeue job 48213.",
        "recommended": "drain_now",
        "plan": [{"verb": "drain"}],
    }
    return Decision(**usual | changed)


def row(*pieces: dict[str, str], victim: bool = False) -> Row:
    return Row(
        cluster="main",
        key="k",
        detector="kernel/xid",
        kind="gpu_bus_loss",
        entity_kind="gpu",
        entity_id="GPU-1",
        entity_name="gpu-0001/gpu3",
        severity="critical",
        score=0.9,
        since=AT,
        reason="lost",
        evidence=list(pieces),
        raised_at=AT,
        emitted_at=AT,
        victim=victim,
    )


def said(kind: MessageKind = "opened", *rows: Row, url: str = "https://watch.test/", **changed: Any) -> MessageFacts:
    shown = decision(changed.pop("state", "proposed"))
    return message_of(incident(**changed), shown, rows, kind, later(90), url, simulated=False)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (3599, "59 min"),
        (3600, "1 h 0 min"),
        (6180, "1 h 43 min"),
        (47 * 3600 + 59 * 60, "47 h 59 min"),
        (48 * 3600, "2 d 0 h"),
        (76 * 3600, "3 d 4 h"),
    ],
)
def test_spans_read_as_people_say_them(seconds: float, words: str) -> None:
    assert span_words(seconds) == words


def test_ids_are_stable_over_resends_and_differ_by_kind_and_revision() -> None:
    assert said().id == said(revision=9).id == "main-inc-812-opened-0"
    assert said("closed").id == "main-inc-812-closed-0"
    assert said("changed").id == "main-inc-812-changed-3"
    assert {said(kind).thread for kind in ("opened", "changed", "closed")} == {"main-inc-812"}


def test_the_link_goes_to_the_incident_and_is_left_out_where_no_address_is_known() -> None:
    assert said().url == "https://watch.test/incidents/812"
    assert said(url="").url == ""


def test_facts_say_none_rather_than_leave_out() -> None:
    facts = dict(said(node="", job="").facts)
    assert facts == {"Node": "none", "Job": "none", "Since": "2026-03-01 12:00:00 UTC", "Dark sources": "none"}
    assert dict(said(dark=["prometheus", "slurm"]).facts)["Dark sources"] == "prometheus, slurm"


def test_a_close_says_how_long_the_repair_took_and_a_change_how_long_it_is_open() -> None:
    assert dict(said("closed", closed_at=later(41 * 60)).facts)["Repaired in"] == "41 min"
    assert dict(said("changed").facts)["Open for"] == "1 min"
    assert "Open for" not in dict(said().facts)


def test_evidence_is_said_once_each_without_that_of_victims() -> None:
    line = {"what": "kernel line", "value": "Xid 79", "unit": "", "expected": ""}
    heat = {"what": "temperature", "value": "91", "unit": "C", "expected": "62"}
    found = said("opened", row(line, heat), row(line), row({"what": "hang", "value": "1"}, victim=True))
    assert found.evidence == ("kernel line: Xid 79", "temperature: 91 C, expected 62 C")


def test_a_message_shows_so_much_evidence_and_no_more() -> None:
    many = row(*({"what": "series", "value": str(i)} for i in range(MOST_EVIDENCE + 5)))
    assert len(said("opened", many).evidence) == MOST_EVIDENCE


def test_advice_names_the_plan_and_that_it_waits_only_while_it_waits() -> None:
    assert said().advice == "Drain gpu-0001 and requeue job 48213. It waits for an approver."
    assert said(state="automatic").advice == "Drain gpu-0001 and requeue job 48213."
    assert said("closed").advice == "Nothing more to do."


def test_without_a_plan_the_advice_of_the_decision_is_said() -> None:
    shown = decision("nothing", plan=[], advice=["Open a ticket.", "Look at the riser."])
    made = message_of(incident(), shown, (), "opened", AT, "", simulated=False)
    assert made.advice == "Open a ticket. Look at the riser."
    assert message_of(incident(), None, (), "opened", AT, "", simulated=False).advice == ""


def test_victims_are_counted_and_why_takes_their_place() -> None:
    assert said(victims=["a", "b"]).why == "2 others follow from it and need nothing of their own."
    assert said().why == ""
    made = message_of(incident(victims=["a"]), None, (), "changed", AT, "", simulated=True, why="It is worse.")
    assert (made.why, made.simulated, made.severity) == ("It is worse.", True, Severity.CRITICAL)


def test_one_victim_is_spoken_of_as_one() -> None:
    assert said(victims=["a"]).why == "1 other follows from it and needs nothing of its own."


def test_in_observe_the_advice_says_that_it_is_for_a_person_to_do() -> None:
    advice = said(state="observed").advice
    assert advice == "Drain gpu-0001 and requeue job 48213. Watchkeeper only observes here: this is for you to do."
