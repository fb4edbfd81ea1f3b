"""The table of ASVS holds together: each change fits the code of now, each test is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from backend.app import create_app
from backend.clock import SystemClock
from backend.registry import build
from backend.settings import Server, Settings
from backend.settings import Store as StoreSettings
from tests.trust.mutations import Row, rows
from tests.trust.replicas import ROOT


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.id)
def test_each_change_fits_the_code_and_each_test_is_there(row: Row) -> None:
    text = (ROOT / row.file).read_text(encoding="utf-8")
    assert text.count(row.before) == 1 and row.before != row.after, f"{row.file} has it {text.count(row.before)} times"
    path, _, name = row.test.partition("::")
    assert (ROOT / path).exists(), row.test
    assert not name or re.search(rf"^def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), row.test


def headers(tmp_path: Path, url: str) -> dict[str, str]:
    settings = Settings(server=Server(url=url), store=StoreSettings(folder=tmp_path))
    parts = build(settings, SystemClock())
    with TestClient(create_app(parts, run_loops=False), base_url="http://127.0.0.1", client=("127.0.0.1", 5)) as client:
        found = dict(client.get("/", headers={"Accept": "text/html"}).headers)
    parts.store.close()
    return found


def test_pages_are_kept_by_no_shared_cache(tmp_path: Path) -> None:
    assert "private" in headers(tmp_path, "")["cache-control"]


def test_over_https_a_browser_is_told_to_stay_there(tmp_path: Path) -> None:
    found = headers(tmp_path, "https://watch.example")["strict-transport-security"]
    assert int(found.removeprefix("max-age=").split(";")[0]) >= 31_536_000


def test_over_plain_http_it_is_not_said(tmp_path: Path) -> None:
    assert "strict-transport-security" not in headers(tmp_path, "http://watch.example")
