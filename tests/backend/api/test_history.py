"""Over REST: who ran on this GPU at 03:12, which GPUs were its peers then, what changed, who differs."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from tests.backend.api.conftest import NOW, Site, problem

API = "/api/v1"
T = NOW.timestamp()


def told(local: TestClient) -> None:
    nodes = [
        {
            "name": f"n{i}",
            "rack": f"r{i // 2}",
            "switch": "leaf1",
            "model": "H100",
            "gpus": [{"index": g, "uuid": f"GPU-{i}-{g}", "pci_bus_id": f"0000:{16 + g:02x}:00.0"} for g in range(2)],
        }
        for i in range(6)
    ]
    assert local.post(f"{API}/ingest/topology", json={"nodes": nodes}).status_code == 200
    jobs = [
        {
            "job": "7",
            "restart": 0,
            "state": "NODE_FAIL",
            "start": T - 900,
            "end": T - 600,
            "nodes": "n[0-1]",
            "user": "ada",
        },
        {"job": "7", "restart": 1, "state": "RUNNING", "start": T - 500, "nodes": "n[1-2]", "run": "big"},
    ]
    assert local.post(f"{API}/ingest/jobs", json=jobs).status_code == 200


def test_who_ran_on_a_gpu_and_with_whom(site: Site, local: TestClient) -> None:
    told(local)
    then = (NOW - timedelta(seconds=700)).isoformat()
    body = local.get(f"{API}/allocations", params={"node": "n1", "gpu": 0, "at": then}).json()
    assert [(row["job"], row["restart"], row["state"], row["user"]) for row in body["items"]] == [
        ("7", 0, "NODE_FAIL", "ada")
    ]
    assert body["hostlist"] == "n[0-1]" and body["at"].startswith("2026-03-01T11:48:20")
    now = local.get(f"{API}/allocations", params={"node": "n1"}).json()
    assert [row["restart"] for row in now["items"]] == [1] and now["hostlist"] == "n2" and now["device"] is None
    seat = local.get(f"{API}/allocations", params={"node": "n1", "gpu": 1}).json()
    assert seat["device"] == "GPU-1-1"
    assert len(local.get(f"{API}/allocations", params={"job": "7"}).json()["items"]) == 4
    gap = local.get(f"{API}/allocations", params={"node": "n1", "at": T - 550}).json()
    assert gap["items"] == [] and gap["peers"] == []
    problem(local.get(f"{API}/allocations"), 422)
    problem(local.get(f"{API}/allocations", params={"node": "n1", "job": "7"}), 422)


def test_the_history_of_a_node_and_of_a_device(site: Site, local: TestClient) -> None:
    told(local)
    change = {"ts": T - 60, "node": "n1", "item": "Driver", "value": "575", "by": "ansible"}
    assert local.post(f"{API}/changes", json=[change]).json()["accepted"] == 1
    body = local.get(f"{API}/nodes/n1/history").json()
    assert [row["restart"] for row in body["jobs"]] == [0, 1] and body["jobs"][1]["run"] == "big"
    assert [row["text"] for row in body["places"]] == ["rack r0, leaf leaf1"]
    assert [row["value"] for row in body["changes"]] == ["575"] and body["versions"] == {"driver": {"pushed": "575"}}
    assert {row["device"] for row in body["devices"]} == {"GPU-1-0", "GPU-1-1"}
    problem(local.get(f"{API}/nodes/nobody/history"), 404)
    problem(local.get(f"{API}/nodes/n1/history", params={"since": "2020-01-01T00:00:00Z"}), 422)
    problem(local.get(f"{API}/nodes/n1/history", params={"since": T, "until": T - 9}), 422)
    device = local.get(f"{API}/devices/GPU-1-1/history").json()
    assert [(row["node"], row["index"]) for row in device["places"]] == [("n1", "1")]
    assert [row["restart"] for row in device["jobs"]] == [1]  # it was met only now
    problem(local.get(f"{API}/devices/GPU-9/history"), 404)
    found = local.get(f"{API}/devices", params={"node": "n1"}).json()["items"]
    assert [row["device"] for row in found] == ["GPU-1-0", "GPU-1-1"]


def test_changes_are_pushed_listed_and_rejected_row_by_row(site: Site, local: TestClient) -> None:
    told(local)
    rows = [
        {"ts": T - 90, "nodes": "n[0-4]", "item": "driver", "value": "570"},
        {"ts": T - 90, "nodes": "n5", "item": "driver", "value": "550"},
        {"ts": T - 30, "nodes": "n[0-1]", "item": "driver", "value": "575"},
        {"item": "image", "value": "ubuntu-24.04", "text": "roll-out 17"},
        {"ts": T + 9999, "node": "n1", "item": "driver", "value": "9"},
        {"node": "n1", "item": "driver"},
    ]
    body = local.post(f"{API}/changes", json=rows).json()
    assert body["accepted"] == 9 and {row["row"] for row in body["rejected"]} == {4, 5}
    found = local.get(f"{API}/changes").json()["items"]
    assert [(row["node"], row["item"], row["before"], row["value"]) for row in found] == [
        ("", "image", "", "ubuntu-24.04"),
        ("n1", "driver", "570", "575"),
        ("n0", "driver", "570", "575"),
    ]
    one = local.get(f"{API}/changes", params={"node": "n1", "limit": 1}).json()
    assert one["before"] == one["items"][0]["id"]
    assert [row["node"] for row in local.get(f"{API}/changes", params={"node": "n2"}).json()["items"]] == [""]
    assert local.get(f"{API}/changes", params={"since": (NOW - timedelta(seconds=10)).isoformat()}).json()["items"]


def test_who_differs_from_its_kind_is_listed_with_its_n(site: Site, local: TestClient) -> None:
    told(local)
    rows = [{"nodes": "n[0-4]", "item": "driver", "value": "575"}, {"nodes": "n5", "item": "driver", "value": "550"}]
    assert local.post(f"{API}/changes", json=rows).status_code == 200
    body = local.get(f"{API}/versions").json()
    (odd,) = body["odd"]
    assert (odd["group"], odd["item"], odd["value"], odd["holders"]) == ("H100", "driver", "550", ["n5"])
    assert (odd["custom"], odd["common"], odd["size"]) == ("575", 5, 6)
    assert body["spread"][0]["values"] == [{"value": "575", "count": 5}, {"value": "550", "count": 1}]


def test_the_topology_says_how_much_of_it_is_known(site: Site, local: TestClient) -> None:
    told(local)
    assert local.post(
        f"{API}/ingest/jobs", json=[{"job": "9", "state": "RUNNING", "start": T, "nodes": "n9"}]
    ).is_success
    body = local.get(f"{API}/topology").json()
    groups = {(g["kind"], g["name"]): g["hostlist"] for g in body["groups"]}
    assert groups[("rack", "r0")] == "n[0-1]" and groups[("switch", "leaf1")] == "n[0-5]"
    assert body["coverage"]["nodes"] == 7 and body["coverage"]["rack"] == 6 and body["coverage"]["clique"] == 0


def test_pushing_changes_needs_a_token_off_loopback(site: Site) -> None:
    far = ("203.0.113.9", 40_000)
    row = [{"node": "n1", "item": "driver", "value": "1"}]
    problem(site.client(far).post(f"{API}/changes", json=row), 401)
    problem(site.program("read", far).post(f"{API}/changes", json=row), 403)
    assert site.program("ingest", far).post(f"{API}/changes", json=row).status_code == 200
    problem(site.client(far).get(f"{API}/nodes/n1/history"), 401)


ABSURD = ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-14:00")
HOSTILE = ("\x00", "\x1b[31m", "<script>", "' OR 1=1 --", "\ud7ff" * 300, "/../..", "%00", "n1\n")


@pytest.mark.parametrize("at", [*ABSURD, "-1e300", "1e300", "NaN", "99999999999999999999", "0"])
def test_absurd_times_are_answered_or_refused(site: Site, local: TestClient, at: str) -> None:
    told(local)
    asked: list[tuple[str, dict[str, str | int]]] = [("allocations", {"node": "n1", "at": at})]
    asked += [("allocations", {"node": "n1", "gpu": 0, "at": at})]
    for path in ("nodes/n1/history", "devices/GPU-1-1/history", "changes"):
        asked += [(path, {name: at}) for name in ("since", "until")]
        asked += [(path, {"since": at, "until": at})]
    for path, words in asked:
        answer = local.get(f"{API}/{path}", params=words)
        assert answer.status_code in (200, 422), (path, words, answer.text)


@pytest.mark.parametrize("word", HOSTILE)
def test_hostile_names_are_answered_or_refused(site: Site, local: TestClient, word: str) -> None:
    told(local)
    for path, name in (
        ("allocations", "node"),
        ("allocations", "job"),
        ("changes", "node"),
        ("changes", "item"),
        ("devices", "node"),
    ):
        answer = local.get(f"{API}/{path}", params={name: word})
        assert answer.status_code in (200, 404, 422), (path, name, answer.text)
        assert "application" in answer.headers["content-type"]
    for path in ("nodes", "devices"):
        assert local.get(f"{API}/{path}/{quote(word, safe='')}/history").status_code in (404, 422)
    for gpu in (-1, 10**30, 2**63):
        assert local.get(f"{API}/allocations", params={"node": "n1", "gpu": gpu}).status_code in (200, 422)
