"""What leaves the house with an incident: its page as Markdown, and the packet for a return to the maker (RMA)."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Response
from sqlmodel import Session

from backend.answers.hardware import Hardware, hardware
from backend.answers.incident_story import IncidentStory
from backend.registry import public_url
from backend.web import incident
from backend.web.base import HEADERS, NoPage, Visit, visit
from backend.web.figures import story_of
from frontend.figures.encode import plain_cell
from frontend.markdown import code, incident_markdown, safe
from frontend.words import kind_words, of_device

#: How far back a packet looks for earlier faults of the same part.
DAYS = 90
#: Codes that its first page quotes; the sheet beside it has all.
QUOTED = 20
Row = Mapping[str, Any]


def router() -> APIRouter:
    found = APIRouter(prefix="/incidents")

    @found.get("/{number:int}.md")
    def markdown(number: int, seen: Annotated[Visit, Depends(visit)]) -> Response:
        with seen.parts.store.read() as session:
            story = story_of(session, seen, number)
            said = incident_markdown(incident.context(session, seen, story, None), absolute(seen, number))
        return Response(said, headers=HEADERS, media_type="text/markdown; charset=utf-8")

    @found.get("/{number:int}/rma.zip")
    def rma(number: int, seen: Annotated[Visit, Depends(visit)]) -> Response:
        with seen.parts.store.read() as session:
            story = story_of(session, seen, number)
            if not incident.has_packet(story):
                raise NoPage(f"Incident {number} is about no part of a node, so there is nothing to send to its maker.")
            made = packet(session, seen, story)
        name = f"watchkeeper-rma-{number}.zip"
        headers = HEADERS | {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
        return Response(made, headers=headers, media_type="application/zip")

    return found


def absolute(seen: Visit, number: int) -> str:
    return public_url(seen.parts.settings).rstrip("/") + seen.link(f"/incidents/{number}")


# --- the packet -----------------------------------------------------------------------------------------------------


def packet(session: Session, seen: Visit, story: IncidentStory) -> bytes:
    """A zip: README.md says what failed; sheets hold codes, checks and earlier faults; parts.json the whole node.

    All of it is redacted as for a vendor: no job, run, person, process, secret or other node is named.
    """
    row = story.incident
    end = row.closed_at or seen.now
    since = row.opened_at - timedelta(days=DAYS)
    found = hardware(session, seen.watch.cluster, {row.node}, since, end + timedelta(seconds=1))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("README.md", cover(story, found, end))
        made.writestr("codes.csv", sheet(found.events))
        made.writestr("checks.csv", sheet(found.checks))
        made.writestr("faults.csv", sheet(found.incidents))
        made.writestr("parts.json", orjson.dumps(found.nodes, option=orjson.OPT_INDENT_2))
    return out.getvalue()


def cover(story: IncidentStory, found: Hardware, end: datetime) -> str:
    """Which part, what it did, what was tried: one page."""
    row = story.incident
    part = next((d for node in found.nodes for d in node["devices"] if d["id"] == row.entity_id), None)
    codes = [e for e in found.events if part is None or e["entity"] == row.entity_name]
    now = [e for e in codes if e["at"] >= row.opened_at - timedelta(minutes=30)]
    mine = next((one for one in found.incidents if one["id"] == row.id), None)
    earlier = [one for one in found.incidents if one["id"] != row.id and one["entity"] == row.entity_name]
    lines = [f"# {kind_words(row.kind).capitalize()}: {safe(of_device(row.entity_name))}", ""]
    lines += [f"- {label}: {safe(value)}" for label, value in identity(row.node, part, found) if value]
    lines += [f"- Seen from {row.opened_at:%Y-%m-%d %H:%M:%S} to {end:%Y-%m-%d %H:%M:%S} UTC", "", "## What it did", ""]
    lines += [safe(str(mine["text"] if mine else kind_words(row.kind)))]
    lines += [f"- {e['at']:%Y-%m-%d %H:%M:%S} {e['namespace']} {code(e['text'] or e['code'])}" for e in now[:QUOTED]]
    lines += ["", "## Before", "", f"{len(earlier)} earlier in {DAYS} days; codes {len(codes)}, in codes.csv."]
    lines += [f"- {one['opened_at']:%Y-%m-%d %H:%M} {kind_words(one['kind'])}" for one in earlier[:QUOTED]]
    lines += ["", "## What was tried", "", *tried(story), "", "## Checks", ""]
    checks = [f"- {c['at']:%Y-%m-%d %H:%M} {safe(c['name'])}: {c['verdict']}" for c in found.checks[:QUOTED]]
    return "\n".join(lines + (checks or ["No check ran on this node."])) + "\n"


def identity(node: str, part: Row | None, found: Hardware) -> list[tuple[str, str]]:
    model = str(found.nodes[0]["model"]) if found.nodes else ""
    if part is None:
        return [("Node", node), ("Model", model)]
    place = " ".join(str(part[key]) for key in ("kind", "index") if part[key] != "")
    return [
        ("Serial or UUID", str(part["id"])),
        ("Model", str(part["model"]) or model),
        ("Place", f"{place} of {node}"),
        ("PCI address", str(part["pci"])),
    ]


def tried(story: IncidentStory) -> list[str]:
    said = [
        f"- {(o.sent_at or o.created_at):%Y-%m-%d %H:%M:%S} {o.verb} {safe(o.node)}: {o.state}" for o in story.orders
    ]
    return said or ["Nothing was ordered."]


def sheet(rows: Iterable[Row]) -> str:
    """Rows as CSV; what a spreadsheet would take for a formula is quoted off."""
    out, found = io.StringIO(), list(rows)
    if found:
        made = csv.writer(out, lineterminator="\r\n")
        made.writerow(found[0])
        made.writerows([[plain_cell(words(value)) for value in row.values()] for row in found])
    return out.getvalue()


def words(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else "" if value is None else str(value)
