"""Install without internet, and one wheel that runs anywhere. Slow: ``make test-install``."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.install.conftest import MAKE_S, ROOT, copied, run
from tests.services.namespace import cut_off

pytestmark = pytest.mark.slow
START_S = 90.0
#: A proxy that nobody could reach, and indexes nobody could read: what a site's own settings may name.
HOSTILE = {
    "PIP_INDEX_URL": "http://192.0.2.1/simple",
    "PIP_EXTRA_INDEX_URL": "http://192.0.2.1/more",
    "PIP_FIND_LINKS": "http://192.0.2.1/wheels",
    "PIP_RETRIES": "0",
}
NODE = {
    "name": "gpu-0001",
    "rack": "r1",
    "switch": "s1",
    "gpus": [{"index": 0, "uuid": "GPU-a", "pci_bus_id": "00000000:1B:00.0"}],
}
LINE = {
    "ts": 1770118780.5,
    "host": "gpu-0001",
    "source": "kernel",
    "line": "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.",
}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="module")
def elsewhere(wheelhouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean environment with our wheel alone, in a folder that holds nothing of ours."""
    folder = tmp_path_factory.mktemp("elsewhere")
    run([sys.executable, "-m", "venv", "venv"], folder)
    words = ["install", "--no-index", "--find-links", str(wheelhouse), "watchkeeper"]
    run([*cut_off(), str(folder / "venv/bin/python"), "-m", "pip", *words], folder, MAKE_S, PIP_CONFIG_FILE="/dev/null")
    return folder


def test_the_wheelhouse_holds_the_pinned_wheels_and_ours_and_nothing_else(wheelhouse: Path) -> None:
    lines = [line.partition(";")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    pins = [line.split("==") for line in lines]
    wanted = {(normal(name), version) for name, version in pins}
    held = {(normal(f.name.split("-")[0]), f.name.split("-")[1]) for f in wheelhouse.iterdir()}
    assert {version for name, version in held if name == "watchkeeper"}
    assert {pair for pair in held if pair[0] != "watchkeeper"} == wanted


def test_make_install_needs_no_network_whatever_the_site_configures(
    wheelhouse: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tree = copied(tmp_path_factory.mktemp("offline"))
    command = ["make", "install", f"WHEELHOUSE={wheelhouse}", "VENV=.venv", f"PYTHON={sys.executable}"]
    said = run([*cut_off(), *command], tree, MAKE_S, **HOSTILE)
    assert "192.0.2.1" not in said.stdout + said.stderr
    assert "usage: watchkeeper" in run([tree / ".venv/bin/watchkeeper", "--help"], tree).stdout
    run([tree / ".venv/bin/python", "-m", "pip", "check"], tree)
    run(["make", "--question", "install"], tree)  # a second one, without the folder, has nothing to do


def test_the_wheel_holds_every_module_table_page_and_migration(tree: Path, wheelhouse: Path) -> None:
    (wheel,) = wheelhouse.glob("watchkeeper-*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    files = (path for top in ("detectors", "backend", "frontend", "alembic") for path in (tree / top).rglob("*"))
    names = {path.relative_to(tree).as_posix() for path in files if path.is_file() and "__pycache__" not in path.parts}
    ours = {re.sub(r"^alembic/", "backend/migrations/", name) for name in names}
    assert held == {name for name in ours if not name.endswith(("/README", ".md"))}


def test_the_wheel_shows_its_help_and_makes_its_tables_elsewhere(elsewhere: Path) -> None:
    program = elsewhere / "venv/bin/watchkeeper"
    assert "usage: watchkeeper" in run([program, "--help"], elsewhere).stdout
    assert "is up to date" in run([program, "db", "upgrade"], elsewhere).stdout
    assert (elsewhere / "watchkeeper-data/watchkeeper.db").exists()


def test_the_wheel_replays_a_bundle_elsewhere(elsewhere: Path) -> None:
    bundle = elsewhere / "bundle"
    (bundle / "logs").mkdir(parents=True)
    (bundle / "bundle.json").write_text('{"version": 1, "cluster": "main", "start": 1770118680, "end": 1770118980}')
    (bundle / "topology.json").write_text(json.dumps({"nodes": [NODE]}))
    (bundle / "logs/kernel.jsonl").write_text(json.dumps(LINE) + "\n")
    run([elsewhere / "venv/bin/watchkeeper", "replay", bundle, "--out", elsewhere / "out"], elsewhere)
    (incident,) = (elsewhere / "out/incidents.jsonl").read_text().splitlines()
    assert json.loads(incident)["kind"] == "gpu_bus_loss"


def test_the_wheel_examines_the_machine_elsewhere(elsewhere: Path) -> None:
    said = run([elsewhere / "venv/bin/watchkeeper", "doctor", "--json"], elsewhere, WATCHKEEPER_SERVER__PORT="0")
    assert json.loads(said.stdout)["ok"] is True


def test_the_wheel_runs_the_demo_elsewhere_and_every_file_of_its_page_answers(elsewhere: Path) -> None:
    with demo(elsewhere) as url:
        page = read(url)
        assert "<html" in page and "simulated" in page
        files = set(re.findall(r"""(?:src|href)="(/static/[^"]+)""", page))
        assert files
        for name in files:
            assert read(url.rstrip("/") + name)


@contextmanager
def demo(folder: Path) -> Iterator[str]:
    command = [str(folder / "venv/bin/watchkeeper"), "demo", "--port", "0"]
    with (folder / "demo.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield address(folder / "demo.log", process)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def address(log: Path, process: subprocess.Popen[bytes]) -> str:
    """Where the demo listens, once its page answers."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        if found := re.search(r"listens on (http://\S+)", log.read_text()):
            try:
                read(found[1])
                return found[1]
            except OSError:
                pass
        time.sleep(0.2)
    raise AssertionError(f"no page within {START_S:g} s\n{log.read_text()[-3000:]}")


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return str(answer.read().decode(errors="replace"))
