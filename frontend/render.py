"""Contexts to HTML: the template environment, its filters, and the addresses of static files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from frontend import (
    contexts,
    contexts_acting,
    contexts_alerts,
    contexts_backtest,
    contexts_cluster,
    contexts_cost,
    contexts_excluding,
    words,
)

#: Which template draws which page.
TEMPLATES: Final[Mapping[type, str]] = {
    contexts.Now: "now.html",
    contexts.Fleet: "fleet.html",
    contexts.Incidents: "incidents.html",
    contexts.Incident: "incident.html",
    contexts.System: "system.html",
    contexts.SignIn: "sign_in.html",
    contexts.Problem: "problem.html",
    contexts_acting.SettingsPage: "settings.html",
    contexts_acting.ActionsPage: "actions.html",
    contexts_excluding.ExclusionsPage: "exclusions.html",
    contexts_acting.HardwarePage: "hardware.html",
    contexts_excluding.ExclusionsPage: "exclusions.html",
    contexts_backtest.BacktestPage: "backtest.html",
    contexts_alerts.AlertsPage: "alerts.html",
    contexts_cluster.NodePage: "node.html",
    contexts_cluster.DevicePage: "device.html",
    contexts_cluster.ClusterPage: "cluster.html",
    contexts_cost.RunsPage: "runs.html",
    contexts_cost.RunPage: "run.html",
    contexts_cost.ReliabilityPage: "reliability.html",
    contexts_cost.StoragePage: "storage.html",
    contexts_cost.PlannerPage: "planner.html",
    contexts_cost.ReportPage: "report.html",
    contexts_cost.DefinitionsPage: "definitions.html",
}


def environment() -> Environment:
    """Everything is escaped; a name that the context does not have is an error, never an empty string."""
    found = Environment(
        loader=PackageLoader("frontend"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    hashes: dict[str, str] = {}

    def static(name: str) -> str:
        if name not in hashes:
            hashes[name] = digest(static_folder().joinpath(*name.split("/")))
        return f"/static/{name}?v={hashes[name]}"

    found.filters["kept"] = words.kept
    found.globals["static"] = static
    return found


def static_folder() -> Traversable:
    return files("frontend").joinpath("static")


def digest(file: Traversable) -> str:
    """Short hash of a file: its address changes when it does, so browsers may keep it for ever."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12]


def render(pages: Environment, context: Any) -> str:
    """The page of one context of ``contexts``."""
    named = {field.name: getattr(context, field.name) for field in fields(context)}
    return pages.get_template(TEMPLATES[type(context)]).render(named)
