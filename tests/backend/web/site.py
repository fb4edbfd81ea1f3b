"""A site for the pages: real parts on SQLite, 48 nodes x 8 GPUs, three jobs, and the beats of loops and sources."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

from fastapi import FastAPI
from jinja2 import Environment
from sqlmodel import Session

from backend.act.dry_run import DryRunBackend
from backend.api import routes as api
from backend.clock import Clock, unix
from backend.facts import NodeFacts
from backend.model.cluster import Device, Node
from backend.model.work import Allocation, Attempt
from backend.registry import Parts, build
from backend.security.passwords import hash_password
from backend.settings import Cluster, Policy, Server, Settings, Store
from backend.store import system
from backend.store.people import put_user
from backend.web import routes as web
from frontend.render import environment

PASSWORD = "correct horse"
ROLES = ("viewer", "operator", "approver", "admin")
NODES, GPUS, A_RACK = 48, 8, 8


def parts_of(folder: Path, clock: Clock, *, people: bool = True) -> Parts:
    """Parts in propose mode, with a backend that only says what it would do, and (``people``) one person a role."""
    settings = Settings(
        mode="propose",
        server=Server(host="127.0.0.1", port=0),
        store=Store(folder=folder),
        cluster=(Cluster(name="main", interval_s=15.0),),
        policy=Policy(max_out_share=0.2),
    )
    backends = {"main": DryRunBackend(lambda: facts(clock.now()))}
    parts = build(settings, clock, backends=backends, simulated=True)
    with parts.store.write() as session:
        for role in ROLES if people else ():
            put_user(session, role, role, hashed_password(), clock.now())
    return parts


@cache
def compiled() -> Environment:
    """Templates, compiled once for all tests."""
    return environment()


@cache
def hashed_password() -> str:
    """Slow by intent, so it is made once for all tests."""
    return hash_password(PASSWORD)


def app_of(parts: Parts) -> FastAPI:
    """Pages and API, without loops: nothing changes but by the test's own hand."""
    app = FastAPI(docs_url=None, redoc_url=None)
    app.state.parts = parts
    api.install(app)
    web.install(app, compiled())
    return app


def facts(now: datetime) -> list[NodeFacts]:
    return [
        NodeFacts(name(i), state="allocated", rack=rack(i), expected_gpus=GPUS, read_at=unix(now)) for i in range(NODES)
    ]


def name(i: int) -> str:
    return f"gpu-{i + 1:03d}"


def rack(i: int) -> str:
    return f"rack-{i // A_RACK + 1}"


# --- rows -----------------------------------------------------------------------------------------------------------


def fleet(session: Session, now: datetime) -> None:
    old = now - timedelta(days=40)
    drained = {
        20: ("idle", "[watchkeeper] gpu_bus_loss gpu=1 inc=1", "watchkeeper"),
        41: ("idle", "riser swap", "root"),
    }
    for i in range(NODES):
        state, reason, owner = drained.get(i, ("allocated", "", ""))
        flags = ["DRAIN"] if reason else []
        seen = now - timedelta(hours=3) if i in (37, 38) else now
        session.add(
            Node(
                cluster="main",
                name=name(i),
                rack=rack(i),
                switch=f"leaf-{i // 16 + 1}",
                model="NVIDIA H100 80GB HBM3",
                expected_gpus=GPUS,
                state=state,
                flags=flags,
                reason=reason,
                reason_owner=owner,
                boot_at=now - timedelta(days=6),
                state_at=now - timedelta(hours=5),
                first_seen=old,
                last_seen=seen,
            )
        )
        for g in range(GPUS):
            session.add(
                Device(
                    cluster="main",
                    id=uuid(i, g),
                    node=name(i),
                    index=str(g),
                    pci=f"0000:{0x1B + 8 * g:02x}:00",
                    model="NVIDIA H100 80GB HBM3",
                    first_seen=old,
                    last_seen=seen,
                )
            )


def uuid(node: int, gpu: int) -> str:
    return f"GPU-{node:04d}-{gpu}"


def jobs(session: Session, now: datetime) -> None:
    rows = (
        ("41207", "atlas-70b-pretrain", 0, 16, 26),
        ("41233", "moe-8x22b", 22, 14, 9),
        ("41251", "vision-sft", 42, 6, 2),
    )
    for job, run, first, count, hours in rows:
        start = now - timedelta(hours=hours)
        session.add(
            Attempt(
                cluster="main", job=job, restart=1, run=run, user="lena", state="RUNNING", start=start, gpus_per_node=8
            )
        )
        for i in range(first, first + count):
            session.add(Allocation(cluster="main", job=job, restart=1, node=name(i), start=start))


def beats(session: Session, now: datetime) -> None:
    counts = {"tick_at": unix(now) - 7, "events": 1204, "late": 12, "dropped": 0, "findings": 6}
    for loop, every_s, age_s, took_s in (
        ("observe", 0.25, 1, 0.009),
        ("decide", 0.5, 2, 0.031),
        ("act", 0.5, 2, 1.4),
        ("return", 1.0, 3, 0.004),
        ("notify", 1.0, 4, 0.8),
    ):
        at = now - timedelta(seconds=age_s)
        system.beat_ok(session, "main", "loop", loop, at, took_s, counts if loop == "observe" else {}, every_s=every_s)
    for source, every_s, age_s in (("prometheus", 15.0, 3), ("slurm", 15.0, 4), ("logs", 0.0, 26)):
        system.beat_ok(session, "main", "source", source, now - timedelta(seconds=age_s), 0.2, {}, every_s=every_s)
    silent = now - timedelta(minutes=16)
    system.beat_ok(session, "main", "source", "loki", silent, 0.2, {}, every_s=60.0)
    system.beat_failed(session, "main", "source", "loki", silent, "SourceError: connection refused", every_s=60.0)
    system.beat_failed(
        session, "main", "detector", "telemetry/peers", now - timedelta(minutes=3), "ValueError: empty slice"
    )
