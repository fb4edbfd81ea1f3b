"""Every route of the API and of the pages: the right that it needs, and how far what it shows reaches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

#: open: nobody's. cluster: facts that all who see the cluster share. project: shows and changes only what belongs to
#: the asker's projects. whole: shows the work of all projects of a cluster. site: of all clusters.
Reach = Literal["open", "cluster", "project", "whole", "site"]


@dataclass(frozen=True, slots=True)
class Rule:
    """``need`` is a right by name (``auth.RIGHTS``), ingest, or open. ``writes``: whether it changes what is kept."""

    need: str
    reach: Reach
    writes: bool = False


#: A route that is not named here is refused to everybody who is limited to projects or clusters, and fails a test.
UNKNOWN = Rule("read", "site")

_READS = {
    "cluster": """
        /api/v1/nodes /api/v1/nodes/{node} /api/v1/exclusions /api/v1/topology /api/v1/versions /api/v1/devices
        /api/v1/exclusions/ended /exclusions /figures/exclusions.csv
        /api/v1/labels/model /api/v1/labels/quality /figures/healthy.json /figures/healthy.csv /figures/sources.json
        /figures/sources.csv /system /api/v1/planner /api/v1/policy /api/v1/policy/explain /definitions /planner
        /api/v1/planner/choice /api/v1/planner/tiers
        /figures/planner/{which}.csv /figures/planner/{which}.json
        /settings /settings/rules /api/v1/settings /api/v1/checks
    """,
    "project": """
        /api/v1/advice
        /api/v1/incidents /api/v1/incidents/{incident_id} /api/v1/incidents/{incident_id}/findings /api/v1/orders
        /api/v1/orders/{order_id} /api/v1/labels /api/v1/jobs/{job}/log /api/v1/jobs/{job}/verdict
        /api/v1/jobs/{job}/reports /actions /incidents /incidents/{number} /figures/incidents/{number}.json
        /incidents/{number}.md /incidents/{number}/rma.zip /figures/incidents/{number}.csv /live /api/v1/runs
        /api/v1/runs/{run} /runs /runs/{name}
        /figures/run/{which}/{name}.csv /figures/run/{which}/{name}.json
    """,
    "whole": """
        / /cluster /fleet /figures/fleet.json /figures/fleet.csv /figures/names.json /figures/devices.csv
        /nodes/{node} /devices/{device} /figures/past/{kind}/{name}.json /figures/past/{kind}/{name}.csv
        /api/v1/nodes/{node}/history /api/v1/devices/{device}/history /api/v1/allocations /api/v1/changes
        /api/v1/export/{table} /api/v1/lemons /api/v1/reliability /api/v1/reliability/report /api/v1/rollups
        /reliability /reliability/report /storage /figures/reliability/{which}.csv
        /figures/reliability/{which}.json /figures/storage/{which}.csv /figures/storage/{which}.json
        /api/v1/labels/model/file /alerts /api/v1/alerts /api/v1/alerts/preview /api/v1/silences
        /api/v1/backtests /api/v1/backtests/{number} /backtest /backtest/{number}
    """,
    "site": "/metrics",
}
_WRITES = {
    "acknowledge": "/api/v1/incidents/{incident_id}/ack /api/v1/incidents/{incident_id}/resolve "
    "/incidents/{number}/acknowledge /incidents/{number}/resolve",
    "note": "/api/v1/incidents/{incident_id}/notes /incidents/{number}/notes",
    "label": "/api/v1/labels /incidents/{number}/labels",
    "approve": "/api/v1/orders/{order_id}/approve /incidents/{number}/decisions/{which}/approve "
    "/actions/plans/{which}/approve",
    "reject": "/api/v1/orders/{order_id}/reject /api/v1/orders/{order_id}/cancel /actions/orders/{which}/cancel "
    "/incidents/{number}/decisions/{which}/reject /actions/plans/{which}/reject",
    "undo": "/api/v1/orders/{order_id}/undo /actions/orders/{which}/undo",
}
_PUSHES = """
    /api/v1/ingest/logs /api/v1/ingest/journal /api/v1/ingest/jobs /api/v1/ingest/topology /api/v1/ingest/wrap
    /api/v1/ingest/remote-write /api/v1/ingest/steps /api/v1/ingest/checkpoints /api/v1/changes
    /api/v1/ingest/alertmanager /api/v1/ingest/collectives /api/v1/ingest/otlp/v1/metrics /api/v1/ingest/otlp/v1/logs
