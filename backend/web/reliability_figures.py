"""The figures of Reliability: time between failures by size, exclusions, trends, causes, teams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from backend.clock import utc
from backend.web.cost_words import Drawing as Drawing
from backend.web.cost_words import amount, bounds, cut, interval
from frontend.figures.bars import Bar, bars
from frontend.figures.rates import Point, by_size, trend
from frontend.words import capital, count, kind_words, number

#: In the order of the page, two a row.
PLOTS = ("mttf", "exclusions", "trend", "causes", "ettr", "teams")
#: Bars of one figure; the rest is one of its own.
MOST_BARS = 10
NOTHING = ("Nothing is counted yet", "The first count follows within a minute or two of the start.")
GPUS = 8


def drawings(document: Mapping[str, Any]) -> dict[str, Drawing]:
    if not document:
        return {name: _nothing(name) for name in PLOTS}
    return {
        "mttf": mttf(document),
        "exclusions": exclusions(document),
        "trend": rate_trend(document),
        "causes": lost_by(document, "cause", "What costs most", "cause"),
        "ettr": ettr_trend(document),
        "teams": lost_by(document, "user", "Whose jobs lose most", "user"),
    }


def _nothing(name: str) -> Drawing:
    titles = {
        "mttf": "How long a job runs between failures",
        "exclusions": "Exclusions by node",
        "trend": "Failures over time",
        "causes": "What costs most",
        "ettr": "ETTR over time",
        "teams": "Whose jobs lose most",
    }
    return Drawing(titles[name], "", "", "Nothing is counted yet.", "", (), (), _empty, NOTHING)


def _empty(theme: Mapping[str, str], narrow: bool) -> dict[str, Any]:
    return bars((), theme, narrow, "")


def mttf(document: Mapping[str, Any]) -> Drawing:
    sizes = document["failures"]["by_size"]
    points, model, rows = [], [], []
    for one in sizes:
        gpus = (one["mean_nodes"] or one["nodes"][0]) * GPUS
        low, high = one["mttf_ci95"] or (None, None)
        points.append(Point(gpus, one["mttf_hours"], low, high))
        if one["model_mttf_hours"]:
            model.append((gpus, one["model_mttf_hours"]))
        value = f"{amount(one['mttf_hours'])}" if one["mttf_hours"] else f"at least {amount(low)}"
        rows.append(
            (
                f"{one['nodes'][0]:,} to {one['nodes'][1]:,}" if one["nodes"][1] < 10**9 else f"{one['nodes'][0]:,} on",
                value,
                interval(one["mttf_ci95"]),
                number(one["failures"]),
                amount(one["jobs_hours"]),
                amount(one["model_mttf_hours"]),
            )
        )
    rf = document["failures"]["rf_per_1000_node_days"]
    return Drawing(
        title="How long a job runs between failures",
        note="Dots: measured, 95 % interval. Triangles: no failure yet, at least so long. Dashed: the model, "
        f"{amount(rf)} per 1,000 node-days for every node.",
        defined="mttf",
        label=f"Hours between failures by size of job, {count(len(sizes), 'size')}.",
        caption="Log axes. Sizes are the mean of the jobs in each class.",
        columns=("Nodes", "#Hours between failures", "#95 %", "#Failures", "#Job hours", "#Model, hours"),
        rows=tuple(rows),
        draw=lambda theme, narrow: by_size(points, sorted(model), theme, narrow),
        absent=None if points else ("No job has run", "There is nothing between failures to measure."),
        size="fig-m",
    )


def exclusions(document: Mapping[str, Any]) -> Drawing:
    told = document["exclusions"]["by_attempt"]
    cover = document["exclusions"]["source_coverage"]
    counts: Sequence[tuple[str, int]] = list(told["by_node"].items())
    found, running = [], 0
    for place, (node, times) in enumerate(counts[:MOST_BARS]):
        running += times
        found.append(Bar(node, times, times, f"{times:,}  {100 * running / told['total']:.0f} %", loud=place < 3))
    rest = told["total"] - running
    if rest:
        found.append(Bar(f"{len(counts) - MOST_BARS} others", rest, rest, f"{rest:,}  100 %", open=True))
    three = f" Three nodes hold {100 * told['top3_share']:.0f} %." if told["top3_share"] and len(counts) > 3 else ""
    gini = f" Gini {told['gini']:.2f}." if told["gini"] is not None else ""
    return Drawing(
        title="Exclusions by node",
        note=f"{count(told['total'], 'exclusion')} on {count(told['nodes'], 'node')}.{three}{gini}",
        defined="exclusion",
        label=f"Exclusions by node: {', '.join(f'{n} {c}' for n, c in counts[:3]) or 'none'}.",
        caption=f"{cover['with_exclusions']:,} of {cover['attempts']:,} attempts name any excluded node. "
        "Numbers: count and running share.",
        columns=("Node", "#Exclusions"),
        rows=tuple((node, number(times)) for node, times in counts),
        draw=lambda theme, narrow: bars(found, theme, narrow, "exclusions, count and running share"),
        absent=None
        if counts
        else ("No job excludes a node", "Lists come from job records, batch scripts, SubmitLine."),
    )


def rate_trend(document: Mapping[str, Any]) -> Drawing:
    bins = document["trend"]
    points = [
        Point((b["start"] + b["end"]) / 2, b["rate_per_1000_node_days"], *(b["ci95"] or (None, None))) for b in bins
    ]
    unit = "day" if document["days"] <= 28 else "week"
    rows = tuple(
        (
            f"{utc(b['start']):%Y-%m-%d}",
            amount(b["rate_per_1000_node_days"]),
            interval(b["ci95"]),
            number(b["infra_failures"]),
            amount(b["node_days"]),
        )
        for b in bins
    )
    low, high = min((b["infra_failures"] for b in bins), default=0), max((b["infra_failures"] for b in bins), default=0)
    return Drawing(
        title=f"Failures per 1,000 node-days, by {unit}",
        note="Band: 95 % interval, exact Poisson.",
        defined="rate",
        label=f"Failures per 1,000 node-days over {count(len(bins), unit)}.",
        caption=f"{count(len(bins), unit)}, {low:,} to {high:,} failures a {unit}.",
        columns=(f"{capital(unit)} from", "#Per 1,000 node-days", "#95 %", "#Failures", "#Node-days"),
        rows=rows,
        draw=lambda theme, narrow: trend(points, theme, narrow, ""),
        absent=None if points else ("No job has run in this time", "There is no rate without node-days."),
        size="fig-m",
    )


def ettr_trend(document: Mapping[str, Any]) -> Drawing:
    bins = [b for b in document["trend"] if b["ettr"] is not None]
    points = [Point((b["start"] + b["end"]) / 2, _middle(b["ettr"]), *b["ettr"]) for b in bins]
    unit = "day" if document["days"] <= 28 else "week"
    open_ = any(b["ettr"][1] - b["ettr"][0] > 0.01 for b in bins)
    return Drawing(
        title=f"ETTR by {unit}, weighted by GPUs",
        note="Band: where it lies as far as the sources tell." if open_ else "Of the attempts that ended in it.",
        defined="ettr",
        label=f"ETTR over {count(len(bins), unit)}.",
        caption="A band from 0 to nearly 1 means that no steps are known: POST ingest/steps narrows it."
        if open_
        else "",
        columns=(f"{capital(unit)} from", "#ETTR", "#GPU-hours held"),
        rows=tuple((f"{utc(b['start']):%Y-%m-%d}", bounds(b["ettr"], 3), amount(b["held_gpu_hours"])) for b in bins),
        draw=lambda theme, narrow: trend(points, theme, narrow, "", 1.02),
        absent=None if points else ("No job has run in this time", "There is no ETTR without scheduled time."),
        size="fig-m",
    )


def _middle(pair: Sequence[float]) -> float | None:
    return (pair[0] + pair[1]) / 2 if pair[1] - pair[0] <= 0.02 else None


def lost_by(document: Mapping[str, Any], by: str, title: str, what: str) -> Drawing:
    told = document["lost"][by]
    shown = told[:MOST_BARS]
    money = any("money" in row for row in told)
    cost = (document.get("price") or {}).get("currency") or "Money"
    plain = [
        Bar(
            _name(row["name"], by),
            row["gpu_hours"][0] or 0.0,
            row["gpu_hours"][1] or 0.0,
            f"{bounds(row['gpu_hours'])}  n = {row['failures']}",
            loud=True,
            open=row["name"].startswith(("unknown", "not known")),
        )
        for row in shown
    ]
    return Drawing(
        title=title,
        note=f"GPU-hours lost to failures, by {what}, with their number.",
        defined="lost",
        label=f"GPU-hours lost by {what}: {', '.join(f'{b.name} {b.text}' for b in plain[:3]) or 'none'}.",
        caption="Outlined: only bounded, or not known.",
        columns=(capital(what), "#GPU-hours", "#Failures", *((f"#{cost}",) if money else ())),
        rows=tuple(
            (
                _name(row["name"], by),
                bounds(row["gpu_hours"]),
                number(row["failures"]),
                *((bounds(row.get("money")),) if money else ()),
            )
            for row in told
        ),
        draw=lambda theme, narrow: bars(plain, theme, narrow, f"GPU-hours lost in {document['days']} days"),
        absent=None if told else ("Nothing was lost to failures", "No attempt has failed in this time."),
    )


def _name(name: str, by: str) -> str:
    if name.startswith("unknown") or name == "not known":
        return "Not known"
    return capital(kind_words(name)) if by == "cause" else cut(name or "not known")
