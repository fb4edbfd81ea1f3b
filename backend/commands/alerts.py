"""alerts: what a running server told and would tell, silences, and sending again what was given up."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import requests

from backend.commands.ask import TIMEOUT_S, answered, detail_of, token_in


def alerts(arguments: argparse.Namespace) -> int:
    """0: told or done; 1: the server did not answer, or said no."""
    action = arguments.action
    if action == "preview":
        asked = {"kind": arguments.kind, "severity": arguments.severity}
        asked |= {name: value for name in ("node", "job") if (value := getattr(arguments, name))}
        return answered(arguments, "alerts/preview", previewed, **asked)
    if action == "list":
        return answered(arguments, "alerts", listed, **({"state": arguments.state} if arguments.state else {}))
    if action == "silences":
        return answered(arguments, "silences", silenced)
    if action == "silence":
        matches = {
            name: value for name in ("node", "job", "kind", "switch", "team") if (value := getattr(arguments, name))
        }
        body = {"kind": "maintenance" if arguments.maintenance else "silence", "matches": matches}
        return changed(arguments, "POST", "silences", body | {"comment": arguments.comment, "hours": arguments.hours})
    if action == "end":
        return changed(arguments, "DELETE", f"silences/{arguments.number}")
    return changed(arguments, "POST", f"alerts/{arguments.number}/send-again")


def previewed(body: dict[str, Any]) -> str:
    """The answer first, then what each route says."""
    lines = [body["answer"]]
    for row in body["routes"]:
        lines.append(f"  {'takes it' if row['takes'] else 'no      '}  {row['route']}: {row['why']}")
        lines += [f"            {row['then']}"] if row["then"] else []
    return "\n".join(lines)


def listed(body: dict[str, Any]) -> str:
    """A line a message, the newest first; what is held back after them."""
    lines = [
        f"{row['id']:>6}  {row['state']:<8} {row['channel']:<12} {row['kind']:<10} {row['headline']}"
        + (f"  ({row['error']})" if row["error"] else "")
        for row in body["items"]
    ]
    lines += [f"  held   incident {row['incident']}: {row['headline']}  ({row['why']})" for row in body["held"]]
    return "\n".join(lines) or "Nothing was sent."


def silenced(body: dict[str, Any]) -> str:
    rows = [
        f"{row['id']:>6}  {row['kind']:<12} until {row['ends_at'][:16]}  {row['words']}  "
        f"({row['by']}: {row['comment']})"
        for row in body["items"]
    ]
    return "\n".join(rows) or "Nothing is silenced."


def changed(arguments: argparse.Namespace, method: str, path: str, body: dict[str, Any] | None = None) -> int:
    """Ask the server to change something, by a token of the scope operate."""
    if arguments.token_file is None:
        print(
            "watchkeeper: this changes something: give --token-file with a token of the scope operate", file=sys.stderr
        )
        return 1
    query = {"cluster": arguments.cluster} if arguments.cluster else {}
    url = f"{arguments.server.rstrip('/')}/api/v1/{path}"
    try:
        headers = {"Authorization": f"Bearer {token_in(arguments.token_file)}"}
        answer = requests.request(method, url, params=query, json=body, headers=headers, timeout=TIMEOUT_S)
    except (requests.RequestException, ValueError) as error:
        print(f"watchkeeper: no answer from {arguments.server} ({type(error).__name__})", file=sys.stderr)
        return 1
    if not answer.ok:
        print(f"watchkeeper: {arguments.server} says {answer.status_code}: {detail_of(answer)}", file=sys.stderr)
        return 1
    row = answer.json()
    print(
        f"Silence {row['id']}: {row['words']}, until {row['ends_at'][:16]}."
        if "words" in row
        else f"{row['id']} waits."
    )
    return 0
