"""How nodes are tied to leaves and file servers, and since when."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import update
from sqlmodel import Session, col, select

from backend.facts import CableFacts
from backend.model.past import Cable
from backend.store.upsert import add, portions, table_of


def follow(session: Session, cluster: str, told: Sequence[CableFacts], source: str, now: datetime) -> None:
    """A port that is told with another peer was plugged elsewhere; one that is not told stays as it was."""
    if not told:
        return
    known = {(row.kind, row.node, row.port): row for row in cables(session, cluster, {one.node for one in told})}
    fresh = {(one.kind, one.node, one.port): one for one in told}
    ended: list[int] = []
    made: list[dict[str, object]] = []
    for key, one in fresh.items():
        row = known.get(key)
        if row is not None and (row.peer, row.peer_port, row.rail) == (one.peer, one.peer_port, one.rail or row.rail):
            continue
        if row is not None:
            ended.append(row.id or 0)
        kind, node, port = key
        tie = {"cluster": cluster, "kind": kind, "node": node, "port": port, "peer": one.peer, "source": source}
        made.append(tie | {"peer_port": one.peer_port, "rail": one.rail, "start": now, "end": None})
    table = table_of(Cable)
    for some in portions(sorted(ended)):
        session.connection().execute(update(table).where(table.c.id.in_(some)).values(end=now))
    add(session, Cable, made)


def cables(session: Session, cluster: str, nodes: set[str] | None = None) -> list[Cable]:
    """Ties that hold, by node and port; with ``nodes`` theirs only."""
    query = select(Cable).where(col(Cable.cluster) == cluster, col(Cable.end).is_(None))
    query = query.order_by(col(Cable.node), col(Cable.port))
    if nodes is None:
        return list(session.exec(query))
    found: list[Cable] = []
    for some in portions(sorted(nodes)):
        found += session.exec(query.where(col(Cable.node).in_(some)))
    return found
