"""Run: hardware or my code? Where its time went, its attempts with their verdicts, and how often to save."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request, Response
from jinja2 import Environment
from sqlmodel import Session
from starlette.concurrency import run_in_threadpool

from backend import writes
from backend.answers.runs import run_of
from backend.clock import utc
from backend.model.reckoning import Run
from backend.store import labels, reckoning
from backend.web.base import NoPage, Visit, carried_out, checked, form, frame, page, visit
from backend.web.cost_words import Drawing, amount, bounds, cut, plot_of, run_path, share, twin_of
from backend.web.figures import as_json, as_sheet
from backend.web.insight_tables import roles_table, split_table
from backend.web.run_training import training_drawings
from frontend.contexts import Chip, Link, Told
from frontend.contexts_cost import Cell, Labelling, RunPage, Table, Why
from frontend.figures.rates import Point, trend
from frontend.figures.theme import themes, tokens
from frontend.figures.times import Loss, Row, Tone, gantt, waterfall
from frontend.words import age, ago, capital, clock, count, kind_words, moment, number, span

Seen = Annotated[Visit, Depends(visit)]
#: Parts that are no training, in the order of an attempt: name, tone.
LOSSES: Mapping[str, tuple[str, Tone]] = {
    "queue_eligible": ("Queue", "queue"),
    "startup": ("Start-up", "start"),
    "load": ("Load", "start"),
    "save_stall": ("Saves that block", "start"),
    "lost_since_checkpoint": ("Lost since save", "lost"),
    "hang": ("Hang", "hang"),
    "teardown": ("Teardown", "other"),
}
#: The order of pieces within an attempt, as it is drawn.
ORDER: tuple[tuple[str, Tone], ...] = (
    ("startup", "start"),
    ("load", "start"),
    ("productive", "productive"),
    ("save_stall", "productive"),
    ("lost_since_checkpoint", "lost"),
    ("hang", "hang"),
    ("teardown", "other"),
)
#: Attempts drawn, and listed: of more the newest.
MOST_DRAWN, MOST_LISTED = 16, 25


def router(pages: Environment) -> APIRouter:
    found = APIRouter()

    @found.get("/runs/{name:path}")
    def show(name: str, seen: Seen) -> Response:
        return answer_page(seen, pages, name)

    @found.post("/runs/{name:path}/labels")
    async def label(request: Request, name: str, seen: Seen) -> Response:
        fields = await form(request)
        checked(seen, fields)
        job, right = fields.get("job", ""), fields.get("right") == "1"

        def say() -> None:
            cause = "" if right else fields.get("cause", "")
            writes.label(seen.watch, seen.person, right, cause, fields.get("note", ""), job=job)

        def with_told(told: Told, status: int) -> Response:
            return answer_page(seen, pages, name, told, status)

        return await run_in_threadpool(carried_out, seen, say, seen.link(run_path(name)), with_told)

    add_figures(found)
    return found


def add_figures(found: APIRouter) -> None:
    looks = themes(tokens())

    @found.get("/figures/run/{which}/{name:path}.json")
    def figure_json(
        request: Request, which: str, name: str, seen: Seen, theme: str = "", narrow: bool = False
    ) -> Response:
        return as_json(request, drawing(seen, which, name).draw(looks["dark" if theme == "dark" else "light"], narrow))

    @found.get("/figures/run/{which}/{name:path}.csv")
    def figure_csv(which: str, name: str, seen: Seen) -> Response:
        return as_sheet(twin_of(drawing(seen, which, name)), f"run-{which}")


def drawing(seen: Visit, which: str, name: str) -> Drawing:
    """Raises NoPage."""
    with seen.parts.store.read() as session:
        row = known(session, seen, name)
        signal = seen.request.query_params.get("signal", "")
        made = drawings(row).get(which) or training_drawings(session, seen, row, signal).get(which)
    if made is None:
        raise NoPage("There is no such figure.")
    return made


def known(session: Session, seen: Visit, name: str) -> Run:
    """Raises NoPage."""
    row = run_of(session, seen.watch.cluster, name, seen.person.projects)
    if row is None:
        raise NoPage(f"No run or job {name[:120]} is accounted in cluster {seen.watch.cluster}.")
    return row


def answer_page(seen: Visit, pages: Environment, name: str, told: Told | None = None, status: int = 200) -> Response:
    with seen.parts.store.read() as session:
        return page(seen, pages, context(session, seen, name, told), status)


def context(session: Session, seen: Visit, name: str, told: Told | None) -> RunPage:
    row = known(session, seen, name)
    whole = reckoning.reckoning(session, seen.watch.cluster, seen.parts.settings.reliability.days)
    made, path = drawings(row), quote(row.name, safe="")
    signal = seen.request.query_params.get("signal", "")
    trained = training_drawings(session, seen, row, signal)
    crumb = (Link("Runs", seen.link("/runs")), Link(cut(row.name), ""))
    json_href = seen.link(f"/api/v1/runs/{path}")
    return RunPage(
        frame=frame(session, seen, row.name, crumb, json_href, told, seen.link(run_path(row.name))),
        answer=answer(row, seen),
        state=state_chip(row.state),
        facts=facts(row, seen),
        why=why(row, seen),
        losses=plot_of(seen, "losses", made["losses"], f"/figures/run/losses/{path}"),
        attempts=plot_of(seen, "attempts", made["attempts"], f"/figures/run/attempts/{path}"),
        sliding=plot_of(seen, "sliding", made["sliding"], f"/figures/run/sliding/{path}"),
        training=tuple(plot_of(seen, n, one, f"/figures/run/{n}/{path}", signal=signal) for n, one in trained.items()),
        table=attempts_table(row, seen),
        advice=advice_table(row, whole.document if whole is not None else {}),
        more=tuple(t for t in (split_table(row.document), roles_table(row.document)) if t is not None),
        labelling=labelling(session, row, seen),
    )


def state_chip(state: str) -> Chip:
    glyph = {"RUNNING": "ok", "PENDING": "info", "COMPLETED": "done", "CANCELLED": "excluded", "UNKNOWN": "unknown"}
    bad = "failed" if state in ("FAILED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "LAUNCH_FAILED") else "suspect"
    return Chip(glyph.get(state, bad), state.lower().replace("_", " "))


def failures(row: Run) -> list[dict[str, Any]]:
    return [one for one in row.document["attempts"] if one["failed"]]


def told_words(verdict: str) -> str:
    """``GPU bus loss on gpu-041`` for ``gpu_bus_loss on gpu-041``."""
    first, _, rest = verdict.partition(" ")
    return f"{kind_words(first)} {rest}".strip() if "_" in first and first.islower() else verdict


def whose(one: Mapping[str, Any]) -> str:
    """In a word: whose fault an attempt's end was."""
    if not one["failed"]:
        return str(one["state"]).lower().replace("_", " ")
    return {True: "hardware", False: "your code", None: "cause not known"}[one["infra"]]


