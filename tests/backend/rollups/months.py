"""Eighty days of a made-up cluster: chained runs, failures with their incidents, exclusions, outages, findings."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timedelta

from sqlmodel import Session

from backend.clock import unix
from backend.facts import AttemptFacts, OutageFacts
from backend.model.events import Event, Finding
from backend.model.incidents import Incident
from backend.store.attempts import record_attempts
from backend.store.outages import put_outages

#: (name, user, nodes, hours that an attempt lasts at most)
RUNS = (
    ("atlas-70b", "lena", 16, 40),
    ("moe-8x22b", "omar", 14, 30),
    ("vision-sft", "kim", 6, 18),
    ("speech-rl", "kim", 4, 12),
    ("eval-suite", "ravi", 1, 6),
)
KINDS = ("gpu_bus_loss", "ib_link_down", "gpu_ecc_uncorrectable", "nvlink_error", "node_unreachable")
LEMON = "gpu-005"


def fill(session: Session, cluster: str, now: datetime, days: int = 80, seed: int = 7) -> None:
    """Write it all; the same for the same seed."""
    dice = random.Random(seed)
    job, first = 40_000, 1
    for name, user, nodes, hours in RUNS:
        at = now - timedelta(days=days) + timedelta(hours=dice.uniform(0, 20))
        names = tuple(f"gpu-{i:03d}" for i in range(first, first + nodes))
        first += nodes
        told: list[AttemptFacts] = []
        while at < now:
            job += 7
            like = AttemptFacts(str(job), run=name, user=user, nodes=names, account=f"team-{user}")
            made, at = _job(session, cluster, dice, like, at, hours, now)
            told += made
        record_attempts(session, cluster, told, now)
    put_outages(session, cluster, [_outage(dice, now, days) for _ in range(25)])
    _findings(session, cluster, dice, now, days)


def _job(
    session: Session, cluster: str, dice: random.Random, like: AttemptFacts, at: datetime, hours: int, now: datetime
) -> tuple[list[AttemptFacts], datetime]:
    """Attempts of one job, and when the next one is submitted."""
    made: list[AttemptFacts] = []
    for restart in range(8):
        submit, wait = unix(at), dice.uniform(10, 900)
        lasts = dice.uniform(0.4, 1.0) * hours * 3600
        fails = dice.random() < 0.28
        start, end = submit + wait, submit + wait + (lasts * dice.uniform(0.05, 0.9) if fails else lasts)
        out = ("gpu-005", "gpu-021") if dice.random() < 0.2 else (LEMON,) if dice.random() < 0.2 else ()
        one = replace(like, restart=restart, submit=submit, eligible=submit, start=start, gpus_per_node=8, excluded=out)
        if end > unix(now):
            return [*made, replace(one, state="RUNNING")], now
        at = now + timedelta(seconds=end - unix(now) + dice.uniform(20, 600))
        if not fails:
            return [*made, replace(one, state="COMPLETED", end=end)], at
        infra = dice.random() < 0.7
        made.append(replace(one, state="NODE_FAIL" if infra and dice.random() < 0.3 else "FAILED", end=end))
        if infra:
            _incident(session, cluster, dice, one, now - timedelta(seconds=unix(now) - end + 90))
        else:
            _verdict(session, cluster, one, now - timedelta(seconds=unix(now) - end))
    return made, at


def _incident(session: Session, cluster: str, dice: random.Random, one: AttemptFacts, at: datetime) -> None:
    kind = dice.choice(KINDS)
    node = LEMON if LEMON in one.nodes and dice.random() < 0.6 else dice.choice(one.nodes)
    closed = at + timedelta(minutes=dice.uniform(20, 400))
    session.add(
        Incident(
            cluster=cluster, kind=kind, severity="critical", state="resolved", headline=f"{kind} on {node}",
            entity_kind="node", entity_id=node, entity_name=node, node=node, job=one.job, run=one.run, opened_at=at,
            changed_at=closed, last_asserted_at=closed, closed_at=closed, entities=[node],
        )
    )  # fmt: skip


def _verdict(session: Session, cluster: str, one: AttemptFacts, at: datetime) -> None:
    key = f"{one.job}.{one.restart}"
    session.add(
        Event(
            cluster=cluster, at=at, received_at=at, namespace="log", code="cuda_oom", entity_kind="job",
            entity_id=one.job, entity_name=one.job, job=one.job, dedupe=f"verdict {key}",
            attrs={"job": one.job, "restart": str(one.restart)},
        )
    )  # fmt: skip


def _outage(dice: random.Random, now: datetime, days: int) -> OutageFacts:
    start = unix(now) - dice.uniform(0, days) * 86_400
    node = LEMON if dice.random() < 0.2 else f"gpu-{dice.randint(1, 48):03d}"
    return OutageFacts(
        node, start, min(unix(now), start + dice.uniform(600, 40_000)), "DRAIN", "riser", "root", "slurm"
    )


def _findings(session: Session, cluster: str, dice: random.Random, now: datetime, days: int) -> None:
    for place in range(400):
        at = now - timedelta(days=dice.uniform(0, days))
        node = f"gpu-{dice.randint(1, 48):03d}" if place % 10 else ""
        session.add(
            Finding(
                cluster=cluster, key=f"k{place}", detector="kernel/codes", kind="gpu_bus_loss", entity_kind="node",
                entity_id=node, entity_name=node, node=node, severity="high", score=0.9, since=at, reason="lost",
                raised_at=at, emitted_at=at, cleared_at=at,
            )
        )  # fmt: skip
