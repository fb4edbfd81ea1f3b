"""A span for each request and each step that worked; without the setting nothing is sent, nor imported."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from backend.app import create_app
from backend.clock import ManualClock, SystemClock
from backend.loops import Loop, run_every
from backend.registry import build
from backend.settings import Settings
from backend.settings import Store as StoreSettings
from backend.store.engine import Store
from backend.tracing import NoTracing, traces_to


class Kept:
    def __init__(self) -> None:
        self.spans: list[tuple[str, Mapping[str, str | int]]] = []

    def __call__(self, name: str, began_ns: int, said: Mapping[str, str | int]) -> None:
        assert began_ns > 0
        self.spans.append((name, said))


def test_a_request_is_a_span_by_its_route_and_nothing_of_its_words(tmp_path: Path) -> None:
    kept = Kept()
    parts = replace(build(Settings(store=StoreSettings(folder=tmp_path)), SystemClock()), trace=kept)
    with TestClient(create_app(parts, run_loops=False)) as client:
        client.get("/api/v1/incidents/77?cluster=main")
    parts.store.close()
    assert kept.spans == [
        (
            "GET /api/v1/incidents/{incident_id}",
            {
                "http.request.method": "GET",
                "http.route": "/api/v1/incidents/{incident_id}",
                "http.response.status_code": 401,
            },
        )
    ]


def test_only_a_step_that_worked_or_failed_is_a_span(sqlite_store: Store, clock: ManualClock) -> None:
    kept, stop, steps = Kept(), threading.Event(), [False, True, False]

    def step() -> bool:
        if len(steps) == 1:
            stop.set()
        return steps.pop(0)

    run_every(Loop("main", "loop", "observe", 1.0, step, lambda _: None), sqlite_store, clock, stop, kept)
    assert kept.spans == [("loop observe", {"cluster": "main", "error": ""})]


def test_without_the_packages_the_start_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("opentelemetry"):
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(NoTracing, match="pip install"):
        traces_to("http://127.0.0.1:4318/v1/traces", "me")
