"""Kill -9 at six named points between a kernel line and the outcome of a drain: the drain happens once."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import pytest
import requests

from tests.proof import story
from tests.proof.conftest import Scene
from tests.proof.site import ROOT, Running, Site, kernel_line, soon

pytestmark = [pytest.mark.proof, pytest.mark.services]

POINTS = (
    "line committed",
    "incident committed",
    "approval committed",
    "claim committed",
    "drain sent",
    "outcome committed",
)
#: In CI; make test-proof runs them all.
QUICK = ("claim committed", "drain sent")


def token_of(site: Site) -> str:
    words = ["tokens", "add", "approver", "--scope", "approve", "--config", str(site.config)]
    made = subprocess.run(
        [sys.executable, "-m", "backend.cli", *words], cwd=ROOT, check=True, capture_output=True, text=True, timeout=60
    )
    return made.stdout.strip()


def approved(run: Running, plan: str, token: str) -> bool:
    return story.approve(run, plan, token).ok


def push_until_taken(site: Site, at: float, node: str) -> None:
    """As a log agent does: the same line again until somebody says 2xx."""
    run = site.running[-1]

    def taken() -> bool:
        try:
            return run.push(node, kernel_line(), at).ok
        except requests.RequestException:
            return False

    soon("the line accepted", taken, 20, run)


@pytest.mark.parametrize("point", [p if p in QUICK else pytest.param(p, marks=pytest.mark.slow) for p in POINTS])
def test_after_kill_9_the_drain_happened_once(scene: Callable[..., Scene], point: str) -> None:
    site = scene(hold_s=600).site
    token = token_of(site)
    job, node = story.two_node_job(site)
    drains, restarts = site.drains_of(node), story.restarts_of(site, job)
    doomed = site.serve(die_at=point)
    soon("all nodes ok", lambda: story.all_seen(site, doomed), 30, doomed)
    at = time.time()
    site.switches.drop_gpu(node, 3)
    try:
        doomed.push(node, kernel_line(), at)
        if point not in POINTS[:2]:
            plan = story.plan_of(doomed)["id"]
            story.approve(doomed, plan, token)
    except requests.RequestException:
        pass  # it died in the middle of the answer, as it should
    doomed.wait_dead()

    again = site.serve()
    push_until_taken(site, at, node)
    waiting = soon("a decision", lambda: again.get("orders")["items"], 20, again)
    for plan in [row["id"] for row in waiting if row["type"] == "plan" and row["state"] == "proposed"]:
        soon("an approval", partial(approved, again, plan, token), 30, again)
    soon("the job runs again", lambda: story.restarts_of(site, job) > restarts, 60, again)
    soon("it runs elsewhere", lambda: story.state_of(site, job) == "RUNNING", 60, again)
    orders = again.get("orders")["items"]

    assert len(story.incidents(again)) == 1
    assert site.drains_of(node) == drains + 1
    assert story.restarts_of(site, job) == restarts + 1
    assert node not in story.nodes_of(site, job)
    assert "[watchkeeper] gpu_bus_loss gpu=3" in story.node_line(site, node)
    soon("all orders done", lambda: {o["state"] for o in again.get("orders")["items"]} == {"done"}, 30, again)
    assert sorted(o["verb"] for o in orders if o["type"] == "order") == ["drain", "requeue"]
