"""Kill -9 at 200 random moments of 50 orders on a real Slurm (``make test-orders``): none lost, none twice."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from sqlmodel import Session, select

from backend import pipeline
from backend.act.base import reason_text
from backend.clock import SystemClock
from backend.facts import Batch, Verb
from backend.model.actions import Decision, Order
from backend.model.incidents import Incident
from backend.registry import build
from backend.store.engine import Store
from tests.backend.orders_until_killed import settings_of
from tests.services.slurm import SlurmCluster, slurm

ROOT = Path(__file__).resolve().parents[2]
ENDED = ("done", "refused", "failed", "uncertain", "cancelled")


def struck(session: Session, number: int, node: str) -> Incident:
    """A node's incident, which a person called mended: its drains may be given back."""
    now = SystemClock().now()
    row = Incident(
        cluster="main", kind="gpu_bus_loss", severity="critical", headline="GPU 3 fell off the bus.", node=node,
        entity_kind="gpu", entity_id=f"GPU-{number}", entity_name=f"{node}/gpu3", opened_at=now - timedelta(hours=1),
        changed_at=now, last_asserted_at=now, clear_s=1e6, resolving_by="test", decided_revision=1,
    )  # fmt: skip
    session.add(row)
    session.flush()
    return row


def planted(session: Session, number: int, verb: Verb, incident: Incident, after: int | None) -> int:
    """One order with its plan. Returns its id."""
    now, node, about = SystemClock().now(), incident.node, incident.id or 0
    step = {"rung": "drain_now", "verb": verb.value, "node": node, "job": "", "text": verb.value}
    plan = Decision(
        cluster="main", incident_id=about, revision=number, at=now, mode="act", state="automatic", sentence="x",
        recommended="drain_now", plan=[step],
    )  # fmt: skip
    session.add(plan)
    session.flush()
    order = Order(
        cluster="main", key=f"t{number}", decision_id=plan.id or 0, incident_id=about, verb=verb.value, node=node,
        kind="gpu_bus_loss", reason=reason_text("gpu_bus_loss", "3", about), after_id=after, created_at=now,
        not_before=now,
    )  # fmt: skip
    session.add(order)
    session.flush()
    return order.id or 0


def chains(store: Store, cluster: SlurmCluster, count: int) -> None:
    """``count`` orders: on each node drain, resume, drain ... each after the one before."""
    with store.write() as session:
        incidents = {node: struck(session, place, node) for place, node in enumerate(cluster.nodes)}
        before: dict[str, int] = {}
        for number in range(1, count + 1):
            node = cluster.nodes[(number - 1) % len(cluster.nodes)]
            verb = Verb.RESUME if (number - 1) // len(cluster.nodes) % 2 else Verb.DRAIN
            before[node] = planted(session, number, verb, incidents[node], before.get(node))


def waiting(store: Store) -> int:
    with store.read() as session:
        return len([o for o in session.exec(select(Order)) if o.state not in ENDED])


def changes_of(cluster: SlurmCluster) -> Counter[str]:
    """How often the controller itself was told to drain or to give back each node."""
    text = (cluster.folder / "log" / "slurmctld.log").read_text()
    return Counter(f"{verb} {node}" for node, verb in re.findall(r"update_node: node (\S+) state set to (\w+)", text))


def killed(folder: Path, conf: str, after_s: float) -> None:
    """One life of the process that acts: it begins to act, and dies."""
    command = [sys.executable, "-m", "tests.backend.orders_until_killed", str(folder), conf]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"carrying out\n"
        time.sleep(after_s)  # the moment of its death is what is tried
        process.send_signal(signal.SIGKILL)
        process.wait(10)


def lives(folder: Path, kills: int, count: int, seed: int) -> None:
    """Each life ends 0 to 300 ms after it began to act; what is left at the end is carried out in longer ones."""
    rng = random.Random(seed)
    with slurm(5) as cluster:
        settings = settings_of(folder, str(cluster.conf))
        parts = build(settings, SystemClock())
        watch = parts.watches["main"]
        assert watch.backend is not None
        now = time.time()
        pipeline.accept(watch, Batch("slurm", now, now, nodes=tuple(watch.backend.inventory())))
        chains(parts.store, cluster, count)
        for _ in range(kills):
            killed(folder, str(cluster.conf), rng.uniform(0.0, 0.3))
        end = time.monotonic() + 120
        while waiting(parts.store):
            assert time.monotonic() < end, "orders are left"
            killed(folder, str(cluster.conf), 2.0)
        with parts.store.read() as session:
            rows = list(session.exec(select(Order).order_by(Order.id)))  # type: ignore[arg-type]
        settled(rows, count, changes_of(cluster), cluster)
        parts.store.close()


def settled(rows: list[Order], count: int, told: Counter[str], cluster: SlurmCluster) -> None:
    """None lost: each ended. None twice: the controller heard of each at most once, of each done one exactly once."""
    assert len(rows) == count and all(row.state in ENDED for row in rows)
    states = Counter(row.state for row in rows)
    assert states["done"] + states["uncertain"] == count, [(row.verb, row.state, row.error) for row in rows]
    assert states["done"] >= count // 2, states
    assert states["failed"] == 0, [row.error for row in rows if row.state == "failed"]
    word = {"drain": "DRAINED", "resume": "IDLE"}
    for node in cluster.nodes:
        for verb in ("drain", "resume"):
            mine = [row for row in rows if row.node == node and row.verb == verb]
            done = sum(row.state == "done" for row in mine)
            heard = told[f"{word[verb]} {node}"] + told[f"{'DRAINING' if verb == 'drain' else 'UNDRAIN'} {node}"]
            assert done <= heard <= done + sum(row.state == "uncertain" for row in mine), (node, verb, done, heard)


@pytest.mark.slow
@pytest.mark.services
def test_200_kills_of_50_orders_lose_none_and_repeat_none(tmp_path: Path) -> None:
    lives(tmp_path, kills=200, count=50, seed=1)


@pytest.mark.slow
@pytest.mark.services
def test_10_kills_of_10_orders_lose_none_and_repeat_none(tmp_path: Path) -> None:
    lives(tmp_path, kills=10, count=10, seed=2)
