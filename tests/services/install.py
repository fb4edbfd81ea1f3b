"""Installs the programs that service tests need, in CI or where asked to; elsewhere says what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.services.need import find

#: program -> Debian package
PROGRAMS = {
    "prometheus": "prometheus",
    "prometheus-alertmanager": "prometheus-alertmanager",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "scontrol": "slurm-client",
    "slurmdbd": "slurmdbd",
    "slurmrestd": "slurmrestd",
    "mariadbd": "mariadb-server",
    "munged": "munge",
    "chromium": "chromium",
    "systemd-journal-remote": "systemd-journal-remote",
}
EXTRA = ("slurm-wlm-basic-plugins", "slurm-wlm-jwt-plugin", "slurm-wlm-mysql-plugin", "fonts-dejavu-core")
POSTGRES = Path("/usr/lib/postgresql")


def missing() -> list[str]:
    """Debian packages whose program is not on this machine."""
    packages = [package for program, package in PROGRAMS.items() if find(program) is None]
    if not any(POSTGRES.glob("*/bin/initdb")):
        packages.append("postgresql")
    if {"slurmctld", "slurmdbd", "slurmrestd", "chromium"} & set(packages):
        packages += EXTRA
    return packages


def may_install() -> bool:
    """Only where asked to (CI=true or WATCHKEEPER_TEST_INSTALL=1), as root, and never on a machine that runs Slurm."""
    asked = os.environ.get("CI") == "true" or os.environ.get("WATCHKEEPER_TEST_INSTALL") == "1"
    return asked and os.geteuid() == 0 and not Path("/etc/slurm").exists() and bool(shutil.which("apt-get"))


def main() -> int:
    wanted = missing()
    if not wanted:
        return 0
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *wanted]
    if not may_install():
        print(f"tests that need {', '.join(wanted)} will be skipped; to have them run: sudo {' '.join(command)}")
        return 0
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], env=quiet, check=True, timeout=300)
    return subprocess.run(command, env=quiet, check=False, timeout=900, stdout=subprocess.DEVNULL).returncode


if __name__ == "__main__":
    sys.exit(main())
