"""What leaves with an incident: Markdown that nothing escapes from, and a packet that names only the part."""

from __future__ import annotations

import io
import json
import zipfile

from backend.model.incidents import Entry, Incident
from backend.registry import Parts
from frontend.markdown import code, safe
from tests.backend.web.conftest import Reader, client_of
from tests.backend.web.test_pages import words


def packet(parts: Parts, number: int = 1) -> dict[str, str]:
    got = client_of(parts).get(f"/incidents/{number}/rma.zip")
    assert got.status_code == 200 and got.headers["content-type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(got.content)) as found:
        return {name: found.read(name).decode() for name in found.namelist()}


def test_an_incident_copies_as_markdown_with_its_cause_guards_and_address(reader: Reader) -> None:
    got = reader("viewer").get("/incidents/1.md")
    assert got.headers["content-type"].startswith("text/markdown")
    for said in ("# GPU", "/incidents/1", "## Most likely cause", "## Decision", "- Guard", "## Timeline, UTC"):
        assert said in got.text, said
    assert "## What it costs" in got.text and "GPU-h" in got.text


def test_the_page_links_both_and_says_what_it_costs(reader: Reader) -> None:
    page = reader("viewer").get("/incidents/1").text
    assert 'href="/incidents/1.md"' in page and 'href="/incidents/1/rma.zip"' in page
    assert "at most" in words(page) and "GPU-h so far" in words(page)


def test_hostile_words_stay_words_in_markdown(parts: Parts) -> None:
    with parts.store.write() as session:
        row = session.get_one(Incident, 1)
        session.add(
            Entry(
                cluster="main",
                incident_id=1,
                at=row.opened_at,
                what="note",
                text="# x\n[go](javascript:alert(1)) <img>",
                actor="eve|`",
            )
        )
    text = client_of(parts).get("/incidents/1.md").text
    assert r"\# x \[go\](javascript:alert(1)) \<img\>" in text and r"eve\|\`" in text


def test_a_raw_line_cannot_close_its_own_code() -> None:
    assert code("a `` b") == "``` a `` b ```"
    assert safe("a\u202e\nb") == "a b"


def test_the_packet_names_part_codes_and_what_was_tried_but_no_job_and_no_other_node(parts: Parts) -> None:
    found = packet(parts)
    assert set(found) == {"README.md", "codes.csv", "checks.csv", "faults.csv", "parts.json"}
    cover = found["README.md"]
    assert "Serial or UUID" in cover and "GPU has fallen off the bus" in cover and "## What was tried" in cover
    with parts.store.read() as session:
        row = session.get_one(Incident, 1)
    assert row.job and all(row.job not in text for text in found.values())
    assert "pid=4711" not in "".join(found.values())
    assert [node["node"] for node in json.loads(found["parts.json"])] == [row.node]


def test_an_incident_about_no_part_has_no_packet(parts: Parts) -> None:
    with parts.store.write() as session:
        row = session.get_one(Incident, 1)
        row.entity_kind = "job"
        session.add(row)
    client = client_of(parts)
    assert client.get("/incidents/1/rma.zip").status_code == 404
    assert "rma.zip" not in client.get("/incidents/1").text
