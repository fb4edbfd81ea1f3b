"""Every route of the OpenAPI document with plain random values: a clear answer each time, never a failure of ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.api import routes
from tests.backend.api.conftest import Site, make
from tests.backend.api.rows import a_node, a_plan, an_incident, an_order

PLACES = ("path", "query")
#: Answers that any route may give; 500 is none of them.
GOOD = {200, 201, 204, 400, 401, 403, 404, 405, 409, 413, 415, 422, 429}
ODD = ("", "0", "-1", "1", "d1", str(2**63), str(10**30), "NaN", "1e9", "\x00", "\ud800", "..", "é", "a" * 300, "%")

texts = st.one_of(st.sampled_from(ODD), st.text(max_size=8))
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), texts, st.just("2026-03-01T00:00:00Z")
)
deeper = st.one_of(scalars, st.lists(scalars, max_size=3), st.dictionaries(texts, scalars, max_size=3))
values = st.one_of(deeper, st.lists(deeper, max_size=2), st.dictionaries(texts, deeper, max_size=2))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, migrated_sqlite: Path) -> Iterator[Site]:
    """One site for all examples: what one leaves behind is the next one's luck."""
    made = make(tmp_path_factory.mktemp("fuzz"), migrated_sqlite, mode="propose")
    site = next(made)
    a_node(site)
    incident = an_incident(site)
    an_order(site, incident, a_plan(site, incident))
    yield site
    assert next(made, None) is None


@pytest.fixture(scope="module")
def admin(whole: Site) -> TestClient:
    return whole.person("admin")


@dataclass(frozen=True)
class Route:
    """One operation of the document: its parameters by place, and the fields of its JSON body."""

    method: str
    path: str
    in_path: tuple[str, ...]
    in_query: tuple[str, ...]
    fields: tuple[str, ...]


@pytest.fixture(scope="module")
def every_route(whole: Site) -> list[Route]:
    found = whole.app.openapi()["paths"].items()
    return [route_of(whole, method, path, o) for path, methods in found for method, o in methods.items()]


def route_of(site: Site, method: str, path: str, operation: dict[str, Any]) -> Route:
    named = {place: [p["name"] for p in operation.get("parameters", ()) if p["in"] == place] for place in PLACES}
    return Route(method, path, tuple(named["path"]), tuple(named["query"]), tuple(fields_of(site, operation)))


def fields_of(site: Site, operation: dict[str, Any]) -> list[str]:
    """Names of the fields that the JSON body of an operation has, so that random values reach what is behind them."""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    schema: dict[str, Any] = content.get("schema", {})
    schema = next((part for part in schema.get("anyOf", ()) if "$ref" in part), schema)
    if "$ref" in schema:
        schema = site.app.openapi()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    schema = schema.get("items", schema)
    return list(schema.get("properties", {}))


@st.composite
def requests(draw: st.DrawFn, route: Route) -> dict[str, Any]:
    """Arguments of an HTTP request to this route."""
    path = route.path
    for name in route.in_path:
        path = path.replace(f"{{{name}}}", quote(draw(texts).encode("utf-8", "replace"), safe="") or "1")
    some = draw(st.lists(st.sampled_from(route.in_query), unique=True)) if route.in_query else []
    query = {name: draw(texts).encode("utf-8", "replace").decode() for name in some}
    row = st.fixed_dictionaries({}, optional=dict.fromkeys(route.fields, values))
    body = draw(st.one_of(row, st.lists(row, max_size=2), values))
    kind = draw(st.sampled_from(["application/json", "application/x-ndjson", "", "text/html"]))
    sent = {"content": json.dumps(body).encode()} if route.method != "get" else {}
    headers = {"Content-Type": kind} if kind else {}
    return {"method": route.method.upper(), "url": path, "params": query, "headers": headers, **sent}


@given(data=st.data())
@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_random_values_get_a_clear_answer(admin: TestClient, every_route: list[Route], data: st.DataObject) -> None:
    """json.dumps writes NaN, Infinity and halves of surrogate pairs too."""
    asked = data.draw(requests(data.draw(st.sampled_from(every_route))))
    answer = admin.request(**asked)
    early = answer.status_code == 503 and "Nothing is counted yet" in answer.text
    assert early or answer.status_code in GOOD, (asked, answer.status_code, answer.text)
    assert "Traceback" not in answer.text
    if answer.status_code >= 400 and asked["url"].startswith(routes.PREFIX):
        assert answer.headers["content-type"] == "application/problem+json"
        assert len(answer.json()["detail"]) > 15


@given(body=st.binary(max_size=60), route=st.sampled_from(["logs", "jobs", "topology", "remote-write"]))
@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_random_bytes_are_taken_in_part_or_refused(whole: Site, body: bytes, route: str) -> None:
    answer = whole.client().post(f"{routes.PREFIX}/ingest/{route}", content=body)
    assert answer.status_code in {200, 400, 422}, answer.text