"""
_OPEN = "/healthz /readyz /docs /openapi.json /sign-in /sign-in/oidc /sign-in/oidc/back"

TABLE: Mapping[str, Rule] = {
    **{f"GET {path}": Rule("read", reach) for reach, paths in _READS.items() for path in paths.split()},  # type: ignore[arg-type]  # keys are Reach
    **{f"POST {path}": Rule(need, "project", True) for need, paths in _WRITES.items() for path in paths.split()},
    **{f"POST {path}": Rule("ingest", "cluster", True) for path in _PUSHES.split()},
    **{f"GET {path}": Rule("open", "open") for path in _OPEN.split()},
    "POST /api/v1/exclusions/query": Rule("read", "cluster"),
    "POST /api/v1/k8s/filter": Rule("read", "cluster"),
    "POST /api/v1/k8s/prioritize": Rule("read", "cluster"),
    "POST /api/v1/exclusions": Rule("exclude", "whole", True),
    "DELETE /api/v1/exclusions/{exclusion_id}": Rule("lift", "whole", True),
    "PATCH /api/v1/exclusions/{exclusion_id}": Rule("lift", "whole", True),
    "POST /exclusions": Rule("exclude", "whole", True),
    "POST /exclusions/{which}/extend": Rule("lift", "whole", True),
    "POST /exclusions/{which}/lift": Rule("lift", "whole", True),
    "POST /runs/{name}/labels": Rule("label", "whole", True),
    "POST /api/v1/alerts/{delivery_id}/send-again": Rule("silence", "whole", True),
    "POST /alerts/{number}/send-again": Rule("silence", "whole", True),
    "POST /api/v1/silences": Rule("silence", "whole", True),
    "DELETE /api/v1/silences/{silence_id}": Rule("silence", "whole", True),
    "POST /alerts/silences": Rule("silence", "whole", True),
    "POST /alerts/silences/{number}/end": Rule("silence", "whole", True),
    "POST /api/v1/backtests": Rule("backtest", "whole", True),
    "POST /api/v1/backtests/{number}/cancel": Rule("backtest", "whole", True),
    "POST /api/v1/backtests/{number}/adopt": Rule("configuration", "whole", True),
    "POST /api/v1/backtests/{number}/withdraw": Rule("configuration", "whole", True),
    "POST /backtest": Rule("backtest", "whole", True),
    "POST /backtest/{number}/cancel": Rule("backtest", "whole", True),
    "POST /backtest/{number}/adopt": Rule("configuration", "whole", True),
    "POST /backtest/{number}/withdraw": Rule("configuration", "whole", True),
    "POST /api/v1/drills": Rule("approve", "whole", True),
    "POST /api/v1/breaker/reset": Rule("breaker", "whole", True),
    "POST /actions/breaker": Rule("breaker", "whole", True),
    "POST /actions/kill-switch": Rule("kill switch", "whole", True),
    "POST /system/kill-switch": Rule("kill switch", "whole", True),
    # people, tokens, audit: what holds for all clusters
    "GET /api/v1/users": Rule("users", "site"),
    "POST /api/v1/users": Rule("users", "site", True),
    "PATCH /api/v1/users/{name}": Rule("users", "site", True),
    "DELETE /api/v1/users/{name}": Rule("users", "site", True),
    "GET /api/v1/tokens": Rule("tokens", "site"),
    "POST /api/v1/tokens": Rule("tokens", "site", True),
    "DELETE /api/v1/tokens/{token_id}": Rule("tokens", "site", True),
    "GET /api/v1/audit": Rule("users", "site"),
    "GET /settings/people": Rule("read", "site"),
    "GET /settings/tokens": Rule("read", "site"),
    "GET /settings/audit": Rule("read", "site"),
    "POST /settings/people/add": Rule("users", "site", True),
    "POST /settings/people/role": Rule("users", "site", True),
    "POST /settings/people/disable": Rule("users", "site", True),
    "POST /settings/tokens/make": Rule("tokens", "site", True),
    "POST /settings/tokens/revoke": Rule("tokens", "site", True),
    # their own session
    "POST /api/v1/slack/actions": Rule("open", "open", True),  # signed by Slack; the member's user is asked for rights
    "POST /sign-in": Rule("open", "open", True),
    "POST /sign-out": Rule("hardware", "open", True),
    "POST /sign-out/everywhere": Rule("hardware", "open", True),
    "GET /settings/account": Rule("hardware", "open"),
    "POST /settings/account/password": Rule("hardware", "open", True),
    "GET /api/v1/me": Rule("hardware", "open"),
    "GET /api/v1/hardware": Rule("hardware", "cluster"),
    "GET /hardware": Rule("hardware", "cluster"),
    "POST /theme": Rule("open", "open"),
}


def rule_of(method: str, path: str) -> Rule:
    """The rule of a route; ``path`` as it was declared, with or without kinds of its parameters ({number:int})."""
    method = "GET" if method == "HEAD" else method
    return TABLE.get(f"{method} {plain(path)}", UNKNOWN)


def plain(path: str) -> str:
    """``/incidents/{number:int}`` as ``/incidents/{number}``."""
    parts = path.split("{")
    return parts[0] + "".join("{" + name.split(":")[0].rstrip("}") + "}" + rest for name, rest in map(_cut, parts[1:]))


def _cut(part: str) -> tuple[str, str]:
    name, _, rest = part.partition("}")
    return name, rest


def beyond(rule: Rule, clusters: tuple[str, ...], projects: tuple[str, ...]) -> str:
    """Why somebody who is limited to these clusters and projects may not go there; empty = they may."""
    if rule.reach == "site" and (clusters or projects):
        limits = ", ".join((*clusters, *projects))
        return f"This reaches over all clusters; you are limited to {limits}."
    if rule.reach == "whole" and projects:
        return f"This shows or changes the work of all projects; you are limited to {', '.join(projects)}."
    return ""
