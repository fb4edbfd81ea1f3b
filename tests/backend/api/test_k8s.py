"""The extender of kube-scheduler: its types to the letter, binding only, and open where nothing is known."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from backend.store.engine import StoreError
from tests.backend.api.conftest import Site, problem
from tests.backend.api.rows import a_node, a_plan, an_exclusion, an_incident

API = "/api/v1/k8s"
NAMES = ["gpu-001", "gpu-002", "gpu-003", "gpu-004"]
POD = {"metadata": {"name": "llama-0", "namespace": "nlp", "labels": {"job-name": "llama"}}}


@pytest.fixture
def fleet(site: Site) -> Site:
    for name in NAMES[:3]:
        a_node(site, name)
    an_exclusion(site, "gpu-002")
    a_plan(site, an_incident(site, "gpu-003"), "gpu-003")
    return site


def named(names: list[str], **more: Any) -> dict[str, Any]:
    return {"Pod": POD, "Nodes": None, "NodeNames": names, **more}


def test_filter_leaves_out_what_binds_and_nothing_else(fleet: Site, local: TestClient) -> None:
    found = local.post(f"{API}/filter", json=named(NAMES)).json()
    why = {"gpu-002": "Excluded by dana: bus loss"}
    assert found == {
        "Nodes": None,
        "NodeNames": ["gpu-001", "gpu-003", "gpu-004"],
        "FailedNodes": why,
        "FailedAndUnresolvableNodes": why,
        "Error": "",
    }
    advised = local.post(f"{API}/filter?advisory=1", json=named(NAMES)).json()
    assert advised["NodeNames"] == ["gpu-001", "gpu-004"] and set(advised["FailedNodes"]) == {"gpu-002", "gpu-003"}


def test_whole_nodes_come_back_as_they_were_sent(fleet: Site, local: TestClient) -> None:
    items = [{"metadata": {"name": name, "labels": {"a": "b"}}, "status": {"x": [1]}} for name in NAMES[:2]]
    sent = {"pod": POD, "nodes": {"metadata": {"resourceVersion": "7"}, "items": items}, "nodenames": None}
    found = local.post(f"{API}/filter", json=sent).json()
    assert found["NodeNames"] is None
    assert found["Nodes"] == {"metadata": {"resourceVersion": "7"}, "items": items[:1]}


def test_prioritize_prefers_the_known_good_before_the_unknown_before_the_suspect(
    fleet: Site, local: TestClient
) -> None:
    found = local.post(f"{API}/prioritize", json=named(NAMES)).json()
    assert found == [
        {"Host": "gpu-001", "Score": 10},
        {"Host": "gpu-002", "Score": 0},
        {"Host": "gpu-003", "Score": 0},
        {"Host": "gpu-004", "Score": 5},
    ]


@pytest.mark.parametrize(("scope", "out"), [("account:nlp", True), ("job:llama", True), ("account:vision", False)])
def test_what_is_kept_from_some_is_kept_from_their_pods_only(
    fleet: Site, local: TestClient, scope: str, out: bool
) -> None:
    an_exclusion(fleet, "gpu-001", origin="person", scope=scope)
    found = local.post(f"{API}/filter", json=named(["gpu-001"])).json()
    assert (found["NodeNames"] == []) is out


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b'{"NodeNames": [1]}', b'{"Nodes": {"items": 3}}', b'{"Pod": 1, "NodeNames": []}', b"{"],
)
def test_what_is_no_extender_args_is_refused(local: TestClient, body: bytes) -> None:
    answer = local.post(f"{API}/filter", content=body, headers={"Content-Type": "application/json"})
    problem(answer, answer.status_code)
    assert answer.status_code in (400, 422)


def test_odd_objects_in_a_list_stay(local: TestClient) -> None:
    sent = {"Pod": {"metadata": []}, "Nodes": {"items": [{"metadata": None}, 7, {}]}}
    assert local.post(f"{API}/filter", json=sent).json()["Nodes"] == sent["Nodes"]
    assert local.post(f"{API}/prioritize", json=sent).json() == []


def test_with_no_verdicts_at_hand_every_node_stays_and_a_header_says_so(
    fleet: Site, local: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> Any:
        raise StoreError("the database is away", "")

    monkeypatch.setattr(fleet.parts.store, "read", away)
    answer = local.post(f"{API}/filter", json=named(NAMES))
    assert answer.json()["NodeNames"] == NAMES and answer.json()["Error"] == ""
    assert answer.headers["Warning"].startswith("199 ")
