"""runs and plan: read a running server over REST."""

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
    "standby",
    "standby_restart_s",
    "days",
)


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
    return "\n".join([*lines, table(told, ("part", "hours"))])


def _hours(bounds: list[float] | None) -> str:
    return "not known" if bounds is None else f"{bounds[0] / 3600:,.2f} to {bounds[1] / 3600:,.2f}"


def plan(arguments: argparse.Namespace) -> int:
    """The outlook of one plan."""
    asked = {name: str(value) for name in ASKED if (value := getattr(arguments, name)) is not None}
    if arguments.per_step_recovery:
        asked["per_step_recovery"] = "true"
    return answered(arguments, "planner", outlook, **asked)


def outlook(found: dict[str, Any]) -> str:
    lines = [
        f"ETTR {found['ettr']:.3f} on {found['plan']['nodes']:,} nodes; a failure every {hours(found['mttf_s'])}; "
        f"save every {hours(found['interval_s'])} (best {hours(found['best_interval_s'])}: {found['best_ettr']:.3f}); "
        f"{found['standby_p99']} spare nodes suffice on 99 of 100 days."
    ]
    for name, given in found["inputs"].items():
        n = f", n = {given['n']}" if given["n"] is not None else ""
        lines.append(f"  {name} {given['value']:g} ({given['source']}{n})")
    return "\n".join(lines)


def hours(seconds: float | None) -> str:
    if seconds is None:
        return "never"
    return f"{seconds / 3600:,.1f} h" if seconds >= 7200 else f"{seconds / 60:,.1f} min"


def report(arguments: argparse.Namespace) -> int:
    """The weekly report, now."""
    return answered(arguments, "reliability/report", letter)


def letter(told: dict[str, Any]) -> str:
    width = max(len(label) for label, _ in told["facts"])
    lines = [told["headline"], "", told["why"], "", *(f"{k.ljust(width)}  {v}" for k, v in told["facts"])]
    lines += ["", "What cost most", *(f"- {line}" for line in told["most"])] if told["most"] else []
    return "\n".join([*lines, "", told["advice"]]).rstrip()