def answer(row: Run, seen: Visit) -> str:
    told = share(row.document["ettr_bounds"])
    ettr = f"ETTR so far is {told}." if row.state in ("RUNNING", "PENDING") else f"ETTR was {told}."
    bad = failures(row)
    if not bad:
        return f"This run has not failed in {count(row.attempts, 'attempt')}. {ettr}"
    last = bad[-1]
    when = ago(utc(last["end"]), seen.now) if last["end"] is not None else "lately"
    who = {
        True: f"Hardware stopped this run {when}, not your code.",
        False: f"Your code stopped this run {when}, not the hardware.",
        None: f"This run failed {when}; nobody knows yet whose fault it was.",
    }[last["infra"]]
    return f"{who} {ettr}"


def facts(row: Run, seen: Visit) -> tuple[tuple[str, Cell], ...]:
    last = row.document["attempts"][-1]
    begun = clock(row.began_at, seen.now) if row.began_at is not None else "not known"
    return (
        ("Job", f"{last['job']}, attempt {last['restart'] + 1}"),
        ("Size", f"{number(row.gpus)} GPUs on {count(row.nodes, 'node')}"),
        ("User", row.user or "not known"),
        ("Begun", f"{begun} UTC"),
        ("Failures", f"{row.failures}, {row.infra_failures} of them hardware's"),
        ("As of", f"{age((seen.now - row.moved_at).total_seconds())} ago"),
    )


def why(row: Run, seen: Visit) -> Why:
    bad = failures(row)
    if not bad:
        return Why("No attempt has failed", "There is nothing to explain.", (), False)
    last = bad[-1]
    place = row.document["attempts"].index(last) + 1
    lost = {part: last["parts_s"].get(part) for part in ("lost_since_checkpoint", "hang")}
    told = [
        ("Blame", whose(last)),
        ("Class of its logs", (last["class"] or "not read").replace("_", " ")),
        ("Lost since save", _seconds(lost["lost_since_checkpoint"])),
        ("Hang", _seconds(lost["hang"])),
    ]
    nodes = [node for node in last["nodes"] if node in last["verdict"]]
    pairs: list[tuple[str, Cell]] = list(told)
    pairs += [("Node", Link(nodes[0], seen.link(f"/nodes/{nodes[0]}")))] if nodes else []
    return Why(
        f"Why attempt {place} stopped", capital(told_words(last["verdict"])) + ".", tuple(pairs), last["infra"] is True
    )


