"""Exclusions as everybody reads them: who keeps which node from whose work, why, how surely, until when, and what was
changed; and those that ended, with whether they proved right."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from sqlmodel import Session, col, or_, select

from backend.model.actions import Decision, Exclusion, Order
from backend.model.incidents import Incident
from backend.model.learning import Label
from backend.store import actions
from backend.store.incidents import real
from backend.store.upsert import portions

#: Only these bind anybody (contracts.md, "Binding").
BINDING = frozenset({"person", "approved", "act"})
#: Reasons of one exclusion that are told.
MOST_EVIDENCE = 5
#: A node that breaks again this soon after it was given back was kept out for a reason.
SOON = timedelta(days=7)

Proof = Literal["right", "wrong", "open"]
Row = dict[str, Any]


def live(session: Session, exclusions: Sequence[Exclusion], kept: Mapping[str, Decision]) -> list[Row]:
    """Those that hold now, oldest first, then one row for each node that a plan nobody approved would take out."""
    causes = _incidents(session, [row.incident_id for row in exclusions] + [plan.incident_id for plan in kept.values()])
    rows = [row_of(row, causes.get(row.incident_id or 0)) for row in exclusions]
    held = {row.node for row in exclusions if not row.scope}
    return rows + [
        _planned(node, plan, causes.get(plan.incident_id)) for node, plan in kept.items() if node not in held
    ]


def row_of(row: Exclusion, cause: Incident | None = None) -> Row:
    """One exclusion. ``confidence``: of the incident's best hypothesis about the node; a person's word has none."""
    confidence, evidence = _grounds(cause, row.node)
    return {
        "id": row.id,
        "node": row.node,
        "origin": row.origin,
        "binding": row.origin in BINDING and row.lifted_at is None,
        "owner": row.owner,
        "reason": row.reason,
        "kind": row.kind,
        "scope": row.scope,
        "confidence": confidence,
        "evidence": evidence,
        "incident": row.incident_id,
        "created_at": row.created_at,
        "until": row.until,
        "lifted_at": row.lifted_at,
        "lifted_by": row.lifted_by,
        "lift_reason": row.lift_reason,
        "history": row.past,
    }


def _planned(node: str, plan: Decision, cause: Incident | None) -> Row:
    confidence, evidence = _grounds(cause, node)
    return {
        "id": None,
        "node": node,
        "origin": "proposed",
        "binding": False,
        "owner": "watchkeeper",
        "reason": plan.sentence,
        "kind": cause.kind if cause is not None else "",
        "scope": "",
        "confidence": confidence,
        "evidence": evidence,
        "incident": plan.incident_id,
        "created_at": plan.at,
        "until": None,
        "lifted_at": None,
        "lifted_by": "",
        "lift_reason": "",
        "history": [],
    }


def _grounds(cause: Incident | None, node: str) -> tuple[float | None, list[str]]:
    if cause is None:
        return None, []
    about = [h for h in cause.hypotheses if str(h.get("node") or "") == node]
    scores = [float(h.get("score") or 0.0) for h in about]
    said = dict.fromkeys(str(h.get("reason") or "") for h in about)
    return (round(max(scores), 3) if scores else None), [text for text in said if text][:MOST_EVIDENCE]


# --- those that ended -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ended:
    """An exclusion that ended. ``proof``: whether it proved right, as far as anybody can tell; ``why`` says by what."""

    row: Row
    at: datetime
    how: str
    proof: Proof
    why: str


def ended(session: Session, cluster: str, now: datetime, limit: int, *, node: str = "") -> list[Ended]:
    """Newest first."""
    query = select(Exclusion).where(col(Exclusion.cluster) == cluster)
    query = query.where(or_(col(Exclusion.lifted_at).is_not(None), col(Exclusion.until) <= now))
    if node:
        query = query.where(col(Exclusion.node) == node)
    rows = list(session.exec(query.order_by(col(Exclusion.id).desc()).limit(limit)).all())
    causes = _incidents(session, [row.incident_id for row in rows])
    labels, later, checks = (
        _labels(session, cluster, causes),
        _later(session, cluster, rows),
        _checks(session, cluster, rows),
    )
    return [
        _ended(
            row,
            now,
            causes.get(row.incident_id or 0),
            labels.get(row.incident_id or 0),
            later[row.node],
            checks[row.node],
        )
        for row in rows
    ]


def _ended(
    row: Exclusion,
    now: datetime,
    cause: Incident | None,
    label: Label | None,
    later: Sequence[Incident],
    checks: Sequence[Order],
) -> Ended:
    at = row.until if row.lifted_at is None else min(row.lifted_at, row.until)
    how = f"lifted by {row.lifted_by}" if row.lifted_at is not None and row.lifted_at <= row.until else "ran out"
    proof, why = proved(row, at, now, label, later, checks)
    return Ended(row_of(row, cause), at, how, proof, why)


def proved(
    row: Exclusion,
    at: datetime,
    now: datetime,
    label: Label | None,
    later: Sequence[Incident],
    checks: Sequence[Order],
) -> tuple[Proof, str]:
    """Did it prove right? By the strongest witness: a person's word on its incident, a check of the node while it was
    out, a new fault while it was out or within SOON of its end; else it stays open."""
    if label is not None:
        return ("right" if label.right else "wrong"), f"{label.by} said so"
    failed = [c for c in checks if row.created_at <= c.created_at <= at and c.state == "failed"]
    if failed:
        return "right", "its check failed while it was out"
    others = [one for one in later if one.id != row.incident_id and one.opened_at > row.created_at]
    while_out = [one for one in others if one.opened_at <= at]
    if while_out:
        return "right", f"it broke while it was out: incident {while_out[0].id}"
    soon = [one for one in others if at < one.opened_at <= at + SOON]
    if soon:
        return "right", f"it broke again {days((soon[0].opened_at - at).total_seconds())} later: incident {soon[0].id}"
    if now - at < SOON:
        return "open", f"not known before {(at + SOON).strftime('%Y-%m-%d')}"
    return "open", "nothing broke in the week after: mended, or never broken"


def days(seconds: float) -> str:
    return f"{seconds / 3600:.0f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"


def _incidents(session: Session, ids: Sequence[int | None]) -> dict[int, Incident]:
    found: dict[int, Incident] = {}
    for some in portions(sorted({one for one in ids if one is not None})):
        for row in session.exec(select(Incident).where(col(Incident.id).in_(some))):
            found[row.id or 0] = row
    return found


def _labels(session: Session, cluster: str, causes: Mapping[int, Incident]) -> dict[int, Label]:
    """The last word of a person on each incident."""
    found: dict[int, Label] = {}
    for some in portions(sorted(causes)):
        query = select(Label).where(col(Label.cluster) == cluster, col(Label.incident_id).in_(some))
        found |= {row.incident_id or 0: row for row in session.exec(query.order_by(col(Label.id)))}
    return found


def _later(session: Session, cluster: str, rows: Sequence[Exclusion]) -> defaultdict[str, list[Incident]]:
    """Incidents of machines on these nodes since the first of the exclusions, in order of opening."""
    found: defaultdict[str, list[Incident]] = defaultdict(list)
    since = min((row.created_at for row in rows), default=None)
    for some in portions(sorted({row.node for row in rows})):
        query = real(cluster).where(col(Incident.node).in_(some))
        query = query.where(col(Incident.opened_at) > since, col(Incident.entity_kind).not_in(("job", "run", "rank")))
        for row in session.exec(query.order_by(col(Incident.opened_at))):
            if not row.kind.startswith("telemetry_"):
                found[row.node].append(row)
    return found


def _checks(session: Session, cluster: str, rows: Sequence[Exclusion]) -> defaultdict[str, list[Order]]:
    found: defaultdict[str, list[Order]] = defaultdict(list)
    for some in portions(sorted({row.node for row in rows})):
        query = select(Order).where(col(Order.cluster) == cluster, col(Order.node).in_(some))
        for row in session.exec(query.where(col(Order.verb) == actions.CHECK).order_by(col(Order.id))):
            found[row.node].append(row)
    return found
