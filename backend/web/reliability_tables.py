"""The tables of Reliability: lemon nodes, retry chains, exclusions over time, repairs, lost time by place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backend.web.base import Visit
from backend.web.cost_words import amount, bounds, interval, percent, pick
from frontend.contexts import Chip, Link
from frontend.contexts_cost import Cell, Table
from frontend.words import capital, count, kind_words, number, span

#: Nodes that are shown though they are not named.
WATCHED = 6
SIGNALS = {
    "excl_jobid_count": "exclusions",
    "xid_cnt": "Xid kinds",
    "tickets": "tickets",
    "out_count": "times out",
    "multi_node_node_fails": "node failures of large jobs",
    "single_node_node_fails": "node failures of small jobs",
}
NOTHING_YET = ("Nothing is counted yet.", "The first count follows within a minute or two of the start.")


def lemons(document: Mapping[str, Any], seen: Visit) -> Table:
    rows = document.get("lemons", [])
    named = [row for row in rows if row["lemon"]]
    others = [row for row in rows if not row["lemon"] and row["failures"]][:WATCHED]
    rate = pick(document, "failures", "rf_per_1000_node_days")
    note = f"They fail more than their hours explain, over 28 days at most. Fleet: {amount(rate)} per 1,000 node-days."
    heads = ("Node", "Verdict!", "#Failures", "#Node-days", "#Per 1,000 node-days", "#By chance", "=Signals~")
    empty = ("No node stands out.", "Lemons are named from faults that are a node's own, never from large jobs.")
    cells = tuple(lemon_row(row, seen) for row in (*named, *others))
    return Table("lemons", "Lemon nodes", note if rows else "", heads, cells, empty if document else NOTHING_YET)


def lemon_row(row: Mapping[str, Any], seen: Visit) -> tuple[Cell, ...]:
    signals = [f"{value:g} {SIGNALS[name]}" for name, value in row["signals"].items() if value and name in SIGNALS]
    chip = Chip("failed", "lemon") if row["lemon"] else Chip("suspect", "watch")
    days = row["node_days"] or 0.0
    return (
        Link(row["node"], seen.link(f"/nodes/{row['node']}")),
        chip,
        number(row["failures"]),
        amount(row["node_days"]),
        amount(1000 * row["failures"] / days if days else None),
        chance(row["p_false"]),
        ", ".join(signals[:3]) or "none",
    )


def chance(p: float | None) -> str:
    if p is None:
        return "not known"
    if p <= 1e-6:
        return "under 1 in a million"
    return f"1 in {number(round(1 / p))}" if p < 0.1 else percent(p)


def tables(document: Mapping[str, Any], seen: Visit) -> tuple[Table, ...]:
    if not document:
        return ()
    return chains(document), exclusions(document), places(document, seen), repairs(document)


def chains(document: Mapping[str, Any]) -> Table:
    retry = document["retry"]
    hands = {"auto": "Requeued by itself", "manual": "Resubmitted by a person", "mixed": "Both", "all": "All"}
    rows = tuple(
        (
            words,
            number(retry[hand]["chains"]),
            percent(retry[hand]["rate"]),
            interval(retry[hand]["ci95"], 0, 100) if retry[hand]["chains"] else "",
            number(retry[hand]["attempts"]),
        )
        for hand, words in hands.items()
        if retry[hand]["chains"] or hand == "all"
    )
    gap = retry["interval_auto"]
    note = (
        f"{count(retry['open_chains'], 'chain is', 'chains are')} still open, {retry['recovered']:,} of them recovered."
    )
    if gap["n"]:
        note += f" Requeued after {span(gap['median_s'])} at the median (n = {gap['n']})."
    heads = ("Retries", "#Chains", "#Got through", "#95 %~", "#Attempts~")
    return Table("chains", "Retry chains", note, heads, rows, ("No attempt was tried again.", ""), size="c-7")


def exclusions(document: Mapping[str, Any]) -> Table:
    found = document["churn"]
    right = f"{found['right']:,} of {found['judged']:,}"
    chance_ = f", {amount(found['right_by_chance'])} by chance" if found["right_by_chance"] is not None else ""
    rows: list[tuple[Cell, ...]] = [
        ("Added", number(found["added"])),
        ("Dropped again", number(found["dropped"])),
        ("In force now", number(found["live"])),
        ("Stood, median", f"{amount(found['stood_days'])} days" if found["stood_days"] is not None else "not known"),
        ("Proved right", f"{right}{chance_}" if found["judged"] else "none can be judged"),
    ]
    for what, names in (("By", found["by"]), ("Because", found["why"])):
        rows += [(f"{what} {kind_words(name)}", number(times)) for name, times in list(names.items())[:3]]
    note = "One stretch of attempts of a run that leaves a node out counts once."
    empty = ("No node was excluded.", "")
    shown = tuple(rows) if found["added"] else ()
    return Table("churn", "Exclusions over time", note, ("What", "#Count"), shown, empty, size="c-5")


def places(document: Mapping[str, Any], seen: Visit) -> Table:
    """The dearest of each place: node, rack, switch, driver, model."""
    rows: list[tuple[Cell, ...]] = []
    for by in ("node", "rack", "switch", "driver", "firmware", "model", "partition", "team"):
        known = [row for row in document["lost"].get(by, []) if row["name"] not in ("", "not known")]
        for row in known[:2]:
            name: Cell = Link(row["name"], seen.link(f"/nodes/{row['name']}")) if by == "node" else row["name"]
            rows.append((name, by, bounds(row["gpu_hours"]), number(row["failures"])))
    usage = document["usage"]
    note = (
        f"{bounds([usage['held_gpu_hours']] * 2)} GPU-hours held of {amount(usage['capacity_gpu_hours'])}; "
        f"{amount(usage['out_gpu_hours'])} were out, {bounds(usage['idle_gpu_hours'])} held but idle."
    )
    heads = ("Where", "Kind~", "#GPU-hours lost", "#Failures")
    return Table(
        "places", "Lost time by place", note, heads, tuple(rows), ("Nothing was lost to failures.", ""), size="c-7"
    )


def repairs(document: Mapping[str, Any]) -> Table:
    rows = tuple(
        (
            capital(row["what"].replace("_", " ")),
            f"{row['held']:,} of {row['n']:,}",
            interval(row["ci95"], 0, 100) if row["n"] else "",
            number(row["too_young"]),
        )
        for row in document["efficacy"]
    )
    heads = ("Repair", "#Held", "#95 %~", "#Too young")
    note = "A repair held where the node showed no fault in the week after it."
    empty = ("No repair is known.", "")
    return Table("repairs", "Did repairs hold?", note if rows else "", heads, rows, empty, size="c-5")
