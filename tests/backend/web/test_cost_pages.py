"""Runs, run, reliability, storage, planner, report: each answers in a sentence, as JSON, as a table, also empty."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import event

from backend.auth import COOKIE, sign_in_as
from backend.clock import ManualClock, unix
from backend.facts import AttemptFacts, CheckpointFacts, StepFacts
from backend.registry import Parts
from backend.rollups.keep import Keeper
from backend.store.attempts import record_attempts
from tests.backend.rollups import months
from tests.backend.web import site, tales
from tests.conftest import NOW

LOCAL = ("127.0.0.1", 50_000)
PAGES = ("/runs", "/runs?state=failed", "/reliability?days=7", "/reliability/report", "/storage", "/planner?nodes=256")
#: Queries of one page beside those of who asks and of the frame.
MOST_QUERIES = 8


def parts_in(folder: Path, *, filled: bool) -> Parts:
    made = site.parts_of(folder, ManualClock(NOW))
    if filled:
        tales.fill(made)
        with made.store.write() as session:
            months.fill(session, "main", NOW, 10)
            record_attempts(session, "main", worked(), NOW)
        made.trained["main"].append(*rows())
        Keeper(made.store, made.clock, "main", trained=made.trained["main"].read).step()
    return made


def worked() -> list[AttemptFacts]:
    """The worked attempt of contracts.md, and its requeue, a day ago."""
    at = unix(NOW) - 86_400
    first = AttemptFacts("777", 0, "worked", "lena", "NODE_FAIL", at, at, at + 10, at + 1980, ("gpu-047",), 8)
    first = replace(first, reason="failed node gpu-047")
    again = at + 2100
    second = AttemptFacts("777", 1, "worked", "lena", "RUNNING", again, again, again + 5, None, ("gpu-048",), 8)
    return [first, second]


def rows() -> tuple[list[StepFacts], list[CheckpointFacts]]:
    at = unix(NOW) - 86_400
    ends = [*range(140, 1141, 10), *range(1190, 1681, 10)]
    steps = [StepFacts(at + s, "worked", "777", i, step_time_s=10.0) for i, s in enumerate(ends)]
    steps += [StepFacts(at + s, "worked", "777", s, step_time_s=10.0) for s in range(2200, 86_400, 60)]
    saves = [
        CheckpointFacts(at + 130, "worked", 0, "load", 60.0, job="777"),
        CheckpointFacts(at + 1180, "worked", 100, "save", 40.0, 1e12, "777"),
        *(CheckpointFacts(at + s, "worked", s, "save", 40.0, 1e12, "777") for s in range(4000, 80_000, 3600)),
    ]
    return steps, saves


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    made = parts_in(tmp_path_factory.mktemp("cost") / "store", filled=True)
    yield made
    made.store.close()


@pytest.fixture(scope="module")
def client(parts: Parts) -> TestClient:
    found = TestClient(site.app_of(parts), base_url="http://127.0.0.1:8000", client=LOCAL, follow_redirects=False)
    found.cookies.set(COOKIE, sign_in_as(parts.store, parts.settings.security, "operator", NOW, parts.secret))
    return found


def text(client: TestClient, path: str) -> str:
    answer = client.get(path, headers={"accept": "text/html"})
    assert answer.status_code == 200, path
    return answer.text.replace("\u00a0", " ").replace('<span class="nowrap">', "").replace("</span>", "")


def test_a_run_says_whose_fault_it_was_and_where_its_time_went(client: TestClient) -> None:
    page = text(client, "/runs/worked")
    assert "Hardware stopped this run" in page and "not your code." in page
    assert "NODE_FAIL: the scheduler lost gpu-047" in page and "How often to save" in page
    sheet = client.get("/figures/run/losses/worked.csv").text
    assert re.search(r"Lost since save,0\.14", sheet) and re.search(r"Hang,0\.08", sheet)  # 500 s and 300 s
    assert client.get("/api/v1/runs/777").json()["attempts"][0]["parts_s"]["productive"] == 1010.0
    assert 'href="/runs/777"' not in page


@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_its_answer_its_json_and_its_definitions(client: TestClient, path: str) -> None:
    page = text(client, path)
    answer = re.search(r'<h1 class="answer">(.*?)</h1>', page)
    assert answer is not None and 10 < len(answer[1]) < 140
    twin = re.search(r'<a class="tool" href="(/api/v1/[^"]+)">JSON', page)
    assert twin is not None and client.get(twin[1].replace("&amp;", "&")).status_code == 200
    if "report" not in path:
        assert "/definitions#" in page
        for name in re.findall(r"/definitions#([\w-]+)", page):
            assert f'id="{name}"' in text(client, "/definitions"), name


@pytest.mark.parametrize("path", [*PAGES, "/runs/worked", "/definitions"])
def test_a_page_asks_the_store_a_few_times_only(client: TestClient, parts: Parts, path: str) -> None:
    """What every page asks (who, rail) is counted on a page that asks nothing else."""
    assert asked(client, parts, path) - asked(client, parts, "/definitions") <= MOST_QUERIES


def asked(client: TestClient, parts: Parts, path: str) -> int:
    seen: list[str] = []

    def count(*arguments: object) -> None:
        if str(arguments[2]).lstrip().upper().startswith("SELECT"):
            seen.append(str(arguments[2]))

    event.listen(parts.store.engine, "before_cursor_execute", count)
    try:
        text(client, path)
    finally:
        event.remove(parts.store.engine, "before_cursor_execute", count)
    return len(seen)


@pytest.mark.parametrize("path", ["/runs/worked", "/reliability?days=90", "/storage", "/planner?nodes=64&standby=2"])
def test_every_figure_is_drawn_and_has_its_sheet(client: TestClient, path: str) -> None:
    page = text(client, path)
    urls = [url.replace("&amp;", "&") for url in re.findall(r'data-figure="([^"]+)"', page)]
    assert len(urls) >= 2
    for url in urls:
        for more in ("theme=dark", "narrow=1"):
            drawn = client.get(f"{url}{'&' if '?' in url else '?'}{more}")
            assert drawn.status_code == 200 and drawn.json()["data"], url
        sheet = client.get(url.replace(".json", ".csv"))
        assert sheet.status_code == 200 and sheet.text.count("\r\n") >= 2, url


def test_the_pages_look_behind_the_counts(client: TestClient) -> None:
    page = text(client, "/reliability?days=90")
    titles = ("Time between failures by component", "Crash loops", "What nodes that fail share", "Which node fails")
    for title in titles:
        assert title in page
    assert "Q + R + U" in text(client, "/runs/worked")
    found = client.get("/api/v1/reliability?window=90d").json()
    assert {"risk", "components", "differences", "crash_loops"} <= set(found)


def test_an_empty_site_claims_nothing(tmp_path: Path) -> None:
    made = parts_in(tmp_path / "store", filled=False)
    client = TestClient(site.app_of(made), base_url="http://127.0.0.1:8000", client=LOCAL)
    assert "No run is accounted yet." in text(client, "/runs")
    for path in ("/reliability", "/storage"):
        assert "Nothing is counted yet" in text(client, path)
    assert "assumed" in text(client, "/planner") and client.get("/api/v1/reliability").status_code == 503
    Keeper(made.store, made.clock, "main").step()
    assert "No job has run in this time." in text(client, "/reliability")
    assert "Nobody tells of saves" in text(client, "/storage") and "No job ran" in text(client, "/reliability/report")
    for path in (
        "/runs/none",
        "/figures/run/losses/none.json",
        "/figures/reliability/none.csv",
        "/figures/storage/x.json",
    ):
        assert client.get(path).status_code == 404
    made.store.close()


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("nodes=0", "at least one node"),
        ("nodes=many", "no number"),
        ("nodes=64&replicas=65", "65 replicas"),
        ("nodes=64&interval_min=-1", "between 0"),
        ("nodes=5000000", "1,000,000 or fewer"),
        ("nodes=64&write_s=nan", "between 0"),
    ],
)
def test_a_plan_that_cannot_be_says_why(client: TestClient, query: str, said: str) -> None:
    page = text(client, f"/planner?{query}")
    assert "This plan cannot be worked out." in page and said in page
    assert client.get(f"/figures/planner/sizes.json?{query}").status_code == 404


def test_a_million_gpus_fit_on_paper(client: TestClient) -> None:
    plan = client.get(
        "/api/v1/planner", params={"nodes": 125_000, "write_s": 5, "restart_s": 60, "per_node_day": 0.004}
    )
    assert plan.status_code == 200 and 0 < plan.json()["ettr"] < 1
    assert "on 125,000 nodes" in text(client, "/planner?nodes=125000")
    assert plan.json()["ettr"] == pytest.approx(plan.json()["simulated_ettr"], abs=5 * plan.json()["simulated_error"])


def test_tiers_of_checkpoints_say_what_they_survive(client: TestClient) -> None:
    tiers = ["memory:60:1:5", "peer:300:2:20:2", "disk:3600:40:300"]
    found = client.get("/api/v1/planner/tiers", params={"nodes": 1024, "tier": tiers, "per_node_day": 0.0065}).json()
    assert 0 < found["ettr"] < 1 and [row["kind"] for row in found["tiers"]] == ["memory", "peer", "disk"]
    assert found["tiers"][0]["survives"] == 0 and found["tiers"][2]["survives"] == 1 and found["lost_all"] == 0
    assert sum(row["used"] for row in found["tiers"]) == pytest.approx(1)
    for wrong in ("tape:1:1:1", "disk:1:1", "disk:x:1:1", "disk:0:1:1"):
        assert client.get("/api/v1/planner/tiers", params={"nodes": 8, "tier": wrong}).status_code == 422, wrong


def test_where_nodes_are_short_the_planner_chooses_jobs_and_sizes(client: TestClient) -> None:
    page = text(client, "/planner?nodes=100&jobs=atlas:32-128:2%0Amoe:64%0Aeval:4")
    assert "Which jobs to run" in page and "of 100 nodes" in page and "waits" in page
    assert "This choice cannot be made." in text(client, "/planner?nodes=100&jobs=atlas")
    jobs = ["atlas:32-128:2", "moe:64", "eval:4:0.5:4"]
    found = client.get("/api/v1/planner/choice", params={"nodes": 100, "job": jobs}).json()
    assert found["used"] <= 100 and [row["job"] for row in found["jobs"]] == ["atlas", "moe", "eval"]
    for wrong in ("atlas", "a:x", "a:0", "a:4:-1", "a:1:1:1:1", ":4", "a:1-9999999"):
        answer = client.get("/api/v1/planner/choice", params={"nodes": 100, "job": wrong})
        assert answer.status_code == 422, wrong


def test_people_say_of_an_attempt_whether_it_was_right(client: TestClient) -> None:
    page = text(client, "/runs/worked")
    token = re.search(r'name="csrf" value="([^"]+)"', page)
    assert token is not None
    sent = {"csrf": token[1], "job": "777", "right": "1", "note": ""}
    answer = client.post("/runs/worked/labels", data=sent, headers={"origin": "http://127.0.0.1:8000"})
    assert answer.status_code == 422 and "name the real cause" in answer.text  # nothing was said of it
    missed = sent | {"right": "0", "cause": "disk_full", "note": "scratch was full"}
    answer = client.post("/runs/worked/labels", data=missed, headers={"origin": "http://127.0.0.1:8000"})
    assert answer.status_code == 303
    assert "Job 777: nothing was said, it was disk full. scratch was full" in text(client, "/runs/worked")
    assert all(row["said"] for row in client.get("/api/v1/labels/quality").json()["items"])
    rows_ = client.get("/api/v1/runs?limit=500").json()["items"]
    told = next(r["run"] for r in rows_ if "cuda_oom" in r["last_failure"])
    page = text(client, f"/runs/{quote(told, safe='')}")
    job = re.search(r'<option value="(\d+)">job \d+: your code', page)
    assert job is not None
    sent["job"] = job[1]
    answer = client.post(f"/runs/{quote(told, safe='')}/labels", data=sent, headers={"origin": "http://127.0.0.1:8000"})
    assert answer.status_code == 303


@pytest.mark.parametrize("name", ["%3Cscript%3E", "a%2Fb", "..%2F..", "%00", "é" * 200])
def test_hostile_names_stay_text(client: TestClient, name: str) -> None:
    answer = client.get(f"/runs/{name}", headers={"accept": "text/html"})
    assert answer.status_code == 404 and "<script>" not in answer.text
