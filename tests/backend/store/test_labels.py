"""Labels: each word is kept, the last of a person counts, and the verdict they speak of is found."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlmodel import Session, text

from backend.model.events import Event, Finding
from backend.model.incidents import Incident
from backend.model.learning import Label
from backend.store import labels
from backend.store.engine import Store
from tests.conftest import NOW


def said(session: Session, by: str, right: bool, **more: Any) -> Label:
    row = Label(cluster="main", at=NOW, by=by, right=right, **more)
    session.add(row)
    session.flush()
    return row


def verdict(session: Session, job: str, dedupe: str, namespace: str = "log") -> int:
    row = Event(
        cluster="main",
        at=NOW,
        received_at=NOW,
        namespace=namespace,
        code="disk_full",
        entity_kind="job",
        entity_id=job,
        entity_name=f"job:{job}",
        job=job,
        dedupe=dedupe,
    )
    session.add(row)
    session.flush()
    return row.id or 0


def incident(session: Session) -> Incident:
    row = Incident(
        cluster="main",
        kind="job_failed",
        severity="info",
        headline="Job 7 failed.",
        entity_kind="job",
        entity_id="7",
        entity_name="job:7",
        job="7",
        opened_at=NOW,
        changed_at=NOW,
        last_asserted_at=NOW,
    )
    session.add(row)
    session.flush()
    return row


def level(session: Session, of: Incident, detector: str, event: int, *, victim: bool = False) -> None:
    session.add(
        Finding(
            cluster="main",
            key=f"{detector}{event}",
            detector=detector,
            kind="job_failed",
            entity_kind="job",
            entity_id="7",
            entity_name="job:7",
            severity="info",
            score=0.9,
            since=NOW,
            reason="It failed.",
            evidence=[{"what": "Class of the logs", "ref": f"event:{event}"}],
            raised_at=NOW,
            emitted_at=NOW + timedelta(seconds=1),
            incident_id=of.id,
            victim=victim,
        )
    )
    session.flush()


def test_the_last_word_of_each_person_counts_and_every_word_stays(store: Store) -> None:
    with store.write() as session:
        said(session, "ada", True, incident_id=7, job="1")
        bob = said(session, "bob", True, incident_id=7, job="1")
        again = said(session, "ada", False, incident_id=7, job="1", cause="disk_full")
        job = said(session, "ada", True, job="1")
        rows = labels.page(session, "main", 10)
        assert [row.id for row in rows] == sorted((row.id or 0 for row in rows), reverse=True) and len(rows) == 4
        assert [row.id for row in labels.standing(rows)] == [bob.id, again.id, job.id]
        assert labels.newest(session, "main") == job.id and labels.newest(session, "other") == 0


def test_a_page_goes_on_where_the_last_one_ended(store: Store) -> None:
    with store.write() as session:
        for number in range(5):
            said(session, "ada", True, incident_id=number + 1, job="7")
        first = labels.page(session, "main", 2)
        rest = labels.page(session, "main", 10, first[-1].id)
        assert len(first) == 2 and [row.incident_id for row in rest] == [3, 2, 1]
        assert [row.incident_id for row in labels.page(session, "main", 10, incident_id=4)] == [4]
        assert len(labels.page(session, "main", 10, job="7")) == 5 and not labels.page(session, "west", 10)


def test_a_job_is_spoken_of_by_its_newest_verdict(store: Store) -> None:
    with store.write() as session:
        verdict(session, "7", "a")
        newest = verdict(session, "7", "b")
        verdict(session, "7", "c", namespace="xid")
        found = labels.verdict_of_job(session, "main", "7")
        assert found is not None and found.id == newest
        assert (
            labels.verdict_of_job(session, "main", "8") is None and labels.verdict_of_job(session, "main", "") is None
        )


def test_the_verdict_of_an_incident_is_its_own_evidence_never_a_victims(store: Store) -> None:
    with store.write() as session:
        row, other = incident(session), verdict(session, "9", "other")
        level(session, row, "joblog/outcome", other, victim=True)
        level(session, row, "kernel/xid", verdict(session, "7", "x", namespace="xid"))
        assert labels.verdict_of_incident(session, row) is None
        own = verdict(session, "7", "own")
        level(session, row, "joblog/outcome", own)
        found = labels.verdict_of_incident(session, row)
        assert found is not None and found.id == own


def test_looking_a_verdict_up_reads_its_own_index(sqlite_store: Store) -> None:
    with sqlite_store.read() as session:
        query = "EXPLAIN QUERY PLAN SELECT * FROM event WHERE cluster='main' AND job='7' AND namespace = 'log'"
        plan = " ".join(str(row) for row in session.connection().execute(text(query)))
    assert "ix_event_verdict" in plan
