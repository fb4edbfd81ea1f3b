"""The fault of the proof, step by step: what each test of it says in one line."""

from __future__ import annotations

import time
from typing import Any

import requests

from tests.proof.site import Running, Site, kernel_line, soon


def two_node_job(site: Site) -> tuple[str, str]:
    """A running 2-node job that can be requeued: its id and the node whose GPU will fail."""
    job = site.slurm.submit("--nodes=2", "--gpus-per-node=8", "--requeue", "--job-name=atlas")
    site.slurm.wait(f"job {job} running", lambda: state_of(site, job) == "RUNNING")
    return job, nodes_of(site, job)[0]


def state_of(site: Site, job: str) -> str:
    return site.slurm.run("squeue", "-h", "-j", job, "-t", "all", "-o", "%T", check=False).strip()


def nodes_of(site: Site, job: str) -> list[str]:
    held = site.slurm.run("squeue", "-h", "-j", job, "-o", "%N").strip()
    return site.slurm.run("scontrol", "show", "hostnames", held).split()


def restarts_of(site: Site, job: str) -> int:
    shown = site.slurm.run("scontrol", "-o", "show", "job", job)
    return int(shown.split("Restarts=")[1].split()[0])


def node_line(site: Site, node: str) -> str:
    return site.slurm.run("scontrol", "-o", "show", "node", node)


def all_seen(site: Site, run: Running) -> bool:
    """Every node is known, fresh and ok, and every GPU was met in a scrape."""
    rows = run.get("nodes")["items"]
    return len(rows) == 4 and all(row["verdict"] == "ok" for row in rows) and site.cards() == 32


def break_gpu_3(site: Site, run: Running, node: str) -> float:
    """The GPU's series stop and the kernel says why. Returns when the line was accepted (unix s)."""
    site.switches.drop_gpu(node, 3)
    at = time.time()
    answer = run.push(node, kernel_line(), at)
    assert answer.status_code in (200, 202), answer.text
    return at


def incidents(run: Running) -> list[dict[str, Any]]:
    rows = run.get("incidents")["items"]
    assert isinstance(rows, list)
    return rows


def the_incident(run: Running, within_s: float = 5.0) -> dict[str, Any]:
    found = soon("an incident", lambda: incidents(run), within_s, run)
    assert len(found) == 1, found
    return dict(found[0])


def plan_of(run: Running) -> dict[str, Any]:
    """The plan that waits for an approver."""
    return dict(soon("a plan", lambda: run.get("orders", state="proposed")["items"], 10, run)[0])


def approve(run: Running, plan: str, token: str) -> requests.Response:
    headers = {"Authorization": f"Bearer {token}"}
    return requests.post(f"{run.url}/api/v1/orders/{plan}/approve", headers=headers, json={}, timeout=10)
