"""What happened on the site: a lost GPU that waits, a drain on its way, a warm node, two dark ones, some history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from sqlmodel import Session

from backend.facts import Blast, GuardVerdict, HypothesisFacts, PlannedStep, Rung, Verb
from backend.model.actions import Decision, Exclusion, Order
from backend.model.events import Event, Finding
from backend.model.incidents import Entry, Incident
from backend.model.past import Cable, Change, DeviceSpan, NodeSpan, Outage, Version
from backend.model.work import Allocation, Attempt
from backend.registry import Parts
from detectors.model import Evidence
from tests.backend.web.site import NODES, beats, fleet, jobs, name, rack, uuid

LINE = "NVRM: Xid (PCI:0000:9d:00): 79, pid=4711, GPU has fallen off the bus."


def fill(parts: Parts) -> None:
    """The whole story."""
    now = parts.clock.now()
    with parts.store.write() as session:
        fleet(session, now)
        jobs(session, now)
        lost_gpu(session, now)
        link_down(session, now)
        warm_node(session, now)
        dark_nodes(session, now)
        history(session, now)
        beats(session, now)
        changes(session, now)


def incident(session: Session, now: datetime, minutes: float, **more: Any) -> Incident:
    at = now - timedelta(minutes=minutes)
    base: dict[str, Any] = {
        "cluster": "main",
        "opened_at": at,
        "changed_at": at,
        "last_asserted_at": at,
        "state": "open",
    }
    row = Incident(**(base | more))
    session.add(row)
    session.flush()
    tell(session, row, at, "opened", row.headline)
    return row


def tell(session: Session, row: Incident, at: datetime, what: str, text: str, actor: str = "") -> None:
    session.add(Entry(cluster="main", incident_id=row.id or 0, at=at, what=what, text=text, actor=actor))


def finding(
    session: Session,
    row: Incident,
    detector: str,
    since: datetime,
    reason: str,
    evidence: Sequence[Evidence],
    **more: Any,
) -> None:
    base: dict[str, Any] = {
        "cluster": "main",
        "key": f"{detector}|{row.kind}|{row.entity_id}|{since.timestamp()}",
        "detector": detector,
        "kind": row.kind,
        "entity_kind": row.entity_kind,
        "entity_id": row.entity_id,
        "entity_name": row.entity_name,
        "node": row.node,
        "severity": row.severity,
        "score": 0.9,
        "since": since,
        "reason": reason,
        "evidence": [asdict(piece) for piece in evidence],
        "raised_at": since,
        "emitted_at": since,
        "incident_id": row.id,
    }
    session.add(Finding(**(base | more)))


def hypothesis(kind: str, entity: str, node: str, score: float, reason: str, authority: str = "vote") -> dict[str, Any]:
    return asdict(HypothesisFacts(kind, entity, "gpu" if "/" in entity else "node", node, score, reason, authority))


def lost_gpu(session: Session, now: datetime) -> Incident:
    """The one that waits for a person."""
    node, at = name(11), now - timedelta(minutes=22)
    headline = f"GPU 3 of {node} is lost on PCIe (Xid 79)."
    row = incident(
        session,
        now,
        22,
        kind="gpu_bus_loss",
        severity="critical",
        headline=headline,
        entity_kind="gpu",
        entity_id=uuid(11, 3),
        entity_name=f"{node}/gpu3",
        node=node,
        job="41207",
        entities=[f"{node}/gpu3"],
        victims=[name(i) for i in range(16) if i != 11],
        hypotheses=[
            hypothesis("gpu_bus_loss", f"{node}/gpu3", node, 0.97, headline, "code"),
            hypothesis("pcie_width_downgrade", node, node, 0.31, "The link fell from x16 to x8 twice in 14 days"),
            hypothesis("job_hang", "job:41207", "", 0.06, "All 128 ranks wait in the same collective"),
        ],
    )
    line = Event(
        cluster="main",
        at=at,
        received_at=at,
        namespace="xid",
        code="79",
        node=node,
        entity_kind="gpu",
        entity_id=uuid(11, 3),
        entity_name=f"{node}/gpu3",
        job="41207",
        text=LINE,
        source="logs",
        dedupe="79",
    )
    session.add(line)
    session.flush()
    seen = [Evidence("kernel log", LINE, ref=f"event:{line.id}")]
    finding(session, row, "kernel/xid", at, headline, seen)
    silent = at + timedelta(seconds=8)
    gone = Evidence("series that report", "0", "15", "series", "metric:gpu/temperature_c")
    beside = Evidence("neighbours that report", "7", unit="GPUs")
    finding(
        session,
        row,
        "telemetry/silence",
        silent,
        f"GPU 3 of {node} is silent: none of its 15 series came.",
        [gone, beside],
    )
    for i in range(15):
        late = now - timedelta(minutes=11 - i * 0.5)
        other = name(i if i < 11 else i + 1)
        finding(
            session,
            row,
            "joblog/nccl",
            late,
            "NCCL time-out",
            [Evidence("time-out", "600", unit="s", grade="derived")],
            kind="job_hang",
            entity_kind="node",
            entity_id=other,
            entity_name=other,
            node=other,
            victim=True,
        )
    tell(session, row, silent, "evidence", f"GPU 3 of {node} is silent: none of its 15 series came.")
    tell(session, row, now - timedelta(minutes=11), "folded", "15 NCCL time-outs on other nodes wait for it.")
    decide(session, row, now - timedelta(minutes=21), node, "41207")
    return row


def guards(out: int = 3) -> list[dict[str, Any]]:
    rows = (
        GuardVerdict("kill switch", "holds", "The kill switch is off.", "off", "off"),
        GuardVerdict("mode", "holds", "The mode is propose.", "propose", "propose or act"),
        GuardVerdict("a person approves", "asks", "Nothing happens before a person approves it.", "yours"),
        GuardVerdict("foreign owner", "holds", "Nobody else took the node out.", "none", "none"),
        GuardVerdict(
            "nodes out of the fleet", "holds", f"{out} nodes of 48 out with this plan; 4 may be.", f"{out} of 4", "4"
        ),
        GuardVerdict("cooldown", "holds", "No action on it in the last 60 min.", "none", "60 min apart"),
        GuardVerdict("fresh", "holds", "What the plan rests on was read lately.", "4 s", "under 60 s"),
        GuardVerdict("dark sources", "holds", "Silent: loki. The evidence does not rest on it.", "loki", "none"),
        GuardVerdict("backend", "holds", "The backend can do each step.", "drain, requeue", "drain, requeue"),
    )
    return [asdict(row) for row in rows]


def decide(session: Session, row: Incident, at: datetime, node: str, job: str, state: str = "proposed") -> Decision:
    steps = [PlannedStep(Rung.EXCLUDE, None, node, "", f"Exclude {node} for 7 days.")]
    steps.append(PlannedStep(Rung.DRAIN_NOW, Verb.DRAIN, node, "", f"Drain {node} now."))
    if job:
        steps.append(PlannedStep(Rung.REQUEUE, Verb.REQUEUE, node, job, f"Requeue job {job} without {node}."))
    decision = Decision(
        cluster="main",
        incident_id=row.id or 0,
        revision=row.revision,
        at=at,
        mode="propose",
        state=state,
        sentence=f"Drain {node} and requeue job {job} without it." if job else f"Drain {node}; no job runs there.",
        recommended="drain_now",
        plan=[asdict(step) for step in steps],
        advice=[f"Reboot {node} once it is empty."],
        blast=asdict(Blast((node,), (job,) if job else (), (), 128 if job else 8)),
        guards=guards(),
    )
    row.decided_revision = row.revision
    session.add_all([decision, row])
    session.flush()
    tell(session, row, at, "decision", decision.sentence)
    return decision


def link_down(session: Session, now: datetime) -> None:
    """Approved; the drain is on its way."""
    node = name(25)
    row = incident(
        session,
        now,
        103,
        kind="ib_link_down",
        severity="high",
        headline=f"InfiniBand port mlx5_2 of {node} is down.",
        entity_kind="node",
        entity_id=node,
        entity_name=node,
        node=node,
        job="41233",
        state="acknowledged",
        acknowledged_by="approver",
        acknowledged_at=now - timedelta(minutes=95),
        hypotheses=[hypothesis("ib_link_down", node, node, 0.88, "The port has been down since then")],
    )
    decision = decide(session, row, now - timedelta(minutes=102), node, "")
    decision.state, decision.decided_by, decision.decided_at = "approved", "approver", now - timedelta(minutes=95)
    session.add(decision)
    order(session, row, decision, "drain", node, "sent", now - timedelta(minutes=94))
    exclude(session, row, node, now - timedelta(minutes=95))
    tell(session, row, now - timedelta(minutes=95), "approved", f"approver approved: Drain {node}.", "approver")


def warm_node(session: Session, now: datetime) -> None:
    node, at = name(17), now - timedelta(minutes=204)
    row = incident(
        session,
        now,
        204,
        kind="thermal_throttle",
        severity="high",
        headline=f"{node} runs 15 °C above its peers.",
        entity_kind="node",
        entity_id=node,
        entity_name=node,
        node=node,
        state="acknowledged",
        acknowledged_by="operator",
        acknowledged_at=now - timedelta(minutes=180),
        hypotheses=[hypothesis("thermal_throttle", node, node, 0.72, "8 GPUs warm at once; clocks 9 % lower")],
    )
    pieces = [Evidence("temperature", "81", "66", "°C", "metric:gpu/temperature_c", "derived")]
    finding(session, row, "telemetry/peers", at, f"8 GPUs of {node} are 15 °C above 56 peers.", pieces)
    tell(
        session,
        row,
        now - timedelta(minutes=180),
        "note",
        "Fan wall looks fine. I asked the row about airflow.",
        "operator",
    )


def dark_nodes(session: Session, now: datetime) -> None:
    for i in (37, 38):
        node = name(i)
        row = incident(
            session,
            now,
            172,
            kind="telemetry_dark",
            severity="warning",
            headline=f"{node} sends no data.",
            entity_kind="node",
            entity_id=node,
            entity_name=node,
            node=node,
            blind=True,
            hypotheses=[hypothesis("telemetry_dark", node, node, 0.6, "The exporter is silent; the scheduler answers")],
        )
        pieces = [Evidence("GPUs that report", "0", "8", "GPUs", "metric:gpu/temperature_c")]
        finding(session, row, "telemetry/silence", row.opened_at, f"No GPU of {node} reports.", pieces)


def history(session: Session, now: datetime) -> None:
    """What closed lately, and one that was excluded by hand."""
    for i, (hours, length) in enumerate(((20, 90), (14, 47), (9, 31))):
        node = name(28 + i)
        row = incident(
            session,
            now,
            hours * 60,
            kind="gpu_bus_loss",
            severity="critical",
            headline=f"GPU {i} of {node} is lost on PCIe.",
            entity_kind="gpu",
            entity_id=uuid(28 + i, i),
            entity_name=f"{node}/gpu{i}",
            node=node,
            state="resolved",
            closed_at=now - timedelta(hours=hours) + timedelta(minutes=length),
            close_note="Seen and clear long enough.",
        )
        decision = decide(session, row, row.opened_at, node, "", "approved")
        decision.decided_by = "approver"
        order(
            session,
            row,
            decision,
            "drain",
            node,
            "done",
            row.opened_at + timedelta(minutes=2),
            outcome=f"{node} drains.",
        )
        back = order(session, row, decision, "resume", node, "done", row.opened_at + timedelta(minutes=length - 1))
        back.undoes_id, back.outcome = 1, f"{node} takes work again."
        assert row.closed_at is not None
        tell(session, row, row.closed_at, "closed", row.close_note)
    exclude(session, None, name(33), now - timedelta(hours=6))


def order(
    session: Session,
    row: Incident,
    decision: Decision,
    verb: str,
    node: str,
    state: str,
    at: datetime,
    outcome: str = "",
) -> Order:
    made = Order(
        cluster="main",
        key=f"d{decision.id}:{verb}:{node}",
        decision_id=decision.id or 0,
        incident_id=row.id or 0,
        verb=verb,
        node=node,
        kind=row.kind,
        reason="[watchkeeper]",
        state=state,
        created_at=at,
        not_before=at,
        sent_at=at,
        ended_at=at if state == "done" else None,
        outcome=outcome,
    )
    session.add(made)
    session.flush()
    return made


def exclude(session: Session, row: Incident | None, node: str, at: datetime) -> None:
    reason = row.headline if row is not None else "Lemon node, checked by hand"
    session.add(
        Exclusion(
            cluster="main",
            node=node,
            owner="approver",
            origin="approved" if row else "person",
            reason=reason,
            incident_id=row.id if row else None,
            created_at=at,
            until=at + timedelta(days=7),
        )
    )


def changes(session: Session, now: datetime) -> None:
    """What the site runs: one odd driver, a roll-out, a reboot, a swapped card, leaves of two rails."""
    for i in range(NODES):
        driver = "570.86.15" if i == 20 else "575.51.03"
        for item, value, source in (("driver", driver, "gpu exporter"), ("kernel", "5.15.0-105", "node exporter")):
            since = now - timedelta(days=3)
            session.add(Version(cluster="main", node=name(i), item=item, source=source, value=value, since=since))
        session.add(NodeSpan(cluster="main", node=name(i), rack=rack(i), start=now - timedelta(days=40)))
        for g in range(8):
            seat = DeviceSpan(cluster="main", device=uuid(i, g), node=name(i), index=str(g), pci=f"0000:{g}b:00")
            seat.start = now - timedelta(days=40)
            session.add(seat)
            tie = Cable(cluster="main", kind="ib", node=name(i), port=f"mlx5_{g}/1", peer=f"leaf-{g + 1}", rail=str(g))
            tie.start = now - timedelta(days=40)
            session.add(tie)
    for node, item, before, value, hours, by in (
        (name(20), "driver", "575.51.03", "570.86.15", 5, "ansible"),
        (name(20), "boot", "", (now - timedelta(hours=5)).isoformat(), 5, ""),
        ("", "image", "ubuntu-22.04-3", "ubuntu-22.04-4", 50, "maya"),
    ):
        row = Change(cluster="main", node=node, item=item, before=before, value=value, by=by, source="pushed")
        row.at = now - timedelta(hours=hours)
        session.add(row)
    for job, start, end in (("41190", 60, 34), ("41201", 33, 27), ("41150", 160, 70)):
        begin, last = now - timedelta(hours=start), now - timedelta(hours=end)
        row_of = Attempt(cluster="main", job=job, restart=0, run="vision-sft", user="ada", state="NODE_FAIL")
        row_of.start, row_of.end = begin, last
        session.add(row_of)
        held = Allocation(cluster="main", job=job, restart=0, node=name(20), start=begin, end=last, size=3)
        held.gpus = list(range(8))
        session.add(held)
    out = Outage(cluster="main", node=name(20), source="observed", start=now - timedelta(minutes=40), state="drain")
    out.reason, out.user = "[watchkeeper] gpu_bus_loss gpu=1 inc=1", "watchkeeper"
    session.add(out)
