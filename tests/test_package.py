"""What the wheel carries: every package of ours, and alembic/ as backend.migrations."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("detectors", "backend", "frontend")


def test_every_package_is_named_in_pyproject() -> None:
    found = {
        ".".join(file.parent.relative_to(ROOT).parts) for room in ROOMS for file in (ROOT / room).rglob("__init__.py")
    }
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert set(named["packages"]) == found | {"backend.migrations", "backend.migrations.versions"}, (
        "add or remove it in [tool.setuptools] packages"
    )
    assert named["package-dir"] == {"backend.migrations": "alembic"}
