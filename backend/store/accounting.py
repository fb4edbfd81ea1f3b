"""Every attempt of a cluster with the nodes it held, as the accounting takes them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime

from sqlalchemy import func, or_
from sqlmodel import Session, col, select

from backend.facts import AttemptFacts
from backend.model.events import Event
from backend.model.work import Allocation, Attempt
from backend.store.cluster import attempt_facts, attempts
from backend.store.upsert import portions


def every_attempt(session: Session, cluster: str) -> Iterator[AttemptFacts]:
    """By job, life and restart, whatever became of them; read some hundred jobs at a time."""
    jobs = session.exec(select(Attempt.job).where(col(Attempt.cluster) == cluster).distinct())
    for some in portions(sorted(jobs)):
        yield from _facts(session, cluster, attempts(session, cluster, some))


def attempts_since(session: Session, cluster: str, since: datetime, most: int) -> tuple[list[AttemptFacts], int]:
    """(the newest ``most`` attempts that ran, waited or ended after ``since``, how many more there are)."""
    ended = or_(col(Attempt.end) >= since, col(Attempt.end).is_(None))
    mine = select(Attempt).where(col(Attempt.cluster) == cluster, ended)
    count = session.exec(select(func.count()).select_from(mine.subquery())).one()
    first = func.coalesce(col(Attempt.start), col(Attempt.submit), col(Attempt.eligible))
    rows = session.exec(mine.order_by(first.desc(), col(Attempt.job), col(Attempt.restart)).limit(most)).all()
    found = [facts for some in portions(rows) for facts in _facts(session, cluster, some)]
    return found, max(0, count - len(rows))


def verdicts_since(session: Session, cluster: str, since: datetime) -> list[Event]:
    """What was said of the logs of jobs, oldest first."""
    query = select(Event).where(col(Event.cluster) == cluster, col(Event.namespace) == "log", col(Event.at) >= since)
    return list(session.exec(query.order_by(col(Event.id))))


def _facts(session: Session, cluster: str, rows: Iterable[Attempt]) -> Iterator[AttemptFacts]:
    """Attempts with the nodes that they held; of some hundred rows at most."""
    rows = list(rows)
    held: defaultdict[tuple[str, int, int], list[Allocation]] = defaultdict(list)
    jobs = sorted({row.job for row in rows})
    query = select(Allocation).where(col(Allocation.cluster) == cluster, col(Allocation.job).in_(jobs))
    for span in session.exec(query.order_by(col(Allocation.id))):
        held[(span.job, span.life, span.restart)].append(span)
    for row in rows:
        yield attempt_facts(row, held[(row.job, row.life, row.restart)])
