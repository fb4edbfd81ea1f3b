"""What a check says, and how checks run: side by side, each bounded in time, none able to stop another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from backend.security.redact import redact

#: Longest wait for one check. Clients give up earlier by themselves; this is for a mount or a driver that hangs.
LIMIT_S = 20.0


class State(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    OFF = "not set up"


@dataclass(frozen=True, slots=True)
class Line:
    """One verdict. ``what`` says what was found, ``fix`` what a person does about it; neither holds a secret."""

    check: str
    state: State
    what: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """``run`` gives its lines; it should raise nothing, and where it does all the same its line says so."""

    name: str
    run: Callable[[], Iterable[Line]]


def ok(check: str, what: str) -> Line:
    return Line(check, State.OK, what)


def warning(check: str, what: str, fix: str) -> Line:
    return Line(check, State.WARNING, what, fix)


def failed(check: str, what: str, fix: str = "") -> Line:
    return Line(check, State.FAILED, what, fix)


def off(check: str, what: str, fix: str = "") -> Line:
    return Line(check, State.OFF, what, fix)


def examine(checks: Sequence[Check], limit_s: float = LIMIT_S) -> list[Line]:
    """All lines in the order of ``checks``, after at most ``limit_s``. Threads that hang end with the process."""
    said: list[list[Line]] = [[] for _ in checks]
    threads = [
        threading.Thread(target=_fill, args=(check, lines), name=f"check {check.name}", daemon=True)
        for check, lines in zip(checks, said, strict=True)
    ]
    for thread in threads:
        thread.start()
    until = time.monotonic() + limit_s
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    late = [thread.is_alive() for thread in threads]
    rows = [
        [*lines, *_unsaid(check, lines, hangs, limit_s)] for check, lines, hangs in zip(checks, said, late, strict=True)
    ]
    return [_clean(line) for lines in rows for line in lines]


def _fill(check: Check, lines: list[Line]) -> None:
    for line in check.run():
        lines.append(line)


def _unsaid(check: Check, lines: list[Line], hangs: bool, limit_s: float) -> list[Line]:
    if hangs:
        return [failed(check.name, f"no answer within {limit_s:g} s", "Something it needs hangs: a mount, a server.")]
    if not lines:
        return [failed(check.name, "the check broke off", "Report it, with what stands on stderr.")]
    return []


def _clean(line: Line) -> Line:
    """One line of text, and masked once more: what servers say is theirs."""
    return Line(line.check, line.state, redact(" ".join(line.what.split())), redact(" ".join(line.fix.split())))
