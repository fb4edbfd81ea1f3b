"""A program that a test needs: its path, or a loud skip with the command that mends it; in CI a failure."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

#: Where Debian keeps programs that are not on everybody's PATH.
PLACES = ("/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/lib/postgresql/*/bin", "/usr/lib/systemd")


def find(program: str) -> Path | None:
    """The program on PATH, else in PLACES (the latest version), else None."""
    if found := shutil.which(program):
        return Path(found)
    there = [p for place in PLACES for p in sorted(Path("/").glob(f"{place[1:]}/{program}"), key=_version)]
    return there[-1] if there else None


def need(program: str, package: str) -> str:
    """Path of ``program``. Missing: the test skips and says how to install ``package``; with CI=true it fails."""
    if found := find(program):
        return str(found)
    lacking = f"{program} is missing; to run this test: sudo apt-get install -y --no-install-recommends {package}"
    if os.environ.get("CI") == "true":
        pytest.fail(lacking, pytrace=False)
    pytest.skip(lacking)


def _version(path: Path) -> tuple[float, ...]:
    return tuple(float(part) for part in path.parts if part.replace(".", "", 1).isdigit())
