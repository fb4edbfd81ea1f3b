"""Alerts: what was told to whom and why, what is held back, silences, what was given up, who would be told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request, Response
from jinja2 import Environment
from sqlmodel import Session
from starlette.concurrency import run_in_threadpool

from backend import quieting
from backend.answers.alerts import PAGE, AlertsAnswer, alerts_answer
from backend.clients import hostlist
from backend.model.base import LARGEST_ID
from backend.model.messages import Delivery, Message
from backend.notify import preview
from backend.notify.routing import Choice
from backend.notify.silences import Match, match_of
from backend.store import alerts, messages
from backend.telling import desk_of
from backend.web.base import Visit, carried_out, checked, form, frame, page, visit
from backend.writes import Invalid
from detectors.model import Severity
from frontend import chips
from frontend.contexts import Chip, DeedRow, Link, Tile, Told
from frontend.contexts_alerts import AlertsPage, DeadLetter, Input, Preview, SilenceRow, Word
from frontend.contexts_cost import Cell, Table
from frontend.words import age, ago, brief, capital, clock, count, kind_words, number

KINDS = ("silence", "maintenance")
SENT = {
    "sent": Chip("done", "sent"),
    "waiting": Chip("info", "waiting"),
    "claimed": Chip("draining", "in progress"),
    "dead": Chip("failed", "given up"),
}
LOUD = ("critical", "high", "warning", "info")
#: Columns that the form of a silence asks for, with what they are called.
SILENCED = (
    ("node", "Node", "gpu-0412, or gpu-04*"),
    ("job", "Job", "its id"),
    ("kind", "Kind", "gpu_bus_loss, or ib_*"),
    ("switch", "Switch", "leaf-3"),
)


def router(pages: Environment) -> APIRouter:
    found = APIRouter()

    @found.get("/alerts")
    def shown(request: Request, seen: Annotated[Visit, Depends(visit)]) -> Response:
        return answer(seen, pages, dict(request.query_params))

    @found.post("/alerts/silences")
    async def silence(request: Request, seen: Annotated[Visit, Depends(visit)]) -> Response:
        fields = await form(request)
        return await _done(seen, pages, fields, lambda: quieting.silence(seen.watch, seen.person, wanted(seen, fields)))

    @found.post("/alerts/silences/{number}/end")
    async def end(request: Request, number: int, seen: Annotated[Visit, Depends(visit)]) -> Response:
        fields = await form(request)
        return await _done(seen, pages, fields, lambda: quieting.end_silence(seen.watch, seen.person, number))

    @found.post("/alerts/{number}/send-again")
    async def again(request: Request, number: int, seen: Annotated[Visit, Depends(visit)]) -> Response:
        fields = await form(request)
        return await _done(seen, pages, fields, lambda: quieting.send_again(seen.watch, seen.person, number))

    return found


async def _done(seen: Visit, pages: Environment, fields: dict[str, str], deed: Callable[[], object]) -> Response:
    """A form of this page: carried out, or shown again with why not, and with what was written in it."""
    checked(seen, fields)

    def with_told(told: Told, status: int) -> Response:
        return answer(seen, pages, {}, told, status, fields)

    return await run_in_threadpool(carried_out, seen, deed, seen.link("/alerts"), with_told)


def wanted(seen: Visit, fields: Mapping[str, str]) -> quieting.Wanted:
    """The silence that a form asks for. Raises Invalid."""
    try:
        hours = float(fields.get("hours", "") or 2)
    except ValueError:
        raise Invalid("Hours is no number; write it as 2 or 0.5.") from None
    if not 0 < hours <= 24 * 31:
        raise Invalid("A silence lasts more than 0 and at most 744 hours.")
    names: dict[str, Any] = {c: tuple(fields.get(c, "").replace(",", " ").split()) for c, _, _ in SILENCED}
    starts, ends = quieting.span_of(None, None, hours, seen.now)
    kind: Literal["silence", "maintenance"] = "maintenance" if fields.get("what") == "maintenance" else "silence"
    return quieting.Wanted(kind, Match(**names), starts, ends, fields.get("comment", ""))


def answer(
    seen: Visit,
    pages: Environment,
    query: Mapping[str, str],
    told: Told | None = None,
    status: int = 200,
    filled: Mapping[str, str] | None = None,
) -> Response:
    with seen.parts.store.read() as session:
        return page(seen, pages, context(session, seen, query, told, filled or {}), status)


def context(
    session: Session, seen: Visit, query: Mapping[str, str], told: Told | None, filled: Mapping[str, str]
) -> AlertsPage:
    before = query.get("before", "")
    older = int(before) if before.isdecimal() and int(before) <= LARGEST_ID else None
    found = alerts_answer(session, seen.watch.cluster, seen.now, older)
    return AlertsPage(
        frame=frame(
            session, seen, "Alerts", (Link("Alerts", ""),), seen.link("/api/v1/alerts"), told,
            seen.path if not told else seen.link("/alerts"),
        ),
        answer=answer_line(found, seen),
        lede=lede(found, seen),
        tiles=tiles(found),
        dead=tuple(dead(seen, *row) for row in found.dead),
        silences=tuple(silence_row(seen, row) for row in found.silences),
        right=seen.right("operator", "silence and send again"),
        silence_action=seen.link("/alerts/silences"),
        silence_inputs=silence_inputs(filled),
        preview=previewed(session, seen, query),
        log=log(found, seen),
        groups=groups(found, seen),
        held=held(found, seen),
    )  # fmt: skip


def answer_line(found: AlertsAnswer, seen: Visit) -> str:
    channels = seen.watch.rules.channels
    if not channels:
        return "Nobody is told: no channel is set up."
    gave_up, waits = found.counts.get("dead", 0), len(found.waiting)
    if gave_up:
        return f"{count(gave_up, 'message')} could not be delivered."
    late = [m for m, d in found.waiting if (seen.now - m.created_at).total_seconds() > 60]
    if late:
        return f"{count(len(late), 'message')} of {waits} waiting since over a minute."
    return "Everything that was to be told was told." if found.counts.get("sent") else "Nothing had to be told yet."


def lede(found: AlertsAnswer, seen: Visit) -> str:
    by = ", ".join(seen.watch.rules.channels)
    newest = found.log[0][1].sent_at if found.log else None
    last = f"The last message went out {ago(newest, seen.now)}." if newest else ""
    held_back = f"{count(len(found.held), 'incident')} held back." if found.held else "Nothing is held back."
    return f"{f'Channels: {by}.' if by else 'Set up [email], [slack] or another channel.'} {last} {held_back}".strip()


def tiles(found: AlertsAnswer) -> tuple[Tile, ...]:
    waits = found.counts.get("waiting", 0) + found.counts.get("claimed", 0)
    incidents = sum(row.told + row.waiting for row in found.groups)
    return (
        Tile("Sent", number(found.counts.get("sent", 0)), "", "since the beginning"),
        Tile("Waiting", number(waits), "", "to be sent, or to be tried again"),
        Tile("Given up", number(found.counts.get("dead", 0)), "", "no channel took them"),
        Tile("Open threads", number(len(found.groups)), "", f"for {count(incidents, 'incident')}"),
        Tile("Held back", number(len(found.held)), "", f"by {count(len(found.silences), 'silence')} or a cause"),
    )


def about(message: Message, seen: Visit) -> Link:
    """What a message says, and the incident that it is about."""
    text = brief(str(message.body.get("headline", "")), 120)
    to = seen.link(f"/incidents/{message.incident_id}") if message.incident_id else ""
    return Link(f"{message.kind}: {text}", to)


def recipients(message: Message, delivery: Delivery) -> str:
    who = ", ".join(str(one) for one in delivery.to)
    return f"{delivery.channel}{f' ({brief(who, 60)})' if who else ''}"


def dead(seen: Visit, message: Message, delivery: Delivery) -> DeadLetter:
    return DeadLetter(
        id=delivery.id or 0,
        what=about(message, seen),
        channel=recipients(message, delivery),
        when=ago(message.created_at, seen.now),
        error=brief(delivery.error, 300),
        action=seen.link(f"/alerts/{delivery.id}/send-again"),
    )


def silence_row(seen: Visit, row: Any) -> SilenceRow:
    holds = row.starts_at <= seen.now
    word = row.kind if holds else f"{row.kind} to come"
    return SilenceRow(
        id=row.id or 0,
        chip=Chip("excluded" if holds else "info", word),
        what=match_of(row.matches).words(),
        comment=row.comment,
        by=row.created_by,
        span=clock(row.ends_at, seen.now),
        action=seen.link(f"/alerts/silences/{row.id}/end"),
    )


def silence_inputs(filled: Mapping[str, str]) -> tuple[Input, ...]:
    wheres = (Input(name, label, hint, filled.get(name, "")) for name, label, hint in SILENCED)
    return (
        *wheres,
        Input("hours", "Hours", "31 days at most", filled.get("hours", "2"), "number"),
        Input("comment", "Why", "the next person on duty will ask", filled.get("comment", "")),
        Input("what", "As", "announced work is shown so", filled.get("what", "silence"), "select", KINDS),
    )  # fmt: skip


# --- preview --------------------------------------------------------------------------------------------------------


def previewed(session: Session, seen: Visit, query: Mapping[str, str]) -> Preview:
    """The form, and where something was asked, what the routes say."""
    kind, node, job = (query.get(name, "").strip()[:255] for name in ("kind", "node", "job"))
    loud = query.get("severity", "critical")
    loud = loud if loud in LOUD else "critical"
    inputs = (
        Input("kind", "Kind", "gpu_bus_loss, ib_link_down ...", kind),
        Input("severity", "Severity", "how loud it is", loud, "select", LOUD),
        Input("node", "Node", "where it is", node),
        Input("job", "Job", "whom it hits", job),
    )
    action = seen.link("/alerts")
    if not kind:
        return Preview(action, inputs, "", "", ())
    if kind not in seen.watch.catalogue.kinds or (node and not hostlist.is_host(node)):
        wrong = f"{kind} is no kind of fault." if kind not in seen.watch.catalogue.kinds else f"{node} is no node name."
        return Preview(action, inputs, "", "", (), wrong)
    asked = preview.Asked(kind, Severity.of(loud), seen.now, node, job)
    alert, found = preview.tried(session, desk_of(seen.watch), asked)
    places = {name: getattr(alert, name) for name in ("node", "rack", "switch", "job", "owner", "team")}
    known = ", ".join(f"{name} {value}" for name, value in places.items() if value)
    seen_as = f"Seen as {kind_words(kind)}, {loud}{', ' + known if known else ''}."
    return Preview(
        action, inputs, capital(preview.answer_words(found)), seen_as, tuple(word(choice) for choice in found.choices)
    )


def word(choice: Choice) -> Word:
    row = preview.choice_row(choice)
    to = [f"{name} ({', '.join(row['to'][name])})" if row["to"].get(name) else name for name in row["channels"]]
    takes = Chip("done", "yes") if choice.takes else Chip("info", "no")
    return Word(choice.route.name, takes, choice.why, ", ".join(to), row["when"], row["then"])


# --- tables ---------------------------------------------------------------------------------------------------------


def log(found: AlertsAnswer, seen: Visit) -> Table:
    rows = tuple(
        (about(m, seen), recipients(m, d), m.route or "by itself", _why(m), ago(d.sent_at, seen.now))
        for m, d in found.log
    )
    last = str(found.log[-1][1].id) if len(found.log) == PAGE else ""
    return Table(
        id="log",
        title="What was sent",
        note="Newest first: to whom, by which route, and what it added.",
        heads=("Message", "To", "~Route", "=~Why", "#When"),
        rows=rows,
        empty=("Nothing was sent yet.", "What a route takes shows here with who got it."),
        more=Link("Older messages", seen.link("/alerts", before=last)) if last else None,
    )


def _why(message: Message) -> str:
    return brief(str(message.body.get("why", "")), 140) or "it opened"


def groups(found: AlertsAnswer, seen: Visit) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for row in found.groups:
        group, lead = row.group, row.lead
        severity = chips.SEVERITY.get(lead.severity, chips.SEVERITY["info"])
        told = f"{row.told:,} told" + (f", {row.waiting:,} more wait" if row.waiting else "")
        when = ago(group.told_at, seen.now) if group.told_at else "not told yet"
        head = Link(brief(lead.headline, 110), seen.link(f"/incidents/{lead.id}"))
        rows.append((head, severity, group.route, told, when, next_words(group.due_at, seen.now)))
    return Table(
        id="groups",
        title="Open threads",
        note="Incidents that are told as one: the same kind in the same place within five minutes.",
        heads=("Led by", "!Severity", "~Route", "Incidents", "#Told", "#~Next"),
        rows=tuple(rows),
        empty=("No thread is open.", "One opens with the first message of an incident and ends with its last."),
    )


def next_words(due_at: datetime | None, now: datetime) -> str:
    if due_at is None:
        return "when there is news"
    left_s = (due_at - now).total_seconds()
    return "now" if left_s <= 1 else f"in {age(left_s)}"


def held(found: AlertsAnswer, seen: Visit) -> Table:
    rows = tuple(
        (
            Link(brief(incident.headline, 110), seen.link(f"/incidents/{incident.id}")),
            chips.SEVERITY.get(incident.severity, chips.SEVERITY["info"]),
            member.why,
            clock(member.held_until, seen.now) if member.held_until else "that ends",
        )
        for member, incident in found.held
    )
    return Table(
        id="held",
        title="Held back",
        note="Nobody is told of these now. They are told when what holds them ends.",
        heads=("Incident", "!Severity", "=Because of", "#Until"),
        rows=rows,
        empty=("Nothing is held back.", "Silences, announced work, a cause that speaks for it, or flapping would."),
    )


# --- on the page of an incident -------------------------------------------------------------------------------------


def heard(session: Session, seen: Visit, number: int) -> tuple[DeedRow, ...]:
    """Who was told of an incident, by which channel, oldest first."""
    return tuple(
        DeedRow(
            text=f"{capital(message.kind)} by {recipients(message, delivery)}",
            note=delivery.error or _why(message),
            chip=SENT[delivery.state],
            by=message.route or "by itself",
            when=clock(delivery.sent_at or message.created_at, seen.now),
        )
        for message, delivery in messages.deliveries_of(session, seen.watch.cluster, number)
    )


def unheard(session: Session, seen: Visit, number: int) -> str:
    """Why nobody was told yet, or is not told any more."""
    members = alerts.groups_of(session, number)
    for group, member in members:
        if member.why and group.state == "open":
            until = f" until {clock(member.held_until, seen.now)}" if member.held_until else ""
            return f"Held back{until}: {member.why}."
    if any(group.told_at is None and group.state == "open" for group, _ in members):
        return "It waits for company; it is told within a minute."
    return "" if members else "No route takes it: it is shown, and nobody is told."
