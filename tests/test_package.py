"""What the wheel carries, and what installs it: every package, page and table of ours, from pinned wheels."""

from __future__ import annotations

import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.services.need import need

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


def test_every_file_that_is_no_module_is_in_the_wheel() -> None:
    """Templates, tables, styles and migrations ride as package data: each must be under a pattern of its package."""
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    carried: set[Path] = set()
    for package, patterns in named["package-data"].items():
        folder = ROOT / named["package-dir"].get(package, package.replace(".", "/"))
        for pattern in patterns:
            found = {file for file in folder.glob(pattern.replace("**", "**/*")) if file.is_file()}
            assert found, f"{package}: {pattern} carries nothing"
            carried |= found
    lacking = {str(file.relative_to(ROOT)) for file in others() if file not in carried}
    assert not lacking, "name them in [tool.setuptools.package-data]"


def others() -> list[Path]:
    """Files of our packages, and of alembic/, that git knows or would know and that are no modules."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", *ROOMS, "alembic"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    files = [ROOT / name for name in listed.stdout.split() if not name.endswith((".py", ".md", "/README"))]
    return [file for file in files if file.exists()]


# --- installing without internet --------------------------------------------------------------------------------------


def dry_run(*words: str) -> str:
    """What make would do."""
    done = subprocess.run([need("make", "make"), "-n", *words], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout.replace("\\\n", " ")


def test_an_install_from_a_wheelhouse_has_no_index_and_one_place_to_look(tmp_path: Path) -> None:
    (line,) = [row for row in dry_run("install", f"WHEELHOUSE={tmp_path}", "VENV=none").splitlines() if " pip " in row]
    words = line.split()
    assert "--no-index" in words and words[words.index("--find-links") + 1] == f"'{tmp_path}'"
    # The build backend is installed by a pip of its own, which only the environment reaches.
    assert {"PIP_CONFIG_FILE=/dev/null", "PIP_NO_INDEX=1", f"PIP_FIND_LINKS='{tmp_path}'"} <= set(words)
    assert "://" not in line


def test_an_install_without_a_wheelhouse_takes_the_index_of_the_machine() -> None:
    assert "no-index" not in dry_run("install", "VENV=none") and "PIP_" not in dry_run("install", "VENV=none")


def test_a_wheelhouse_without_our_wheel_is_said_and_nothing_is_installed(tmp_path: Path) -> None:
    command = [need("make", "make"), "install", f"WHEELHOUSE={tmp_path}", f"VENV={tmp_path / 'none'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert done.returncode != 0 and "run make wheelhouse" in done.stderr
    assert not (tmp_path / "none").exists()


def test_a_wheelhouse_holds_every_pin_and_our_own_wheel_built_from_it_alone() -> None:
    pinned, own = [row.split() for row in dry_run("wheelhouse").splitlines() if " pip wheel " in row]
    assert "--no-deps" in pinned and pinned[pinned.index("-r") + 1] == "constraints.txt"
    assert own[-1] == "." and "--no-index" in own and "PIP_NO_INDEX=1" in own


def test_the_pins_are_all_that_an_install_and_its_build_need() -> None:
    """Walks the requirements of what is installed here, from ours on."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    wanted += project["project"]["optional-dependencies"]["dev"]
    pins = dict(map(pin, (ROOT / "constraints.txt").read_text().splitlines()))
    todo, seen = [Requirement(text) for text in wanted], set[str]()
    while todo:
        asked = todo.pop()
        name = canonicalize_name(asked.name)
        assert name in pins, f"{asked} is not in constraints.txt"
        assert asked.specifier.contains(pins[name], prereleases=True), f"{asked}, but constraints.txt has {pins[name]}"
        if (key := f"{name}{sorted(asked.extras)}") not in seen:
            seen.add(key)
            todo += [more for more in requirements(name) if holds(more, asked.extras)]
    assert set(pins) == {key.split("[")[0] for key in seen}, "constraints.txt pins what nothing needs"


def pin(line: str) -> tuple[str, str]:
    """Name and version of one line of constraints.txt; a condition may stand behind a semicolon."""
    name, _, version = line.partition(";")[0].strip().partition("==")
    return canonicalize_name(name), version


def requirements(name: str) -> list[Requirement]:
    try:
        return [Requirement(text) for text in metadata.requires(name) or ()]
    except metadata.PackageNotFoundError:
        return []  # the build backend need not be installed here


def holds(asked: Requirement, extras: set[str]) -> bool:
    return asked.marker is None or any(asked.marker.evaluate({"extra": extra}) for extra in ("", *extras))
