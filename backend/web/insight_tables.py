"""Tables of Reliability that look behind the counts: components, what nodes that fail share, risk, crash loops; and of
one run its roles and Meta's split."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backend.clock import utc
from backend.web.base import Visit
from backend.web.cost_words import amount, bounds, cut, interval, percent, pick, run_path, share
from frontend.contexts import Chip, Link
from frontend.contexts_cost import Cell, Table
from frontend.words import capital, clock, count, kind_words, number, span

#: Rows shown of differences that do not stand out, nodes at risk, loops.
MOST_OTHERS, MOST_NODES, MOST_LOOPS = 4, 8, 8
SIGNS_AT = 3
PARTS = (
    ("queued_s", "Queued", "Q"),
    ("productive_s", "Productive", "R"),
    ("catch_up_s", "Catch-up since the save", "U"),
    ("restart_s", "Restarts: start-up and load", "U"),
    ("stalls_s", "Saves, hangs, teardown", "U"),
    ("left_out_user_s", "Left out: the user's own failures", ""),
)


def insight_tables(document: Mapping[str, Any], seen: Visit) -> tuple[Table, ...]:
    """In the order of the page; none where an older release counted."""
    if "components" not in document:
        return ()
    return components(document, seen), loops(document, seen), risk(document, seen), differences(document, seen)


def components(document: Mapping[str, Any], seen: Visit) -> Table:
    rows = tuple(
        (
            capital(kind_words(row["component"])),
            number(row["failures"]),
            amount(row["per_1000_node_days"]),
            interval(row["ci95"]),
            _days(row["mttf_node_days"]),
            number(row["incidents"]),
            _gap(row["mttd"]),
            _gap(row["mttr"]),
        )
        for row in document["components"]
    )
    heads = (
        "Component", "#Jobs failed", "#Per 1,000 node-days", "#95 %~", "#Node-days between", "#Incidents~",
        "#Seen after~", "#Mended after",
    )  # fmt: skip
    note = "By the incident that ended a job, else by the class of its logs. Times are medians with their n."
    empty = ("No component has failed.", "")
    return Table("components", "Time between failures by component", note if rows else "", heads, rows, empty)


def _days(value: float | None) -> str:
    return amount(value) if value is not None else "none failed"


def _gap(found: Mapping[str, Any]) -> str:
    return f"{span(found['median_s'])} (n = {found['n']})" if found["n"] else "not known"


def loops(document: Mapping[str, Any], seen: Visit) -> Table:
    rows = tuple(loop_row(row, seen) for row in document["crash_loops"][:MOST_LOOPS])
    live = sum(row["live"] for row in document["crash_loops"])
    note = f"Three or more failures in a row that saved nothing; {count(live, 'goes', 'go')} on now."
    heads = ("Run", "State!", "#Failures", "=Mostly", "#GPU-hours", "#Pushed aside~", "#Told at~")
    empty, size = ("No run fails again and again.", ""), "c-7" if rows else "c-5"
    return Table("loops", "Crash loops", note if rows else "", heads, rows, empty, size=size)


def loop_row(row: Mapping[str, Any], seen: Visit) -> tuple[Cell, ...]:
    whose = f", each time on {row['same_node']}" if row["same_node"] else ""
    return (
        Link(cut(row["run"]), seen.link(run_path(row["run"]))),
        Chip("failed", "goes on") if row["live"] else Chip("done", "over"),
        number(row["failures"]),
        f"{kind_words(row['cause'])}{whose}",
        amount(row["gpu_hours"]),
        count(row["preempted"], "job"),
        clock(utc(row["seen_at"]), seen.now),
    )


def differences(document: Mapping[str, Any], seen: Visit) -> Table:
    told = document["differences"]
    stand = [row for row in told["rows"] if row["stands_out"]]
    others = [row for row in told["rows"] if not row["stands_out"] and row["faults"]][:MOST_OTHERS]
    rows = tuple(difference_row(row) for row in (*stand, *others))
    note = (
        f"Rate of faults against all other nodes; {count(told['asked'], 'value')} asked, and the chance is corrected "
        "for that."
    )
    heads = ("What", "Verdict!", "#Times the rate", "#95 %~", "#Nodes with a fault", "#Of the others~", "#By chance")
    empty = ("Nothing to compare", "It takes nodes that differ in rack, switch, model, firmware, driver or a label.")
    return Table("differences", "What nodes that fail share", note if rows else "", heads, rows, empty)


def difference_row(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    return (
        f"{row['attribute']} {cut(row['value'], 30)}",
        Chip("failed", "stands out") if row["stands_out"] else Chip("unknown", "may be chance"),
        amount(row["rate_ratio"]) if row["rate_ratio"] is not None else "others: none",
        interval(row["ci95"]),
        f"{row['failed_nodes']:,} of {row['nodes']:,}",
        f"{row['other_failed_nodes']:,} of {row['other_nodes']:,}",
        odds(row["p_corrected"]),
    )


def odds(p: float | None) -> str:
    if p is None:
        return "not known"
    if p <= 1e-6:
        return "under 1 in a million"
    return f"1 in {number(round(1 / p))}" if p < 0.1 else percent(p)


def risk(document: Mapping[str, Any], seen: Visit) -> Table:
    told = document["risk"]
    rows = tuple(
        (
            Link(row["node"], seen.link(f"/nodes/{row['node']}")),
            percent(row["chance"]),
            "; ".join(name.replace("_", " ") for name, _ in row["why"][:SIGNS_AT]) or "nothing of its own",
        )
        for row in told["nodes"][:MOST_NODES]
    )
    heads = ("Node", "#Within 24 h", "=Because")
    empty, size = ("Nothing is said.", said(told)), "c-5" if document["crash_loops"] else "c-7"
    return Table("risk", "Which node fails next", risk_note(told), heads, rows, empty, size=size)


def risk_note(told: Mapping[str, Any]) -> str:
    quality = told["quality"]
    if quality is None or told["silent"]:
        return ""
    top = quality["top"]
    return (
        f"On {count(quality['node_days'], 'held-out node-day')} the riskiest twentieth had {amount(quality['lift'])} "
        f"times the usual faults ({top['with_fault']} of {top['node_days']}; {interval(quality['lift_ci95'])}); Brier "
        f"{amount(quality['brier'], 4)} against {amount(quality['brier_of_base_rate'], 4)}."
    )


def said(told: Mapping[str, Any]) -> str:
    silent = told["silent"]
    return f"{capital(silent)}." if silent else ""


# --- of one run -----------------------------------------------------------------------------------------------------


def split_table(document: Mapping[str, Any]) -> Table:
    """Wall-clock as Q + R + U, hours."""
    told = pick(document, "quru")
    heads = ("Part", "Kind~", "#Hours")
    if told is None:
        return Table("split", "Q + R + U", "", heads, (), ("Not counted yet.", ""))
    rows = tuple((name, kind, _hours(told[field])) for field, name, kind in PARTS)
    note = f"As Meta splits it; failures of the user's own are left out. ETTR by it: {share(told['ettr'])}."
    return Table("split", "Q + R + U", note, heads, rows, ("", ""))


def _hours(value: Any) -> str:
    pair = value if isinstance(value, list) else [value, value]
    return bounds([None if one is None else one / 3600 for one in pair])


def roles_table(document: Mapping[str, Any]) -> Table | None:
    """ETTR of each role of a run; None where it has none."""
    told = pick(document, "roles")
    if not told:
        return None
    rows = tuple(
        (row["role"] or "no role", share(row["ettr"]), amount(row["node_hours"]), number(row["attempts"]))
        for row in told
    )
    note = "Each pool as a run of its own, node by node."
    return Table("roles", "By role", note, ("Role", "#ETTR", "#Node-hours", "#Attempts~"), rows, ("", ""))
