"""The whole thread on real services: a GPU is lost, one incident, one alert, one drain, and the way back."""

from __future__ import annotations

import time
from collections.abc import Callable
from email.message import EmailMessage

import pytest

from tests.proof import browser, story
from tests.proof.conftest import Scene
from tests.proof.site import Running, Site, soon
from tests.services.slack_sink import as_read
from tests.services.smtp import part

pytestmark = [pytest.mark.proof, pytest.mark.services, pytest.mark.browser]


def threads(mails: list[EmailMessage]) -> set[str]:
    """The root ids that the mails hang under."""
    return {str(mail["References"] or mail["Message-ID"]).split()[0] for mail in mails}


def hostlist(run: Running, **params: str) -> str:
    return run.text("exclusions", format="hostlist", **params).strip()


def wait_returned(site: Site, run: Running, node: str) -> None:
    soon("the node back in Slurm", lambda: "DRAIN" not in story.node_line(site, node), 60, run)


def test_one_fault_is_one_incident_one_alert_one_drain_and_heals(scene: Callable[..., Scene]) -> None:
    made = scene(hold_s=6)
    site = made.site
    site.add_user("ada", "approver")
    job, node = story.two_node_job(site)
    run = site.serve()
    soon("all nodes ok", lambda: story.all_seen(site, run), 30, run)

    broke_at = story.break_gpu_3(site, run, node)
    incident = story.the_incident(run, within_s=5)
    assert time.time() - broke_at < 5
    assert incident["entity"] == f"{node}/gpu3"
    assert incident["job"] == job
    soon("the silence joins", lambda: joined(run, incident["id"]), 20, run)
    assert len(story.incidents(run)) == 1

    plan = story.plan_of(run)
    before = run.get(f"nodes/{node}")
    assert (before["verdict"], before["binding"]) == ("exclude", False)
    assert hostlist(run) == ""
    assert hostlist(run, advisory="1") == node
    made.mail.tape.wait_for(1)
    made.slack.tape.wait_for(1)

    with browser.browser_page() as page:
        browser.sign_in(page, run.url, "ada")
        browser.approve(page, run.url, incident["id"])

    soon("our drain in sinfo -R", lambda: our_reason(site, node), 20, run)
    soon("the job runs again", lambda: elsewhere(site, job, node), 60, run)
    after = run.get(f"nodes/{node}")
    assert (after["verdict"], after["binding"]) == ("exclude", True)
    assert hostlist(run) == node
    assert run.get(f"orders/{plan['id']}")["state"] == "approved"
    assert len(made.slack.tape.rows) == 1

    site.switches.restore_gpu(node, 3)
    wait_returned(site, run, node)
    closed = soon("the incident closed", lambda: resolved(run, incident["id"]), 30, run)
    assert closed["mttr_s"] > 0
    assert run.get(f"nodes/{node}")["binding"] is False
    assert len(story.incidents(run)) + len(run.get("incidents", state="resolved")["items"]) >= 1
    the_messages(made, node)


def joined(run: Running, number: int) -> bool:
    found = {row["detector"] for row in run.get(f"incidents/{number}/findings")["items"]}
    return {"kernel/xid", "telemetry/silence"} <= found


def our_reason(site: Site, node: str) -> bool:
    return "[watchkeeper] gpu_bus_loss gpu=3 inc=" in site.slurm.run("sinfo", "-R", "-h", "-n", node, "-o", "%E")


def elsewhere(site: Site, job: str, node: str) -> bool:
    return story.state_of(site, job) == "RUNNING" and node not in story.nodes_of(site, job)


def resolved(run: Running, number: int) -> dict[str, object] | None:
    found = run.get(f"incidents/{number}")
    return dict(found) if found["state"] == "resolved" else None


def the_messages(made: Scene, node: str) -> None:
    """One thread of mails, two Slack messages: at open and at close."""
    made.slack.tape.wait_for(2)
    soon_mails = made.mail.tape.wait_for(3)
    assert len(soon_mails) == 3
    assert len(made.slack.tape.rows) == 2
    assert len(threads(made.mail.mails)) == 1
    assert node in str(made.mail.mails[0]["Subject"])
    assert node in part(made.mail.mails[0], "plain")
    assert node in as_read(made.slack.tape.rows[0]["body"])


def test_in_observe_mode_the_same_fault_binds_nobody_and_drains_nothing(scene: Callable[..., Scene]) -> None:
    made = scene(mode="observe")
    site = made.site
    job, node = story.two_node_job(site)
    restarts = story.restarts_of(site, job)
    run = site.serve()
    soon("all nodes ok", lambda: story.all_seen(site, run), 30, run)
    story.break_gpu_3(site, run, node)
    incident = story.the_incident(run)
    soon("the silence joins", lambda: joined(run, incident["id"]), 20, run)
    made.slack.tape.wait_for(1)
    assert run.get(f"nodes/{node}")["binding"] is False
    assert hostlist(run) == ""
    assert run.get("orders")["items"] == []
    assert "DRAIN" not in story.node_line(site, node)
    assert story.restarts_of(site, job) == restarts
    assert story.state_of(site, job) == "RUNNING"
