"""A copy of the tree and a wheelhouse made in it, both once a run; the checkout itself is left alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
MAKE_S, RUN_S = 900, 120


def run(
    command: Sequence[str | Path], folder: Path, within_s: float = RUN_S, **environ: str
) -> subprocess.CompletedProcess[str]:
    """One command in ``folder``; fails with what it said."""
    env = {**os.environ, **environ}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=within_s, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done


def copied(into: Path) -> Path:
    """What git knows or would know: no build, no environment, no database."""
    listed = run(["git", "ls-files", "-co", "--exclude-standard", "-z"], ROOT).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, into / name)
    return into


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copied(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="session")
def wheelhouse(tree: Path) -> Path:
    """``make wheelhouse`` with the pip of this environment; the one step that may use the network."""
    run(["make", "wheelhouse", f"VENV={sys.prefix}"], tree, MAKE_S)
    return tree / "wheelhouse"
