"""Advice about a job, gathered and kept: the same question has the same answer until something changed, and the next
answer says what became of the one before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any

import orjson
from sqlalchemy import delete
from sqlmodel import Session, and_, col, or_, select

from backend.answers import verdicts
from backend.answers.verdicts import Snapshot
from backend.cases import saved_by
from backend.decide.advice import SHARED, Known, Trouble, advise
from backend.decide.recovery import SPOILS, Restart, restart
from backend.model.actions import Advice
from backend.model.events import Event
from backend.model.incidents import Incident
from backend.model.work import Attempt
from backend.store import cluster as rows
from backend.store import labels, system
from backend.store.incidents import real
from backend.store.merging import OVER
from backend.store.upsert import portions
from backend.watch import Watch

#: An incident so long before an attempt began, or after it ended, may be what broke it (contracts.md, "Accounting").
BEFORE, AFTER = timedelta(minutes=10), timedelta(minutes=5)
#: An answer that old helps nobody; the newest about a job that is asked for stays.
KEPT = timedelta(days=30)
NOT_FAILED = frozenset({"COMPLETED", "CANCELLED", "PREEMPTED", "TIMEOUT", "DEADLINE", "REVOKED"})


@dataclass(frozen=True, slots=True)
class Given:
    """One answer as it is kept."""

    revision: int
    at: datetime
    mark: str
    body: dict[str, Any]


def advice_on(watch: Watch, seen: Snapshot, job: str, scopes: frozenset[str]) -> Given | None:
    """The answer of now; written down where it is another than the last one. None for a job that nobody knows."""
    with watch.store.read() as session:
        attempts = rows.attempts(session, watch.cluster, [job])
        if not attempts:
            return None
        last = latest(session, watch.cluster, job)
        body = drawn(watch, session, seen, attempts, scopes) | {
            "previous": became(session, watch.cluster, last, attempts)
        }
    mark = blake2b(orjson.dumps(body), digest_size=9).hexdigest()
    if last is not None and (last.mark == mark or _same_but_previous(last, body)):
        return Given(last.revision, last.at, last.mark, last.body)
    return kept(watch, job, body, mark, 1 if last is None else last.revision + 1)


def kept(watch: Watch, job: str, body: dict[str, Any], mark: str, revision: int) -> Given:
    """Write it down; where another process was first with the same number, theirs counts. What was said of other jobs
    long ago is removed."""
    now = watch.clock.now()
    with watch.turn() as session:
        last = latest(session, watch.cluster, job)
        if last is not None and last.revision >= revision:
            return Given(last.revision, last.at, last.mark, last.body)
        old = (col(Advice.cluster) == watch.cluster, col(Advice.job) != job, col(Advice.at) < now - KEPT)
        session.connection().execute(delete(Advice).where(*old))
        session.add(Advice(cluster=watch.cluster, job=job, revision=revision, at=now, mark=mark, body=body))
    return Given(revision, now, mark, body)


def latest(session: Session, cluster: str, job: str) -> Advice | None:
    query = select(Advice).where(col(Advice.cluster) == cluster, col(Advice.job) == job)
    return session.exec(query.order_by(col(Advice.revision).desc()).limit(1)).first()


def _same_but_previous(last: Advice, body: dict[str, Any]) -> bool:
    """What became of the answer before the last is told once; it makes no new one of the same advice."""
    one, other = dict(last.body), dict(body)
    one.pop("previous", None)
    other.pop("previous", None)
    return one == other


def drawn(
    watch: Watch, session: Session, seen: Snapshot, attempts: Sequence[Attempt], scopes: frozenset[str]
) -> dict[str, Any]:
    """All that the answer says but when."""
    newest, cluster = attempts[-1], watch.cluster
    nodes = nodes_of(session, cluster, newest)
    verdict = labels.verdict_of_job(session, cluster, newest.job)
    verdict = verdict if verdict is not None and _within(newest, verdict.at) else None
    troubles = troubles_of(session, cluster, newest, nodes)
    reply = verdicts.query(seen, [*sorted(seen.nodes), *nodes], scopes=scopes)
    avoid = tuple(node for node in reply.avoid if node in nodes or any(node == t.node for t in troubles))
    again = restart_of(watch, newest, [t.kind for t in troubles])
    known = Known(
        state=newest.state,
        whose=_of_class(watch, verdict, "whose"),
        said=f"Its logs say: {verdict.text or verdict.code}" if verdict is not None else "",
        resubmit=_of_class(watch, verdict, "resubmit"),
        in_a_row=in_a_row(attempts),
        troubles=tuple(
            Trouble(t.id or 0, t.kind, t.headline, t.entity_kind in SHARED, t.closed_at is None) for t in troubles
        ),
        breaker=system.breaker(session, cluster),
        restart=again,
        out=(*reply.exclude, *avoid),
    )
    found = advise(known)
    return {
        "job": newest.job,
        "run": newest.run,
        "attempt": newest.restart,
        "life": newest.life,
        "state": newest.state,
        "action": found.action,
        "sentence": found.sentence,
        "why": list(found.why),
        "exclude": list(reply.exclude),
        "avoid": list(avoid),
        "hostlist": reply.hostlist,
        "reasons": {node: list(reply.reasons.get(node, ())) for node in (*reply.exclude, *avoid)},
        "restart_step": again.step if again is not None else None,
        "skip_batches": list(again.skip) if again is not None and again.skip else None,
        "incidents": [t.id for t in troubles],
        "log_class": verdict.code if verdict is not None else "",
        "dark": sorted(watch.dark),
    }


def nodes_of(session: Session, cluster: str, attempt: Attempt) -> list[str]:
    spans = rows.allocations(session, cluster, [attempt.job])
    mine = (s.node for s in spans if (s.life, s.restart) == (attempt.life, attempt.restart))
    return list(dict.fromkeys(mine))


def troubles_of(session: Session, cluster: str, attempt: Attempt, nodes: Sequence[str]) -> list[Incident]:
    """Incidents about the job, its nodes, or what all jobs share, that were open while this attempt ran."""
    if attempt.start is None:
        return []
    still = or_(col(Incident.closed_at).is_(None), col(Incident.closed_at) >= attempt.start - BEFORE)
    query = real(cluster).where(still)
    if attempt.end is not None:
        query = query.where(col(Incident.opened_at) <= attempt.end + AFTER)
    shared = and_(col(Incident.entity_kind).in_(SHARED), col(Incident.closed_at).is_(None))
    found = {row.id or 0: row for row in session.exec(query.where(or_(col(Incident.job) == attempt.job, shared)))}
    for some in portions(nodes):
        found |= {row.id or 0: row for row in session.exec(query.where(col(Incident.node).in_(some)))}
    return [found[number] for number in sorted(found)]


def restart_of(watch: Watch, attempt: Attempt, kinds: Sequence[str]) -> Restart | None:
    """From which saved step it goes on; None where nothing tells of its saves."""
    names = {attempt.job, attempt.run} - {""}
    saved = [row.step for mine in saved_by(watch, names).values() for row in mine]
    if not saved or watch.trained is None:
        return None
    spoils = next((kind for kind in kinds if kind in SPOILS), "")
    onset = watch.trained.step_at(attempt.job, attempt.end.timestamp()) if spoils and attempt.end is not None else None
    return restart(spoils or next(iter(kinds), ""), saved, onset)


def in_a_row(attempts: Sequence[Attempt]) -> int:
    """How many attempts failed one after the other, up to the newest that ended."""
    count = 0
    for row in reversed(attempts):
        if row.state in NOT_FAILED:
            break
        count += row.state in OVER or row.end is not None
    return count


def became(session: Session, cluster: str, last: Advice | None, attempts: Sequence[Attempt]) -> dict[str, Any] | None:
    """What became of the last answer: whether a later attempt began, and whether on nodes that were advised against."""
    if last is None:
        return None
    before = (int(last.body["life"]), int(last.body["attempt"]))
    later = [row for row in attempts if (row.life, row.restart) > before and row.start is not None]
    if not later:
        return last.body.get("previous")
    against = sorted({*last.body["exclude"], *last.body["avoid"]}.intersection(nodes_of(session, cluster, later[0])))
    return {
        "revision": last.revision,
        "action": last.body["action"],
        "followed": last.body["action"] in ("restart", "wait") and not against,
        "attempt": later[0].restart,
        "against": against,
    }


def _within(attempt: Attempt, at: datetime) -> bool:
    """Whether a verdict at this time speaks of this attempt, not of an earlier one."""
    return attempt.start is None or at >= attempt.start


def _of_class(watch: Watch, verdict: Event | None, field: str) -> str:
    if verdict is None or watch.verdicts is None:
        return ""
    found = watch.verdicts.rules.table.classes.get(verdict.code)
    return str(getattr(found, field)) if found is not None else ""
