"""The wrapper is read by Python 3.8, imports the standard library and three files of ours, and is one file."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.wrap import pyz
from tests.backend.wrap.wrapped import OOM, ROOT

#: Rooms that a whole run may import of ours, and nothing else.
OURS = {
    "backend",
    "backend.security",
    "backend.security.redact",
    "detectors",
    "detectors.joblog",
    "detectors.joblog.phrases",
    "detectors.joblog.rules",
}
FILES = [ROOT / name for name in pyz.members(str(ROOT)) if name.endswith(".py")]
#: What would make every job start later.
SLOW = {"typing", "re", "enum", "json", "argparse", "subprocess", "threading", "socket", "ssl", "email", "pathlib"}
#: Methods and functions that came after 3.8, by how they are written.
NEWER = (
    "removeprefix",
    "removesuffix",
    "pairwise",
    "with_stem",
    "bit_count",
    "cache(",
    "strict=",
    "TaskGroup",
    "files(",
)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_syntax_is_that_of_3_8(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    tree = ast.parse(text, feature_version=(3, 8))
    assert not [word for word in NEWER if word in text]
    for node in ast.walk(tree):
        if isinstance(node, ast.With):  # 3.8 takes no parentheses around several; the parser of today does not tell
            assert not text.splitlines()[node.lineno - 1].strip().startswith("with (")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_only_the_standard_library_and_three_files_of_ours_are_imported(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            known = name.partition(".")[0] in sys.stdlib_module_names | {"__future__"}
            assert known or name in OURS or name.partition("wrap")[0] == "backend.", name


def imported(*words: str, folder: Path) -> set[str]:
    """Modules of a whole run, told by the interpreter as it ends."""
    script = (
        "import os, sys\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "before = set(sys.modules)\n"
        "def leave(code):\n"
        "    os.write(2, ('\\nMODULES ' + ' '.join(sorted(set(sys.modules) - before))).encode())\n"
        "    end(code)\n"
        "end, os._exit = os._exit, leave\n"
        "from backend.wrap.wrap import main\n"
        f"main({list(words)!r})\n"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], cwd=folder, capture_output=True, timeout=60)
    return set(done.stderr.decode().rpartition("MODULES ")[2].split())


def test_a_run_that_ends_well_imports_next_to_nothing(tmp_path: Path) -> None:
    found = imported("--", "true", folder=tmp_path)
    assert "backend.wrap.streams" in found and not found & (SLOW - {"enum"})
    assert {name for name in found if name.startswith(("backend", "detectors", "frontend"))} <= {"backend"} | {
        f"backend.wrap{more}" for more in ("", ".wrap", ".words", ".place", ".streams", ".child")
    }


def test_a_run_that_fails_imports_the_rules_and_the_mask(tmp_path: Path) -> None:
    found = imported("--", "sh", "-c", f"echo '{OOM}'; exit 1", folder=tmp_path)
    ours = {name for name in found if name.startswith(("backend", "detectors", "frontend"))}
    assert {name for name in ours if not name.startswith("backend.wrap")} == OURS
    assert not found & {"ssl", "smtplib", "http.client", "email"}


# --- one file ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pyz") / "watchkeeper-wrap.pyz"
    pyz.build(str(made))
    return made


def test_the_same_sources_are_the_same_bytes(one: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.pyz"
    pyz.build(str(again))
    assert again.read_bytes() == one.read_bytes() and os.access(again, os.X_OK)


def pythons() -> Iterator[str]:
    """Every other Python from 3.8 on that this machine has; its own stands for all where it has none."""
    yield sys.executable
    for minor in range(8, 15):
        if found := shutil.which(f"python3.{minor}"):
            yield found
    yield from (str(path) for path in sorted(Path.home().glob(".pyenv/versions/3.*/bin/python3")))


def usable() -> list[str]:
    found = []
    for python in dict.fromkeys(pythons()):
        asked = subprocess.run([python, "-c", "import sys; print(sys.version_info >= (3, 8))"], capture_output=True)
        if asked.stdout.strip() == b"True":
            found.append(python)
    return found


@pytest.mark.parametrize("python", usable())
def test_one_file_runs_with_any_python_in_an_empty_environment(one: Path, tmp_path: Path, python: str) -> None:
    (tmp_path / "notes.txt").write_text("token=abcdefgh123456\n")
    script = f"echo out; echo '{OOM}' >&2; exit 3"
    words = [python, "-W", "error", "-I", "-S", str(one), "--artifacts", "*.txt", "--email", "a@example.com"]
    words += [
        "--smtp",
        "127.0.0.1:1",
        "--server",
        "http://127.0.0.1:1",
        "--patience",
        "3",
        "--",
        "/bin/sh",
        "-c",
        script,
    ]
    done = subprocess.run(words, cwd=tmp_path, env={}, capture_output=True, timeout=60)
    assert done.returncode == 3 and done.stdout == b"out\n" and OOM.encode() in done.stderr
    assert b"Warning" not in done.stderr and b"report failed" not in done.stderr
    (report,) = [json.loads(path.read_bytes()) for path in tmp_path.glob("watchkeeper-logs/sh-*/*.report.json")]
    assert report["class"] == "cuda_oom" and report["evidence"][0]["line"] in (1, 2)
    assert "abcdefgh" not in str(report) and len(list(tmp_path.glob("watchkeeper-logs/unsent/*.json"))) == 1


def older() -> list[str]:
    found = [str(path) for path in sorted(Path.home().glob(".pyenv/versions/[23].*/bin/python"))]
    asked = "import sys; print(sys.version_info < (3, 8))"
    return [one for one in found if b"True" in subprocess.run([one, "-c", asked], capture_output=True).stdout]


@pytest.mark.parametrize("python", older())
def test_an_older_python_runs_the_command_unwatched(one: Path, tmp_path: Path, python: str) -> None:
    words = [python, str(one), "--name", "x", "--", "sh", "-c", "echo ran; exit 5"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (5, b"ran\n") and b"runs unwatched" in done.stderr
    gone = subprocess.run([python, str(one), "--", "no-such-command"], capture_output=True, timeout=60)
    assert gone.returncode == 127


def test_one_file_that_is_replaced_while_the_command_runs_still_reports(one: Path, tmp_path: Path) -> None:
    mine = tmp_path / "w.pyz"
    shutil.copy(one, mine)
    other = "import zipfile; z = zipfile.ZipFile('new.pyz', 'w'); old = zipfile.ZipFile('w.pyz')\n"
    other += "z.writestr('0', b'0' * 5000); [z.writestr(n, old.read(n)) for n in old.namelist()]; z.close()\n"
    other += f"import os; os.replace('new.pyz', 'w.pyz'); os.write(2, b'{OOM}\\n'); os._exit(3)"
    words = [sys.executable, "-I", "-S", str(mine), "--", sys.executable, "-c", other]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, timeout=60)
    assert done.returncode == 3 and b"report failed" not in done.stderr
    assert len(list(tmp_path.glob("**/*.report.json"))) == 1


def test_make_wrap_builds_it() -> None:
    assert "-m backend.wrap.pyz watchkeeper-wrap.pyz" in (ROOT / "Makefile").read_text()


def test_the_command_of_the_package_is_the_same_wrapper(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from backend.cli import main; main()",
            "wrap",
            "--name",
            "n",
            "--",
            "sh",
            "-c",
            "exit 6",
        ],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        timeout=60,
    )
    assert done.returncode == 6 and list(tmp_path.glob("watchkeeper-logs/n-*/output.log"))