def _seconds(value: float | None) -> str:
    return "not known" if value is None else span(value) if value else "none"


def labelling(session: Session, row: Run, seen: Visit) -> Labelling:
    """Every job of the newest attempts may be judged, those too of which nothing was said; by its failure where a
    later attempt of it went well."""
    failed = {one["job"]: one for one in failures(row)[-MOST_LISTED:]}
    newest = {one["job"]: one for one in row.document["attempts"][-MOST_LISTED:]}
    ours = {
        job: f"job {job}: {whose(one)}, {cut(told_words(one['verdict']), 60) or 'nothing said'}"
        for job, one in (failed | newest | failed).items()
    }
    told = labels.of_jobs(session, seen.watch.cluster, list(ours))
    return Labelling(
        action=seen.link(f"{run_path(row.name)}/labels"),
        jobs=tuple(reversed(list(ours.items()))),
        said=tuple(
            (
                f"Job {one.job}: {writes.said_of(one.right, one.cause) if one.said else missed(one.cause)} {one.note}",
                f"{one.by}, {moment(one.at)} UTC",
            )
            for one in reversed(told)
        )[:MOST_LISTED],
        causes=tuple(writes.causes(seen.watch)),
        right=seen.right("operator", "say whether it was right"),
    )


def missed(cause: str) -> str:
    """Of a job of which nothing was said."""
    return f"nothing was said, it was {cause.replace('_', ' ')}."


def attempts_table(row: Run, seen: Visit) -> Table:
    attempts = row.document["attempts"]
    heads = ("#", "Job~", "End!", "=Verdict", "Ran#", "Kept#", "Lost#", "Started~#")
    rows = [
        (
            str(place),
            one["job"],
            state_chip(one["state"]),
            cut(told_words(one["verdict"]), 90),
            span((one["end"] or row.moved_at.timestamp()) - one["start"]) if one["start"] is not None else "waited",
            _seconds(one["parts_s"]["productive"]),
            _seconds(one["parts_s"]["lost_since_checkpoint"]),
            clock(utc(one["start"]), seen.now) if one["start"] is not None else "not yet",
        )
        for place, one in enumerate(attempts, 1)
    ]
    heads = ("Attempt", *heads[1:])
    note = f"The newest {MOST_LISTED} of {len(rows)}; the JSON has all." if len(rows) > MOST_LISTED else ""
    return Table("verdicts", "Attempts and verdicts", note, heads, tuple(reversed(rows))[:MOST_LISTED], ("", ""))


def advice_table(row: Run, whole: Mapping[str, Any]) -> Table:
    told = next((a for a in whole.get("checkpoints", {}).get("advice", []) if a["run"] == row.name), None)
    empty = ("Nothing to advise yet", "It takes saves with their durations (ingest/checkpoints), and a failure.")
    if told is None:
        return Table("advice", "How often to save", "", ("Item", "#Now", "#Best"), (), empty)
    low, high = told.get("best_ci95") or told["daly_bounds_s"] or [None, None]
    note = (
        f"A save blocks {span(told['write']['mean_s'])} (n = {told['write']['n']}); a failure every "
        f"{span(told['mttf_s'])} (n = {told['failures']}). Best between {_seconds(low)} and {_seconds(high)}; "
        f"Young says {_seconds(told['young_s'])}, Daly {_seconds(told['daly_s'])}."
    )
    rows = (
        ("Time between saves", _seconds(told["interval_s"]), _seconds(told.get("best_s") or told["daly_s"])),
        ("Expected ETTR", amount(told["expected_ettr_now"], 3), amount(told["expected_ettr_advised"], 3)),
    )
    return Table("advice", "How often to save", note, ("Item", "#Now", "#Best"), rows, empty)


# --- figures --------------------------------------------------------------------------------------------------------


def drawings(row: Run) -> dict[str, Drawing]:
    return {"losses": losses(row), "attempts": attempts(row), "sliding": sliding(row)}


def _bounds_s(document: Mapping[str, Any], part: str) -> tuple[float, float]:
    exact = document["decomposition_s"].get(part)
    if exact is not None:
        return exact, exact
    low, high = document.get("decomposition_bounds_s", {}).get(part, (0.0, 0.0))
    return low or 0.0, high or 0.0


