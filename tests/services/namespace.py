"""Networking cut: the words before a command that run it in a network namespace of its own, with loopback down."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.services.need import need


def cut_off() -> list[str]:
    """As root, or in a user namespace where the kernel allows them. Neither: the test skips; in CI it fails."""
    program = need("unshare", "util-linux")
    for flags in (["-n"], ["-r", "-n"]):
        if subprocess.run([program, *flags, "true"], capture_output=True, timeout=10).returncode == 0:
            return [program, *flags]
    lacking = "no network namespace may be made here; to run this test be root, or allow user namespaces"
    if os.environ.get("CI") == "true":
        pytest.fail(lacking, pytrace=False)
    pytest.skip(lacking)
