"""Backtest: another rule set on a span of the past, beside today's: what it would have raised and kept from work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from jinja2 import Environment
from sqlmodel import Session
from starlette.concurrency import run_in_threadpool

from backend import backtests
from backend.clock import utc
from backend.model.tasks import Task
from backend.store import tasks
from backend.web.base import NoPage, Visit, carried_out, checked, form, frame, page, visit
from backend.writes import Invalid
from frontend.contexts import Chip, Link, Right, Told
from frontend.contexts_acting import Form, Input, Tab
from frontend.contexts_backtest import BacktestPage, Going
from frontend.contexts_cost import Cell, Table
from frontend.words import clock, count, kind_words, span

Fields = dict[str, str]
Seen = Annotated[Visit, Depends(visit)]
NO_PAST = (
    "This cluster has no Prometheus to read a span from: name one as [[cluster.prometheus]]. A recording "
    "(serve --record) is tried by hand: watchkeeper replay FOLDER --out DIR --set NAME=VALUE."
)
#: Rows of the list.
ROWS = 50
STATES = {
    "waiting": Chip("you", "waiting"),
    "running": Chip("info", "running"),
    "done": Chip("done", "done"),
    "failed": Chip("failed", "failed"),
    "cancelled": Chip("unknown", "cancelled"),
}
WHATS = {
    "raised": Chip("suspect", "raised"),
    "not raised": Chip("unknown", "not raised"),
    "changed": Chip("info", "changed"),
}
LEFT_OUT = (
    "It reads telemetry from the cluster's first Prometheus, and jobs, outages and log lines from the store; "
    "what trainers pushed (steps, checkpoints) is left out. Nothing of it reaches anybody."
)


def router(pages: Environment) -> APIRouter:
    found = APIRouter(prefix="/backtest")

    @found.get("")
    def show(seen: Seen, before: int = 0) -> Response:
        return answer(seen, pages, before=before)

    @found.get("/{number:int}")
    def one(seen: Seen, number: int) -> Response:
        return answer(seen, pages, number)

    @found.post("")
    async def begin(request: Request, seen: Seen) -> Response:
        fields = await form(request)
        checked(seen, fields)

        def with_told(told: Told, status: int) -> Response:
            return answer(seen, pages, told=told, status=status, fields=fields)

        return await run_in_threadpool(
            carried_out, seen, lambda: asked(seen, fields), seen.link("/backtest"), with_told
        )

    def sender(deed: Callable[[Visit, int, Fields], object]) -> Callable[..., object]:
        async def sent(request: Request, seen: Seen, number: int) -> Response:
            fields = await form(request)
            checked(seen, fields)

            def with_told(told: Told, status: int) -> Response:
                return answer(seen, pages, number, told, status)

            back = seen.link(f"/backtest/{number}")
            return await run_in_threadpool(carried_out, seen, lambda: deed(seen, number, fields), back, with_told)

        return sent

    for name, deed in (("cancel", cancel), ("adopt", adopt), ("withdraw", withdraw)):
        found.add_api_route(f"/{{number:int}}/{name}", sender(deed), methods=["POST"])
    return found


# --- deeds -----------------------------------------------------------------------------------------------------------


def asked(seen: Visit, fields: Fields) -> None:
    start, end = (_moment(fields.get(name, ""), name) for name in ("start", "end"))
    backtests.begin(seen.watch, seen.person, start, end, _thresholds(fields.get("thresholds", "")))


def cancel(seen: Visit, number: int, _: Fields) -> None:
    backtests.cancel(seen.watch, seen.person, number)


def adopt(seen: Visit, number: int, fields: Fields) -> None:
    backtests.adopt(seen.watch, seen.person, number, fields.get("reason", ""))


def withdraw(seen: Visit, number: int, fields: Fields) -> None:
    backtests.withdraw(seen.watch, seen.person, number, fields.get("reason", ""))


def _moment(text: str, name: str) -> datetime:
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise Invalid(f"{name} {text!r} is no time: write it as 2026-03-01 06:00, in UTC.") from error
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).astimezone(UTC)


def _thresholds(text: str) -> dict[str, float]:
    """A line each: name = value."""
    found: dict[str, float] = {}
    for line in filter(None, map(str.strip, text.replace(",", "\n").splitlines())):
        name, _, value = line.partition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError as error:
            raise Invalid(f"{line!r} is no threshold with its value: write silence_ticks = 3, a line each.") from error
    return found


# --- the page --------------------------------------------------------------------------------------------------------


def answer(
    seen: Visit,
    pages: Environment,
    number: int = 0,
    told: Told | None = None,
    status: int = 200,
    *,
    before: int = 0,
    fields: Mapping[str, str] | None = None,
) -> Response:
    with seen.parts.store.read() as session:
        made = of_one(session, seen, number, told) if number else of_all(session, seen, told, before, fields or {})
        return page(seen, pages, made, status)


def of_all(session: Session, seen: Visit, told: Told | None, before: int, fields: Mapping[str, str]) -> BacktestPage:
    name = seen.watch.cluster
    rows = tasks.page(session, name, ROWS, before if 0 < before < 2**63 else None)
    going = next((row for row in tasks.open_ones(session, name) if row.state == "running"), None)
    force = tasks.in_force(session, name)
    done = next((row for row in rows if row.state == "done"), None)
    said = "Nothing was tried yet: see what another threshold would have raised before it is in force."
    if going is not None:
        said = f"Backtest {going.id} is running: {going.share * 100:.0f} % done."
    elif done is not None:
        said = f"Backtest {done.id}: {done.result.get('sentence', 'done.')}"
    return BacktestPage(
        frame=frame(
            session, seen, "Backtest", (Link("Backtest", ""),), seen.link("/api/v1/backtests"), told,
            seen.link("/backtest"),
        ),
        answer=said,
        lede=f"One span of the past under today's rules and under others, side by side. {LEFT_OUT}",
        tabs=(Tab("all backtests", seen.link("/backtest"), True),),
        going=_going(going),
        tables=(_list(seen, rows), *([_force(seen, force)] if force else [])),
        forms=(_begin(seen, fields),),
    )  # fmt: skip


def of_one(session: Session, seen: Visit, number: int, told: Told | None) -> BacktestPage:
    row = tasks.by_id(session, seen.watch.cluster, number)
    if row is None:
        raise NoPage(f"There is no backtest {number}.")
    crumb = (Link("Backtest", seen.link("/backtest")), Link(f"Backtest {number}", ""))
    here = seen.link(f"/backtest/{number}")
    return BacktestPage(
        frame=frame(
            session, seen, f"Backtest {number}", crumb, seen.link(f"/api/v1/backtests/{number}"), told, here
        ),
        answer=_answer(row),
        lede=f"{_span(row)}, asked for by {row.by} {clock(row.at, seen.now)}. {LEFT_OUT}",
        tabs=(Tab("all backtests", seen.link("/backtest"), False), Tab(f"backtest {number}", here, True)),
        going=_going(row if row.state == "running" else None),
        tables=(_tried(row), *([_sides(row), _differences(seen, row)] if row.result else [])),
        forms=_deeds(seen, row),
    )  # fmt: skip


def _answer(row: Task) -> str:
    if row.state == "done":
        return f"{row.result.get('sentence', 'Done.')}{' It is in force.' if row.adopted_at else ''}"
    if row.state == "failed":
        return f"It failed: {row.said}"
    if row.state == "running":
        return f"It is running: {row.share * 100:.0f} % done."
    return "It waits for the one before it." if row.state == "waiting" else f"{row.cancelled_by} cancelled it."


def _going(row: Task | None) -> Going | None:
    if row is None:
        return None
    return Going(f"Backtest {row.id} is running", f"Now: {row.said}.", round(row.share * 100))


def _span(row: Task) -> str:
    start, end = utc(row.asked["start"]), utc(row.asked["end"])
    return f"{start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC ({span((end - start).total_seconds())})"


def _changes(row: Task) -> str:
    return ", ".join(f"{name} = {value:g}" for name, value in row.asked["thresholds"].items())


def _list(seen: Visit, rows: Any) -> Table:
    made = tuple(
        (
            Link(f"Backtest {row.id}", seen.link(f"/backtest/{row.id}")),
            _span(row),
            _changes(row),
            f"{row.by}, {clock(row.at, seen.now)}",
            Chip("done", "in force") if row.adopted_at else STATES[row.state],
        )
        for row in rows
    )
    heads = ("Backtest", "=Span", "=Tried", "~By", "!State")
    empty = ("Nothing was tried yet.", "Name a span and a threshold below.")
    more = Link("Older", seen.link("/backtest", before=str(rows[-1].id))) if len(rows) == ROWS else None
    return Table("backtests", "What was tried", "", heads, made, empty, more)


def _force(seen: Visit, rows: Any) -> Table:
    made = tuple(
        (
            Link(f"Backtest {row.id}", seen.link(f"/backtest/{row.id}")),
            _changes(row),
            f"{row.adopted_by}, {clock(row.adopted_at, seen.now)}",
        )
        for row in rows
    )
    note = "Over the configuration, the last word of each threshold; each can be withdrawn on its page."
    return Table("adopted", "In force by adoption", note, ("Backtest", "=Thresholds", "Adopted by"), made, ("", ""))


def _tried(row: Task) -> Table:
    today, unit = row.asked.get("today", {}), ""
    made = tuple(
        (name, f"{today[name]:g}{unit}" if name in today else "not known", f"{value:g}")
        for name, value in row.asked["thresholds"].items()
    )
    return Table("tried", "What was changed", "", ("Threshold", "#Today", "#Tried"), made, ("", ""), size="c-5")


def _sides(row: Task) -> Table:
    made = []
    for word, key in (("Today's rules", "today"), ("The tried rules", "tried")):
        side = row.result[key]
        numbers = (f"{side[name]:,}" for name in ("findings", "incidents", "above_info"))
        made.append((word, *numbers, ", ".join(side["exclude"]) or "none"))
    note = f"{row.result['same']:,} incidents are the same; {row.result['samples']:,} samples were read."
    heads = ("Rules", "#Findings", "#Incidents", "#Above info", "=Kept from work")
    return Table("sides", "Side by side", note, heads, tuple(made), ("", ""), size="c-7")


def _differences(seen: Visit, row: Task) -> Table:
    made: tuple[tuple[Cell, ...], ...] = tuple(
        (
            one["entity"],
            f"{utc(one['at']):%Y-%m-%d %H:%M:%S}",
            kind_words(one["kind"]),
            Chip(one["severity"], one["severity"]),
            one["words"],
            WHATS[one["what"]],
        )
        for one in row.result["differences"]
    )
    more = row.result["more"]
    note = "Raised: only by the tried rules. Not raised: only by today's." + (f" {more:,} more." if more else "")
    heads = ("Where", "When (UTC)", "Kind", "Severity", "=How", "!What")
    empty = ("No difference.", "Both rule sets make the same incidents of this span.")
    return Table("differences", count(len(made) + more, "difference"), note, heads, made, empty)


# --- forms -----------------------------------------------------------------------------------------------------------


def _begin(seen: Visit, fields: Mapping[str, str]) -> Form:
    last = seen.now.replace(minute=0, second=0, microsecond=0)
    times = {"start": last - timedelta(hours=6), "end": last}
    inputs = [
        Input(name, f"{name.capitalize()} (UTC)", needed=True, value=fields.get(name, f"{at:%Y-%m-%d %H:%M}"))
        for name, at in times.items()
    ]
    hint = "A line each, as in silence_ticks = 3. Settings, Rules & thresholds, lists the names."
    inputs.append(Input("thresholds", "Thresholds to try", hint, "area", (), True, fields.get("thresholds", "")))
    right = seen.right("operator", "try rules on the past")
    own = next((one for one in seen.parts.settings.cluster if one.name == seen.watch.cluster), None)
    if own is None or not own.prometheus:
        right = Right(False, NO_PAST)
    note = "It runs in a process of its own that gives way to the watch; the page tells how far it is."
    return Form("begin", "Try other rules", note, seen.link("/backtest"), "Begin", tuple(inputs), right, True, "c-7")


def _deeds(seen: Visit, row: Task) -> tuple[Form, ...]:
    at = f"/backtest/{row.id}"
    why = (Input("reason", "Why, optional"),)
    if row.state in tasks.OPEN:
        right, note = seen.right("operator", "cancel it"), "What runs ends within seconds; nothing of it is kept."
        return (Form("cancel", "Cancel it", note, seen.link(f"{at}/cancel"), "Cancel backtest", (), right),)
    right = seen.right("admin", "put rules in force")
    if row.adopted_at is not None:
        note = (
            f"In force since {clock(row.adopted_at, seen.now)}, by {row.adopted_by}. What was before holds again then."
        )
        return (Form("withdraw", "Withdraw it", note, seen.link(f"{at}/withdraw"), "Withdraw", why, right),)
    if row.state != "done":
        return ()
    note = "The watch judges by it from its next turn on, and after each start, over the configuration."
    return (Form("adopt", "Adopt what was tried", note, seen.link(f"{at}/adopt"), "Adopt", why, right, True),)