def losses(row: Run) -> Drawing:
    below = row.document["denominator_s"] / 3600
    found = []
    for part, (name, tone) in LOSSES.items():
        low, high = (s / 3600 for s in _bounds_s(row.document, part))
        if high > 0:
            found.append(Loss(name, low, high, tone, f"{bounds([low, high])} h"))
    low, high = (s / 3600 for s in _bounds_s(row.document, "productive"))
    rows = (("Productive", bounds([low, high])), *((loss.name, bounds([loss.low, loss.high])) for loss in found))
    known_ = all(loss.low == loss.high for loss in found)
    lost = below - high if known_ else None
    title = f"ETTR {share(row.document['ettr_bounds'])}" + (f": where {amount(lost)} h went" if lost else "")
    caption = (
        "" if known_ else "Outlined: no steps are known, so each part lies somewhere from 0 to the end of its bar."
    )
    return Drawing(
        title=title,
        note=f"{bounds([low, high])} productive hours of {amount(below)} eligible and scheduled.",
        defined="ettr",
        label=f"Hours that were not productive: {', '.join(f'{o.name} {o.text}' for o in found) or 'none'}.",
        caption=caption,
        columns=("Part", "#Hours"),
        rows=rows,
        draw=lambda theme, narrow: waterfall(found, theme, narrow, f"hours not productive, of {amount(below)}"),
        absent=None if found else ("Nothing was lost", "No attempt has run yet, or all of it was kept."),
    )


def attempts(row: Run) -> Drawing:
    told = list(enumerate(row.document["attempts"], 1))
    shown = told[-MOST_DRAWN:]
    end = row.moved_at.timestamp()
    lines = [Row(str(place), pieces(one, end), whose(one)) for place, one in shown]
    starts = [low for line in lines for low, _, _ in line.pieces]
    ends = [high for line in lines for _, high, _ in line.pieces]
    rows = tuple(
        (
            str(place),
            one["job"],
            one["state"].lower(),
            *(_seconds(one["parts_s"][part]) for part, _ in ORDER),
            whose(one),
        )
        for place, one in told
    )
    more = f"The newest {MOST_DRAWN} of {len(told)}." if len(told) > MOST_DRAWN else ""
    return Drawing(
        title=capital(count(row.attempts, "attempt")),
        note=more,
        defined="productive",
        label=f"{count(len(lines), 'attempt')} of run {row.name} on one time axis.",
        caption="Within an attempt the parts stand in their usual order.",
        columns=("#Attempt", "Job", "End", *(f"#{part.replace('_', ' ')}" for part, _ in ORDER), "Whose"),
        rows=rows,
        draw=lambda theme, narrow: gantt(lines, min(starts), max(ends), theme, narrow),
        absent=None if starts else ("No attempt has run yet", "It waits for its nodes."),
    )


def pieces(one: Mapping[str, Any], end: float) -> tuple[tuple[float, float, Tone], ...]:
    """Pieces of one attempt: its wait, then its parts; one outlined piece where its parts are not known."""
    start = one["start"]
    waited = one["eligible"] if one["eligible"] is not None else one["submit"]
    if start is None:
        return ((waited, end, "queue"),) if waited is not None and waited < end else ()
    over = one["end"] if one["end"] is not None else max(end, start)
    found: list[tuple[float, float, Tone]] = []
    if waited is not None and waited < start:
        found.append((waited, start, "queue"))
    parts = [one["parts_s"].get(part) for part, _ in ORDER]
    if any(part is None for part in parts):
        return (*found, (start, over, "open"))
    at = start
    for seconds, (_, tone) in zip(parts, ORDER, strict=True):
        found.append((at, min(over, at + seconds), tone))
        at += seconds
    return tuple(found)


def sliding(row: Run) -> Drawing:
    told: Sequence[Sequence[float]] = row.document["ettr_sliding_1h"]
    points = [Point(at, value, None, None) for at, value in told]
    worst = min(told, key=lambda pair: pair[1]) if told else None
    note = f"Worst: {worst[1]:.2f} in the hour to {utc(worst[0]):%d %b %H:%M} UTC." if worst else ""
    return Drawing(
        title="Productive share of each past hour",
        note=note,
        defined="ettr",
        label=f"Share of each hour that was productive, {count(len(points), 'point')}.",
        caption="One point every 5 min; of long runs fewer.",
        columns=("Time, UTC", "#Share"),
        rows=tuple((f"{utc(at):%Y-%m-%d %H:%M}", f"{value:.3f}") for at, value in told),
        draw=lambda theme, narrow: trend(points, theme, narrow, "", 1.02),
        absent=None
        if points
        else ("No hour is known from inside", "It takes steps (ingest/steps) over an hour or more."),
        size="fig-m",
    )
