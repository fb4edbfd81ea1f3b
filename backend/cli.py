"""The command line: stdlib argparse, every import inside its branch, because `wrap` must start fast."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

TYPE_CHECKING = False  # importing typing costs more than the help does
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

ROLES = ("all", "observe", "api")


class Words(argparse.ArgumentParser):
    """A parser that measures the terminal itself: argparse would import shutil and its compressors for it."""

    def __init__(self, **named: Any) -> None:
        super().__init__(formatter_class=_formatter, **named)


def _formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.HelpFormatter(prog, width=_columns() - 2)


def _columns() -> int:
    """As wide as COLUMNS or the terminal says, else 80."""
    try:
        return max(20, int(os.environ.get("COLUMNS", 0)) or os.get_terminal_size(1).columns)
    except (ValueError, OSError):
        return 80


def path(text: str) -> Path:
    """For ``type=``: pathlib is not needed to show the help. A default is given as text, and becomes a path too."""
    from pathlib import Path

    return Path(text)


def parser() -> argparse.ArgumentParser:
    """Every command with its arguments; no import of ours is needed to show the help."""
    top = Words(prog="watchkeeper", description="Keeps watch over GPU training clusters.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _server_commands(commands)
    _bundle_commands(commands)
    _simulate(commands)
    _asking_commands(commands)
    _people_commands(commands)
    return top


def _server_commands(commands: argparse._SubParsersAction[Words]) -> None:
    serve = commands.add_parser("serve", help="run the service")
    _config(serve)
    serve.add_argument("--port", type=int, help="port to listen on, instead of the configured one")
    serve.add_argument("--role", choices=ROLES, default="all", help="what this process does (default: all)")
    demo = commands.add_parser("demo", help="run the service on a simulated cluster")
    demo.add_argument("--port", type=int, default=8000, help="port to listen on (default: 8000; 0 takes a free one)")
    demo.add_argument("--folder", type=path, default="watchkeeper-demo", help="where the demo keeps its state")
    demo.add_argument("--seed", type=int, default=1, help="another seed, another cluster's fate")
    doctor = commands.add_parser("doctor", help="check every configured connection and right, and say the fix")
    _config(doctor)
    doctor.add_argument("--json", action="store_true", help="print the lines as JSON")
    database = commands.add_parser("db", help="the database").add_subparsers(
        dest="action", required=True, metavar="ACTION"
    )
    _config(database.add_parser("upgrade", help="bring the tables up to this version"))


def _bundle_commands(commands: argparse._SubParsersAction[Words]) -> None:
    replay = commands.add_parser("replay", help="run a recorded bundle through the pipeline")
    replay.add_argument("bundle", type=path, help="folder of the bundle")
    replay.add_argument("--out", type=path, required=True, help="folder for findings, incidents and the summary")
    replay.add_argument("--score", action="store_true", help="compare with the bundle's truth.jsonl")
    replay.add_argument("--json", action="store_true", help="print the summary and the score as JSON")
    _config(replay)


def _simulate(commands: argparse._SubParsersAction[Words]) -> None:
    made = commands.add_parser("simulate", help="write a replay bundle of a simulated cluster, with its truth")
    made.add_argument("--out", type=path, help="folder to write, new or empty")
    made.add_argument("--seed", type=int, default=1, help="the same seed, the same bytes (default: 1)")
    made.add_argument("--scenario", default="mixed", help="quiet, mixed, a family or kind:NAME; --list shows them all")
    made.add_argument("--nodes", type=int, default=24, help="nodes of the cluster (default: 24)")
    made.add_argument("--gpus", type=int, default=8, help="GPUs of a node (default: 8)")
    made.add_argument("--hours", type=float, default=24.0, help="hours to record (default: 24)")
    made.add_argument("--interval", type=float, default=30.0, help="seconds between scrapes (default: 30)")
    made.add_argument("--list", action="store_true", help="only list the scenarios")
    made.add_argument("--json", action="store_true", help="print the outcome as JSON")


def _asking_commands(commands: argparse._SubParsersAction[Words]) -> None:
    for name, words in (
        ("nodes", "verdict of each node"),
        ("incidents", "open incidents, worst first"),
        ("exclusions", "nodes that are kept from new work"),
    ):
        ask = commands.add_parser(name, help=words)
        ask.add_argument("--server", default="http://127.0.0.1:8000", help="the running server")
        ask.add_argument("--cluster", default="", help="which cluster, where the server watches several")
        ask.add_argument("--token-file", type=path, help="API token, for a server that is not on loopback")
        ask.add_argument("--json", action="store_true", help="print the server's answer as it is")
        if name == "exclusions":
            ask.add_argument("--format", choices=("table", "hostlist", "lines"), default="table")
            ask.add_argument("--advisory", action="store_true", help="include what is only proposed")


def _people_commands(commands: argparse._SubParsersAction[Words]) -> None:
    users = commands.add_parser("users", help="people who may sign in").add_subparsers(
        dest="action", required=True, metavar="ACTION"
    )
    add = users.add_parser("add", help="add a person, or give a known one a new password and role")
    add.add_argument("name")
    add.add_argument("--role", choices=("viewer", "operator", "approver", "admin"), default="viewer")
    add.add_argument("--password-file", type=path, help="read the password from this file instead of asking")
    _config(add)
    _config(users.add_parser("list", help="who may sign in"))
    tokens = commands.add_parser("tokens", help="API tokens").add_subparsers(
        dest="action", required=True, metavar="ACTION"
    )
    make = tokens.add_parser("add", help="make a token; it is shown once")
    make.add_argument("name")
    make.add_argument("--scope", choices=("ingest", "read", "operate", "approve"), default="ingest")
    _config(make)
    _config(tokens.add_parser("list", help="tokens by name, never their text"))


def _config(command: argparse.ArgumentParser) -> None:
    command.add_argument("--config", type=path, help="TOML file; without one: SQLite here, loopback, observe")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 done, 1 could not (said on stderr), 2 wrong words, 130 interrupted."""
    arguments = parser().parse_args(argv)
    try:
        return command_of(arguments)(arguments)
    except KeyboardInterrupt:
        return 130


def command_of(arguments: argparse.Namespace) -> Callable[[argparse.Namespace], int]:
    """The function behind the command; importing it is the first thing that costs time."""
    if arguments.command in ("serve", "demo", "db"):
        from backend.commands import server

        return {"serve": server.serve, "demo": server.demo, "db": server.upgrade}[arguments.command]
    if arguments.command == "replay":
        from backend.commands import replay

        return replay.replay
    if arguments.command == "doctor":
        from backend.commands import doctor

        return doctor.doctor
    if arguments.command == "simulate":
        from backend.commands.simulate import simulate

        return simulate
    if arguments.command in ("users", "tokens"):
        from backend.commands import people

        return people.users if arguments.command == "users" else people.tokens
    from backend.commands import ask

    return {"nodes": ask.nodes, "incidents": ask.incidents, "exclusions": ask.exclusions}[arguments.command]


if __name__ == "__main__":
    sys.exit(main())
