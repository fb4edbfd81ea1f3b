"""nodes, incidents and exclusions: read a running server over REST."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import requests

TIMEOUT_S = 10.0


class AskError(Exception):
    """The server did not answer, or said no; the text says which and what to try."""


def ask(
    arguments: argparse.Namespace, path: str, media: str = "application/json", /, **params: str | list[str]
) -> requests.Response:
    """GET one route that answers with the content type ``media``. Raises AskError."""
    headers = {}
    if arguments.token_file is not None:
        headers["Authorization"] = f"Bearer {token_in(arguments.token_file)}"
    if arguments.cluster:
        params["cluster"] = arguments.cluster
    url = f"{arguments.server.rstrip('/')}/api/v1/{path}"
    try:
        answer = requests.get(url, params=params, headers=headers, timeout=TIMEOUT_S)
    except requests.RequestException as error:
        raise AskError(
            f"no answer from {arguments.server} ({type(error).__name__}); is it running? --server"
        ) from error
    if not answer.ok:
        raise AskError(f"{arguments.server} says {answer.status_code}: {detail_of(answer)}")
    found = answer.headers.get("Content-Type", "").partition(";")[0] or "something"
    if found != media:
        raise AskError(f"{arguments.server} answers with {found}, so it is no Watchkeeper, or a proxy stands before it")
    return answer


def token_in(file: Path) -> str:
    """Raises AskError for a file that cannot be read or holds no token."""
    try:
        text = file.read_text(errors="replace").strip()
    except OSError as error:
        raise AskError(f"{file} cannot be read: {error.strerror}") from error
    if not text or not text.isascii():
        raise AskError(f"{file} holds no token")
    return text


def detail_of(answer: requests.Response) -> str:
    try:
        problem = answer.json()
    except requests.JSONDecodeError:
        return answer.text[:200]
    return str(problem.get("detail") or problem.get("title"))


def answered(
    arguments: argparse.Namespace, path: str, write: Callable[[Any], str], /, **params: str | list[str]
) -> int:
    """Print a route as it is (--json) or as ``write`` puts its body for people. 1: there was no answer."""
    try:
        answer = ask(arguments, path, **params)
    except AskError as error:
        print(f"watchkeeper: {error}", file=sys.stderr)
        return 1
    print(answer.text if arguments.json else write(orjson.loads(answer.content)))
    return 0


def show(arguments: argparse.Namespace, path: str, columns: Sequence[str], /, **params: str | list[str]) -> int:
    """Print a list route as it is (--json) or as a table of ``columns``."""
    return answered(arguments, path, lambda body: table(items_of(body), columns), **params)


def items_of(body: Any) -> Any:
    return body["items"] if isinstance(body, dict) and "items" in body else body


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Aligned columns under their names; an empty list says so."""
    if not rows:
        return "none"
    cells = [[*columns], *([text_of(row.get(c)) for c in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    return "\n".join("  ".join(t.ljust(w) for t, w in zip(line, widths, strict=True)).rstrip() for line in cells)


def text_of(value: Any) -> str:
    if isinstance(value, list):
        return "; ".join(text_of(piece) for piece in value) or "-"
    return "-" if value in (None, "") else str(value)


def nodes(arguments: argparse.Namespace) -> int:
    """With --json the verdicts as they are; as a table also where each node stands."""
    if arguments.json:
        return show(arguments, "nodes", ())
    try:
        verdicts = orjson.loads(ask(arguments, "nodes").content)["items"]
        placed = orjson.loads(ask(arguments, "topology").content)["nodes"]
    except AskError as error:
        print(f"watchkeeper: {error}", file=sys.stderr)
        return 1
    where = {row["node"]: row for row in placed}
    rows = [where.get(row["node"], {}) | row for row in verdicts]
    told = [name for name in ("rack", "switch", "clique") if any(row.get(name) for row in rows)]
    print(table(rows, ("node", *told, "verdict", "binding", "until", "reasons")))
    return 0


def incidents(arguments: argparse.Namespace) -> int:
    return show(arguments, "incidents", ("id", "severity", "state", "entity", "job", "opened_at", "headline"))


def exclusions(arguments: argparse.Namespace) -> int:
    more: dict[str, str | list[str]] = {"advisory": "1"} if arguments.advisory else {}
    more |= {"scope": arguments.scope} if arguments.scope else {}
    if arguments.format == "table" or arguments.json:
        return show(arguments, "exclusions", ("id", "node", "origin", "owner", "scope", "until", "reason"), **more)
    try:
        answer = ask(arguments, "exclusions", "text/plain", format=arguments.format, **more)
    except AskError as error:
        print(f"watchkeeper: {error}", file=sys.stderr)
        return 1
    print(answer.text.rstrip("\n"))
    return 0
