"""Advice about a job: kept until something changed, about its newest attempt, and told what became of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlmodel import select

from backend.clock import unix
from backend.decide.advice import TRIES, Known, Trouble, advise
from backend.decide.recovery import Restart
from backend.facts import AttemptFacts, CheckpointFacts
from backend.model.actions import Advice
from backend.security import tokens
from backend.store import people, system
from backend.store.attempts import record_attempts
from backend.trained import Trained
from tests.backend.api.conftest import NOW, Site, problem
from tests.backend.api.rows import a_node, an_exclusion, an_incident

API = "/api/v1/advice"
JOB = "41207"
NODES = ("gpu-001", "gpu-002")


def told(site: Site, restart: int = 0, state: str = "NODE_FAIL", nodes: tuple[str, ...] = NODES, **more: Any) -> None:
    start = unix(NOW) - 7200 + 3600 * restart
    end = None if state in ("RUNNING", "PENDING") else start + 3000
    known: dict[str, Any] = {"run": "llama", "account": "nlp", "submit": start - 60, "start": start, "end": end}
    row = AttemptFacts(JOB, restart, state=state, nodes=nodes, **{**known, **more})
    with site.parts.store.write() as session:
        record_attempts(session, site.watch.cluster, [row], NOW)


def broke(site: Site, node: str = "gpu-001", **more: Any) -> int:
    return an_incident(site, node, opened_at=NOW - timedelta(seconds=4300), job=JOB, **more)


@pytest.fixture
def fleet(site: Site) -> Site:
    for name in (*NODES, "gpu-003"):
        a_node(site, name)
    return site


def asked(client: TestClient, **more: str) -> dict[str, Any]:
    answer = client.get(API, params={"job": JOB, **more})
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def test_a_job_that_nobody_told_of_is_404(local: TestClient) -> None:
    problem(local.get(API, params={"job": "9"}), 404)
    problem(local.get(API), 422)


def test_hardware_failed_start_again_elsewhere_from_the_last_save(
    fleet: Site, local: TestClient, tmp_path: Any
) -> None:
    told(fleet)
    broke(fleet)
    an_exclusion(fleet, "gpu-001")
    an_exclusion(fleet, "gpu-003", origin="person", scope="account:nlp")
    an_exclusion(fleet, "gpu-002", origin="person", scope="account:vision")
    fleet.watch.trained = Trained(tmp_path / "trained")
    at = unix(NOW) - 5000
    saves = [CheckpointFacts(at + n, "llama", 100 * n, "save", 5.0, job=JOB) for n in (1, 2)]
    fleet.watch.trained.append(checkpoints=saves)
    found = asked(local)
    assert (found["action"], found["restart_step"], found["state"]) == ("restart", 200, "NODE_FAIL")
    assert found["exclude"] == ["gpu-001", "gpu-003"] and found["hostlist"] == "gpu-[001,003]" and found["avoid"] == []
    assert "Leave out gpu-001" in found["sentence"] and "step 200" in found["sentence"]


def test_what_was_broken_before_the_attempt_began_and_stood_is_in_the_advice(fleet: Site, local: TestClient) -> None:
    told(fleet)
    old = an_incident(fleet, "gpu-001", opened_at=NOW - timedelta(days=2))
    over = an_incident(fleet, "gpu-002", opened_at=NOW - timedelta(days=2), closed_at=NOW - timedelta(days=1))
    found = asked(local)["incidents"]
    assert old in found and over not in found


def test_the_same_question_has_the_same_answer_until_something_changed(fleet: Site, local: TestClient) -> None:
    told(fleet)
    broke(fleet)
    first = local.get(API, params={"job": JOB})
    fleet.clock.set(NOW + timedelta(seconds=40))
    fleet.app.state.snapshots.forget(fleet.watch.cluster)
    again = local.get(API, params={"job": JOB})
    assert again.content == first.content and again.headers["ETag"] == first.headers["ETag"]
    known = {"If-None-Match": first.headers["ETag"]}
    assert local.get(API, params={"job": JOB}, headers=known).status_code == 304
    assert first.json()["revision"] == 1 and first.json()["avoid"] == ["gpu-001"]
    an_exclusion(fleet, "gpu-001")
    fleet.app.state.snapshots.forget(fleet.watch.cluster)
    other = local.get(API, params={"job": JOB}, headers=known)
    assert other.status_code == 200 and other.json()["revision"] == 2 and other.json()["exclude"] == ["gpu-001"]


@pytest.mark.parametrize(("nodes", "followed"), [(("gpu-002", "gpu-003"), True), (("gpu-001", "gpu-002"), False)])
def test_the_next_answer_says_whether_the_last_was_followed(
    fleet: Site, local: TestClient, nodes: tuple[str, ...], followed: bool
) -> None:
    told(fleet)
    broke(fleet)
    assert asked(local)["previous"] is None
    told(fleet, 1, "RUNNING", nodes)
    found = asked(local)
    assert (found["action"], found["attempt"]) == ("run", 1)
    assert found["previous"] == {
        "revision": 1,
        "action": "restart",
        "followed": followed,
        "attempt": 1,
        "against": [] if followed else ["gpu-001"],
    }
    assert asked(local) == found


def test_while_the_breaker_is_tripped_everybody_waits(fleet: Site, local: TestClient) -> None:
    told(fleet)
    with fleet.parts.store.write() as session:
        system.trip_breaker(session, fleet.watch.cluster, "60 of 100 nodes broke within 10 min", NOW)
    found = asked(local)
    assert found["action"] == "wait" and "60 of 100" in found["why"][0]


def test_who_is_limited_to_other_projects_does_not_see_it(fleet: Site) -> None:
    told(fleet, account="nlp")
    for project, status in (("nlp", 200), ("vision", 404)):
        text = tokens.new_token()
        with fleet.parts.store.write() as session:
            hashed, reach = tokens.hash_token(text, fleet.parts.secret), people.Scope(projects=(project,))
            people.add_token(session, f"{project} robot", "read", hashed, NOW, reach=reach)
        client = fleet.client(Authorization=f"Bearer {text}")
        assert client.get(API, params={"job": JOB}).status_code == status


# --- the rules ------------------------------------------------------------------------------------------------------


def known(**more: Any) -> Known:
    told: dict[str, Any] = {
        "state": "FAILED",
        "whose": "",
        "said": "",
        "resubmit": "",
        "in_a_row": 1,
        "troubles": (),
        "breaker": "",
        "restart": None,
        "out": (),
    }
    return Known(**{**told, **more})


NODE = Trouble(1, "gpu_bus_loss", "GPU 3 of gpu-001 fell off the bus.", False, True)
DISK = Trouble(2, "filesystem_down", "/scratch does not answer.", True, True)


@pytest.mark.parametrize(
    ("more", "action"),
    [
        ({"state": "RUNNING", "troubles": (NODE,)}, "run"),
        ({"state": "COMPLETED"}, "done"),
        ({"state": "CANCELLED"}, "done"),
        ({"troubles": (DISK,)}, "wait"),
        ({"troubles": (Trouble(2, "x", "It was away.", True, False),)}, "restart"),
        ({"state": "PENDING"}, "wait"),
        ({"whose": "yours"}, "stop"),
        ({"whose": "yours", "troubles": (NODE,)}, "restart"),
        ({"whose": "hardware"}, "restart"),
        ({"resubmit": "changed"}, "stop"),
        ({"in_a_row": TRIES}, "stop"),
        ({"in_a_row": TRIES, "troubles": (NODE,)}, "restart"),
        ({"restart": Restart(7, None, "Restart from step 7.")}, "restart"),
        ({}, "restart"),
    ],
)
def test_the_first_rule_that_holds_decides(more: dict[str, Any], action: str) -> None:
    found = advise(known(**more))
    assert found.action == action and found.sentence.endswith(".")


def test_what_is_not_known_is_said() -> None:
    assert "not known" in advise(known()).sentence
    assert "not known" not in advise(known(troubles=(NODE,), out=("gpu-001",))).sentence


def test_answers_of_other_jobs_are_removed_after_thirty_days(fleet: Site, local: TestClient) -> None:
    told(fleet)
    now = fleet.clock.now()
    with fleet.parts.store.write() as session:
        for job, days in (("old", 31), ("newer", 29)):
            at = now - timedelta(days=days)
            session.add(Advice(cluster=fleet.watch.cluster, job=job, revision=1, at=at, mark="m", body={}))
    asked(local)
    with fleet.parts.store.read() as session:
        assert sorted(session.exec(select(Advice.job)).all()) == [JOB, "newer"]
