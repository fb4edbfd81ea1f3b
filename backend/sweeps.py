"""Sweeps: idle nodes are checked before work goes there; one that fails opens an incident, which the guards judge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta

from sqlmodel import Session

from backend.act.base import ActionError
from backend.act.checks import Check, Report, run_check
from backend.clock import unix
from backend.decide import sweeping
from backend.facts import HypothesisFacts, NodeFacts
from backend.model.checks import Check as Row
from backend.model.incidents import Incident
from backend.store import actions, checks, incidents, system
from backend.store import cluster as cluster_rows
from backend.watch import Watch

#: A node that failed is checked again after this, s.
AGAIN_S = 3600.0
#: Results that are compared are at most as old as this, s.
COMPARED_S = 86_400.0

Run = Callable[[Check, str, str], Report]


def run_now(check: Check, node: str, peer: str) -> Report:
    return run_check(check, node, peer)


@dataclass(frozen=True, slots=True)
class Idle:
    """The idle nodes of this moment, and what was found of them before."""

    nodes: tuple[NodeFacts, ...]
    latest: dict[tuple[str, str], Row]


def sweep(watch: Watch, run: Run = run_now) -> bool:
    """One check on one idle node, or one round of pair tests. True where there was one."""
    hold(watch)
    wanted = [check for check in watch.checks if check.on in ("idle", "any")]
    if not wanted or watch.backend is None or not allowed(watch):
        return False
    idle, now = _idle(watch), unix(watch.clock.now())
    for check in wanted:
        mine = {node: row for (node, name), row in idle.latest.items() if name == check.name}
        at = {node: unix(row.at) for node, row in mine.items()}
        failed = [node for node, row in mine.items() if row.verdict == "fail"]
        names = sweeping.due(idle.nodes, at, now, check.every_s, AGAIN_S, failed)
        if check.paired and len(names) >= 2:
            _pairs(watch, check, names, run)
            return True
        if names and not check.paired and _still(watch, names[0]):
            found = run(check, names[0], "")
            note(watch, check, names[0], "", "idle", found)
            return True
    return False


def allowed(watch: Watch) -> bool:
    """A check runs on the cluster: only act mode starts it, and where neither kill switch nor breaker is against it."""
    with watch.store.read() as session:
        stopped = system.kill_switch(session, watch.cluster) or bool(system.breaker(session, watch.cluster))
    return watch.rules.mode == "act" and not stopped


def hold(watch: Watch) -> None:
    """What a check found holds until the check passes: the incident does not become clear by silence."""
    if not watch.checks:
        return
    with watch.store.read() as session:
        held = [row.incident_id for row in checks.failing(session, watch.cluster) if row.incident_id is not None]
        rows = [session.get(Incident, one) for one in held]
        clearing = [r.id for r in rows if r is not None and r.state != "resolved" and r.clear_s and not r.resolving_by]
    for number in clearing:
        with watch.turn() as session:
            row = session.get_one(Incident, number)
            if not row.resolving_by:
                row.clear_s, row.last_asserted_at = 0.0, watch.clock.now()
                session.add(row)


def _idle(watch: Watch) -> Idle:
    now = watch.clock.now()
    with watch.store.read() as session:
        fleet = cluster_rows.node_facts(session, watch.cluster)
        excluded = {row.node for row in actions.live_exclusions(session, watch.cluster, now)}
        known = checks.latest(session, watch.cluster)
    failed = {node for (node, _), row in known.items() if row.verdict == "fail"}
    fresh = [n for n in fleet if abs(unix(now) - n.read_at) <= watch.rules.limits.fresh_s]
    return Idle(tuple(n for n in fresh if sweeping.sweepable(n, excluded, failed)), known)


def _still(watch: Watch, *names: str) -> bool:
    """Read now: work may have come, or somebody may have taken the node, since the scheduler was last listed."""
    assert watch.backend is not None
    if not allowed(watch):
        return False
    try:
        nodes = [watch.backend.read(name) for name in names]
    except ActionError:
        return False
    return all(sweeping.sweepable(node, (), names) for node in nodes)


def _pairs(watch: Watch, check: Check, names: Sequence[str], run: Run) -> None:
    told: dict[str, Report] = {}
    peers: dict[str, str] = {}

    def passes(one: str, two: str) -> bool | None:
        if not _still(watch, one, two):
            return None
        found = run(check, one, two)
        for node, peer in ((one, two), (two, one)):
            if node not in told or found.verdict in ("pass", "warn"):
                told[node], peers[node] = found, peer
        return None if found.verdict == "unknown" else found.verdict != "fail"

    turn = int(unix(watch.clock.now()) // max(check.every_s, 60.0))
    fine, bad = sweeping.suspects_of(names, passes, turn)
    for node in names[: sweeping.MOST_NODES]:
        report = told.get(node, Report("unknown", "nothing was run: it is no longer idle"))
        if node in bad:
            report = replace(report, verdict="fail")
        elif node in fine:
            report = replace(report, verdict="warn" if report.verdict == "warn" else "pass")
        elif report.verdict == "fail":
            report = Report("unknown", f"it failed with {peers[node]}, and no node that passes was there to tell whose")
        note(watch, check, node, peers.get(node, ""), "idle", report)


def note(watch: Watch, check: Check, node: str, peer: str, occasion: str, found: Report) -> Row:
    """Keep a result. One that fails in a sweep opens an incident; one before a return keeps its order from going on."""
    now = watch.clock.now()
    with watch.turn() as session:
        if check.compare and found.verdict in ("pass", "warn"):
            found = _compared(session, watch, check, node, found)
        row = Row(
            cluster=watch.cluster,
            node=node,
            peer=peer,
            name=check.name,
            occasion=occasion,
            at=now,
            verdict=found.verdict,
            text=found.text,
            reading=dict(found.values),
            digest=found.digest,
        )
        if found.verdict == "fail" and occasion == "idle":
            row.incident_id = _incident(session, watch, check, node, found)
        checks.add(session, row)
    watch.changes.nudge()
    return row


def _compared(session: Session, watch: Watch, check: Check, node: str, found: Report) -> Report:
    since = watch.clock.now() - timedelta(seconds=COMPARED_S)
    rows = checks.since(session, watch.cluster, check.name, since)
    others = {row.node: row.digest for row in rows if row.node != node and row.digest and row.verdict != "fail"}
    why = sweeping.differs(found.digest, others)
    return replace(found, verdict="fail", text=f"{why}: {found.text}") if why else found


def _incident(session: Session, watch: Watch, check: Check, node: str, found: Report) -> int:
    """The incident of a failed check: the one that stands, or a new one that the decide loop judges as any other."""
    for row in incidents.live_on(session, watch.cluster, node):
        if row.kind == check.kind and row.id is not None and not row.drill:
            row.clear_s, row.last_asserted_at = 0.0, watch.clock.now()
            session.add(row)
            return row.id
    made = raised(session, watch, check.kind, node, f"Check {check.name} of {node} failed: {found.text}"[:500])
    assert made.id is not None
    return made.id


def raised(session: Session, watch: Watch, kind: str, node: str, why: str, drill: str = "") -> Incident:
    """An incident of a node that no detector raised: a check did, or ``drill`` drills it. What was tried on purpose
    counts as what the kind is believed by."""
    now, known = watch.clock.now(), watch.catalogue.kinds.get(kind)
    authority = known.authorities[0] if known is not None and "state" not in known.authorities else "state"
    row = Incident(
        cluster=watch.cluster,
        kind=kind,
        severity=known.severity.word if known is not None else "high",
        headline=why,
        entity_kind="node",
        entity_id=node,
        entity_name=node,
        node=node,
        opened_at=now,
        changed_at=now,
        last_asserted_at=now,
        hypotheses=[asdict(HypothesisFacts(kind, node, "node", node, 1.0, why, authority))],
        entities=[node],
        dark=list(watch.dark),
        drill=drill,
    )
    session.add(row)
    session.flush()
    incidents.tell(session, row, now, "opened", why)
    return row
