"""The command line starts fast: the help needs no room of ours and no library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from backend.cli import command_of, parser

ROOT = Path(__file__).resolve().parent.parent.parent
#: Each costs more than building the whole parser does.
SLOW = {"pathlib", "shutil", "typing", "inspect", "dataclasses", "subprocess", "socket", "logging", "importlib.util"}
ASKED = """\
import sys
before = set(sys.modules)
from backend.cli import main
try:
    main({words!r})
except SystemExit as left:
    assert not left.code, left.code
print(*sorted(set(sys.modules) - before), file=sys.stderr)
"""


def imported_by(*words: str) -> set[str]:
    """Modules that a fresh interpreter without site-packages imports for this command."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", ASKED.format(words=words)], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "usage: watchkeeper" in done.stdout
    return set(done.stderr.split())


@pytest.mark.parametrize("words", [("--help",), ("serve", "--help"), ("nodes", "--help")])
def test_the_help_needs_no_room_of_ours_and_nothing_slow(words: tuple[str, ...]) -> None:
    found = imported_by(*words)
    assert {name for name in found if name.split(".")[0] in ("backend", "detectors", "frontend")} == {
        "backend",
        "backend.cli",
    }
    assert not found & SLOW


def test_a_path_given_or_defaulted_is_a_path() -> None:
    assert parser().parse_args(["demo"]).folder == Path("watchkeeper-demo")
    assert parser().parse_args(["serve", "--config", "a.toml"]).config == Path("a.toml")


def test_every_command_has_a_function_behind_it() -> None:
    for words in (["serve"], ["demo"], ["db", "upgrade"], ["users", "list"], ["tokens", "list"], ["nodes"]):
        assert callable(command_of(parser().parse_args(words)))
