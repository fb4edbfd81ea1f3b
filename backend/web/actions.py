"""Actions: what waits for a person, what runs, what nobody knows, what is done; the breaker and the kill switch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from jinja2 import Environment
from sqlmodel import Session
from starlette.concurrency import run_in_threadpool

from backend import writes
from backend.answers.pages import deciders
from backend.answers.pulse import pulses
from backend.identity import limits
from backend.model.actions import Decision, Order
from backend.model.incidents import Incident
from backend.store import actions, system
from backend.store import attempts as attempt_rows
from backend.web import cells, decision
from backend.web.base import Visit, carried_out, checked, form, frame, page, visit
from backend.web.system import switch
from backend.writes import Invalid
from frontend import chips, sentences
from frontend.contexts import Chip, Link, Switch, Told
from frontend.contexts_acting import ActionsPage, Breaker, Going, Tab, Waiting
from frontend.words import bare, clock, count, first, listed, sentence

Fields = dict[str, str]
Seen = Annotated[Visit, Depends(visit)]
#: Ended orders of one page.
ROWS = 50
SHOWS = (("", "all"), ("waiting", "waiting"), ("going", "under way"), ("uncertain", "uncertain"), ("ended", "ended"))
ENDED = ("done", "refused", "failed", "cancelled")


def router(pages: Environment) -> APIRouter:
    found = APIRouter(prefix="/actions")

    @found.get("")
    def show(seen: Seen, show: str = "", before: int = 0) -> Response:
        return answer(seen, pages, show=show, before=before)

    def sender(deed: Callable[[Visit, int, Fields], object]) -> Callable[..., object]:
        async def sent(request: Request, seen: Seen, which: int = 0) -> Response:
            fields = await form(request)
            checked(seen, fields)

            def with_told(told: Told, status: int) -> Response:
                return answer(seen, pages, told, status)

            back = seen.link("/actions")
            return await run_in_threadpool(carried_out, seen, lambda: deed(seen, which, fields), back, with_told)

        return sent

    for path, deed in (
        ("/plans/{which:int}/approve", approve),
        ("/plans/{which:int}/reject", reject),
        ("/orders/{which:int}/cancel", cancel),
        ("/orders/{which:int}/undo", undo),
        ("/breaker", reset),
        ("/kill-switch", throw),
    ):
        found.add_api_route(path, sender(deed), methods=["POST"])
    return found


# --- deeds -----------------------------------------------------------------------------------------------------------


def approve(seen: Visit, which: int, fields: Fields) -> None:
    """What touches more than one node has to be typed: the form says what."""
    confirm(seen, which, fields)
    writes.approve(seen.watch, which, seen.person, fields.get("note", "").strip())


def confirm(seen: Visit, which: int, fields: Fields) -> None:
    """Raises Invalid where a plan of several nodes is approved on a page and what it touches was not typed."""
    with seen.parts.store.read() as session:
        row = session.get(Decision, which) if which < 2**63 else None
    wanted = typed(row) if row is not None else ""
    if wanted and fields.get("typed", "").strip() != wanted:
        raise Invalid(f"It touches more than one node: type {wanted!r} beside the button. Nothing happened.")


def reject(seen: Visit, which: int, fields: Fields) -> None:
    writes.reject(seen.watch, which, seen.person, fields.get("note", ""))


def cancel(seen: Visit, which: int, fields: Fields) -> None:
    writes.cancel(seen.watch, which, seen.person)


def undo(seen: Visit, which: int, fields: Fields) -> None:
    writes.undo(seen.watch, which, seen.person, fields.get("note", ""))


def reset(seen: Visit, which: int, fields: Fields) -> None:
    writes.reset_breaker(seen.watch, seen.person, fields.get("reason", ""))


def throw(seen: Visit, which: int, fields: Fields) -> None:
    writes.set_kill_switch(seen.watch, fields.get("on") == "1", seen.person)


def typed(row: Decision) -> str:
    touched = decision.nodes(row)
    return f"{len(touched)} nodes" if len(touched) > 1 else ""


# --- the page --------------------------------------------------------------------------------------------------------


def answer(
    seen: Visit, pages: Environment, told: Told | None = None, status: int = 200, *, show: str = "", before: int = 0
) -> Response:
    with seen.parts.store.read() as session:
        return page(seen, pages, context(session, seen, told, show, before), status)


def context(session: Session, seen: Visit, told: Told | None, show: str, before: int) -> ActionsPage:
    name = seen.watch.cluster
    show = show if show in dict(SHOWS) else ""
    plans = limits.seen(session, name, seen.person, actions.proposed(session, name))
    going = _orders(session, seen, actions.PENDING, 200)
    uncertain = _orders(session, seen, ("uncertain",), 200)
    ended = _orders(session, seen, ENDED, ROWS, before)
    by = deciders(session, [*going, *uncertain, *ended])
    told_breaker = breaker(session, seen)
    path = seen.link("/actions", show=show, before=str(before) if before else "")
    older = seen.link("/actions", show="ended", before=str(ended[-1].id)) if len(ended) == ROWS else ""
    mode = seen.watch.rules.mode
    crumb = (Link("Actions", ""),)

    def rows(kind: str, found: Sequence[Order]) -> tuple[Going, ...]:
        return tuple(_going(session, one, by, seen) for one in found) if show in ("", kind) else ()

    return ActionsPage(
        frame=frame(session, seen, "Actions", crumb, seen.link("/api/v1/orders"), told, path),
        answer=_answer(seen, told_breaker, len(plans), len(going), len(uncertain)),
        lede=f"Mode {mode}. {_MODES[mode]} Guards run when a plan is made, when you press, and once more before each "
        "write; what they saw is kept with it.",
        filters=tuple(Tab(text, seen.link("/actions", show=key), key == show) for key, text in SHOWS),
        waiting=tuple(_waiting(session, one, seen) for one in plans) if show in ("", "waiting") else (),
        none_waits=_none_waits(seen),
        going=rows("going", going),
        uncertain=rows("uncertain", uncertain),
        done=rows("ended", ended),
        older=older,
        breaker=told_breaker,
        switch=_switch(session, seen),
        right=seen.right("approver", "cancel and undo"),
    )


_MODES = {
    "observe": "Nothing is written to the cluster, and no plan asks for you.",
    "propose": "Nothing is written to the cluster before an approver says yes.",
    "act": "Plans whose guards all hold are carried out by themselves.",
}


def _orders(session: Session, seen: Visit, states: Sequence[str], most: int, before: int = 0) -> list[Order]:
    rows = actions.orders(session, seen.watch.cluster, states, most, before)
    return limits.seen(session, seen.watch.cluster, seen.person, rows)


def _answer(seen: Visit, told: Breaker, plans: int, going: int, uncertain: int) -> str:
    if told.action:
        return "The breaker is tripped: nothing is taken out until an admin resets it."
    if plans:
        mine = seen.right("approver", "approve").allowed
        waits = "wait" if plans > 1 else "waits"
        return f"{count(plans, 'plan')} {waits} for {'you' if mine else 'an approver'}."
    if uncertain:
        return f"Of {count(uncertain, 'order')} nobody knows whether it ran: look at the node."
    return f"Nothing waits for a person; {count(going, 'order')} under way."


def _none_waits(seen: Visit) -> tuple[str, str]:
    if seen.watch.rules.mode == "propose":
        return "No plan waits.", "A plan comes with an incident that something can be done about."
    return f"In {seen.watch.rules.mode} mode no plan waits for a person.", _MODES[seen.watch.rules.mode]


# --- plans that wait -------------------------------------------------------------------------------------------------


def _waiting(session: Session, row: Decision, seen: Visit) -> Waiting:
    incident = session.get_one(Incident, row.incident_id)
    attempt = attempt_rows.latest(session, row.cluster, incident.job) if incident.job else None
    right = seen.right("approver", "approve")
    judged = decision.judged(row)
    return Waiting(
        id=row.id or 0,
        incident=Link(f"{first(incident.headline)} (incident {incident.id})", seen.link(f"/incidents/{incident.id}")),
        severity=chips.SEVERITY[incident.severity],
        chip=chips.WAITS if right.allowed else chips.WAITS_ELSE,
        sentence=sentence(row.sentence),
        steps=tuple(bare(str(step["text"])) for step in row.plan),
        touches=decision.touches(attempt, row, seen),
        guards_head=decision.guards_head(judged),
        guards=decision.guards(judged),
        costs=tuple(str(text) for text in row.advice),
        persons=persons(row, seen),
        approve=seen.link(f"/actions/plans/{row.id}/approve"),
        reject=seen.link(f"/actions/plans/{row.id}/reject"),
        button=f"Approve {sentences.verbs(decision.verbs(row))}",
        type_this=typed(row),
        right=right,
    )


def persons(row: Decision, seen: Visit) -> str:
    """Who has to press, in plain words; empty where one person suffices."""
    asks = any(guard["guard"] == "two persons" and guard["verdict"] == "asks" for guard in row.guards)
    if row.approvals:
        names = listed(row.approvals)
        if seen.person.name in row.approvals:
            return (
                f"You approved. It is for two persons: nothing happens until another approver does as well ({names})."
            )
        return f"{names} approved. It is for two persons: your approval carries it out."
    return "It is for two persons: your approval is kept, and nothing happens until another does as well." * asks


# --- orders ----------------------------------------------------------------------------------------------------------


def _going(session: Session, row: Order, by: dict[int, str], seen: Visit) -> Going:
    who = by.get(row.decision_id, "watchkeeper")
    deed = cells.deed(row, who, seen.now, seen.link(f"/incidents/{row.incident_id}"))
    stands = row.verb == "drain" and row.state == "done" and _stands(session, row)
    return Going(
        deed=deed,
        cancel=seen.link(f"/actions/orders/{row.id}/cancel") if row.state == "waiting" else "",
        undo=seen.link(f"/actions/orders/{row.id}/undo") if stands else "",
    )


def _stands(session: Session, row: Order) -> bool:
    """Whether the node is still out by this order, and not on its way back."""
    standing = [one for one in actions.standing_drains(session, row.cluster, row.node)]
    if not standing or standing[-1].id != row.id:
        return False
    return not any(one.state in actions.PENDING for one in actions.undos_of(session, row))


# --- breaker and kill switch -----------------------------------------------------------------------------------------


def breaker(session: Session, seen: Visit) -> Breaker:
    row = system.cluster_row(session, seen.watch.cluster)
    right = seen.right("admin", "reset it")
    limit = seen.watch.rules.limits
    if row is None or not row.breaker:
        last = ""
        if row is not None and row.breaker_reset_by and row.breaker_reset_at is not None:
            last = f" {row.breaker_reset_by} reset it at {clock(row.breaker_reset_at, seen.now)} UTC."
        text = (
            f"It trips where {limit.shift_share:.0%} of the fleet, and at least {limit.shift_min} nodes, break within "
            f"{limit.shift_s / 60:g} min: that is what they share, or us.{last}"
        )
        return Breaker(Chip("ok", "closed"), text, "", right)
    since = f" Tripped at {clock(row.breaker_at, seen.now)} UTC." if row.breaker_at is not None else ""
    text = f"{row.breaker}{since} Nothing is taken out; giving back goes on. Only a person resets it."
    return Breaker(Chip("failed", "tripped"), text, seen.link("/actions/breaker"), right)


def _switch(session: Session, seen: Visit) -> Switch:
    return switch(pulses(session, seen.watch.cluster, seen.now), seen, "/actions/kill-switch")
