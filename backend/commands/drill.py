"""drill: a fault that never was, on a running server, followed until its plan stands; nothing reaches the cluster."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import orjson
import requests

from backend.commands.ask import AskError, ask, detail_of, token_in

TIMEOUT_S = 30.0
#: How long the plan is waited for, and how often it is asked for.
WAIT_S, EVERY_S = 20.0, 0.5


def drill(arguments: argparse.Namespace) -> int:
    """0: begun, and its plan told; 1: it could not be begun."""
    if arguments.token_file is None:
        print("watchkeeper: a drill needs --token-file with a token of the scope approve", file=sys.stderr)
        return 1
    query = {"cluster": arguments.cluster} if arguments.cluster else {}
    url = f"{arguments.server.rstrip('/')}/api/v1/drills"
    body = {"kind": arguments.kind, "node": arguments.node}
    try:
        headers = {"Authorization": f"Bearer {token_in(arguments.token_file)}"}
        answer = requests.post(url, params=query, json=body, headers=headers, timeout=TIMEOUT_S)
        if not answer.ok:
            raise AskError(f"{arguments.server} says {answer.status_code}: {detail_of(answer)}")
        begun = answer.json()
        plan = waited(arguments, int(begun["incident"]))
    except (requests.RequestException, ValueError, AskError) as error:
        print(f"watchkeeper: {error}", file=sys.stderr)
        return 1
    told = {**begun, "plan": plan}
    print(orjson.dumps(told).decode() if arguments.json else words(begun, plan))
    return 0


def waited(arguments: argparse.Namespace, incident: int) -> dict[str, Any] | None:
    """The plan that the decide loop makes of it; None where there is none within WAIT_S (observe mode makes none)."""
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        rows = orjson.loads(ask(arguments, "orders").content)["items"]
        found: dict[str, Any] | None = next((row for row in rows if row["incident"] == incident), None)
        if found is not None:
            return found
        time.sleep(EVERY_S)
    return None


def words(begun: dict[str, Any], plan: dict[str, Any] | None) -> str:
    lines = [f"Incident {begun['incident']}, {begun['severity']}: {begun['headline']}"]
    if plan is None:
        return "\n".join([*lines, "No plan came of it: the mode is observe, or nothing can be done about this kind."])
    guards = plan["guards"]
    loud = [guard for guard in guards if guard["verdict"] != "holds"]
    lines.append(f"{plan['id']} ({plan['state']}): {plan['reason']}")
    lines += [f"  {number}. {step['text']}" for number, step in enumerate(plan["steps"], 1)]
    lines += [f"  {guard['verdict']}: {guard['guard']}: {guard['reason']}" for guard in loud]
    lines.append(f"  {len(guards) - len(loud)} of {len(guards)} guards hold.")
    return "\n".join([*lines, "Approve or reject it as any other: nothing is sent, and no report counts it."])
