"""After the end: the report is written, then sent to everybody who asked for it, all within one patience."""

from __future__ import annotations

import os
import time
from _queue import Empty, SimpleQueue
from typing import Any, Callable, Dict

from backend.wrap import evidence
from backend.wrap.report import encoded, report_of
from backend.wrap.streams import begin
from backend.wrap.words import said

TYPE_CHECKING = False
if TYPE_CHECKING:
    from backend.wrap.child import Child
    from backend.wrap.place import Place
    from backend.wrap.streams import Log
    from backend.wrap.words import Options

#: A sender: gets the report and until when (monotonic s), says what became of it.
Send = Callable[[Dict[str, Any], float], str]


def tell(
    options: Options,
    place: Place,
    child: Child,
    log: Log,
    folder: str,
    path: str,
    oom_kills: int,
    until: float,
    kept: Callable[[], object],
) -> None:
    """``until``: monotonic s. ``kept`` is called once the report is on disk. What was sent stands in the report; what
    could not be is said on stderr."""
    found = evidence.find(log, path, child, oom_kills)
    report = report_of(options, place, child, log, path, oom_kills, found)
    beside = path[: -len(".log")] + ".report.json" if path else ""
    write(beside, encoded(report))
    if os.isatty(2) and report["exit_code"]:
        said(f"{report['sentence']}" + (f" The report is {beside}" if beside else ""))
    those = senders(options, place, folder, report)
    kept()
    told = send_all(those, report, until)
    report["told"] = told
    write(beside, encoded(report))
    for name, word in told.items():
        if not word.startswith(TAKEN):
            said(f"{name}: {word}")


#: Words of a sender that had success begin so.
TAKEN = "taken"


def senders(options: Options, place: Place, folder: str, report: dict[str, Any]) -> dict[str, Send]:
    """Who is to hear of it: the server of every end, people of failures (or ``--always``), from one rank of a job."""
    found: dict[str, Send] = {}
    if options.server:
        from backend.wrap.server import sender

        base = os.path.dirname(folder) if folder else ""
        found["server"] = sender(
            options.server, options.token_file, os.path.join(base, "unsent") if base else "", report
        )
    people = options.always or report["exit_code"] != 0
    if people and (options.email or options.slack) and speaks(place, folder):
        if options.email:
            from backend.wrap.mail import Account, mailer

            account = Account(options.smtp_user, options.smtp_password_file)
            found["mail"] = mailer(options.smtp, options.sender, options.email, account, options.smtp_tls)
        if options.slack:
            from backend.wrap.server import slacker

            found["slack"] = slacker(options.slack)
    return found


def speaks(place: Place, folder: str) -> bool:
    """Whether this process tells people. Of the ranks of one attempt the first that fails does: it makes a file where
    all of them keep their logs. Where each node keeps its own, one of each node does."""
    if place.task is None or not folder:
        return True
    step = "".join(c for c in os.environ.get("SLURM_STEP_ID", "") if c.isalnum())
    try:
        mark = os.path.join(folder, f".told-{step}-{place.relaunch}")
        os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    except FileExistsError:
        return False
    except OSError:
        return place.task == 0
    return True


def send_all(found: dict[str, Send], report: dict[str, Any], until: float) -> dict[str, str]:
    """All at the same time, so that a server that hangs keeps no mail back."""
    answers: SimpleQueue[tuple[str, str]] = SimpleQueue()
    told = {name: f"no answer within {max(0.0, until - time.monotonic()):.0f} s" for name in found}

    def work(name: str, send: Send) -> None:
        try:
            answers.put((name, send(report, until)))
        except Exception as error:  # noqa: BLE001 - the same bulkhead: one sender never costs another, nor the exit code
            answers.put((name, f"{type(error).__name__}: {error}"))

    for name, send in found.items():
        begin(lambda n=name, s=send: work(n, s), lambda: None)  # type: ignore[misc]
    waiting = len(found)
    while waiting and time.monotonic() < until:
        try:
            name, word = answers.get(True, max(0.01, until - time.monotonic()))
        except Empty:
            break
        told[name] = word
        waiting -= 1
    return told


def write(path: str, text: bytes) -> None:
    """Whole or not at all; a disk that takes nothing costs the file."""
    if not path:
        return
    try:
        with open(path + ".new", "wb") as file:
            file.write(text)
        os.replace(path + ".new", path)
    except OSError as error:
        said(f"{path}: {error.strerror}")
