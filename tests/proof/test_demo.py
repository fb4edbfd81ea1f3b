"""`watchkeeper demo` as anybody starts it: a page in seconds, faults that come by themselves, a button that works."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
import requests

from tests.proof.site import ROOT

pytestmark = pytest.mark.proof

PAGES = ("/", "/fleet", "/incidents", "/incidents/1", "/system")
T = TypeVar("T")


@dataclass
class Demo:
    """A running demo and a browser's session on it: the demo signs its reader in by itself."""

    process: subprocess.Popen[bytes]
    log: Path
    began: float
    url: str = ""

    def __post_init__(self) -> None:
        self.browser = requests.Session()
        self.browser.headers["Accept"] = "text/html"

    def words(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]

    def soon(self, what: str, look: Callable[[], T | None], until: float) -> T:
        """The first answer that is not empty; ``until`` is a monotonic time."""
        while True:
            assert self.process.poll() is None, f"the demo ended: {self.words()}"
            found = look()
            if found:
                return found
            assert time.monotonic() < until, f"{what}: not in time\n{self.words()}"
            time.sleep(0.1)

    def page(self, path: str) -> str | None:
        try:
            answer = self.browser.get(self.url + path, timeout=10)
        except requests.ConnectionError:
            return None
        assert answer.status_code == 200, f"{path}: {answer.status_code} {self.words()}"
        return answer.text

    def get(self, path: str, **params: str) -> Any:
        answer = requests.get(f"{self.url}/api/v1/{path}", params=params, timeout=10)
        assert answer.ok, answer.text
        return answer.json()

    def incidents(self) -> list[dict[str, Any]]:
        """Live and closed ones."""
        rows = [*self.get("incidents")["items"], *self.get("incidents", state="resolved")["items"]]
        return sorted({row["id"]: row for row in rows}.values(), key=lambda row: row["id"])

    def listening(self) -> str | None:
        found = re.search(r"listens on (http://\S+?)/?\s", self.log.read_text(errors="replace"))
        return found[1] if found else None

    def stop(self) -> tuple[int, float]:
        """Ctrl-C. Returns the exit code and how long it took, in seconds."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(20), time.monotonic() - began


@contextmanager
def demo(folder: Path, name: str) -> Iterator[Demo]:
    """Started in an empty place without a config; ready once its first page is there."""
    log, began = folder / f"{name}.log", time.monotonic()
    words = [sys.executable, "-m", "backend.cli", "demo", "--port", "0", "--folder", str(folder / "demo")]
    with log.open("wb") as out:
        process = subprocess.Popen(words, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, env={**os.environ})
    made = Demo(process, log, began)
    try:
        made.url = made.soon("an address", made.listening, began + 20)
        made.soon("a page", lambda: made.page("/"), began + 20)
        yield made
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(5)
        made.browser.close()


def plan(running: Demo) -> tuple[str, str, str, dict[str, str]] | None:
    """A plan that waits and drains: its node, the incident's path, the form's address, and the form's fields."""
    for order in running.get("orders", state="proposed")["items"]:
        path = f"/incidents/{order['incident']}"
        page = running.page(path) or ""
        action = re.search(r'action="(/incidents/\d+/decisions/\d+/approve)"', page)
        csrf = re.search(r'name="csrf" value="([^"]+)"', page)
        nodes = order["blast"]["nodes"]
        if action and csrf and len(nodes) == 1 and any(step["verb"] == "drain" for step in order["steps"]):
            return nodes[0], path, action[1], {"csrf": csrf[1]}
    return None


def reason_of(running: Demo, node: str) -> str:
    """What the simulated scheduler shows for the node, as the demo last read it."""
    with closing(sqlite3.connect(f"file:{running.log.parent}/demo/watchkeeper.db?mode=ro", uri=True)) as store:
        row = store.execute("SELECT reason FROM node WHERE name = ? AND flags LIKE '%DRAIN%'", (node,)).fetchone()
    return str(row[0]) if row else ""


def approved(running: Demo, until: float) -> bool:
    """Press the button of a waiting plan; False where a guard said no meanwhile and the next plan has to be tried."""
    node, path, action, fields = running.soon("a plan that waits", lambda: plan(running), until)
    forged = running.browser.post(running.url + action, data={"csrf": "forged"}, allow_redirects=False, timeout=10)
    assert forged.status_code == 422
    answer = running.browser.post(running.url + action, data=fields, allow_redirects=False, timeout=10)
    if answer.status_code == 409:
        return False
    assert (answer.status_code, answer.headers["location"].partition("#")[0]) == (303, path), answer.text[:500]
    wanted = f"inc={path.rpartition('/')[2]}"
    running.soon("our drain in the simulated cluster", lambda: wanted in reason_of(running, node), until)
    return True


def events_by_route(running: Demo) -> tuple[int, int]:
    """Events that the public ingest routes counted, and events in the store."""
    metrics = requests.get(f"{running.url}/metrics", timeout=10).text
    counted = re.search(r"^watchkeeper_ingest_events_total\S* (\S+)$", metrics, re.MULTILINE)
    assert counted is not None, metrics
    with closing(sqlite3.connect(f"file:{running.log.parent}/demo/watchkeeper.db?mode=ro", uri=True)) as store:
        return int(float(counted[1])), int(store.execute("SELECT count(*) FROM event").fetchone()[0])


def test_the_demo_lives_acts_ends_and_goes_on(tmp_path: Path) -> None:
    with demo(tmp_path, "first") as running:
        first_page = time.monotonic()
        assert first_page - running.began < 20
        running.soon("the first incident", running.incidents, first_page + 15)

        for path in PAGES:
            text = running.page(path) or ""
            assert "simulated" in text.lower(), f"{path} does not say that it is simulated"

        deadline = running.began + 150
        running.soon("an approved plan that drained", lambda: approved(running, deadline), deadline)
        running.soon("several kinds", lambda: len({row["kind"] for row in running.incidents()}) >= 3, first_page + 120)
        assert requests.get(f"{running.url}/metrics", timeout=10).text.count("watchkeeper_ingest_samples_total{") == 1
        through_routes, stored = events_by_route(running)
        assert 0 < stored <= through_routes + 1  # one may be on its way between the two looks
        before = running.incidents()
        code, took_s = running.stop()
        assert (code, took_s < 10) == (0, True), f"{took_s:.1f} s\n{running.words()}"
        assert "Traceback" not in running.log.read_text(errors="replace")

    with demo(tmp_path, "second") as again:
        kept = again.incidents()
        assert {row["id"] for row in before} <= {row["id"] for row in kept}
        assert [(r["id"], r["opened_at"]) for r in kept][: len(before)] == [(r["id"], r["opened_at"]) for r in before]
        assert len({row["id"] for row in kept}) == len(kept)
        code, took_s = again.stop()
        assert (code, took_s < 10) == (0, True)
