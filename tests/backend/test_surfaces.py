"""What others build on is written down: every route, every metric, every command."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from backend.api.system import FAMILIES
from backend.app import create_app
from backend.cli import parser
from backend.clock import ManualClock, SystemClock
from backend.registry import Parts, build
from backend.settings import Server, Settings
from backend.settings import Store as StoreSettings
from tests.conftest import NOW

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
#: What programs ask at the root, beside the API.
MACHINES = ("/healthz", "/readyz", "/metrics", "/live")


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    made = build(Settings(store=StoreSettings(folder=tmp_path_factory.mktemp("surfaces"))), ManualClock(NOW))
    yield made
    made.store.close()


@pytest.fixture(scope="module")
def app(parts: Parts) -> FastAPI:
    return create_app(parts, run_loops=False)


def section(title: str) -> str:
    """The text of one chapter of the README."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", README, re.MULTILINE | re.DOTALL)
    assert found is not None, f"README.md has no section {title!r}"
    return found[1]


def operations(app: FastAPI) -> dict[str, dict[str, Any]]:
    """Every documented operation as ``GET /api/v1/nodes``."""
    paths = app.openapi()["paths"]
    return {f"{method.upper()} {path}": said for path, of in paths.items() for method, said in of.items()}


def test_every_route_of_the_api_is_in_the_schema_with_a_sentence(app: FastAPI) -> None:
    found = operations(app)
    assert len(found) > 15
    for name, said in found.items():
        assert len(said.get("description", "")) > 10, f"{name} has no docstring"
        assert said.get("summary") and said.get("operationId"), name


def test_no_route_but_the_pages_is_hidden(app: FastAPI) -> None:
    known = {name.partition(" ")[2] for name in operations(app)}
    for route in app.routes:
        if isinstance(route, APIRoute) and route.path not in known:
            assert route.endpoint.__module__.startswith(("backend.web.", "backend.api.docs")), route.path


def test_every_parameter_and_body_of_the_api_has_a_type(app: FastAPI) -> None:
    for name, said in operations(app).items():
        for parameter in said.get("parameters", ()):
            assert parameter.get("schema"), f"{name}: {parameter['name']}"
        answers = [status for status in said["responses"] if status.startswith("2")]
        assert answers, f"{name} promises no success"


def test_what_programs_ask_at_the_root_is_in_the_readme() -> None:
    for path in MACHINES:
        assert f"{path}`" in section("REST"), path


def test_every_noun_of_the_api_is_in_the_readme(app: FastAPI) -> None:
    nouns = {name.split("/")[3] for name in operations(app) if "/api/v1/" in name}
    assert nouns
    for noun in nouns:
        assert re.search(rf"\b{noun}\b", section("REST")), f"/api/v1/{noun} is not in the README"


def commands(of: argparse.ArgumentParser, before: str = "") -> list[str]:
    """Every command as it is typed after ``watchkeeper``."""
    inner = [action for action in of._actions if isinstance(action, argparse._SubParsersAction)]
    if not inner:
        return [before.strip()]
    return [found for name, sub in inner[0].choices.items() for found in commands(sub, f"{before} {name}")]


@pytest.mark.parametrize("command", commands(parser()))
def test_every_command_is_in_the_readme(command: str) -> None:
    assert re.search(rf"`(watchkeeper )?{command}\b", section("Command line")), command


def test_the_readme_names_no_command_that_is_not_there() -> None:
    known = commands(parser())
    shape = r"watchkeeper ([a-z-]+(?: (?:add|list|upgrade|audit|rollups|check|explain|preview|silences|silence|test))?)"
    for typed in re.findall(shape, section("Command line")):
        assert typed in known, typed


def test_every_metric_is_in_the_readme_with_its_kind_and_meaning() -> None:
    table = section("Metrics")
    for family in FAMILIES:
        assert f"| `{family.name}` | {family.kind} | {family.help} |" in table, family.name


def test_the_readme_names_no_metric_that_is_not_there() -> None:
    assert set(re.findall(r"`(watchkeeper_[a-z_]+)`", section("Metrics"))) == {family.name for family in FAMILIES}


def test_what_metrics_prints_is_a_documented_family_each(app: FastAPI) -> None:
    client = TestClient(app, base_url="http://127.0.0.1", client=("127.0.0.1", 50_000))
    text = client.get("/metrics").text
    printed = {re.split(r"[{ ]", line)[0] for line in text.splitlines() if line and not line.startswith("#")}
    assert printed and printed <= {family.name for family in FAMILIES}


def test_a_running_server_prints_every_metric_that_does_not_need_a_mishap(tmp_path: Path) -> None:
    """A family that never has a sample is a promise that nobody keeps."""
    settings = Settings(server=Server(port=0), store=StoreSettings(folder=tmp_path))
    made = build(settings, SystemClock())
    mishaps = {"watchkeeper_ingest_dropped_total", "watchkeeper_ingest_busy_total"}
    tick = {"watchkeeper_tick_age_seconds"}  # no telemetry comes here
    with TestClient(create_app(made), base_url="http://127.0.0.1", client=("127.0.0.1", 50_000)) as client:
        deadline = time.monotonic() + 20
        missing = {family.name for family in FAMILIES}
        while missing - mishaps - tick and time.monotonic() < deadline:
            text = client.get("/metrics").text
            missing -= {re.split(r"[{ ]", line)[0] for line in text.splitlines() if not line.startswith("#")}
            time.sleep(0.05)
    made.store.close()
    assert missing - mishaps - tick == set()
