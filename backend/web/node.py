"""Node: what it went through, what it runs, which cards sat in it; and the same of one device."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from jinja2 import Environment
from sqlmodel import Session

from backend.answers import verdicts
from backend.answers.device_history import DeviceHistory, device_history
from backend.answers.fleet_state import natural
from backend.answers.node_history import NodeHistory, node_history
from backend.answers.odd_ones import Odd, odd_in
from backend.answers.verdicts import Verdict
from backend.model.past import DeviceSpan
from backend.snapshots import Snapshots
from backend.store import checks
from backend.web import past
from backend.web.base import NoPage, Visit, frame, page, visit
from backend.web.cost_words import run_path
from backend.web.figures import as_json, as_sheet
from backend.web.past import Bar
from frontend import chips
from frontend.contexts import Link, Twin
from frontend.contexts_cluster import CheckRow, DevicePage, NodePage, SeatRow, VersionRow
from frontend.figures.lanes import lanes
from frontend.figures.theme import themes, tokens
from frontend.words import age, ago, capital, clock, first, sentence

Seen = Annotated[Visit, Depends(visit)]
MOST_CARDS = 64
MOST_RUNS = 8
MOST_CHECKS = 12


def router(pages: Environment) -> APIRouter:
    found = APIRouter()

    @found.get("/nodes/{node}")
    def show_node(node: str, seen: Seen, days: str = "") -> Response:
        with seen.parts.store.read() as session:
            return page(seen, pages, of_node(session, seen, node, past.days_of(days)))

    @found.get("/devices/{device:path}")
    def show_device(device: str, seen: Seen, days: str = "") -> Response:
        with seen.parts.store.read() as session:
            return page(seen, pages, of_device(session, seen, device, past.days_of(days)))

    add_figures(found)
    return found


def add_figures(found: APIRouter) -> None:
    """The lanes of both as JSON for Plotly, and as CSV."""
    looks = themes(tokens())

    @found.get("/figures/past/{kind}/{name:path}.json")
    def lanes_json(
        request: Request, kind: str, name: str, seen: Seen, days: str = "", theme: str = "", narrow: bool = False
    ) -> Response:
        start, end = past.bounds(seen, past.days_of(days))
        bars = bars_of(seen, kind, name, start, end)
        drawn = lanes(past.story(bars, start, end, narrow), looks["dark" if theme == "dark" else "light"], narrow)
        return as_json(request, drawn)

    @found.get("/figures/past/{kind}/{name:path}.csv")
    def lanes_csv(kind: str, name: str, seen: Seen, days: str = "") -> Response:
        start, end = past.bounds(seen, past.days_of(days))
        rows = past.rows(bars_of(seen, kind, name, start, end), seen.now)
        return as_sheet(Twin(("From, UTC", "To, UTC", "Lane", "What", "More"), rows, ""), "history")


def bars_of(seen: Visit, kind: str, name: str, start: datetime, end: datetime) -> list[Bar]:
    """Raises NoPage for what was never known."""
    with seen.parts.store.read() as session:
        if kind == "nodes":
            return node_bars(known_node(session, seen, name, start, end), seen.now)
        if kind == "devices":
            return device_bars(known_device(session, seen, name, start, end), seen.now)
    raise NoPage("There is no such figure.")


def known_node(session: Session, seen: Visit, node: str, start: datetime, end: datetime) -> NodeHistory:
    found = node_history(session, seen.watch.cluster, node, start, end)
    if not found.known:
        raise NoPage(f"No node {node} was ever known in cluster {seen.watch.cluster}.")
    return found


def known_device(session: Session, seen: Visit, device: str, start: datetime, end: datetime) -> DeviceHistory:
    found = device_history(session, seen.watch.cluster, device, start, end)
    if not found.known:
        raise NoPage(f"No device {device} was ever known in cluster {seen.watch.cluster}.")
    return found


def node_bars(found: NodeHistory, now: datetime) -> list[Bar]:
    return [
        *past.of_jobs(found.jobs),
        *past.of_incidents(found.incidents),
        *past.of_exclusions(found.exclusions, now),
        *past.of_outages(found.outages),
        *past.of_maintenances(found.maintenances),
        *past.of_orders(found.orders),
        *past.of_seats(found.devices, found.start),
        *past.of_changes(found.changes),
    ]


def device_bars(found: DeviceHistory, now: datetime) -> list[Bar]:
    sat = [Bar("Sat in", row.start, row.end, f"{row.node} GPU {row.index or '?'}", row.pci) for row in found.places]
    return [
        *sat,
        *past.of_jobs(found.jobs),
        *past.of_incidents(found.incidents),
        *past.of_exclusions(found.exclusions, now),
        *past.of_outages(found.outages),
        *past.of_changes(found.changes),
    ]


def checked(session: Session, seen: Visit, node: str) -> tuple[CheckRow, ...]:
    """What checks found of it, the newest first."""
    occasions = {"return": "before it went back", "idle": "sweep of idle nodes"}
    return tuple(
        CheckRow(
            f"{row.name} with {row.peer}" if row.peer else row.name,
            chips.CHECK[row.verdict],
            row.text,
            clock(row.at, seen.now),
            occasions.get(row.occasion, row.occasion),
            Link(f"Incident {row.incident_id}", seen.link(f"/incidents/{row.incident_id}"))
            if row.incident_id is not None
            else Link("", ""),
        )
        for row in checks.of_node(session, seen.watch.cluster, node, MOST_CHECKS)
    )


# --- a node ---------------------------------------------------------------------------------------------------------


def of_node(session: Session, seen: Visit, node: str, days: int) -> NodePage:
    start, end = past.bounds(seen, days)
    found = known_node(session, seen, node, start, end)
    bars = node_bars(found, seen.now)
    sure = verdict_of(seen, node)
    odd = [one for one in odd_in(session, seen.watch.cluster)[0] if any(_is(who, node) for who in one.holders)]
    crumb = (Link("Fleet", seen.link("/fleet")), Link("Cluster", seen.link("/cluster")), Link(node, ""))
    return NodePage(
        frame=frame(session, seen, node, crumb, seen.link(f"/api/v1{past.node_path(node)}/history")),
        answer=sentence(node_answer(found, sure)),
        course=sentence(capital(past.gone_through(bars, start, end, days))),
        verdict=verdict_rows(sure, seen) if stands(found) else (),
        facts=node_facts(found, seen),
        ranges=past.ranges(seen, past.node_path(node), days),
        lanes=past.figure(bars, seen, f"/figures/past{past.node_path(node)}", days, node),
        span=f"{clock(start, seen.now)} to now, UTC",
        versions=versions(found, odd, seen),
        cards=tuple(seat(row, seen, of_its_node=True) for row in newest_first(found.devices)[:MOST_CARDS]),
        cables=tuple((tie.port, f"{tie.peer} {tie.peer_port}".strip()) for tie in found.cables),
        runs=runs_of(found, seen),
        checks=checked(session, seen, node),
    )


def runs_of(found: NodeHistory, seen: Visit) -> tuple[Link, ...]:
    """The runs of the last jobs that held it, the newest first."""
    jobs = dict.fromkeys(one.span.job for one in reversed(found.jobs))
    return tuple(Link(f"Job {job}", seen.link(run_path(job))) for job in list(jobs)[:MOST_RUNS])


def stands(found: NodeHistory) -> bool:
    """Is it a part of the fleet today?"""
    return found.node is not None and found.node.retired_at is None


def node_answer(found: NodeHistory, sure: Verdict) -> str:
    """May work go there? The first reason with it."""
    if found.node is None:
        return f"{found.name} is not in the fleet"
    if found.node.retired_at is not None:
        return f"{found.name} left the fleet"
    reason = sure.reasons[0] if sure.reasons else ""
    told = first(re.sub(r" \(incident \d+, \w+\)$", "", reason))
    if sure.verdict == "exclude":
        return f"{'Keep work off' if sure.binding else 'Better keep work off'} {found.name}: {told}"
    if sure.verdict == "suspect":
        return f"{found.name} is suspect: {re.sub('^Its', 'its', told)}"
    return f"Nobody vouches for {found.name}: {told}" if sure.verdict == "unknown" else f"{found.name} may take work"


def verdict_of(seen: Visit, node: str) -> Verdict:
    snapshots = seen.request.app.state.snapshots
    assert isinstance(snapshots, Snapshots)
    return verdicts.verdict(snapshots.of(seen.watch), node)


def verdict_rows(sure: Verdict, seen: Visit) -> tuple[Link, ...]:
    """Every reason; the one that an incident gives leads there."""
    rows = []
    for reason in sure.reasons:
        number = re.search(r"\(incident (\d+), ", reason)
        rows.append(Link(reason, seen.link(f"/incidents/{number[1]}") if number else ""))
    return tuple(rows)


def node_facts(found: NodeHistory, seen: Visit) -> tuple[tuple[str, str], ...]:
    row = found.node
    if row is None:
        return (("Known from", "records of the past only"),)
    facts = [("Rack", row.rack or "not told"), ("Leaf", row.switch or "not told")]
    facts += [("NVLink domain", row.clique)] if row.clique else []
    facts += [("Model", row.model)] if row.model else []
    facts += [("Partitions", ", ".join(row.partitions))] if row.partitions else []
    facts.append(("Scheduler says", " ".join((row.state or "nothing", *(f.lower() for f in row.flags)))))
    facts += [("Booted", ago(row.boot_at, seen.now))] if row.boot_at is not None else []
    facts += [("Left", ago(row.retired_at, seen.now))] if row.retired_at is not None else []
    return tuple(facts)


def versions(found: NodeHistory, odd: list[Odd], seen: Visit) -> tuple[VersionRow, ...]:
    rows = []
    for row in sorted(found.versions, key=lambda row: (row.device, row.item, row.source)):
        if row.job or row.item == "boot":
            continue
        who = f"{row.node} {row.device}".strip()
        other = next((o for o in odd if (o.item, o.source) == (row.item, row.source) and who in o.holders), None)
        said = f"{other.common} of {other.size} of its kind run {other.custom}" if other is not None else ""
        item = f"{capital(row.item)} of {row.device}" if row.device else capital(row.item)
        rows.append(VersionRow(item, row.value, row.source, age((seen.now - row.since).total_seconds()), said))
    return tuple(rows)


def _is(holder: str, node: str) -> bool:
    return holder == node or holder.startswith(f"{node} ")


def newest_first(found: Sequence[DeviceSpan]) -> list[DeviceSpan]:
    """Those that came together in order of index."""
    return sorted(found, key=lambda row: (-row.start.timestamp(), natural(row.index)))


def seat(row: DeviceSpan, seen: Visit, *, of_its_node: bool) -> SeatRow:
    end = clock(row.end, seen.now) if row.end is not None else "now"
    where = f"index {row.index or 'not known'}, {row.pci or 'no address'}"
    name, href = (row.device, past.device_path(row.device)) if of_its_node else (row.node, past.node_path(row.node))
    return SeatRow(Link(name, seen.link(href)), where, f"{clock(row.start, seen.now)} to {end}", "")


# --- a device -------------------------------------------------------------------------------------------------------


def of_device(session: Session, seen: Visit, device: str, days: int) -> DevicePage:
    start, end = past.bounds(seen, days)
    found = known_device(session, seen, device, start, end)
    bars = device_bars(found, seen.now)
    row = found.device
    crumb = [Link("Fleet", seen.link("/fleet")), Link("Cluster", seen.link("/cluster"))]
    crumb += [Link(row.node, seen.link(past.node_path(row.node)))] if row is not None else []
    facts = [("Id", device)]
    if row is not None:
        facts += [("Model", row.model)] if row.model else []
        facts += [("Address", row.pci)] if row.pci else []
        facts += [("First seen", ago(row.first_seen, seen.now))]
    json_href = seen.link(f"/api/v1{past.device_path(device)}/history")
    return DevicePage(
        frame=frame(session, seen, device, (*crumb, Link(device, "")), json_href),
        answer=device_answer(found, bars, days),
        facts=tuple(facts),
        ranges=past.ranges(seen, past.device_path(device), days),
        lanes=past.figure(bars, seen, f"/figures/past{past.device_path(device)}", days, device),
        span=f"{clock(start, seen.now)} to now, UTC",
        seats=tuple(seat(one, seen, of_its_node=False) for one in reversed(found.places)),
    )


def device_answer(found: DeviceHistory, bars: list[Bar], days: int) -> str:
    said, row = past.gone_through(bars, found.start, found.end, days), found.device
    if row is None:
        return sentence(f"This device is not in the fleet; {said}")
    name = f"GPU {row.index} of {row.node}" if row.index else f"The GPU at {row.pci or 'no address'} of {row.node}"
    if row.retired_at is not None:
        return sentence(f"{name} was taken out; {said}")
    return sentence(f"{name}: {said}")
