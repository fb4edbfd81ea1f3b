"""Exclusions: which nodes are kept from new work, by whom, why, until when; and did those that ended prove right?"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from jinja2 import Environment
from sqlmodel import Session
from starlette.concurrency import run_in_threadpool

from backend import writes
from backend.answers import exclusions
from backend.answers.exclusions import Ended
from backend.auth import allows
from backend.clients import hostlist
from backend.snapshots import Snapshots
from backend.web.base import Visit, carried_out, checked, form, frame, page, visit
from backend.web.figures import as_sheet
from backend.writes import Invalid
from frontend.contexts import Chip, Link, Told, Twin
from frontend.contexts_acting import Form, Input, Tab
from frontend.contexts_excluding import ExclusionsPage, Kept, Over
from frontend.words import capital, clock, count, shorten, span

Fields = dict[str, str]
Seen = Annotated[Visit, Depends(visit)]
SHOWS = (("", "In force"), ("proposed", "Proposed"), ("ended", "Ended"))
#: Rows of those that ended, and nodes that one form may name.
ROWS, MOST_NODES = 100, 64
#: How long one lasts where nobody says: as long as an approved one by default.
HOURS = 168.0
PROOFS = {"right": Chip("done", "yes"), "wrong": Chip("failed", "no"), "open": Chip("unknown", "not known")}
BINDS, ADVISES = Chip("excluded", "binds"), Chip("you", "proposed")
HEADS = ("Node", "Binds", "By", "Reason", "Scope", "Incident", "Since", "Until", "How it ended", "Proved right", "Why")


def router(pages: Environment) -> APIRouter:
    found = APIRouter()

    @found.get("/exclusions")
    def show(seen: Seen, show: str = "") -> Response:
        return answer(seen, pages, show=show)

    @found.get("/figures/exclusions.csv")
    def sheet(seen: Seen, show: str = "") -> Response:
        return as_sheet(twin(seen, show), "exclusions")

    def sender(deed: Callable[[Visit, int, Fields], object]) -> Callable[..., object]:
        async def sent(request: Request, seen: Seen, which: int = 0) -> Response:
            fields = await form(request)
            checked(seen, fields)

            def done() -> None:
                try:
                    deed(seen, which, fields)
                finally:
                    snapshots(seen).forget(seen.watch.cluster)

            def with_told(told: Told, status: int) -> Response:
                return answer(seen, pages, told, status, fields=fields)

            return await run_in_threadpool(carried_out, seen, done, seen.link("/exclusions"), with_told)

        return sent

    for path, deed in (
        ("/exclusions", make),
        ("/exclusions/{which:int}/extend", extend),
        ("/exclusions/{which:int}/lift", lift),
    ):
        found.add_api_route(path, sender(deed), methods=["POST"])
    return found


def snapshots(seen: Visit) -> Snapshots:
    found = seen.request.app.state.snapshots
    assert isinstance(found, Snapshots)
    return found


# --- deeds -----------------------------------------------------------------------------------------------------------


def make(seen: Visit, which: int, fields: Fields) -> None:
    """One exclusion a node: all of them or none."""
    until = end_of(seen, fields)
    try:
        nodes = list(dict.fromkeys(hostlist.expand(fields.get("node", ""))))
    except hostlist.HostlistError as error:
        raise Invalid(str(error)) from error
    if not 0 < len(nodes) <= MOST_NODES:
        raise Invalid(f"Name 1 to {MOST_NODES} nodes, as in gpu-0412 or gpu-[0001-0004]; these are {len(nodes)}.")
    writes.exclude_all(seen.watch, nodes, seen.person, fields.get("reason", ""), until, fields.get("scope", ""))


def extend(seen: Visit, which: int, fields: Fields) -> None:
    writes.extend(seen.watch, which, seen.person, end_of(seen, fields), fields.get("reason", ""))


def lift(seen: Visit, which: int, fields: Fields) -> None:
    writes.lift(seen.watch, which, seen.person, fields.get("reason", ""))


def end_of(seen: Visit, fields: Fields) -> datetime:
    """Raises Invalid."""
    text = fields.get("hours", "").strip()
    try:
        hours = float(text or HOURS)
    except ValueError:
        hours = math.nan
    if not 0 < hours <= 24 * 366:
        raise Invalid(f"{text[:40]!r} is no number of hours; give one above 0, at most a year.")
    return seen.now + timedelta(hours=hours)


# --- the page --------------------------------------------------------------------------------------------------------


def answer(
    seen: Visit,
    pages: Environment,
    told: Told | None = None,
    status: int = 200,
    *,
    show: str = "",
    fields: Mapping[str, str] | None = None,
) -> Response:
    rows = snapshots(seen).of(seen.watch).listed
    with seen.parts.store.read() as session:
        return page(seen, pages, context(session, seen, rows, told, show, fields or {}), status)


def context(
    session: Session,
    seen: Visit,
    rows: Sequence[Mapping[str, Any]],
    told: Told | None,
    show: str,
    fields: Mapping[str, str],
) -> ExclusionsPage:
    show = show if show in dict(SHOWS) else ""
    held, planned = [row for row in rows if row["binding"]], [row for row in rows if not row["binding"]]
    over = exclusions.ended(session, seen.watch.cluster, seen.now, ROWS) if show == "ended" else []
    chosen = {"": held, "proposed": planned}.get(show, [])
    everybody = {str(row["node"]) for row in held if not row["scope"]}
    api = seen.link("/api/v1/exclusions/ended") if show == "ended" else seen.link("/api/v1/exclusions", advisory="1")
    return ExclusionsPage(
        frame=frame(
            session, seen, "Exclusions", (Link("Exclusions", ""),), api, told, seen.link("/exclusions", show=show)
        ),
        answer=answered(held, planned, everybody),
        lede="An exclusion keeps new work from a node; the cluster itself is not touched. Schedulers are bound by what "
        "a person made or approved, and by what act mode did; a proposal binds nobody.",
        tabs=tuple(Tab(text, seen.link("/exclusions", show=key), key == show) for key, text in SHOWS),
        kept=tuple(kept(row, seen) for row in chosen),
        over=tuple(ended(one, seen) for one in over),
        absent=absent(show),
        csv=seen.link("/figures/exclusions.csv", show=show),
        hostlist=hostlist.render(everybody) if everybody and not show else "",
        make=new(seen, fields) if not show else None,
    )


def answered(held: Sequence[Mapping[str, Any]], planned: Sequence[Mapping[str, Any]], everybody: set[str]) -> str:
    waiting = (
        f" {capital(count(len(planned), 'proposal'))} {'wait' if len(planned) > 1 else 'waits'}." if planned else ""
    )
    some = {str(row["node"]) for row in held} - everybody
    if not held:
        return f"No node is kept from new work.{waiting}"
    said = f"{capital(count(len(everybody), 'node'))} {'is' if len(everybody) == 1 else 'are'} kept from new work"
    only = f", {count(len(some), 'more', 'more')} from the work of some only" if some else ""
    return f"{said}{only}.{waiting}"


def absent(show: str) -> tuple[str, str]:
    return {
        "": ("No node is kept from new work.", "An exclusion comes with an approved plan, or by the form."),
        "proposed": ("No plan would take a node out.", "Plans that nobody has approved stand here; they bind nobody."),
        "ended": ("No exclusion has ended yet.", "What ended stands here with whether it proved right."),
    }[show]


def new(seen: Visit, fields: Mapping[str, str]) -> Form:
    return Form(
        id="make",
        title="Exclude a node",
        note="It binds at once, in your name. It ends by itself.",
        action=seen.link("/exclusions"),
        button="Exclude",
        inputs=(
            Input("node", "Node", "One, or a hostlist as gpu-[0001-0004].", needed=True, value=fields.get("node", "")),
            Input(
                "reason", "Reason", "The next person on duty asks for it.", needed=True, value=fields.get("reason", "")
            ),
            Input("hours", "Hours", kind="number", needed=True, value=fields.get("hours", f"{HOURS:g}")),
            Input("scope", "Whose work, optional", "As account:nlp, partition:train or job:41207; empty: everybody's."),
        ),
        right=seen.right("operator", "exclude nodes"),
        primary=True,
    )


def kept(row: Mapping[str, Any], seen: Visit) -> Kept:
    number, node = row["id"], str(row["node"])
    mine = row["origin"] == "person" and row["owner"] == seen.person.name and allows(seen.person, "operator")
    may = number is not None and seen.signed_in and (mine or allows(seen.person, "approver"))
    left = (row["until"] - seen.now).total_seconds() if row["until"] is not None else None
    return Kept(
        id=f"x{number}" if number is not None else f"plan-{node}",
        node=Link(node, seen.link(f"/nodes/{node}")),
        chip=BINDS if row["binding"] else ADVISES,
        whose=f"{str(row['scope']).replace(':', ' ', 1)} only" if row["scope"] else "",
        reason=str(row["reason"]),
        grounds=grounds(row, seen),
        incident=incident(row, seen),
        by=by(row),
        since=clock(row["created_at"], seen.now),
        until=f"{clock(row['until'], seen.now)}, in {span(left)}" if left is not None else "until decided",
        extend=seen.link(f"/exclusions/{number}/extend") if may else "",
        lift=seen.link(f"/exclusions/{number}/lift") if may else "",
        hours=f"{max(1.0, round((left or 0.0) / 3600)):g}",
    )


def grounds(row: Mapping[str, Any], seen: Visit) -> tuple[str, ...]:
    """How sure it is and by what; then who changed its end."""
    sure = [f"{row['confidence']:.0%} sure: {row['evidence'][0]}"] if row["evidence"] and row["confidence"] else []
    changed = [
        f"{one['by']} changed its end, {clock(datetime.fromisoformat(one['at']), seen.now)}"
        + (f": {one['reason']}" if one["reason"] else "")
        for one in row["history"]
    ]
    return tuple(shorten(text, 160) for text in (*sure, *changed))


def incident(row: Mapping[str, Any], seen: Visit) -> Link | None:
    number = row["incident"]
    return Link(f"incident {number}", seen.link(f"/incidents/{number}")) if number is not None else None


def by(row: Mapping[str, Any]) -> str:
    how = {"approved": ", approved", "act": ", act mode", "proposed": ""}.get(str(row["origin"]), "")
    return f"{row['owner']}{how}"


def ended(one: Ended, seen: Visit) -> Over:
    row = one.row
    return Over(
        node=Link(str(row["node"]), seen.link(f"/nodes/{row['node']}")),
        reason=str(row["reason"]),
        incident=incident(row, seen),
        by=by(row),
        span=span((one.at - row["created_at"]).total_seconds()),
        how=f"{one.how}, {clock(one.at, seen.now)}" + (f": {row['lift_reason']}" if row["lift_reason"] else ""),
        proof=PROOFS[one.proof],
        why=one.why,
    )


def twin(seen: Visit, show: str) -> Twin:
    """The same rows as a sheet."""
    if show == "ended":
        with seen.parts.store.read() as session:
            found = exclusions.ended(session, seen.watch.cluster, seen.now, 10 * ROWS)
        rows = tuple((*cells(one.row), one.how, one.proof, one.why) for one in found)
        return Twin(HEADS, rows, "")
    listed = snapshots(seen).of(seen.watch).listed
    return Twin(HEADS, tuple((*cells(r), "", "", "") for r in listed if r["binding"] is (show != "proposed")), "")


def cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    times = [row[name].isoformat() if row[name] is not None else "" for name in ("created_at", "until")]
    binds = "yes" if row["binding"] else "no"
    number = str(row["incident"] or "")
    return (str(row["node"]), binds, by(row), str(row["reason"]), str(row["scope"]), number, *times)
