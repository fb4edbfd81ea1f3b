"""What `deploy slurm` puts on compute nodes: asked of a server that really answers, and run by a real Slurm."""

from __future__ import annotations

import http.server
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import requests

from backend.cli import main
from backend.clock import SystemClock
from backend.commands.deploy import FILES
from backend.model.actions import Exclusion
from tests.backend.commands.conftest import Served
from tests.services.need import need
from tests.services.slurm import SlurmCluster, slurm

Ran = subprocess.CompletedProcess[str]


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """The folder of the scripts, as it lies on a node."""
    need("curl", "curl")
    found = tmp_path / "slurm"
    shutil.copytree(FILES / "slurm", found)
    return found


def exclude(served: Served, node: str, reason: str = "riser is swapped", scope: str = "") -> int:
    now = SystemClock().now()
    row = Exclusion(cluster="main", node=node, owner="dana", origin="person", reason=reason, scope=scope)
    row.created_at, row.until = now, now + timedelta(hours=1)
    with served.parts.store.write() as session:
        session.add(row)
        session.flush()
        number = int(row.id or 0)
    known(served, number, True)
    return number


def lift(served: Served, number: int) -> None:
    with served.parts.store.write() as session:
        session.get_one(Exclusion, number).lifted_at = SystemClock().now()
    known(served, number, False)


def known(served: Served, number: int, there: bool) -> None:
    """Until the server tells what another process wrote: a second at most."""
    deadline = time.monotonic() + 20
    while (number in listed(served)) is not there:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def listed(served: Served) -> set[int]:
    found = requests.get(f"{served.url}/api/v1/exclusions", timeout=20).json()["items"]
    return {int(row["id"]) for row in found}


def ask(scripts: Path, url: str, *words: str, **env: str) -> Ran:
    command = [str(scripts / "watchkeeper-ask.sh"), *words]
    told = {**os.environ, "WATCHKEEPER_URL": url, "WATCHKEEPER_TIMEOUT_S": "20", **env}
    return subprocess.run(command, env=told, capture_output=True, text=True, timeout=30, check=False)


def test_a_node_is_let_through_unless_something_binds(scripts: Path, served: Served) -> None:
    assert ask(scripts, served.url, "gpu-0000").returncode == 0
    exclude(served, "gpu-0000", 'says "binding":false, and more')
    done = ask(scripts, served.url, "gpu-0000", "41207")
    assert done.returncode == 1 and done.stdout.startswith("watchkeeper: Excluded by dana: says"), done
    exclude(served, "gpu-0001", scope="job:41207")
    assert ask(scripts, served.url, "gpu-0001").returncode == 0
    assert ask(scripts, served.url, "gpu-0001", "4").returncode == 0
    assert ask(scripts, served.url, "gpu-0001", "41207").returncode == 1
    assert ask(scripts, served.url, "gpu-0000", WATCHKEEPER_CLUSTER="main").returncode == 1


@pytest.mark.parametrize("words", [(), ("a b",), ("$(id)",), ("gpu-0000", "1;2")])
def test_what_is_no_name_is_never_asked(scripts: Path, words: tuple[str, ...]) -> None:
    assert ask(scripts, "http://127.0.0.1:9", *words).returncode == 2


