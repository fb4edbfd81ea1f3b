"""The owner of a dead job is told once, after a while, with what is known by then."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlmodel import select

from backend import owners
from backend.clients.slurm import SlurmError
from backend.clock import unix
from backend.facts import AttemptFacts
from backend.model.actions import Exclusion
from backend.model.events import Event
from backend.model.incidents import Incident
from backend.model.messages import Delivery, Message
from backend.settings import Owners
from backend.store import attempts, events
from tests.backend.api.conftest import NOW, Site, make

ENDED = NOW - timedelta(seconds=30)
MAIL = Owners.model_validate({"mail": True, "address": "{user}@example.org", "addresses": {"root": "ops@example.org"}})
ATTEMPT = AttemptFacts(
    job="48213",
    run="llama",
    user="jana",
    state="FAILED",
    start=unix(ENDED) - 3600.0,
    end=unix(ENDED),
    nodes=("gpu-0412", "gpu-0413"),
    gpus_per_node=8,
)


@pytest.fixture
def dead(tmp_path: Path, migrated_sqlite: Path) -> Iterator[Site]:
    """A job that died just now; the loop had begun before."""
    for site in make(tmp_path, migrated_sqlite, mode="act"):
        owners.tell(site.watch, MAIL, ("email",))
        with site.parts.store.write() as session:
            attempts.record_attempts(session, "main", [ATTEMPT], NOW)
        yield site


def verdict(site: Site, whose: str, node: str = "", job: str = "48213", **more: Any) -> None:
    attrs = {"whose": whose, "first": "CUDA error: unspecified launch failure", "file": "train.err", "line": "8812"}
    row: dict[str, Any] = {
        "cluster": "main", "at": ENDED, "received_at": NOW, "namespace": "log", "code": "cuda_error", "node": node,
        "entity_kind": "job", "entity_id": job, "entity_name": f"job:{job}", "job": job, "source": "logs",
        "text": "Rank 27 lost its GPU.", "dedupe": f"verdict {job}/0", "attrs": attrs,
    }  # fmt: skip
    with site.parts.store.write() as session:
        events.append_events(session, "main", [Event(**(row | more))])


def told(site: Site, after_s: float = 61.0, **more: Any) -> list[Message]:
    site.clock.set(site.clock.now() + timedelta(seconds=after_s))
    owners.tell(site.watch, MAIL, ("email",), **more)
    with site.parts.store.read() as session:
        return list(session.exec(select(Message).where(Message.kind == "owner")))


def test_the_owner_is_told_once_when_what_else_is_known_has_come(dead: Site) -> None:
    verdict(dead, "hardware", "gpu-0412")
    assert told(dead, 59.0) == []
    assert len(told(dead, 2.0)) == len(told(dead, 100.0)) == 1
    with dead.parts.store.read() as session:
        delivery = session.exec(select(Delivery)).one()
    assert (delivery.channel, delivery.to, delivery.state) == ("email", ["jana@example.org"], "waiting")


def test_hardware_says_what_to_leave_out_and_what_was_lost(dead: Site) -> None:
    verdict(dead, "hardware", "gpu-0412")
    body = told(dead)[0].body
    assert body["headline"] == "Hardware stopped job 48213, not your code."
    assert body["advice"] == "Submit it again with --exclude=gpu-0412."
    facts = dict(body["facts"])
    assert facts["Lost"] == "at most 1 h 0 min, 16.0 GPU-hours: no save of it was seen"
    assert body["evidence"][0] == "CUDA error: unspecified launch failure (train.err:8812)"


def test_a_node_that_is_kept_from_new_work_needs_no_word(dead: Site) -> None:
    verdict(dead, "hardware", "gpu-0412")
    with dead.parts.store.write() as session:
        until = NOW + timedelta(days=1)
        session.add(Exclusion(cluster="main", node="gpu-0412", owner="jana", origin="person", reason="x", created_at=NOW, until=until))  # fmt: skip  # noqa: E501
    assert dict(told(dead)[0].body["facts"])["Safe to resubmit"] == "yes; gpu-0412 is kept from new work"


@pytest.mark.parametrize(
    ("whose", "says", "safe"),
    [
        ("yours", "stopped in its own code", "no: it would stop there again"),
        ("platform", "The platform stopped", "yes, once the platform is well"),
        ("unknown", "what of is not known", "not known"),
        ("none", "what of is not known", "not known"),
    ],
)
def test_each_verdict_says_whether_to_submit_again(dead: Site, whose: str, says: str, safe: str) -> None:
    verdict(dead, whose)
    body = told(dead)[0].body
    assert says in body["headline"] and dict(body["facts"])["Safe to resubmit"] == safe


def test_where_the_log_does_not_know_an_incident_of_its_node_does(dead: Site) -> None:
    verdict(dead, "unknown")
    with dead.parts.store.write() as session:
        session.add(
            Incident(
                cluster="main", kind="gpu_bus_loss", severity="critical", entity_kind="gpu", entity_id="GPU-1",
                entity_name="gpu-0413/gpu3", node="gpu-0413", job="48213", headline="GPU 3 of gpu-0413 is lost.",
                opened_at=NOW, changed_at=NOW, last_asserted_at=NOW,
            )
        )  # fmt: skip
    body = told(dead)[0].body
    assert body["headline"].startswith("Hardware stopped") and "gpu-0413" in body["advice"]
    assert "GPU 3 of gpu-0413 is lost." in body["evidence"][-1]


@pytest.mark.parametrize(
    ("user", "address"),
    [("jana", "jana@example.org"), ("root", "ops@example.org"), ("", ""), ("a@evil.example,b", ""), ("é", "")],
)
def test_an_address_is_made_of_plain_names_only(user: str, address: str) -> None:
    assert owners.address_of(MAIL, user) == address


def test_history_is_no_news(dead: Site) -> None:
    verdict(dead, "hardware", at=NOW - timedelta(days=3))
    verdict(dead, "hardware", job="nobody", dedupe="other")
    assert told(dead) == []


def test_a_note_at_the_job_is_the_same_word_and_its_failure_holds_nothing_up(dead: Site) -> None:
    notes: list[tuple[str, str]] = []

    def note(job: str, text: str) -> None:
        notes.append((job, text))
        raise SlurmError("Access/permission denied")

    verdict(dead, "hardware", "gpu-0412")
    assert len(told(dead, note=note)) == 1
    said = "Watchkeeper: Hardware stopped job 48213, not your code. Submit it again with --exclude=gpu-0412."
    assert notes == [("48213", said)]
