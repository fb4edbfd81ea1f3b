"""Who watches a cluster: every query about leases. Times are the database's own, so that hosts' clocks may differ."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlmodel import Session, func, select

from backend.model.system import Lease
from backend.store.claims import claim, take_turn


class LeaseLost(RuntimeError):
    """Another process watches this cluster now; what this one was about to commit counts for nothing."""


def take(session: Session, cluster: str, holder: str, who: str, length_s: float, now: datetime) -> int:
    """The number of the term that begins for ``holder``; 0 while another holds the lease.

    holder: stays the same over a restart of one replica, whose own old lease it need not wait for. who: for people.
    now: the clock of a database that has none of its own (SQLite).
    """
    take_turn(session, cluster)  # whatever the last holder was committing is committed before the term changes
    moment = _now(session, now)
    row = session.get(Lease, cluster)
    until = moment + timedelta(seconds=length_s)
    if row is None:
        session.add(Lease(cluster=cluster, holder=holder, who=who, term=1, since=moment, until=until))
        session.flush()
        return 1
    if row.holder != holder and row.until > moment:
        return 0
    term = row.term + 1
    change = {"holder": holder, "who": who, "term": term, "since": moment, "until": until}
    return term if claim(session, Lease, cluster, {"term": row.term, "until": row.until}, change) else 0


def keep(session: Session, cluster: str, term: int, length_s: float, now: datetime) -> bool:
    """Hold on for another ``length_s``; False when another took over."""
    until = _now(session, now) + timedelta(seconds=length_s)
    return claim(session, Lease, cluster, {"term": term}, {"until": until})


def give_up(session: Session, cluster: str, term: int, now: datetime) -> None:
    """The next one need not wait: this process ends."""
    claim(session, Lease, cluster, {"term": term}, {"until": _now(session, now), "holder": ""})


def still(session: Session, cluster: str, term: int) -> None:
    """Inside a turn, before its commit. Raises LeaseLost where another term has begun."""
    found = session.exec(select(Lease.term).where(Lease.cluster == cluster)).first()
    if found != term:
        raise LeaseLost(f"another process watches {cluster} now (term {found}, ours was {term})")


def lease(session: Session, cluster: str) -> Lease | None:
    """Who watches a cluster, or did last; None where nobody ever did."""
    return session.get(Lease, cluster)


def _now(session: Session, now: datetime) -> datetime:
    if session.get_bind().dialect.name != "postgresql":
        return now
    moment: datetime = session.exec(select(func.clock_timestamp())).one()
    return moment
