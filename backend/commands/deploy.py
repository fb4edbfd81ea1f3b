"""`watchkeeper deploy`: the files that put Watchkeeper on a host or a cluster; they travel inside the wheel."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

#: Next to the packages, so that a site without internet has them where it has the wheel.
FILES = Path(__file__).resolve().parent.parent / "deploy"


def deploy(arguments: argparse.Namespace) -> int:
    """Lists the sets of files, prints a lone one, or writes one to ``--out``; never over a file that is there."""
    sets = sorted(folder.name for folder in FILES.iterdir() if folder.is_dir())
    if not arguments.name:
        for name in sets:
            print(f"{name}: {', '.join(str(path) for path in files_of(name))}")
        return 0
    if arguments.name not in sets:
        return _sorry(f"there is no {arguments.name!r} to deploy; there are {', '.join(sets)}")
    if arguments.out is None:
        return _printed(arguments.name)
    return _written(arguments.name, arguments.out)


def files_of(name: str) -> list[Path]:
    """Paths of one set, below its folder, in order."""
    folder = FILES / name
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def _printed(name: str) -> int:
    paths = files_of(name)
    if len(paths) != 1:
        return _sorry(f"{name} is {len(paths)} files; say where they shall stand: --out FOLDER")
    print((FILES / name / paths[0]).read_text(encoding="utf-8"), end="")
    return 0


def _written(name: str, out: Path) -> int:
    there = [path for path in files_of(name) if (out / path).exists()]
    if there:
        return _sorry(f"{out / there[0]} is there already; nothing was written. Move it away, or name another folder")
    for path in files_of(name):
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        (out / path).write_bytes((FILES / name / path).read_bytes())
        (out / path).chmod((FILES / name / path).stat().st_mode & 0o755 | 0o600)
        print(out / path)
    return 0


def _sorry(words: str) -> int:
    print(f"watchkeeper deploy: {words}", file=sys.stderr)
    return 1
