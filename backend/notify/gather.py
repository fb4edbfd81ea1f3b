"""From rows to what routing judges by: an incident as an alert, and what stands around it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlmodel import Session, col, select

from backend.clock import utc
from backend.model.cluster import Node
from backend.model.incidents import Incident
from backend.model.work import Attempt
from backend.notify.routing import Routing
from backend.notify.silences import Alert, Around, Inhibit, Match, Standing, Window, match_of
from backend.store import alerts, outages
from backend.store.upsert import portions
from detectors.model import Severity


@dataclass(frozen=True, slots=True)
class Ahead:
    """What alerts of many incidents need, read in few statements. owners: by job; openings: by incident; nodes: held,
    so that the session finds them again."""

    owners: Mapping[str, tuple[str, str]]
    openings: Mapping[int, tuple[datetime, ...]]
    nodes: Sequence[Node]


def ahead_of(session: Session, rows: Sequence[Incident], routing: Routing) -> Ahead:
    """For ``alert_of`` each of these incidents of one cluster."""
    if not rows:
        return Ahead({}, {}, ())
    nodes: list[Node] = []
    for some in portions(sorted({row.node for row in rows if row.node})):
        nodes += session.exec(select(Node).where(col(Node.cluster) == rows[0].cluster, col(Node.name).in_(some)))
    flaps = routing.flaps
    opened = alerts.openings_of(session, rows, timedelta(seconds=flaps.window_s)) if flaps.count else {}
    return Ahead(owners_of(session, rows[0].cluster, {row.job for row in rows if row.job}), opened, nodes)


def alert_of(
    session: Session, incident: Incident, routing: Routing, now: datetime, ahead: Ahead | None = None
) -> Alert:
    """What routing is to know of an incident, with the place of its node and the owner of its job."""
    ahead = ahead if ahead is not None else ahead_of(session, [incident], routing)
    bare = _bare(session, incident, now)
    owner, team = ahead.owners.get(incident.job, ("", ""))
    return Alert(
        **{name: getattr(bare, name) for name in Alert.__slots__ if name not in ("owner", "team", "openings")},
        owner=owner,
        team=team,
        openings=ahead.openings.get(incident.id or 0, ()),
    )


def _bare(session: Session, incident: Incident, now: datetime) -> Alert:
    node = session.get(Node, (incident.cluster, incident.node)) if incident.node else None
    place = incident.entity_name.rpartition(":")[2]
    return Alert(
        cluster=incident.cluster,
        kind=incident.kind,
        severity=Severity.of(incident.severity),
        at=now,
        incident=incident.id or 0,
        entity=incident.entity_name,
        entity_kind=incident.entity_kind,
        node=incident.node,
        rack=node.rack if node else place if incident.entity_kind == "rack" else "",
        switch=node.switch if node else place if incident.entity_kind == "switch" else "",
        job=incident.job,
    )


def owners_of(session: Session, cluster: str, jobs: Collection[str]) -> dict[str, tuple[str, str]]:
    """User and account of each job's newest attempt; those that nobody knows are left out."""
    found: dict[str, tuple[str, str]] = {}
    for some in portions(sorted(jobs)):
        mine = (col(Attempt.cluster) == cluster, col(Attempt.job).in_(some))
        query = select(Attempt.job, Attempt.user, Attempt.account).where(*mine)
        for job, user, account in session.exec(query.order_by(col(Attempt.life), col(Attempt.restart))):
            found[job] = user, account
    return found


def around(session: Session, cluster: str, routing: Routing, now: datetime) -> Around:
    """Silences, announced work and live incidents of a cluster that may hold an alert back."""
    return Around(
        windows=[*_silences(session, cluster, now), *_maintenances(session, cluster, now)],
        standing=_standing(session, cluster, routing.inhibit, now),
        inhibit=routing.inhibit,
        flaps=routing.flaps,
    )


def _silences(session: Session, cluster: str, now: datetime) -> list[Window]:
    return [
        Window(
            row.id or 0,
            "maintenance" if row.kind == "maintenance" else "silence",
            match_of(row.matches),
            row.starts_at,
            row.ends_at,
            row.created_by,
            row.comment,
        )
        for row in alerts.silences(session, cluster, now)
    ]


def _maintenances(session: Session, cluster: str, now: datetime) -> list[Window]:
    """What sources announced (a MAINT reservation), for the nodes that it names."""
    return [
        Window(
            0,
            "maintenance",
            Match(node=one.nodes),
            utc(one.start),
            utc(one.end) if one.end is not None else None,
            one.source,
            one.text or one.name,
        )
        for one in outages.maintenances(session, cluster, now, now)
        if one.nodes
    ]


def _standing(session: Session, cluster: str, rules: tuple[Inhibit, ...], now: datetime) -> list[Standing]:
    """Live incidents that may speak for others: of places, and those that a rule names."""
    kinds = tuple(pattern for rule in rules for pattern in (rule.cause.kind or ("*",)))
    return [Standing(_bare(session, row, now), row.opened_at) for row in alerts.may_speak(session, cluster, kinds)]
