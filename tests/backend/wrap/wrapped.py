"""A wrapper in a process of its own, in a folder of its own, as a job would start it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
LONGEST_S = 60.0
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB."


@dataclass(frozen=True)
class Done:
    code: int
    out: bytes
    err: bytes
    took_s: float


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Nothing of the machine's scheduler, nor of the test's own environment."""
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": "/nonexistent", **(more or {})}


def command(*words: str) -> list[str]:
    return [sys.executable, "-S", "-m", "backend.wrap", *words]


def start(folder: Path, *words: str, env: Mapping[str, str] | None = None, **more: Any) -> subprocess.Popen[bytes]:
    given: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more
    process: subprocess.Popen[bytes]
    process = subprocess.Popen(command(*words), cwd=folder, env=environment(env), text=False, **given)
    return process


def wrap(folder: Path, *words: str, env: Mapping[str, str] | None = None, **more: Any) -> Done:
    began = time.monotonic()
    process = start(folder, *words, env=env, **more)
    try:
        out, err = process.communicate(timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return Done(process.returncode, out or b"", err or b"", time.monotonic() - began)


def shell(folder: Path, script: str, *words: str, env: Mapping[str, str] | None = None, **more: Any) -> Done:
    return wrap(folder, *words, "--", "sh", "-c", script, env=env, **more)


def python(folder: Path, script: str, *words: str, env: Mapping[str, str] | None = None, **more: Any) -> Done:
    return wrap(folder, *words, "--", sys.executable, "-c", script, env=env, **more)


def logs(folder: Path) -> list[Path]:
    return sorted(folder.glob("**/*.log"))


def log(folder: Path) -> bytes:
    (one,) = logs(folder)
    return one.read_bytes()


def reports(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(path.read_bytes())
        for path in sorted(folder.glob("**/*.report.json"))
        if path.parent.name != "unsent"
    ]


def report(folder: Path) -> dict[str, Any]:
    (one,) = reports(folder)
    return one


def until(true: Callable[[], object], within_s: float = 20.0) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def lines(process: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """Lines of its stdout as they come."""
    assert process.stdout is not None
    return iter(process.stdout.readline, b"")
