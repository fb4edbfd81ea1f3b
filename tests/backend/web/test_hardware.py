"""A vendor sees its own nodes' hardware and nothing of the work, the people or the rest of the fleet."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.answers import hardware as answer
from backend.answers.hardware import scrubbed
from backend.model.checks import Check
from backend.model.events import Event
from backend.registry import Parts
from backend.security import tokens
from backend.store import people
from backend.store.people import Scope
from tests.backend.web import site
from tests.backend.web.conftest import client_of
from tests.backend.web.test_settings_pages import words

MINE = ("gpu-012", "gpu-026")


@pytest.fixture
def told(parts: Parts) -> Parts:
    """A vendor of two nodes, and rows that say too much."""
    now = parts.clock.now()
    with parts.store.write() as session:
        people.put_user(session, "acme", "vendor", site.hashed_password(), now, Scope(nodes=MINE))
        line = "NVRM: Xid (PCI:0000:9d:00): 79, pid=4711, name=secretproject, token=hunter2hunter2 seen by gpu-030"
        for node in ("gpu-012", "gpu-030"):
            session.add(
                Event(
                    cluster="main", at=now - timedelta(hours=1), received_at=now, namespace="xid", code="79", node=node,
                    entity_kind="gpu", entity_id=node, entity_name=f"{node}/gpu3", job="41207", text=line,
                    dedupe=f"vendor {node}",
                )
            )  # fmt: skip
            session.add(
                Check(
                    cluster="main", node=node, peer="gpu-031", name="nccl", occasion="idle", at=now, verdict="fail",
                    text="slow beside gpu-031, run by user=lena",
                )
            )  # fmt: skip
    return parts


SECRET = re.compile(r"41207|atlas|lena|secretproject|hunter2|gpu-0(?!12|26)\d\d")


def test_a_vendor_sees_its_nodes_and_no_word_of_work_people_or_other_nodes(told: Parts) -> None:
    client = client_of(told, "acme")
    got = client.get("/api/v1/hardware?download=1")
    body = got.json()
    assert [row["node"] for row in body["nodes"]] == list(MINE) and len(body["nodes"][0]["devices"]) == 8
    assert {row["node"] for row in body["incidents"] + body["events"] + body["checks"]} <= set(MINE)
    assert body["incidents"] and body["events"] and body["checks"]
    assert SECRET.search(got.text) is None, SECRET.search(got.text)
    assert "attachment" in got.headers["content-disposition"]
    page = client.get("/hardware").text
    assert SECRET.search(words(page)) is None and "Xid (PCI:0000:9d:00): 79" in words(page)
    assert "/incidents" not in page and "/runs" not in page


def test_no_other_page_is_open_to_a_vendor(told: Parts) -> None:
    client = client_of(told, "acme")
    for path in ("/", "/incidents", "/incidents/1", "/nodes/gpu-012", "/runs", "/actions", "/settings", "/fleet"):
        got = client.get(path, headers={"Accept": "text/html"})
        assert got.status_code == 403 or (path == "/" and got.headers["location"] == "/hardware"), path


def test_no_other_answer_is_open_to_a_vendors_token(told: Parts) -> None:
    text = tokens.new_token()
    with told.store.write() as session:
        hashed = tokens.hash_token(text, told.secret)
        people.add_token(session, "acme", "vendor", hashed, told.clock.now(), None, Scope(nodes=MINE))
    client = client_of(told)
    bearer = {"Authorization": f"Bearer {text}"}
    for path in ("nodes", "nodes/gpu-012", "incidents", "orders", "exclusions", "export/events", "settings", "checks"):
        assert client.get(f"/api/v1/{path}", headers=bearer).status_code == 403, path
    assert [row["node"] for row in client.get("/api/v1/hardware", headers=bearer).json()["nodes"]] == list(MINE)


def test_other_nodes_rows_take_no_place_of_a_vendors(told: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    now = told.clock.now()
    with told.store.write() as session:
        for _ in range(4):
            session.add(
                Check(
                    cluster="main", node="gpu-030", name="nccl", occasion="idle", at=now, verdict="warn", text="slow"
                )
            )  # fmt: skip
    monkeypatch.setattr(answer, "MOST", 3)
    body = client_of(told, "acme").get("/api/v1/hardware").json()
    assert [row["node"] for row in body["checks"]] == ["gpu-012"] and "checks" not in body["cut"]
    assert "checks" in client_of(told, "viewer").get("/api/v1/hardware").json()["cut"]


def test_who_sees_all_nodes_gets_them_all_and_still_nothing_of_the_work(told: Parts) -> None:
    got = client_of(told, "viewer").get("/api/v1/hardware")
    assert len(got.json()["nodes"]) == site.NODES
    assert re.search(r"41207|atlas|lena|secretproject|hunter2", got.text) is None


@given(st.text(max_size=200), st.sampled_from(["41207", "run.1", "(x"]), st.sets(st.sampled_from(["gpu-1", "gpu-11"])))
@settings(max_examples=80, deadline=None)
def test_scrubbing_never_raises_and_twice_changes_nothing(text: str, name: str, others: set[str]) -> None:
    once = scrubbed(f"{text} {name} on gpu-11", [name], others)
    assert scrubbed(once, [name], others) == once
    assert "gpu-11" not in others or not re.search(r"(?<![\w.-])gpu-11(?![\w.-])", once)
