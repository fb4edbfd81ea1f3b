"""A program that a test needs: its path, or a loud skip with the command that mends it; in CI a failure."""

from __future__ import annotations

import os
import shutil

import pytest


def need(program: str, package: str) -> str:
    """Path of ``program``. Missing: the test skips and says how to install ``package``; with CI=true it fails."""
    path = shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin:/usr/local/sbin")
    if path is not None:
        return path
    words = f"{program} is missing; to run this test: sudo apt-get install -y --no-install-recommends {package}"
    if os.environ.get("CI") == "true":
        pytest.fail(words, pytrace=False)
    pytest.skip(words)
