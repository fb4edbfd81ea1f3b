"""Makes README.png: the demo's first page once several faults have shown. `make picture`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import requests

from tests.proof.browser import browser_page
from tests.proof.site import ROOT, free_port

FAULTS = 4
WITHIN_S = 150.0


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        url = f"http://127.0.0.1:{(port := free_port())}"
        words = ["-m", "backend.cli", "demo", "--port", str(port), "--folder", folder]
        demo = subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=subprocess.DEVNULL)
        try:
            wait_for_faults(url)
            take(url, ROOT / "README.png")
        finally:
            demo.terminate()
            demo.wait(15)
    return 0


def wait_for_faults(url: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        time.sleep(1)
        try:
            found = requests.get(f"{url}/api/v1/incidents", timeout=5).json()["items"]
        except requests.RequestException:
            continue
        if len(found) >= FAULTS:
            return
    raise SystemExit(f"fewer than {FAULTS} incidents within {WITHIN_S:.0f} s")


def take(url: str, file: Path) -> None:
    with browser_page() as page:
        page.goto(url)
        page.wait_for_timeout(3000)  # the figures draw themselves after the page
        page.screenshot(path=file)


if __name__ == "__main__":
    sys.exit(main())
