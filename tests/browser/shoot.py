"""``python -m tests.browser.shoot [FOLDER]``: pictures of every page on the filled site and on an empty one."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from backend.auth import sign_in_as
from backend.clock import ManualClock
from tests.backend.web import site, tales
from tests.browser.pictures import chromium, take
from tests.browser.server import served
from tests.conftest import NOW

EMPTY = {"now": "/", "fleet": "/fleet", "incidents": "/incidents", "system": "/system"}
PAGES = EMPTY | {
    "incident": "/incidents/1",
    "approved": "/incidents/2",
    "closed": "/incidents/6",
    "sign-in": "/sign-in",
}


def shoot(folder: Path, *, filled: bool) -> list[str]:
    """All pages, widths and themes into ``folder``; returns what the console complained about."""
    with tempfile.TemporaryDirectory() as temporary:
        parts = site.parts_of(Path(temporary) / "store", ManualClock(NOW))
        if filled:
            tales.fill(parts)
        cookie = sign_in_as(parts.store, parts.settings.security, "approver", NOW, parts.secret) if filled else ""
        with served(parts) as base, chromium() as browser:
            said = take(browser, base, cookie, PAGES if filled else EMPTY, folder)
        parts.store.close()
    return said


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "screenshots")
    complaints = shoot(target, filled=True) + shoot(target / "empty", filled=False)
    print(f"pictures are in {target}", *complaints, sep="\n")
    sys.exit(1 if complaints else 0)
