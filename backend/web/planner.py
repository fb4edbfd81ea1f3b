"""Planner: what ETTR a run can expect, how often it should save, how many spares it needs. A form without script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from jinja2 import Environment
from sqlmodel import Session

from backend.answers.planner import chosen, measured, planned
from backend.web.base import NoPage, Visit, frame, page, visit
from backend.web.cost_words import Drawing, amount, cut, measure, plot_of, twin_of
from backend.web.figures import as_json, as_sheet
from backend.web.reliability import whole
from frontend.contexts import Chip, Link
from frontend.contexts_cost import Field, Measure, PlannerPage, Table
from frontend.figures.rates import Curve, curve
from frontend.figures.theme import themes, tokens
from frontend.words import count, number, span

Seen = Annotated[Visit, Depends(visit)]
#: Fields of the form: name, label, unit, whether it is a whole number.
FIELDS = (
    ("nodes", "Nodes", "", True),
    ("gpus_per_node", "GPUs a node", "", True),
    ("failures", "Failures", "per 1,000 node-days", False),
    ("write_s", "A save blocks", "s", False),
    ("restart_s", "A restart takes", "s", False),
    ("interval_min", "Between saves", "min", False),
    ("standby", "Spare nodes, warm", "", True),
    ("standby_restart_s", "Restart with a spare", "s", False),
    ("replicas", "Replicas", "", True),
    ("stall_s", "All wait at a failure", "s", False),
    ("days", "Spares suffice for", "days", False),
)
HINTS = {
    "nodes": "1 to 1,000,000",
    "gpus_per_node": "empty: 8",
    "interval_min": "empty: the best",
    "standby": "empty: none",
    "standby_restart_s": "empty: as without",
    "replicas": "of hybrid sharding; empty: 1",
    "stall_s": "with per-step recovery; empty: 0",
    "days": "empty: 1",
}
#: Jobs of the choice: the form's field, and how much of it is read.
JOBS, MOST_TEXT = "jobs", 8_000
#: Of the plan what the choice takes over; its nodes are those that there are.
CHOICE = ("per_node_day", "write_s", "restart_s", "days")
#: The size that an empty form shows.
USUAL_NODES = 64
LARGEST = 1e9


def router(pages: Environment) -> APIRouter:
    found = APIRouter()
    looks = themes(tokens())

    @found.get("/planner")
    def planner(request: Request, seen: Seen) -> Response:
        with seen.parts.store.read() as session:
            return page(seen, pages, context(session, seen, dict(request.query_params)))

    @found.get("/figures/planner/{which}.json")
    def figure_json(request: Request, which: str, seen: Seen, theme: str = "", narrow: bool = False) -> Response:
        made = drawing(seen, which, dict(request.query_params))
        return as_json(request, made.draw(looks["dark" if theme == "dark" else "light"], narrow))

    @found.get("/figures/planner/{which}.csv")
    def figure_csv(request: Request, which: str, seen: Seen) -> Response:
        return as_sheet(twin_of(drawing(seen, which, dict(request.query_params))), f"planner-{which}")

    return found


def drawing(seen: Visit, which: str, query: Mapping[str, str]) -> Drawing:
    """Raises NoPage."""
    with seen.parts.store.read() as session:
        found = whole(session, seen, 90)
    try:
        plan = planned(found.document if found is not None else None, asked(query))
        return drawings(plan)[which]
    except (ValueError, KeyError, OverflowError, ZeroDivisionError) as error:
        raise NoPage(f"There is no such figure: {error}.") from error


def asked(query: Mapping[str, str]) -> dict[str, Any]:
    """The plan of a form. Raises ValueError that says which field is wrong."""
    plan: dict[str, Any] = {"nodes": USUAL_NODES, "per_step_recovery": query.get("per_step_recovery") == "1"}
    for name, label, _, whole_number in FIELDS:
        text = query.get(name, "").strip()
        if not text:
            continue
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f"{label} is {text[:40]!r}, which is no number") from None
        if not 0 <= value <= LARGEST:
            raise ValueError(f"{label} must lie between 0 and {LARGEST:,.0f}")
        plan[name] = int(value) if whole_number else value
    if plan["nodes"] > 1_000_000:
        raise ValueError("Nodes must be 1,000,000 or fewer")
    if "failures" in plan:
        plan["per_node_day"] = plan.pop("failures") / 1000
    if "interval_min" in plan:
        plan["interval_s"] = plan.pop("interval_min") * 60
    return plan


def context(session: Session, seen: Visit, query: dict[str, str]) -> PlannerPage:
    kept = {name: query[name] for name, *_ in (*FIELDS, ("per_step_recovery",), (JOBS,)) if query.get(name)}
    found = whole(session, seen, 90)
    document = found.document if found is not None else None
    plan, error = None, ""
    try:
        plan = planned(document, asked(query))
    except (ValueError, OverflowError, ZeroDivisionError) as wrong:
        error = f"{str(wrong)[:1].upper()}{str(wrong)[1:]}."
    made = drawings(plan) if plan is not None else {}
    shown = frame(
        session, seen, "Planner", (Link("Planner", ""),), json_href(seen, query), path=seen.link("/planner", **kept)
    )
    return PlannerPage(
        frame=shown,
        answer=answer(plan),
        lede=lede(plan),
        action=seen.link("/planner"),
        fields=fields(document, kept),
        error=error,
        measures=measures(plan, seen) if plan is not None else (),
        plots=tuple(plot_of(seen, name, one, f"/figures/planner/{name}", **kept) for name, one in made.items()),
        jobs=query.get(JOBS, "")[:MOST_TEXT],
        choice=choice(document, query),
    )


def choice(document: Mapping[str, Any] | None, query: Mapping[str, str]) -> Table:
    """Which of the jobs to run on the nodes of the plan."""
    lines = [line.strip() for line in query.get(JOBS, "")[:MOST_TEXT].splitlines() if line.strip()]
    heads = ("Job", "Runs!", "#Nodes", "#Expected ETTR~", "#Worth", "#Effective GPU-hours by worth")
    empty = ("No jobs are given.", "One a line: name:nodes, or name:32-128 where it may run smaller; then :worth.")
    if not lines:
        return Table("choice", "Which jobs to run", "", heads, (), empty)
    try:
        plan = asked(query)
        found = chosen(document, {name: plan.get(name) for name in CHOICE}, plan["nodes"], lines)
    except (ValueError, OverflowError, ZeroDivisionError) as wrong:
        said = f"{str(wrong)[:1].upper()}{str(wrong)[1:]}."
        return Table("choice", "Which jobs to run", "", heads, (), ("This choice cannot be made.", said))
    rows = tuple(
        (
            cut(row["job"]),
            Chip("ok", "runs") if row["nodes"] else Chip("excluded", "waits"),
            number(row["nodes"]) if row["nodes"] else "none",
            amount(row["ettr"], 3) if row["ettr"] is not None else "none",
            amount(row["worth"]),
            amount(row["value"]),
        )
        for row in found["jobs"]
    )
    note = f"{found['used']:,} of {count(found['nodes'], 'node')}: the most effective GPU-hours by worth."
    return Table("choice", "Which jobs to run", note, heads, rows, empty)


def json_href(seen: Visit, query: Mapping[str, str]) -> str:
    try:
        plan = asked(query)
    except ValueError:
        plan = {"nodes": USUAL_NODES}
    return seen.link("/api/v1/planner", **{name: str(value).lower() for name, value in plan.items() if value})


def fields(document: Mapping[str, Any] | None, kept: Mapping[str, str]) -> tuple[Field, ...]:
    base = measured(document)
    names = {"failures": "per_node_day", "write_s": "write_s", "restart_s": "restart_s"}
    made = []
    for name, label, unit, _ in FIELDS:
        hint = HINTS.get(name, "")
        if name in names:
            given = base[names[name]]
            value = given.value * 1000 if name == "failures" else given.value
            n = f", n = {given.n:,}" if given.n is not None else ""
            hint = f"empty: {amount(value)} ({given.source}{n})"
        made.append(Field(name, label, kept.get(name, str(USUAL_NODES) if name == "nodes" else ""), unit, hint))
    hint = "a failure costs only its replica, and no step is repeated"
    return (
        *made,
        Field("per_step_recovery", "Per-step recovery", kept.get("per_step_recovery", ""), "", hint, "checkbox"),
    )


def answer(plan: Mapping[str, Any] | None) -> str:
    if plan is None:
        return "This plan cannot be worked out."
    nodes = plan["plan"]["nodes"]
    return f"Expect ETTR {plan['ettr']:.3f} on {count(nodes, 'node')}: a failure every {_span(plan['mttf_s'])}."


def lede(plan: Mapping[str, Any] | None) -> str:
    if plan is None:
        return "The form says which field is wrong."
    given = plan["inputs"].values()
    words = [f"{sum(one['source'] == source for one in given)} {source}" for source in ("given", "measured", "assumed")]
    won = plan["best_ettr"] - plan["ettr"]
    better = (
        f" The best interval, {_span(plan['best_interval_s'])}, would win {100 * won:.1f} points."
        if won > 0.0005
        else ""
    )
    return f"Rate, save and restart: {', '.join(words)}.{better}"


def measures(plan: Mapping[str, Any], seen: Visit) -> tuple[Measure, ...]:
    gpus = plan["plan"]["nodes"] * plan["plan"]["gpus_per_node"]
    days, failures = plan["plan"]["days"], amount(plan["failures_expected"])
    span_ = "1 day" if days == 1 else f"{days:g} days"
    return (
        measure(seen, "Expected ETTR", f"{plan['ettr']:.3f}", "", f"{number(gpus)} GPUs{drawn(plan)}", "expected"),
        measure(seen, "A failure every", _span(plan["mttf_s"]), "", f"{failures} in {span_}", "mttf"),
        measure(seen, "Save every", _span(plan["interval_s"]), "", f"Young: {_span(plan['young_s'])}", "save"),
        measure(seen, "Spare nodes", number(plan["standby_p99"]), "", f"99 % of {span_}{spares(plan)}", "standby"),
        measure(seen, "Lost a day", amount(plan["lost_gpu_hours_day"]), "GPU-hours", "not training", "gpu-hours"),
    )  # fmt: skip


def drawn(plan: Mapping[str, Any]) -> str:
    """What the Monte Carlo check found."""
    share, error = plan["simulated_ettr"], plan["simulated_error"]
    return f" · drawn: {share:.3f} ± {error:.3f}" if share is not None else ""


def spares(plan: Mapping[str, Any]) -> str:
    covers = plan["standby_covers"]
    return f" · {plan['plan']['standby']:,} cover {100 * covers:.0f}\u00a0%" if covers else ""


def _span(seconds: float | None) -> str:
    return "never" if seconds is None else span(seconds)


def drawings(plan: Mapping[str, Any]) -> dict[str, Drawing]:
    return {"sizes": sizes(plan), "intervals": intervals(plan)}


def sizes(plan: Mapping[str, Any]) -> Drawing:
    rows, nodes = plan["by_nodes"], plan["plan"]["nodes"]
    found = Curve(
        tuple(float(row["nodes"]) for row in rows),
        tuple(row["ettr"] for row in rows),
        (float(nodes), plan["ettr"]),
        f"{count(nodes, 'node')}: {plan['ettr']:.3f}",
    )
    return Drawing(
        title="ETTR by size",
        note="The same plan on more or fewer nodes, each at its best interval or the one given.",
        defined="expected",
        label=f"Expected ETTR from {count(rows[0]['nodes'], 'node')} to {count(rows[-1]['nodes'], 'node')}.",
        caption="A model, dashed; the dot is this plan. 131,072 nodes are a million GPUs.",
        columns=("#Nodes", "#ETTR", "#Failure every", "#Save every", "#Spare nodes"),
        rows=tuple(
            (
                number(row["nodes"]),
                f"{row['ettr']:.3f}",
                _span(row["mttf_s"]),
                _span(row["interval_s"]),
                number(row["standby_p99"]),
            )
            for row in rows
        ),
        draw=lambda theme, narrow: curve(found, theme, narrow, "nodes, log axis", hours=False),
        size="fig-m",
    )


def intervals(plan: Mapping[str, Any]) -> Drawing:
    rows = plan["by_interval"]
    found = Curve(
        tuple(row["interval_s"] / 3600 for row in rows),
        tuple(row["ettr"] for row in rows),
        (plan["interval_s"] / 3600, plan["ettr"]),
        f"every {_span(plan['interval_s'])}",
    )
    return Drawing(
        title="ETTR by time between saves",
        note=f"Best: every {_span(plan['best_interval_s'])}.",
        defined="save",
        label=f"Expected ETTR by time between saves; best {_span(plan['best_interval_s'])}.",
        caption="A model, dashed; the dot is this plan.",
        columns=("#Between saves", "#ETTR"),
        rows=tuple((_span(row["interval_s"]), f"{row['ettr']:.3f}") for row in rows),
        draw=lambda theme, narrow: curve(found, theme, narrow, "time between saves, log axis", hours=True),
        size="fig-m",
    )
