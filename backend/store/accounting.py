"""Every attempt of a cluster with the nodes it held, as the accounting takes them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from sqlmodel import Session, col, select

from backend.facts import AttemptFacts
from backend.model.work import Allocation, Attempt
from backend.store.cluster import attempt_facts, attempts
from backend.store.upsert import portions


def every_attempt(session: Session, cluster: str) -> Iterator[AttemptFacts]:
    """By job, life and restart, whatever became of them; read some hundred jobs at a time."""
    jobs = session.exec(select(Attempt.job).where(col(Attempt.cluster) == cluster).distinct())
    for some in portions(sorted(jobs)):
        held: defaultdict[tuple[str, int, int], list[Allocation]] = defaultdict(list)
        query = select(Allocation).where(col(Allocation.cluster) == cluster, col(Allocation.job).in_(some))
        for span in session.exec(query.order_by(col(Allocation.id))):
            held[(span.job, span.life, span.restart)].append(span)
        for row in attempts(session, cluster, some):
            yield attempt_facts(row, held[(row.job, row.life, row.restart)])
