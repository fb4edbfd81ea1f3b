"""The command line: stdlib argparse, every import inside its branch, because `wrap` must start fast."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

TYPE_CHECKING = False  # importing typing costs more than the help does
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

ROLES = ("all", "observe", "api")
PEOPLE = ("vendor", "viewer", "operator", "approver", "admin")


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


def parser(chosen: str | None = None) -> Words:
    """Every command with its arguments; of ``chosen`` alone where it is given, because the help of all needs none."""
    top = Words(prog="watchkeeper", description="Keeps watch over GPU training clusters.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (words, fill) in COMMANDS.items():
        wanted = chosen in (None, name)
        command = commands.add_parser(name, help=words, add_help=wanted)
        if wanted:
            fill(command)
    return top


def exit_code(text: str) -> int:
    """For ``type=``: what a process can end with, as a shell or a scheduler gives it."""
    if not (text.removeprefix("-").isascii() and text.removeprefix("-").isdigit() and -255 <= int(text[:5]) <= 255):
        raise argparse.ArgumentTypeError(f"{text!r} is no exit code; give 0 to 255, or minus a signal")
    return int(text)


def mebibytes(text: str) -> int:
    """For ``type=``: a whole number of MiB above 0."""
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 2**40):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of MiB above 0")
    return int(text)


def _serve(serve: Words) -> None:
    _config(serve)
    serve.add_argument("--port", type=port, help="port to listen on, instead of the configured one")
    serve.add_argument("--role", choices=ROLES, default="all", help="what this process does (default: all)")
    serve.add_argument("--record", type=path, help="new folder: record what comes in as a bundle for replay")
    serve.add_argument("--record-mib", type=mebibytes, default=2048, help="where a recording ends (default: 2048)")


def _demo(demo: Words) -> None:
    demo.add_argument("--port", type=port, default=8000, help="port to listen on (default: 8000; 0 takes a free one)")
    demo.add_argument("--folder", type=path, default="watchkeeper-demo", help="where the demo keeps its state")
    demo.add_argument("--seed", type=int, default=1, help="another seed, another cluster's fate")


def _doctor(doctor: Words) -> None:
    _config(doctor)
    doctor.add_argument("--json", action="store_true", help="print the lines as JSON")


def _database(database: Words) -> None:
    actions = database.add_subparsers(dest="action", required=True, metavar="ACTION")
    _config(actions.add_parser("upgrade", help="bring the tables up to this version"))
    chain = actions.add_parser("audit", help="who did what, newest first")
    chain.add_argument("--verify", action="store_true", help="check the whole chain, and print its newest hash")
    chain.add_argument("--limit", type=int, default=50, help="how many rows (default: 50)")
    chain.add_argument("--json", action="store_true", help="one JSON object a row")
    _config(chain)
    sums = actions.add_parser("rollups", help="sums per hour against what they were made of")
    sums.add_argument("--check", action="store_true", help="only compare; what it does anyway")
    sums.add_argument("--rebuild", action="store_true", help="count all anew first")
    sums.add_argument("--days", type=int, help="how far back (default: all that is counted)")
    sums.add_argument("--json", action="store_true", help="print what was found as JSON")
    _config(sums)


def _replay(replay: Words) -> None:
    replay.add_argument("bundle", type=path, nargs="?", help="folder of the bundle; or a span of a Prometheus:")
    replay.add_argument("--prometheus", default="", help="its address; the span is kept in OUT/recording")
    replay.add_argument("--start", default="", help="from then on, as in 2026-03-01T00:00:00Z")
    replay.add_argument("--end", default="", help="up to then")
    replay.add_argument("--matchers", default="", help='more label matchers, as in cluster="main"')
    replay.add_argument("--set", action="append", default=[], help="NAME=VALUE: compare with another threshold")
    replay.add_argument("--out", type=path, required=True, help="folder for findings, incidents and the summary")
    replay.add_argument("--score", action="store_true", help="compare with the bundle's truth.jsonl")
    replay.add_argument("--json", action="store_true", help="print the summary and the score as JSON")
    _config(replay)


def _simulate(made: Words) -> None:
    made.add_argument("--out", type=path, help="folder to write, new or empty")
    made.add_argument("--seed", type=int, default=1, help="the same seed, the same bytes (default: 1)")
    made.add_argument("--scenario", default="mixed", help="quiet, mixed, a family or kind:NAME; --list shows them all")
    made.add_argument("--nodes", type=int, default=24, help="nodes of the cluster (default: 24)")
    made.add_argument("--gpus", type=int, default=8, help="GPUs of a node (default: 8)")
    made.add_argument("--hours", type=float, default=24.0, help="hours to record (default: 24)")
    made.add_argument("--interval", type=float, default=30.0, help="seconds between scrapes (default: 30)")
    made.add_argument("--list", action="store_true", help="only list the scenarios")
    made.add_argument("--json", action="store_true", help="print the outcome as JSON")


def _import(past: Words) -> None:
    past.add_argument(
        "paths", type=path, nargs="+", help="sacct, sacctmgr events, kernel logs, sessions, nodes, bundles; .gz"
    )
    past.add_argument("--cluster", default="", help="which cluster, where several are configured")
    past.add_argument("--host", default="", help="the host of logs that name none, as dmesg's")
    past.add_argument("--boot", default="", help="when that host booted (uptime -s), for lines that count from there")
    past.add_argument("--timezone", default="UTC", help="zone of times that name none (default: UTC)")
    past.add_argument("--json", action="store_true", help="print what was done as JSON")
    _config(past)


def _steps(files: Words) -> None:
    files.add_argument("paths", type=path, nargs="+", help="TensorBoard, W&B offline, CSV, JSON lines, logs; folders")
    files.add_argument("--run", default="", help="the run, where a file names none (default: its folder)")
    files.add_argument("--job", default="", help="the job of all of them")
    files.add_argument("--teach", action="append", default=[], help="a line by example: step {step=1} loss {loss=2.5}")
    files.add_argument("--server", default="", help="send them there; else they are printed as rows")
    files.add_argument("--token-file", type=path, help="file with an ingest token, off loopback")
    files.add_argument("--cluster", default="", help="which cluster, where the server has several")


def _classify(logs: Words) -> None:
    logs.add_argument("paths", nargs="+", metavar="PATH", help="a log, a folder of one job's logs, or - for stdin")
    logs.add_argument("--state", default="", help="how the scheduler says it ended: TIMEOUT, OOMKilled, FAILED ...")
    logs.add_argument("--exit-code", type=exit_code, help="exit code of the job, as a shell gives it")
    logs.add_argument("--json", action="store_true", help="one JSON object a path")
    logs.add_argument("--model", default="", help="what people said of past failures: a file, or a server's address")
    logs.add_argument("--cluster", default="", help="whose past failures, where that server watches several")
    logs.add_argument("--token-file", type=path, help="API token, for a server that is not on loopback")


def _wrap(run: Words) -> None:
    run.add_argument("words", nargs=argparse.REMAINDER, help="see watchkeeper wrap --help")


def _ask(ask: Words) -> None:
    ask.add_argument("--server", default="http://127.0.0.1:8000", help="the running server")
    ask.add_argument("--cluster", default="", help="which cluster, where the server watches several")
    ask.add_argument("--token-file", type=path, help="API token, for a server that is not on loopback")
    ask.add_argument("--json", action="store_true", help="print the server's answer as it is")


def _runs(ask: Words) -> None:
    ask.add_argument("run", nargs="?", default="", help="one run, by its name or by the id of one of its jobs")
    _ask(ask)


def _plan(ask: Words) -> None:
    ask.add_argument("--nodes", type=int, required=True, help="how many nodes the run takes, or there are for --job")
    ask.add_argument("--job", action="append", help="NAME:NODES[:WORTH[:NOW]], or NAME:32-128: which of these to run")
    ask.add_argument("--gpus-per-node", type=int)
    ask.add_argument("--per-node-day", type=float, help="failures a node and day (default: as measured here)")
    ask.add_argument("--write-s", type=float, help="seconds that a save blocks (default: as measured)")
    ask.add_argument("--restart-s", type=float, help="seconds to the first step again (default: as measured)")
    ask.add_argument("--interval-s", type=float, help="seconds between saves (default: the best)")
    ask.add_argument("--replicas", type=int, help="copies of the model that share the work")
    ask.add_argument("--per-step-recovery", action="store_true", help="a failure costs its replica only")
    ask.add_argument("--stall-s", type=float, help="with it: seconds that all wait at a failure")
    ask.add_argument("--standby", type=int, help="spare nodes kept warm")
    ask.add_argument("--standby-restart-s", type=float, help="seconds to restart with one of them")
    ask.add_argument("--days", type=float, help="how long the spares must suffice (default: 1)")
    _ask(ask)


def _reliability(ask: Words) -> None:
    ask.add_argument("--window", choices=("7d", "28d", "90d"), default="28d", help="how far back (default: 28d)")
    _ask(ask)


def _export(ask: Words) -> None:
    tables = ("runs", "rollups", "attempts", "allocations", "incidents", "findings", "events")
    ask.add_argument("table", choices=tables)
    ask.add_argument("--format", choices=("json", "csv", "parquet"), default="csv")
    ask.add_argument("--since", default="", help="from then on, as in 2026-03-01T00:00:00Z (default: 30 days back)")
    ask.add_argument("--until", default="", help="up to then (default: now)")
    ask.add_argument("--out", type=path, help="file to write (default: stdout)")
    ask.add_argument("--archive", type=path, help="read this archive folder instead of a server")
    _ask(ask)


def _exclusions(ask: Words) -> None:
    _ask(ask)
    ask.add_argument("--format", choices=("table", "hostlist", "lines"), default="table")
    ask.add_argument("--advisory", action="store_true", help="include what is only proposed")
    ask.add_argument("--scope", action="append", default=[], help="also what is kept from this work, as in account:nlp")


def _notify(channels: Words) -> None:
    actions = channels.add_subparsers(dest="action", required=True, metavar="ACTION")
    test = actions.add_parser("test", help="send one message that says it is a test")
    names = ("email", "slack", "pagerduty", "teams", "webhook", "apprise", "alertmanager")
    test.add_argument("--channel", choices=names, required=True, help="by which channel")
    test.add_argument("--json", action="store_true", help="print the receipt as JSON")
    _config(test)


def _alerts(alerts: Words) -> None:
    actions = alerts.add_subparsers(dest="action", required=True, metavar="ACTION")
    asked = actions.add_parser("preview", help="who would be told of such a fault now, and why; nothing is sent")
    asked.add_argument("kind", help="kind of fault, as in gpu_bus_loss")
    asked.add_argument("--severity", choices=("info", "warning", "high", "critical"), default="critical")
    asked.add_argument("--node", default="", help="the node that it would be on")
    asked.add_argument("--job", default="", help="the job that it would hit")
    told = actions.add_parser("list", help="what was told, waits, was given up, is held back")
    told.add_argument("--state", choices=("sent", "waiting", "dead"), default="", help="only these; dead: given up")
    hush = actions.add_parser("silence", help="hold back what all of these fit, for a while")
    for name in ("node", "job", "kind", "switch", "team"):
        hush.add_argument(f"--{name}", nargs="+", default=[], help="pattern, as in gpu-04*; more than one may be given")
    hush.add_argument("--hours", type=float, default=2.0, help="how long (default: 2; at most 744)")
    hush.add_argument("--comment", required=True, help="why; the next person on duty will ask")
    hush.add_argument("--maintenance", action="store_true", help="it is announced work")
    end = actions.add_parser("end", help="end a silence now; what it held back is told")
    again = actions.add_parser("send-again", help="send what was given up once more")
    for command in (end, again):
        command.add_argument("number", type=int, help="its number, as list and silences print it")
    for command in (asked, told, hush, end, again, actions.add_parser("silences", help="what is silenced, by whom")):
        _ask(command)


def _policy(policy: Words) -> None:
    actions = policy.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser("check", help="say what is wrong with the policy of a configuration")
    check.add_argument("--json", action="store_true", help="print the mistakes as JSON")
    _config(check)
    explain = actions.add_parser("explain", help="ask a running server what it would do about a fault")
    explain.add_argument("kind", help="kind of fault, as in gpu_bus_loss")
    explain.add_argument("node", help="the node that it would be on")
    explain.add_argument("--evidence", default="", help="code, state, vote, trend, rate, rule or band")
    explain.add_argument("--severity", default="", help="info, warning, high or critical")
    explain.add_argument("--seen", type=int, default=0, help="how often it was acted on within a day")
    explain.add_argument("--mode", choices=("observe", "propose", "act"), help="as if the server ran in this mode")
    _ask(explain)


def _drill(drill: Words) -> None:
    drill.add_argument("kind", help="kind of fault, as in gpu_bus_loss")
    drill.add_argument("node", help="the node that it would be on")
    _ask(drill)


def _users(users: Words) -> None:
    actions = users.add_subparsers(dest="action", required=True, metavar="ACTION")
    add = actions.add_parser("add", help="add a person, or give a known one a new password and role")
    add.add_argument("name")
    add.add_argument("--role", choices=PEOPLE, default="viewer")
    add.add_argument("--password-file", type=path, help="read the password from this file instead of asking")
    role = actions.add_parser("role", help="give a person another role; their open sessions end")
    role.add_argument("name")
    role.add_argument("role", choices=PEOPLE)
    role.add_argument("--everywhere", action="store_true", help="take their limits away")
    for command in (add, role):
        _limits(command)
    disable = actions.add_parser("disable", help="no more sign-ins; their open sessions end")
    disable.add_argument("name")
    for command in (add, role, disable, actions.add_parser("list", help="who may sign in")):
        _config(command)


def _tokens(tokens: Words) -> None:
    actions = tokens.add_subparsers(dest="action", required=True, metavar="ACTION")
    make = actions.add_parser("add", aliases=["create"], help="make a token; it is shown once")
    make.add_argument("name")
    make.add_argument("--scope", choices=("ingest", "vendor", "read", "operate", "approve"), default="ingest")
    make.add_argument("--days", type=float, help="how long it lasts (default: until it is revoked)")
    _limits(make)
    revoke = actions.add_parser("revoke", help="end a token, by its name or number")
    revoke.add_argument("token")
    for command in (make, revoke, actions.add_parser("list", help="tokens by name, never their text")):
        _config(command)


def _limits(command: Words) -> None:
    command.add_argument("--cluster", action="append", default=[], help="only this cluster; may be given again")
    command.add_argument("--project", action="append", default=[], help="only this account or team; may be given again")
    command.add_argument("--nodes", default="", help="hostlist: what a vendor sees, what an ingest token may push")


def _manifest(made: Words) -> None:
    made.add_argument("--observe", action="store_true", help="only the rights to look, none to cordon or evict")
    made.add_argument("--namespace", default="watchkeeper", help="where the account is made (default: watchkeeper)")


def _deploy(files: Words) -> None:
    files.add_argument("name", nargs="?", default="", help="which set of files; without it they are listed")
    files.add_argument("--out", type=path, help="folder to write them to; nothing there is overwritten")


def _config(command: Words) -> None:
    command.add_argument("--config", type=path, help="TOML file; without one: SQLite here, loopback, observe")


#: Each command: what it does, and what gives its parser the arguments.
COMMANDS: Mapping[str, tuple[str, Callable[[Words], None]]] = {
    "serve": ("run the service", _serve),
    "demo": ("run the service on a simulated cluster", _demo),
    "doctor": ("check every configured connection and right, and say the fix", _doctor),
    "db": ("the database", _database),
    "replay": ("run a recorded bundle through the pipeline", _replay),
    "simulate": ("write a replay bundle of a simulated cluster, with its truth", _simulate),
    "import": ("take history in: accounting, kernel logs, bundles", _import),
    "steps": ("read the steps that trainers left in files, and print or send them", _steps),
    "classify": ("say of training logs what failed first, where, and what to do", _classify),
    "wrap": ("run a command of a job; when it fails, report what failed first", _wrap),
    "nodes": ("verdict of each node", _ask),
    "incidents": ("open incidents, worst first", _ask),
    "exclusions": ("nodes that are kept from new work", _exclusions),
    "alerts": ("who was told and would be told; silences", _alerts),
    "notify": ("try a channel", _notify),
    "policy": ("check the policy, or ask what it would do", _policy),
    "drill": ("a fault that never was, end to end; nothing reaches the cluster", _drill),
    "export": ("a table of a running server, or of the archive, as a file", _export),
    "report": ("the weekly report as text, now", _ask),
    "runs": ("what became of each run: ETTR, failures, lost time", _runs),
    "reliability": ("what fails, what nodes that fail share, which fails next", _reliability),
    "plan": ("what ETTR a run can expect, how often to save, how many spares", _plan),
    "kubernetes-manifest": ("print the account and rights that a Kubernetes cluster must give", _manifest),
    "deploy": ("files for systemd, Kubernetes, Helm, Prometheus and Grafana", _deploy),
    "users": ("people who may sign in", _users),
    "tokens": ("API tokens", _tokens),
}


def port(text: str) -> int:
    """A port of the command line; 0 takes a free one."""
    if not (text.isascii() and text.isdigit() and int(text) <= 65_535):
        raise argparse.ArgumentTypeError(f"{text!r} is no port; give a number from 0 to 65535")
    return int(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 done, 1 could not (said on stderr), 2 wrong words, 130 interrupted."""
    words = sys.argv[1:] if argv is None else argv
    if words and words[0] == "wrap":  # before the parser: the wrapper reads its own words, and the child must not wait
        from backend.wrap import wrap

        wrap.main(words[1:])
    chosen = next((word for word in words if not word.startswith("-")), "")
    arguments = parser(chosen).parse_args(words)
    try:
        return command_of(arguments)(arguments)
    except KeyboardInterrupt:
        return 130


