"""How a job ended by other witnesses: torchelastic error files, states of Slurm and Kubernetes, exit codes, signals."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from detectors.joblog.rules import SIGNALS

#: End states and reasons (Slurm job states, Kubernetes pod reasons) and the class each one proves.
STATES = {
    "TIMEOUT": "time_limit",
    "DEADLINE": "time_limit",
    "DEADLINEEXCEEDED": "time_limit",
    "PREEMPTED": "preempted_or_cancelled",
    "CANCELLED": "preempted_or_cancelled",
    "REVOKED": "preempted_or_cancelled",
    "NODE_FAIL": "node_fail",
    "BOOT_FAIL": "node_fail",
    "NODELOST": "node_fail",
    "OUT_OF_MEMORY": "host_oom_killed",
    "OOMKILLED": "host_oom_killed",
    "LAUNCH_FAILED": "container_start_failure",
    "ERRIMAGEPULL": "container_start_failure",
    "IMAGEPULLBACKOFF": "container_start_failure",
    "CREATECONTAINERERROR": "container_start_failure",
    "CONTAINERCANNOTRUN": "container_start_failure",
    "UNSCHEDULABLE": "unschedulable_resources",
}
WELL = frozenset({"COMPLETED", "SUCCEEDED"})
MAX_ERROR_FILE = 1 << 20


@dataclass(frozen=True, slots=True)
class End:
    """``log_class``: what the end alone proves, or "". ``said``: in the words of its witness."""

    log_class: str = ""
    well: bool = False
    failed: bool = False
    said: str = ""


def end_of(state: str = "", exit_code: int | None = None, signal: int | None = None) -> End:
    """``CANCELLED by 1000``, ``OUT_OF_MEMORY``, ``OOMKilled``; exit codes as a shell gives them (128 + signal)."""
    words = re.split(r"[\s,+|]", state.strip())
    word = words[0].upper() if words else ""
    if signal is None and exit_code is not None and (exit_code < 0 or 128 < exit_code <= 160):
        signal = -exit_code if exit_code < 0 else exit_code - 128
    said = ", ".join(
        part
        for part in (
            state.strip(),
            f"exit code {exit_code}" if exit_code is not None else "",
            f"signal {signal}" if signal else "",
        )
        if part
    )
    log_class = STATES.get(word, "") or (SIGNALS.get(signal, "") if signal else "")
    well = word in WELL or (not word and exit_code == 0 and not signal)
    failed = bool(log_class) or bool(signal) or bool(exit_code) or word in ("FAILED", "ERROR")
    return End(log_class, well and not failed, failed and word not in WELL, said)


def error_file_lines(raw: bytes) -> Iterable[str]:
    """The message of a torchelastic error.json as the lines of a log, or nothing where it is none. Never raises."""
    try:
        record = json.loads(raw[:MAX_ERROR_FILE])
    except (ValueError, RecursionError):
        return ()
    message = record.get("message") if isinstance(record, dict) else None
    return tuple(_words(message, 0))


def _words(message: Any, depth: int) -> Iterable[str]:
    """A message is a text, or a mapping with one, and with the whole traceback beside it."""
    if isinstance(message, str):
        yield from message.splitlines()
    elif isinstance(message, dict) and depth < 4:
        extra = message.get("extraInfo") or message.get("extra_info")
        stack = extra.get("py_callstack") if isinstance(extra, dict) else None
        yield from _words(stack, depth + 1) if stack else _words(message.get("message"), depth + 1)
