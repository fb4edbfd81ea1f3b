"""The incident page asks whether we were right, keeps every answer, and shows failures that were alike."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient
from sqlmodel import select

from backend import learn
from backend.model.events import Finding
from backend.model.learning import Label
from backend.registry import Parts
from tests.backend import test_learn as taught
from tests.backend.web.conftest import Reader
from tests.backend.web.test_pages import words
from tests.backend.web.test_rights import csrf
from tests.conftest import NOW
from tests.detectors.joblog.failures import failure

LABELS = "/incidents/1/labels"


def sent(client: TestClient, **fields: str) -> TestClient:
    answer = client.post(LABELS, data={"csrf": csrf(client), **fields})
    assert answer.status_code in (200, 303), words(answer.text)
    return client


def kept(parts: Parts) -> list[Label]:
    with parts.store.read() as session:
        return list(session.exec(select(Label)))


def test_a_person_says_wrong_and_what_it_was_and_the_page_says_so(reader: Reader, parts: Parts) -> None:
    client = sent(reader("operator"), right="no", cause="network_link_error", label_note="<b>leaf</b> port")
    page = client.get("/incidents/1").text
    assert "This was wrong, it was network link error. &lt;b&gt;leaf" in page and "<b>leaf" not in page
    (row,) = kept(parts)
    assert (row.by, row.right, row.cause, row.incident_id) == ("operator", False, "network_link_error", 1)


def test_who_thinks_again_is_shown_with_the_last_word_and_both_are_kept(reader: Reader, parts: Parts) -> None:
    client = sent(sent(reader("operator"), right="no"), right="yes")
    page = words(client.get("/incidents/1").text)
    panel = page[page.index("Was this right?") : page.index("Real cause")]
    assert "This was right." in panel and "wrong." not in panel and len(kept(parts)) == 2


@pytest.mark.parametrize("fields", [{}, {"right": "perhaps"}, {"right": "no", "cause": "gremlins"}])
def test_an_answer_that_says_nothing_is_refused_in_words(reader: Reader, parts: Parts, fields: dict[str, str]) -> None:
    client = reader("operator")
    answer = client.post(LABELS, data={"csrf": csrf(client), **fields})
    assert answer.status_code == 422 and not kept(parts)
    assert "right or wrong" in words(answer.text) or "no cause that is known" in words(answer.text)


def test_who_may_not_say_so_sees_no_form(reader: Reader, parts: Parts) -> None:
    viewer = reader("viewer")
    assert LABELS not in viewer.get("/incidents/1").text
    answer = viewer.post(LABELS, data={"csrf": csrf(reader("operator")), "right": "yes"})
    assert answer.status_code in (403, 422) and not kept(parts)


def test_similar_past_failures_stand_on_the_page_with_their_causes_and_links(reader: Reader, parts: Parts) -> None:
    client = reader("operator")
    assert "Similar past failures" not in client.get("/incidents/1").text
    for number in range(3):
        text = failure("user_code_exception", number)
        event = taught.judged(parts.store, f"old{number}", text)
        taught.said(parts.store, event, f"old{number}", "user_code_exception", incident_id=2 if number else None)
    watch = next(iter(parts.watches.values()))
    assert watch.verdicts is not None
    learn.step(parts.store, parts.clock, watch.cluster, watch.verdicts, taught.KINDS)
    event = taught.judged(parts.store, "48213", failure("user_code_exception", 77))
    level = Finding(
        cluster=watch.cluster,
        key="joblog/outcome",
        detector="joblog/outcome",
        kind="job_failed",
        entity_kind="job",
        entity_id="48213",
        entity_name="job:48213",
        severity="info",
        score=0.5,
        since=NOW,
        reason="It failed.",
        evidence=[
            {
                "what": "Class of the logs",
                "value": "unknown",
                "expected": "",
                "unit": "",
                "ref": f"event:{event}",
                "grade": "derived",
            }
        ],
        raised_at=NOW,
        emitted_at=NOW,
        incident_id=1,
    )
    with parts.store.write() as session:
        session.add(level)
    page = client.get("/incidents/1").text
    assert "Similar past failures" in page and 'href="/incidents/2">Incident 2</a>' in page
    assert "User code exception" in words(page)
    told = client.get("/api/v1/incidents/1").json()["similar"]
    assert 1 <= len(told) <= 3
    assert {one["cause"] for one in told} == {"user_code_exception"} and told[0]["cosine"] >= told[-1]["cosine"]


def test_system_says_how_good_what_was_learnt_is_or_what_is_missing(reader: Reader, parts: Parts) -> None:
    client = reader("viewer")
    assert "failure yet, so it is silent." in words(client.get("/system").text)
    taught.taught(parts.store, 9)
    watch = next(iter(parts.watches.values()))
    assert watch.verdicts is not None
    learn.step(parts.store, parts.clock, watch.cluster, watch.verdicts, taught.KINDS)
    page = words(client.get("/system").text)
    assert "from 27 labelled failures." in page and "held-out failures (95 %:" in page
