"""Builds watchkeeper-wrap.pyz: the wrapper as one file for compute nodes, the same bytes from the same sources."""

from __future__ import annotations

import os
import sys
import zipfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

#: What is carried beside this folder: the mask of secrets, the rules and their table.
CARRIED = (
    "backend/__init__.py",
    "backend/security/__init__.py",
    "backend/security/redact.py",
    "detectors/__init__.py",
    "detectors/joblog/__init__.py",
    "detectors/joblog/phrases.py",
    "detectors/joblog/rules.py",
    "detectors/tables/joblog_rules.toml",
)
#: Not needed on a compute node.
LEFT_OUT = ("pyz.py", "__main__.py")
#: An older Python, as some systems still have, runs the command all the same.
MAIN = b"""\
import os
import sys

if sys.version_info >= (3, 8):
    from backend.wrap.wrap import main

    main()
words = sys.argv[1:]
command = words[words.index("--") + 1 :] if "--" in words else []
sys.stderr.write("watchkeeper wrap: needs Python 3.8 or newer and this is %d.%d; " % sys.version_info[:2])
sys.stderr.write("the command runs unwatched\\n" if command else "write the command behind --\\n")
sys.stderr.flush()
if not command:
    sys.exit(2)
try:
    os.execvp(command[0], command)
except OSError as error:
    sys.stderr.write("watchkeeper wrap: %s: %s\\n" % (command[0], error.strerror))
    sys.exit(127 if error.errno == 2 else 126)
"""
#: What the kernel reads before the archive: any Python from 3.8 on, without the site's own packages.
FIRST_LINE = b"#!/usr/bin/env python3\n"
#: The earliest time that an archive can hold; real ones would change its bytes.
AT = (1980, 1, 1, 0, 0, 0)


def build(path: str) -> None:
    """Write the archive; raises OSError."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    with open(path + ".new", "wb") as file:
        file.write(FIRST_LINE)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            _add(archive, "__main__.py", MAIN)
            for name in members(root):
                with open(os.path.join(root, name), "rb") as source:
                    _add(archive, name, source.read())
    os.chmod(path + ".new", 0o755)  # nosec B103: a program for everybody, and nothing secret in it
    os.replace(path + ".new", path)


def members(root: str) -> Iterator[str]:
    """Names in the archive, in order."""
    own = sorted(name for name in os.listdir(os.path.join(root, "backend", "wrap")) if name.endswith(".py"))
    yield from sorted([*CARRIED, *(f"backend/wrap/{name}" for name in own if name not in LEFT_OUT)])


def _add(archive: zipfile.ZipFile, name: str, text: bytes) -> None:
    entry = zipfile.ZipInfo(name, AT)
    entry.create_system, entry.external_attr = 3, 0o644 << 16
    archive.writestr(entry, text)


if __name__ == "__main__":
    build(sys.argv[1] if len(sys.argv) > 1 else "watchkeeper-wrap.pyz")
