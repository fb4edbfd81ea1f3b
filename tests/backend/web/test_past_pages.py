"""Node, device and cluster pages: what was, told in the order a reader asks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from backend.clock import ManualClock
from backend.registry import Parts
from tests.backend.web import site, tales
from tests.conftest import NOW

LOCAL = ("127.0.0.1", 50_000)


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    made = site.parts_of(tmp_path / "store", ManualClock(NOW))
    yield made
    made.store.close()


@pytest.fixture
def client(parts: Parts) -> TestClient:
    tales.fill(parts)
    return TestClient(site.app_of(parts), base_url="http://127.0.0.1:8000", client=LOCAL)


def text(client: TestClient, path: str) -> str:
    answer = client.get(path, headers={"accept": "text/html"})
    assert answer.status_code == 200, path
    assert "unsafe" not in answer.headers["content-security-policy"]
    return answer.text.replace("\u00a0", " ").replace('<span class="nowrap">', "").replace("</span>", "")


def test_a_node_tells_what_it_went_through_and_what_it_runs(client: TestClient) -> None:
    page = text(client, "/nodes/gpu-021")
    assert "gpu-021 is suspect: its scheduler has it out (drain by watchkeeper)" in page
    assert "In 7 days it ran 3 jobs and had 0 incidents; it was out for 40 min." in page
    assert "47 of 48 of its kind run 575.51.03" in page and "mlx5_7/1" in page and "/devices/GPU-0020-1" in page
    assert "In 24 h it ran" in text(client, "/nodes/gpu-021?days=1")
    assert "Nobody tells what it runs" not in page


@pytest.mark.parametrize("kind", ["nodes/gpu-021", "devices/GPU-0020-1"])
def test_lanes_come_as_a_figure_and_as_a_table(client: TestClient, kind: str) -> None:
    for narrow in ("", "&narrow=1"):
        figure = client.get(f"/figures/past/{kind}.json?days=7&theme=dark{narrow}").json()
        assert figure["data"] and figure["layout"]["meta"]["height"] > 100
    sheet = client.get(f"/figures/past/{kind}.csv?days=90").text
    assert "Job 41150" in sheet and "driver: 575.51.03 to 570.86.15" in sheet


def test_a_device_tells_where_it_sat(client: TestClient) -> None:
    page = text(client, "/devices/GPU-0020-1")
    assert "GPU 1 of gpu-021: in 7 days it ran 3 jobs" in page and 'href="/nodes/gpu-021"' in page


def test_the_cluster_page_names_the_odd_one_and_what_nobody_told(client: TestClient) -> None:
    page = text(client, "/cluster")
    assert "1 node runs something odd; the rack of 48 of 48 nodes is known." in page
    assert "47 of 48 run 575.51.03" in page and "rail 3" in page and "File servers" in page
    assert "ubuntu-22.04-4" in page


def test_an_empty_site_claims_nothing(parts: Parts) -> None:
    client = TestClient(site.app_of(parts), base_url="http://127.0.0.1:8000", client=LOCAL)
    page = text(client, "/cluster")
    assert "No node has been heard of yet." in page and "Nobody differs" in page
    assert client.get("/nodes/nobody").status_code == 404
    assert client.get("/devices/nobody").status_code == 404
    assert client.get("/figures/past/nodes/nobody.json").status_code == 404
    assert client.get("/figures/past/ghosts/nobody.json").status_code == 404


def test_hostile_names_stay_text(client: TestClient) -> None:
    for path in ("/nodes/%3Cscript%3E", "/devices/%3Cscript%3Ealert(1)", "/nodes/a%2Fb"):
        answer = client.get(path, headers={"accept": "text/html"})
        assert answer.status_code == 404 and "<script>alert" not in answer.text


def test_the_incident_leads_to_the_history_of_its_node_and_offers_no_boot_of_long_ago(client: TestClient) -> None:
    page = text(client, "/incidents/1")
    assert "History of gpu-0" in page
    assert "booted" not in page  # six days ago: not what changed before
    assert "Image of the whole cluster: ubuntu-22.04-4" in page
