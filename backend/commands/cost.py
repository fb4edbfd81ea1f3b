"""runs, plan, report and reliability: read a running server over REST."""

from __future__ import annotations

import argparse
from typing import Any

from backend.commands.ask import answered, table

COLUMNS = ("run", "state", "gpus", "attempts", "failures", "ettr", "lost_gpu_hours", "last_failure")
#: What of a plan may be given.
ASKED = (
    "nodes",
    "per_node_day",
    "write_s",
    "restart_s",
    "interval_s",
    "gpus_per_node",
    "replicas",
    "stall_s",
    "standby",
    "standby_restart_s",
    "days",
)


#: Of these what a choice of jobs may be given.
CHOICE = frozenset({"nodes", "per_node_day", "write_s", "restart_s", "days"})


def runs(arguments: argparse.Namespace) -> int:
    """All runs as a table, or one run with its attempts and where its time went."""
    if arguments.run:
        return answered(arguments, f"runs/{arguments.run}", one)
    return answered(arguments, "runs", lambda body: table([row_of(row) for row in body["items"]], COLUMNS), limit="200")


def row_of(row: dict[str, Any]) -> dict[str, Any]:
    return {
        **row,
        "ettr": share(row["ettr_bounds"]),
        "lost_gpu_hours": f"{row['lost_gpu_hours'][0]:,.0f} to {row['lost_gpu_hours'][1]:,.0f}",
    }


def share(bounds: list[float] | None) -> str:
    """``0.912``, or ``0.31 to 0.98`` where only bounds are known."""
    if bounds is None:
        return "-"
    low, high = bounds
    return f"{(low + high) / 2:.3f}" if high - low <= 0.01 else f"{low:.2f} to {high:.2f}"


def one(run: dict[str, Any]) -> str:
    lines = [f"{run['run']}: ETTR {share(run['ettr_bounds'])}, {run['failures']} failures, {run['gpus']} GPUs", ""]
    attempts = [
        {"job": a["job"], "attempt": a["restart"] + 1, "state": a["state"], "verdict": a["verdict"]}
        for a in run["attempts"]
    ]
    lines += [table(attempts, ("job", "attempt", "state", "verdict")), ""]
    parts = run["decomposition_s"]
    bounds = run.get("decomposition_bounds_s", {})
    told = [
        {"part": name, "hours": f"{s / 3600:,.2f}" if s is not None else _hours(bounds.get(name))}
        for name, s in parts.items()
    ]
    lines += [table(told, ("part", "hours")), *split(run.get("quru")), *roles(run.get("roles") or [])]
    return "\n".join(lines)


def split(told: dict[str, Any] | None) -> list[str]:
    """Q + R + U, in one line."""
    if told is None:
        return []
    names = {"queued_s": "Q", "productive_s": "R", "catch_up_s": "U catch-up", "restart_s": "U restart",
             "stalls_s": "stalls", "left_out_user_s": "left out"}  # fmt: skip
    words = [
        f"{name} {_hours(told[field] if isinstance(told[field], list) else [told[field]] * 2)} h"
        for field, name in names.items()
    ]
    return ["", f"ETTR as R / (Q + R + U): {share(told['ettr'])}; {', '.join(words)}"]


def roles(rows: list[dict[str, Any]]) -> list[str]:
    cells = [{"role": row["role"] or "-", "ettr": share(row["ettr"]), "node_hours": row["node_hours"]} for row in rows]
    return ["", table(cells, ("role", "ettr", "node_hours"))] if rows else []


def _hours(bounds: list[float] | None) -> str:
    if bounds is None:
        return "not known"
    low, high = f"{bounds[0] / 3600:,.2f}", f"{bounds[1] / 3600:,.2f}"
    return low if low == high else f"{low} to {high}"