#: Where the function behind each command stands, as module of backend.commands and name.
BEHIND: Mapping[str, tuple[str, str]] = {
    "serve": ("server", "serve"),
    "demo": ("server", "demo"),
    "doctor": ("doctor", "doctor"),
    "db": ("server", "upgrade"),
    "db rollups": ("rollups", "rollups"),
    "db audit": ("people", "audit"),
    "replay": ("replay", "replay"),
    "simulate": ("simulate", "simulate"),
    "import": ("import_", "import_"),
    "steps": ("steps", "steps"),
    "classify": ("classify", "classify"),
    "nodes": ("ask", "nodes"),
    "incidents": ("ask", "incidents"),
    "exclusions": ("ask", "exclusions"),
    "runs": ("cost", "runs"),
    "plan": ("cost", "plan"),
    "reliability": ("cost", "reliability"),
    "report": ("cost", "report"),
    "export": ("export", "export"),
    "alerts": ("alerts", "alerts"),
    "notify": ("notify", "notify"),
    "policy": ("policy", "policy"),
    "drill": ("drill", "drill"),
    "kubernetes-manifest": ("kubernetes", "kubernetes_manifest"),
    "deploy": ("deploy", "deploy"),
    "users": ("people", "users"),
    "tokens": ("people", "tokens"),
}


def command_of(arguments: argparse.Namespace) -> Callable[[argparse.Namespace], int]:
    """The function behind the command; importing it is the first thing that costs time."""
    whole = f"{arguments.command} {getattr(arguments, 'action', '')}"
    module, name = BEHIND.get(whole) or BEHIND[arguments.command]
    found: Callable[[argparse.Namespace], int] = getattr(import_module(f"backend.commands.{module}"), name)
    return found


if __name__ == "__main__":
    sys.exit(main())
