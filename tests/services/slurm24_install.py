"""Slurm 24.11 of Debian 13 in a folder of its own, from the mirror that this machine's apt already uses; as root."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

#: The release, and what of it is installed: apt names only.
RELEASE = "trixie"
PACKAGES = (
    "slurmctld", "slurmd", "slurmdbd", "slurmrestd", "slurm-client", "slurm-wlm-plugins", "slurm-wlm-jwt-plugin",
    "munge",
)  # fmt: skip
#: Folders of the machine that programs inside need.
MOUNTS = ("proc", "dev", "sys", "tmp")


def mirror() -> str:
    """Where this machine's own apt gets Debian from. Raises SystemExit where it names no Debian mirror."""
    asked = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN) $(COMPONENT)"]
    said = subprocess.run(asked, check=True, capture_output=True, text=True, timeout=60).stdout
    for line in said.splitlines():
        uri, _, rest = line.partition(" ")
        if rest.split()[:2] == ["Debian", "main"] and "security" not in uri:
            return uri
    raise SystemExit("apt on this machine names no mirror of Debian; see /etc/apt/sources.list")


def install(folder: Path) -> None:
    """Brings ``folder`` to where its programs run; what is there already stays. Raises CalledProcessError."""
    if os.geteuid() != 0:
        raise SystemExit("a chroot needs root")
    get = ["apt-get", "install", "-y", "-qq", "--no-install-recommends"]
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    if shutil.which("debootstrap") is None:
        subprocess.run([*get, "debootstrap"], check=True, env=quiet)
    if not (folder / "usr/bin/apt-get").exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["debootstrap", "--variant=minbase", RELEASE, str(folder), mirror()], check=True, env=quiet)
    _prepare(folder)
    if not (folder / "usr/sbin/slurmrestd").exists():
        for command in (["apt-get", "update", "-qq"], [*get, *PACKAGES]):
            subprocess.run(["chroot", str(folder), *command], check=True, env=quiet)


def _prepare(folder: Path) -> None:
    """Mounts, names and the proxy that programs inside need; no daemon starts by itself."""
    for name in MOUNTS:
        if not mounted(folder / name):
            how = {"proc": ["-t", "proc", "proc"], "tmp": ["--bind", "/tmp"]}.get(name, ["--rbind", f"/{name}"])
            subprocess.run(["mount", *how, str(folder / name)], check=True)
            if name in ("dev", "sys"):
                subprocess.run(["mount", "--make-rslave", str(folder / name)], check=True)
    policy = folder / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    (folder / "etc/hosts").write_text(f"127.0.0.1 localhost {socket.gethostname().split('.')[0]}\n")
    for path in Path("/etc/apt/apt.conf.d").glob("*proxy*"):
        shutil.copy(path, folder / "etc/apt/apt.conf.d")


def mounted(place: Path) -> bool:
    """As the kernel says: os.path.ismount does not see a folder that is bound from the same file system."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return str(place.resolve()) in {line.split()[4] for line in lines}


def remove_mounts(folder: Path) -> None:
    """Takes the mounts away again (``--leave``); before this, nobody may remove the folder."""
    for name in reversed(MOUNTS):
        while mounted(folder / name):
            subprocess.run(["umount", "-R", "-l", str(folder / name)], check=True)


if __name__ == "__main__":
    (remove_mounts if "--leave" in sys.argv else install)(Path(sys.argv[1]))
