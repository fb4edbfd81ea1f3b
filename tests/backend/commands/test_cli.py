"""The command line starts fast, knows its words, and says what is wrong in one line."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from backend.cli import main, parser

ROOT = Path(__file__).resolve().parents[3]
HEAVY = ("numpy", "sqlalchemy", "sqlmodel", "fastapi", "uvicorn", "plotly", "pydantic", "scipy")
#: Runs the command line in a fresh interpreter and prints which heavy modules that took.
PROBE = f"""\
import sys
from backend.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print("loaded:", *[name for name in {HEAVY!r} if name in sys.modules])
"""


def loaded(*words: str) -> list[str]:
    run = subprocess.run(
        [sys.executable, "-c", PROBE, *words], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    return run.stdout.splitlines()[-1].removeprefix("loaded:").split()


def commands() -> list[str]:
    """Every command as it is typed: ``serve``, ``users add`` ..."""
    return [" ".join(words) for words in _words(parser(), ())]


def _words(of: argparse.ArgumentParser, before: tuple[str, ...]) -> list[tuple[str, ...]]:
    inner = [a for a in of._actions if isinstance(a, argparse._SubParsersAction)]
    if not inner:
        return [before]
    return [found for name, sub in inner[0].choices.items() for found in _words(sub, (*before, name))]


def test_help_imports_nothing_heavy() -> None:
    assert loaded("--help") == []
    assert loaded("users", "--help") == []


def test_asking_a_server_imports_nothing_heavy() -> None:
    assert loaded("exclusions", "--server", "http://127.0.0.1:9", "--format", "hostlist") == []


@pytest.mark.parametrize("words", [*commands(), ""])
def test_every_command_has_help(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words.split(), "--help"])
    assert ended.value.code == 0
    named = {"tokens create": "tokens add"}.get(words, words)  # two names of one command
    assert capsys.readouterr().out.startswith(f"usage: watchkeeper {named}".rstrip())


@pytest.mark.parametrize(
    "words",
    ["", "sing", "users", "users add", "users add bob --role king", "tokens add x --scope root", "serve --port nine"],
)
def test_wrong_words_end_with_2_and_say_how_it_is_used(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    assert "usage: watchkeeper" in capsys.readouterr().err


def test_ctrl_c_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("backend.commands.ask.nodes", interrupted)
    assert main(["nodes"]) == 130
