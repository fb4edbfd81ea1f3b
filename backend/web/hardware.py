"""Hardware: a vendor's view of its nodes, the only page that a vendor may open beside its own account."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from jinja2 import Environment
from sqlmodel import Session

from backend.answers.hardware import hardware
from backend.web.base import Visit, frame, page, visit
from frontend import chips
from frontend.contexts import Chip, Link
from frontend.contexts_acting import HardwarePage
from frontend.contexts_cost import Table
from frontend.words import clock, count, kind_words

DAYS, ROWS = 90, 200


def router(pages: Environment) -> APIRouter:
    found = APIRouter()

    @found.get("/hardware")
    def show(seen: Annotated[Visit, Depends(visit)]) -> Response:
        with seen.parts.store.read() as session:
            return page(seen, pages, context(session, seen))

    return found


def context(session: Session, seen: Visit) -> HardwarePage:
    end = seen.now + timedelta(seconds=1)
    found = hardware(session, seen.watch.cluster, seen.person.nodes, end - timedelta(days=DAYS), end)
    open_ = [row for row in found.incidents if row["state"] != "resolved"]
    faults = f"{count(len(open_), 'fault')} {'is' if len(open_) == 1 else 'are'} open" if open_ else "no fault is open"
    said = "The last" if found.cut or len(found.incidents) > ROWS else "All"
    return HardwarePage(
        frame=frame(session, seen, "Hardware", (Link("Hardware", ""),), seen.link("/api/v1/hardware")),
        answer=f"{count(len(found.nodes), 'node')}: {faults}.",
        lede=f"{said} of {DAYS} days. Jobs, people and other nodes are not named here; the JSON may be handed on.",
        tables=(_faults(found.incidents, seen), _codes(found.events, seen), _checks(found.checks, seen)),
    )


def _faults(rows: tuple[dict[str, Any], ...], seen: Visit) -> Table:
    made = tuple(
        (
            row["entity"],
            Chip(row["severity"], row["severity"]),
            kind_words(row["kind"]),
            row["text"],
            row["state"],
            clock(row["opened_at"], seen.now),
        )
        for row in rows[:ROWS]
    )
    heads = ("Part", "!Severity", "~Kind", "=What", "~State", "#Opened, UTC")
    return Table("faults", "Faults", "", heads, made, ("No fault in this time.", ""))


def _codes(rows: tuple[dict[str, Any], ...], seen: Visit) -> Table:
    made = tuple(
        (row["entity"] or row["node"], f"{row['namespace']} {row['code']}", row["text"], clock(row["at"], seen.now))
        for row in rows[:ROWS]
    )
    return Table("codes", "Codes", "", ("Part", "Code", "=Line", "#Time, UTC"), made, ("No code in this time.", ""))


def _checks(rows: tuple[dict[str, Any], ...], seen: Visit) -> Table:
    made = tuple(
        (row["node"], chips.CHECK[row["verdict"]], row["name"], row["text"], clock(row["at"], seen.now))
        for row in rows[:ROWS]
    )
    heads = ("Node", "!Verdict", "Check", "=What it said", "#Time, UTC")
    return Table("checks", "Checks", "", heads, made, ("No check ran in this time.", ""))
