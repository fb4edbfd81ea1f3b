"""What people said of incidents and jobs, and the verdict on a job's logs that they spoke of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlmodel import Session, col, func, select

from backend.model.base import LARGEST_ID
from backend.model.events import VERDICTS, Event, Finding
from backend.model.incidents import Incident
from backend.model.learning import Label
from backend.model.work import Attempt

#: Labels that are read at once to learn from: the newest.
MOST = 5_000
#: The namespace of a verdict on a job's logs, and the detector that makes it a level.
VERDICT, OUTCOME = "log", "joblog/outcome"


def page(
    session: Session,
    cluster: str,
    limit: int,
    before: int | None = None,
    *,
    incident_id: int | None = None,
    job: str = "",
) -> Sequence[Label]:
    """Newest first; ``before`` is the id to go on from. Only of one incident or one job, where one is named."""
    query = select(Label).where(col(Label.cluster) == cluster)
    if incident_id is not None:
        query = query.where(col(Label.incident_id) == incident_id)
    if job:
        query = query.where(col(Label.job) == job)
    if before is not None:
        query = query.where(col(Label.id) < before)
    return session.exec(query.order_by(col(Label.id).desc()).limit(limit)).all()


def standing(rows: Iterable[Label]) -> list[Label]:
    """The last word of each person on each incident and job, oldest first."""
    last: dict[tuple[str, int | None, str], Label] = {}
    for row in sorted(rows, key=lambda row: row.id or 0):
        last.pop(key := (row.by, row.incident_id, "" if row.incident_id else row.job), None)
        last[key] = row
    return list(last.values())


def newest(session: Session, cluster: str) -> int:
    """The id of the newest label, 0 where there is none."""
    return session.exec(select(func.max(col(Label.id))).where(col(Label.cluster) == cluster)).one() or 0


def verdict_of_job(session: Session, cluster: str, job: str) -> Event | None:
    """The newest verdict on the logs of a job; None where its logs were never judged."""
    if not job:
        return None
    query = select(Event).where(col(Event.cluster) == cluster, col(Event.job) == job)
    query = query.where(VERDICTS)  # the very words of its index: a parameter would not find it
    return session.exec(query.order_by(col(Event.id).desc()).limit(1)).first()


def ran(session: Session, cluster: str, job: str) -> bool:
    """Did a scheduler tell of this job, whether or not anything was said of it?"""
    query = select(col(Attempt.job)).where(col(Attempt.cluster) == cluster, col(Attempt.job) == job)
    return bool(job) and session.exec(query.limit(1)).first() is not None


def of_jobs(session: Session, cluster: str, jobs: Sequence[str]) -> list[Label]:
    """The last word of each person on each of these jobs, oldest first."""
    query = select(Label).where(col(Label.cluster) == cluster, col(Label.job).in_(jobs))
    return standing(session.exec(query.order_by(col(Label.id).desc()).limit(MOST)).all())


def verdict_of_incident(session: Session, row: Incident) -> Event | None:
    """The newest verdict on a job's logs that is evidence of an incident; none where only telemetry or the kernel
    speak. A job that it merely hit is a victim, and its logs say nothing of the cause."""
    query = select(Finding.evidence).where(col(Finding.incident_id) == row.id, col(Finding.detector) == OUTCOME)
    told = session.exec(query.where(col(Finding.victim).is_(False))).all()
    refs = {str(piece.get("ref", "")) for evidence in told for piece in evidence}
    ids = [int(ref[6:]) for ref in refs if ref.startswith("event:") and ref[6:].isdecimal()]
    known = [number for number in ids if number <= LARGEST_ID]
    found = session.exec(select(Event).where(col(Event.cluster) == row.cluster, col(Event.id).in_(known))).all()
    verdicts = [event for event in found if event.namespace == VERDICT]
    return max(verdicts, key=lambda event: event.id or 0, default=None)
