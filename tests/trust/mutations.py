"""`make test-mutations`: each row's change of the code, made in a copy, and its test, which must notice."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.trust.replicas import ROOT

TABLE = Path(__file__).with_name("asvs.toml")
PACKAGES = ("backend", "detectors", "frontend", "tests", "alembic")
WITHIN_S = 900


@dataclass(frozen=True, slots=True)
class Row:
    """A requirement; what to change in ``file`` so that ``test`` must fail."""

    id: str
    what: str
    file: str
    before: str
    after: str
    test: str


def rows() -> list[Row]:
    return [Row(**row) for row in tomllib.loads(TABLE.read_text(encoding="utf-8"))["row"]]


def copied(folder: Path) -> None:
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (*ROOT.glob("*.toml"), *ROOT.glob("*.md"), *ROOT.glob("*.txt"), *ROOT.glob("*.yml")):
        shutil.copy(path, folder / path.name)


def notices(folder: Path, row: Row) -> bool:
    """Whether the row's test fails on the changed copy, which is as before afterwards."""
    path = folder / row.file
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole.replace(row.before, row.after, 1), encoding="utf-8")
    try:
        return not passes(folder, row.test)
    finally:
        path.write_text(whole, encoding="utf-8")


def passes(folder: Path, *tests: str) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    return subprocess.run(command, cwd=folder, capture_output=True, timeout=WITHIN_S, check=False).returncode == 0


def main(words: Sequence[str]) -> int:
    """``words``: only the rows of these ids."""
    chosen = [row for row in rows() if not words or row.id in words]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copied(folder)
        if not passes(folder, *sorted({row.test for row in chosen})):
            print("a test fails already without any change: mend that first", file=sys.stderr)
            return 2
        unnoticed = []
        for row in chosen:
            seen = notices(folder, row)
            print(f"{'noticed  ' if seen else 'UNNOTICED'} {row.id:7} {row.what}", flush=True)
            unnoticed += [] if seen else [row.id]
    print(f"{len(chosen) - len(unnoticed)} of {len(chosen)} changes are noticed by their test")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
