"""Pages over HTTP: what each says, in every state, to every reader."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlmodel import Session, select

from backend.model.cluster import Cluster
from backend.model.events import Finding
from backend.model.incidents import Incident
from backend.registry import Parts
from backend.store.engine import StoreError
from tests.backend.web.conftest import Reader, client_of

PAGES = ("/", "/fleet", "/incidents", "/incidents/1", "/incidents/2", "/incidents/6", "/system", "/sign-in")
BAD = "<script>alert(1)</script>"


class Outline(HTMLParser):
    """Headings, ids, landmarks and every inline handler or style."""

    def __init__(self) -> None:
        super().__init__()
        self.h1 = 0
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.inline: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.h1 += tag == "h1"
        for key, value in attrs:
            if key == "id" and value:
                self.ids.append(value)
            if key == "style" or key.startswith("on") or (tag == "script" and key == "src" and not value):
                self.inline.append(f"{tag} {key}")


def outline(text: str) -> Outline:
    found = Outline()
    found.feed(text)
    return found


def words(text: str) -> str:
    """The text of a page as a reader sees it."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", text)).replace("\u00a0", " ")


def answer(client: TestClient, path: str) -> str:
    found = re.search(r'<h1 class="answer">(.*?)</h1>', client.get(path).text, re.S)
    assert found is not None
    return words(found[1])


@pytest.mark.parametrize("path", PAGES)
def test_every_page_has_one_answer_unique_ids_and_nothing_inline(reader: Reader, path: str) -> None:
    got = reader("approver").get(path)
    page = outline(got.text)
    assert got.status_code == 200
    assert page.h1 == 1
    assert len(page.ids) == len(set(page.ids))
    assert not page.inline and "style" not in page.tags
    assert {"main", "nav", "header"} <= set(page.tags)


@pytest.mark.parametrize("path", PAGES)
def test_every_page_forbids_inline_script_and_framing(reader: Reader, path: str) -> None:
    policy = reader("viewer").get(path).headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy


@pytest.mark.parametrize("path", PAGES)
def test_every_page_says_that_a_simulated_cluster_is_simulated(reader: Reader, parts: Parts, path: str) -> None:
    assert "simulated" in words(reader("").get(path).text)


def test_a_real_cluster_carries_no_such_mark(parts: Parts) -> None:
    with parts.store.write() as session:
        row = session.get_one(Cluster, "main")
        row.simulated = False
        session.add(row)
    assert "simulated" not in client_of(parts).get("/").text


@pytest.mark.parametrize("path", ["/", "/fleet", "/incidents", "/system"])
def test_an_empty_fleet_has_a_page_and_is_not_healthy(bare: Parts, path: str) -> None:
    got = client_of(bare).get(path)
    assert got.status_code == 200
    assert "healthy" not in answer(client_of(bare), path)


def test_now_puts_what_waits_first(reader: Reader) -> None:
    assert answer(reader("approver"), "/") == "One thing waits for you: GPU 3 of gpu-012 is lost on PCIe (Xid 79)."
    assert "waits for an approver" in answer(reader("viewer"), "/")


def test_now_names_the_dark_source(reader: Reader) -> None:
    assert "loki is silent since 11:44." in words(reader("").get("/").text)


def test_fleet_counts_add_up_to_every_gpu(reader: Reader) -> None:
    text = reader("").get("/fleet").text
    chips = re.search(r'<nav class="filters.*?</nav>', text, re.S)
    assert chips is not None
    assert sum(int(n) for n in re.findall(r"<b>(\d+)</b>", chips[0])) == 384


def test_fleet_filters_by_state_and_rack_in_the_address(reader: Reader) -> None:
    client = reader("")
    failed = words(client.get("/fleet?state=failed").text)
    assert "gpu-012 GPU 3" in failed and "Lemon node" not in failed
    rack = words(client.get("/fleet?rack=rack-6").text)
    assert "riser swap" in rack and "gpu-012" not in rack.split("Not healthy in rack-6")[1]


def test_an_unknown_filter_shows_everything(reader: Reader) -> None:
    assert reader("").get("/fleet?state=purple").status_code == 200
    assert "gpu-012" in reader("").get("/incidents?show=purple&before=zzz").text


def test_incidents_lists_by_show(reader: Reader) -> None:
    client = reader("")
    assert answer(client, "/incidents") == "5 incidents are open; 1 waits for an approver."
    assert "Seen and clear long enough." in words(client.get("/incidents?show=resolved").text)
    assert "gpu-018" not in words(client.get("/incidents?show=waiting").text)


