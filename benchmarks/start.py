"""A cold start of the command line, up to its help, against an interpreter that does nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.ratio import Ratio, measure

ROOT = Path(__file__).resolve().parent.parent
PAIRS, LONGEST_S = 40, 30.0


def run() -> Iterator[Ratio]:
    """Promise: at most 3 times an interpreter that does nothing."""
    help_of = starter("-m", "backend.cli", "--help")
    yield measure("watchkeeper --help", "python -c pass", help_of, starter("-c", "pass"), n=PAIRS)


def starter(*words: str) -> Callable[[], object]:
    """One whole process of this interpreter."""
    command = [sys.executable, *words]
    return lambda: subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True, timeout=LONGEST_S
    )
