"""The live stream: names of what changed, once each, and where to go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from fastapi import Request

from backend.changes import Changes
from backend.web.live import distinct, event, starting_at, stream


class Browser:
    """A request that stays connected for so many looks."""

    def __init__(self, looks: int) -> None:
        self._left = looks

    async def is_disconnected(self) -> bool:
        self._left -= 1
        return self._left < 0


async def told(made: AsyncIterator[str]) -> list[str]:
    return [part async for part in made]


def listen(changes: Changes, after: int, looks: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr("backend.web.live.LOOK_S", 0.001)
    browser = Browser(looks)
    return asyncio.run(told(stream(browser, changes, after)))  # type: ignore[arg-type]  # all that a stream asks of it


def test_a_change_is_told_by_name_never_by_content(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = Changes()
    changes.publish("incident", "812", "main")
    said = listen(changes, 0, 1, monkeypatch)
    assert said[0].startswith("retry: 3000\nid: 0\n\n")
    assert said[1] == 'id: 1\ndata: {"name":"incident","id":"812","cluster":"main"}\n\n'


def test_a_storm_says_each_name_once_with_its_last_number() -> None:
    changes = Changes()
    for i in range(500):
        changes.publish("incident", str(i % 2), "main")
    assert [(c.seq, c.id) for c in distinct(changes.wait(0, 0.0))] == [(499, "0"), (500, "1")]


def test_a_browser_goes_on_after_what_it_saw_and_a_restart_starts_anew() -> None:
    changes = Changes()
    for _ in range(3):
        changes.publish("fleet", "", "")
    assert starting_at("2", changes) == 2
    assert starting_at("9999", changes) == starting_at("", changes) == starting_at("x", changes) == 3


def test_an_event_cannot_be_broken_by_a_name() -> None:
    changes = Changes()
    changes.publish("incident\n\ndata: x", "1\r\n", "main")
    assert event(changes.wait(0, 0.0)[0]).count("\n") == 3


def test_a_quiet_stream_is_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.web.live.KEEP_ALIVE_S", 0.002)
    assert ": still here\n\n" in listen(Changes(), 0, 8, monkeypatch)


def test_a_stream_holds_no_thread() -> None:
    """A hundred tabs must not take the threads that answer pages."""
    assert asyncio.iscoroutinefunction(Request.is_disconnected)