def plan(arguments: argparse.Namespace) -> int:
    """The outlook of one plan; with --job which of several jobs to run on the nodes there are."""
    asked = {name: str(value) for name in ASKED if (value := getattr(arguments, name)) is not None}
    if arguments.per_step_recovery:
        asked["per_step_recovery"] = "true"
    if arguments.job:
        allowed = {name: value for name, value in asked.items() if name in CHOICE}
        return answered(arguments, "planner/choice", choice, job=arguments.job, **allowed)
    return answered(arguments, "planner", outlook, **asked)


def choice(found: dict[str, Any]) -> str:
    rows = [
        {**row, "nodes": row["nodes"] or "waits", "ettr": "-" if row["ettr"] is None else f"{row['ettr']:.3f}"}
        for row in found["jobs"]
    ]
    head = f"{found['used']:,} of {found['nodes']:,} nodes; {found['value']:,.0f} effective GPU-hours by worth."
    return "\n".join([head, table(rows, ("job", "nodes", "ettr", "worth", "value"))])


def outlook(found: dict[str, Any]) -> str:
    lines = [
        f"ETTR {found['ettr']:.3f} on {found['plan']['nodes']:,} nodes; a failure every {hours(found['mttf_s'])}; "
        f"save every {hours(found['interval_s'])} (best {hours(found['best_interval_s'])}: {found['best_ettr']:.3f}); "
        f"{found['standby_p99']} spare nodes suffice on 99 of 100 days."
    ]
    if found["simulated_ettr"] is not None:
        lines.append(f"  drawn 20,000 failures long: {found['simulated_ettr']:.3f} ± {found['simulated_error']:.3f}")
    for name, given in found["inputs"].items():
        n = f", n = {given['n']}" if given["n"] is not None else ""
        lines.append(f"  {name} {given['value']:g} ({given['source']}{n})")
    return "\n".join(lines)


def hours(seconds: float | None) -> str:
    if seconds is None:
        return "never"
    return f"{seconds / 3600:,.1f} h" if seconds >= 7200 else f"{seconds / 60:,.1f} min"


def reliability(arguments: argparse.Namespace) -> int:
    """Components, crash loops, what nodes that fail share, and which fails next."""
    return answered(arguments, "reliability", behind, window=arguments.window)


def behind(found: dict[str, Any]) -> str:
    failures, risk = found["failures"], found["risk"]
    lines = [
        f"{failures['failed_attempts']:,} failures in {found['days']} days, {failures['infra_job_failures']:,} of them "
        f"the hardware's: {failures['rf_per_1000_node_days'] or 0:.2f} per 1,000 node-days.",
        "",
        table(found["components"], ("component", "failures", "per_1000_node_days", "mttf_node_days", "incidents")),
    ]
    if found["crash_loops"]:
        lines += ["", "Crash loops", table(found["crash_loops"], ("run", "live", "failures", "cause", "same_node"))]
    stand = [row for row in found["differences"]["rows"] if row["stands_out"]]
    lines += ["", f"What nodes that fail share: {found['differences']['asked']} values asked, {len(stand)} stand out"]
    lines += [table(stand, ("attribute", "value", "rate_ratio", "failed_nodes", "nodes"))] if stand else []
    lines += ["", f"Risk of the next 24 h: {risk['silent'] or 'the first nodes'}"]
    lines += [table(risk["nodes"][:10], ("node", "chance"))] if risk["nodes"] else []
    return "\n".join(lines)


def report(arguments: argparse.Namespace) -> int:
    """The weekly report, now."""
    return answered(arguments, "reliability/report", letter)


def letter(told: dict[str, Any]) -> str:
    width = max(len(label) for label, _ in told["facts"])
    lines = [told["headline"], "", told["why"], "", *(f"{k.ljust(width)}  {v}" for k, v in told["facts"])]
    lines += ["", "What cost most", *(f"- {line}" for line in told["most"])] if told["most"] else []
    return "\n".join([*lines, "", told["advice"]]).rstrip()
