"""Whose work something is: what somebody who is limited to projects sees, and what they may change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from sqlmodel import Session, col, select

from backend.auth import Person
from backend.model.actions import Decision, Order
from backend.model.incidents import Incident
from backend.model.learning import Label
from backend.model.work import Attempt

T = TypeVar("T", bound=Incident | Order | Decision | Label)


def projects_of(session: Session, cluster: str, jobs: Iterable[str]) -> dict[str, str]:
    """The account of each job's newest attempt; a job that nobody knows is left out."""
    found: dict[str, str] = {}
    wanted = sorted({job for job in jobs if job})
    for start in range(0, len(wanted), 500):
        query = select(Attempt.job, Attempt.account).where(
            col(Attempt.cluster) == cluster, col(Attempt.job).in_(wanted[start : start + 500])
        )
        found.update(session.exec(query.order_by(col(Attempt.life), col(Attempt.restart))).all())
    return found


def sees_job(session: Session, cluster: str, person: Person, job: str) -> bool:
    """A job is its project's; one that nobody knows is shown to nobody who is limited."""
    return not person.projects or person.sees_project(projects_of(session, cluster, [job]).get(job, ""))


def seen(session: Session, cluster: str, person: Person, rows: Sequence[T]) -> list[T]:
    """The rows that somebody may see: those about jobs of their projects, and those about no job, which are the
    cluster's own."""
    if not person.projects:
        return list(rows)
    jobs = {key: job for row in rows for key, job in [(_key(row), _job(session, row))]}
    projects = projects_of(session, cluster, jobs.values())
    return [row for row in rows if not (job := jobs[_key(row)]) or person.sees_project(projects.get(job, ""))]


def may_change(session: Session, cluster: str, person: Person, job: str) -> bool:
    """Who is limited to projects changes what is theirs, and nothing that is everybody's."""
    return not person.projects or (bool(job) and sees_job(session, cluster, person, job))


def _key(row: Incident | Order | Decision | Label) -> tuple[str, int]:
    return type(row).__name__, row.id or 0


def _job(session: Session, row: Incident | Order | Decision | Label) -> str:
    """The job that a row is about, by itself or by its incident; "" = none."""
    if isinstance(row, Incident):
        return row.job
    if isinstance(row, Label) and row.job:
        return row.job
    incident = session.get(Incident, row.incident_id) if row.incident_id is not None else None
    return incident.job if incident is not None else ""