def test_an_incident_tells_cause_plan_guards_evidence_and_timeline(reader: Reader) -> None:
    page = words(reader("approver").get("/incidents/1").text)
    for said in (
        "Draining this one node frees job 41207.",
        "GPU bus loss: GPU 3 of gpu-012",
        "Requeue job 41207 without gpu-012",
        "Guards: 8 hold, 1 asks for a person",
        "NVRM: Xid (PCI:0000:9d:00): 79",
        "15 others were hit by it. None of them is suspect.",
        "3 other incidents of kind GPU bus loss in 90 days, 0 of them on this node.",
        "Job 41207 attempt 2 started",
    ):
        assert said in page


def test_a_guard_that_asks_stands_first_and_all_others_are_shown(reader: Reader) -> None:
    page = reader("approver").get("/incidents/1").text
    guards = page[page.index('class="guards"') :].partition("</ul>")[0]
    rows = re.findall(r'<li( class="loud")?><span class="g g-(\w+)"', guards)
    assert rows[0] == (' class="loud"', "you") and len([r for r in rows if r[1] == "pass"]) == 8


def test_a_closed_incident_says_how_long_it_was_open(reader: Reader) -> None:
    assert answer(reader("viewer"), "/incidents/6").endswith("Closed after 1 h 30 min.")


def test_system_names_blind_spots_and_failing_detectors(reader: Reader) -> None:
    client = reader("")
    assert "2 blind spots: loki is silent since 11:44 and telemetry/peers fails." in answer(client, "/system")
    assert "SourceError: connection refused" in words(client.get("/system").text)


def test_hostile_names_and_lines_are_inert_on_every_page(parts: Parts) -> None:
    with parts.store.write() as session:
        for row in session.exec(select(Incident)).all():
            row.headline, row.entity_name, row.job, row.dark = f"{BAD} is lost", f"{BAD}/gpu3", BAD, [BAD]
            row.hypotheses = [h | {"entity": BAD, "reason": BAD} for h in row.hypotheses]
            row.victims = [BAD] * len(row.victims)
            session.add(row)
        for finding in session.exec(select(Finding)).all():
            finding.reason, finding.evidence = BAD, [{"what": BAD, "value": BAD, "ref": BAD, "grade": "observed"}]
            session.add(finding)
    client = client_of(parts, "approver")
    for path in PAGES:
        text = client.get(path).text
        assert BAD not in text, path
        assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", text)), path


def test_a_page_that_does_not_exist_says_so_to_people_and_to_programs(reader: Reader) -> None:
    client = reader("")
    assert answer(client, "/incidents/999") == "There is no incident 999 in cluster main."
    assert client.get("/incidents/999").status_code == 404
    assert answer(client, "/nowhere") == "There is no such page."
    assert client.get("/api/v1/nowhere").headers["content-type"] == "application/problem+json"
    assert client.get("/?cluster=other").status_code == 404


def test_several_clusters_are_kept_apart_and_every_link_keeps_the_cluster(parts: Parts) -> None:
    main = parts.watches["main"]
    both = replace(parts, watches={"main": main, "other": replace(main, cluster="other")})
    client = client_of(both)
    page = client.get("/?cluster=other").text
    assert (
        "Nothing is watched yet" in page and 'href="/fleet?cluster=other"' in page and 'href="/?cluster=main"' in page
    )
    assert client.get("/incidents/1?cluster=other").status_code == 404
    assert client.get("/incidents/1?cluster=main").status_code == 200


def test_our_own_mistake_shows_no_traceback(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    with parts.store.write() as session:
        row = session.get_one(Incident, 1)
        row.severity = "purple"
        session.add(row)
    client = client_of(parts)
    client = TestClient(client.app, base_url="http://127.0.0.1", client=("127.0.0.1", 1), raise_server_exceptions=False)
    got = client.get("/incidents/1")
    assert got.status_code == 500
    assert "Traceback" not in got.text and "purple" not in got.text and "log says why" in got.text


def test_static_files_are_kept_for_ever_under_their_hash(reader: Reader) -> None:
    client = reader("")
    href = re.search(r'href="(/static/app\.css\?v=\w+)"', client.get("/").text)
    assert href is not None
    assert "immutable" in client.get(href[1]).headers["cache-control"]
    assert client.get("/static/app.css").headers["cache-control"] == "no-cache"
    assert client.get("/static/../base.py").status_code == 404


@pytest.mark.parametrize("path", ["/", "/incidents", "/incidents/1", "/system"])
def test_while_the_database_is_away_people_get_a_page_that_says_so(parts: Parts, path: str) -> None:
    class Away:
        def read(self) -> AbstractContextManager[Session]:
            raise StoreError("the database is away", "Start it.")

    gone: Any = Away()
    answer = client_of(replace(parts, store=gone)).get(path)
    assert answer.status_code == 503 and answer.headers["retry-after"]
    assert "The database does not answer" in answer.text and "other pages" not in answer.text