@pytest.fixture
def stranger() -> Iterator[str]:
    """A server that is no Watchkeeper, and answers 200 to everything."""

    class Hello(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>hello</html>")

        def log_message(self, format: str, *args: object) -> None:
            return

    server = http.server.HTTPServer(("127.0.0.1", 0), Hello)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join(10)


def test_it_fails_open_and_says_so(scripts: Path, served: Served, stranger: str) -> None:
    token = scripts / "token"
    token.write_text("wk_nobody\n")
    for url, env in (
        ("http://127.0.0.1:9", {}),
        (stranger, {}),
        (served.url, {"WATCHKEEPER_TOKEN_FILE": str(token)}),
        (served.url, {"WATCHKEEPER_TOKEN_FILE": str(scripts / "none")}),
    ):
        done = ask(scripts, url, "gpu-0000", **env)
        assert done.returncode == 0 and "let through (stale)" in done.stderr and not done.stdout, (url, env, done)


# --- a real Slurm ---------------------------------------------------------------------------------------------------


@pytest.fixture
def kept(scripts: Path, served: Served) -> Iterator[SlurmCluster]:
    """Two nodes whose prolog is ours."""
    (scripts / "settings").write_text(f"WATCHKEEPER_URL={served.url}\nWATCHKEEPER_TIMEOUT_S=10\n")
    prolog = scripts / "prolog"
    prolog.write_text(f'#!/bin/sh\nWATCHKEEPER_SETTINGS={scripts}/settings exec {scripts}/watchkeeper-prolog.sh "$@"\n')
    prolog.chmod(0o755)
    with slurm(2, more=f"Prolog={prolog}\nPrologFlags=Alloc\n") as cluster:
        yield cluster


def state(cluster: SlurmCluster, node: str) -> str:
    return cluster.run("scontrol", "-o", "show", "node", node)


def health(scripts: Path, cluster: SlurmCluster, node: str) -> Ran:
    env = {**cluster.env, "WATCHKEEPER_SETTINGS": str(scripts / "settings"), "SLURMD_NODENAME": node}
    command = [str(scripts / "watchkeeper-health.sh")]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_slurm_keeps_jobs_off_what_is_excluded(scripts: Path, served: Served, kept: SlurmCluster) -> None:
    number = exclude(served, "gpu-0001")
    names = subprocess.run(
        [sys.executable, "-m", "backend.cli", "exclusions", "--format", "hostlist", "--server", served.url],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout.strip()
    assert names == "gpu-0001"
    jobs = [kept.submit(f"--exclude={given}", "--exclusive", command="sleep 60") for given in (names, names, "")]

    def on(job: str) -> str:
        return kept.run("squeue", "-h", "-j", job, "-o", "%t %N").strip()

    kept.wait("the first job", lambda: on(jobs[0]) == "R gpu-0000")
    assert on(jobs[1]).startswith("PD"), "a job that excludes the only free node waits"
    # an empty list, as where the server is away, excludes nothing; then the prolog keeps the job off
    kept.wait("a prolog that fails", lambda: "DRAIN" in state(kept, "gpu-0001"), 60)
    assert "Prolog error" in state(kept, "gpu-0001")
    kept.wait("the job waits again", lambda: on(jobs[2]).startswith("PD"))
    kept.run("scancel", *jobs)
    lift(served, number)
    kept.run("scontrol", "update", "NodeName=gpu-0001", "State=RESUME")
    kept.wait("idle nodes", kept.idle, 60)
    fine = kept.submit("-w", "gpu-0001", command="sleep 60")
    kept.wait("a job on the node that is back", lambda: on(fine) == "R gpu-0001")
    kept.run("scancel", fine)
    assert main(["exclusions", "--format", "hostlist", "--server", "http://127.0.0.1:9"]) == 1

    # the health check, on the node whose drain no late word of the failed prolog can touch
    number = exclude(served, "gpu-0000")
    assert health(scripts, kept, "gpu-0000").returncode == 0
    assert "DRAIN" in state(kept, "gpu-0000") and "Reason=watchkeeper: Excluded by dana" in state(kept, "gpu-0000")
    settings = (scripts / "settings").read_text()
    (scripts / "settings").write_text("WATCHKEEPER_URL=http://127.0.0.1:9\n")
    assert "stale" in health(scripts, kept, "gpu-0000").stderr
    assert "DRAIN" in state(kept, "gpu-0000"), "away: a drain of ours stands"
    (scripts / "settings").write_text(settings)
    lift(served, number)
    health(scripts, kept, "gpu-0000")
    kept.wait("the node is given back", lambda: "DRAIN" not in state(kept, "gpu-0000"))
    kept.run("scontrol", "update", "NodeName=gpu-0000", "State=DRAIN", "Reason=disk (mira)")
    exclude(served, "gpu-0000")
    for _ in range(2):
        health(scripts, kept, "gpu-0000")
        assert "Reason=disk (mira)" in state(kept, "gpu-0000"), "another's drain is theirs"
