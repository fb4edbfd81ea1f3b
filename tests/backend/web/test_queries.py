"""A page asks the store a few times, however much there is: counted at the driver, on every page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import event

from backend.model.incidents import Incident
from backend.registry import Parts
from tests.backend.web import site
from tests.backend.web.conftest import client_of

#: Sign-in, rail, bar and foot of any page.
FRAME = 8
#: What a page asks for itself, beside its frame.
PAGES = {
    "/": 18, "/fleet": 11, "/fleet?state=ok": 11, "/cluster": 8, "/nodes/gpu-012": 23,
    f"/devices/{site.uuid(11, 3)}": 8, "/incidents": 5, "/incidents?show=all": 8, "/incidents/1": 21,
    "/incidents/6": 19, "/actions": 20, "/exclusions": 6, "/alerts": 8, "/runs": 4, "/reliability": 4,
    "/storage": 4, "/planner": 4,
    "/definitions": 8, "/system": 10, "/settings": 8, "/settings/rules": 8, "/settings/people": 8,
    "/settings/tokens": 8, "/settings/audit": 8, "/settings/account": 8, "/hardware": 8, "/sign-in": 0,
}  # fmt: skip


@contextmanager
def counted(parts: Parts) -> Iterator[list[str]]:
    """Every SELECT that the driver is given meanwhile."""
    asked: list[str] = []

    def hear(conn: object, cursor: object, words: str, *more: object) -> None:
        if words.lstrip()[:6].upper() in ("SELECT", "WITH"):
            asked.append(words)

    engine = parts.store.engine
    event.listen(engine, "before_cursor_execute", hear)
    yield asked
    event.remove(engine, "before_cursor_execute", hear)


def queries(parts: Parts, client: TestClient, path: str) -> int:
    with counted(parts) as asked:
        assert client.get(path).status_code == 200, path
    return len(asked)


def test_no_page_asks_more_than_it_did(parts: Parts) -> None:
    client = client_of(parts, "admin")
    found = {path: queries(parts, client, path) for path in PAGES}
    assert {path: n for path, n in found.items() if n > FRAME + PAGES[path]} == {}


@pytest.mark.parametrize("path", ["/", "/incidents", "/fleet", "/actions"])
def test_a_storm_of_incidents_costs_no_more_queries(parts: Parts, path: str) -> None:
    client = client_of(parts, "admin")
    before = queries(parts, client, path)
    with parts.store.write() as session:
        for n in range(300):
            at = parts.clock.now() - timedelta(minutes=n)
            session.add(
                Incident(
                    cluster="main", kind="gpu_hot", severity="warning", state="open", headline=f"GPU {n} is hot.",
                    entity_kind="node", entity_id=f"gpu-{n % 48 + 1:03}", entity_name=f"gpu-{n % 48 + 1:03}",
                    node=f"gpu-{n % 48 + 1:03}", opened_at=at, changed_at=at, last_asserted_at=at,
                )
            )  # fmt: skip
    assert queries(parts, client, path) <= before


def test_a_storm_is_read_page_by_page(parts: Parts) -> None:
    test_a_storm_of_incidents_costs_no_more_queries(parts, "/incidents")
    client = client_of(parts, "admin")
    first = client.get("/incidents").text
    assert first.count("data-row=") == 200 and "skip=200" in first
    assert 100 <= client.get("/incidents?skip=200").text.count("data-row=") < 200
