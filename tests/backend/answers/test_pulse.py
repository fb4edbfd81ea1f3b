"""Beats judged: late, failing, silent, never heard."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from backend.answers.pulse import pulse
from backend.model.system import Beat

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def beat(age_s: float | None, every_s: float = 15.0, kind: str = "source", **more: Any) -> Beat:
    ok_at = NOW - timedelta(seconds=age_s) if age_s is not None else None
    base: dict[str, Any] = {
        "cluster": "main",
        "kind": kind,
        "name": "x",
        "at": NOW,
        "ok_at": ok_at,
        "every_s": every_s,
    }
    return Beat(**(base | more))


@pytest.mark.parametrize(
    ("age_s", "every_s", "health"),
    [(3, 15, "fine"), (59, 15, "fine"), (61, 15, "late"), (170, 60, "fine"), (181, 60, "late"), (None, 15, "never")],
)
def test_a_beat_is_late_after_three_of_its_intervals_and_never_before_a_minute(
    age_s: float | None, every_s: float, health: str
) -> None:
    assert pulse(beat(age_s, every_s), NOW).health == health


def test_pushed_input_has_no_interval_and_its_quiet_is_no_silence() -> None:
    assert pulse(beat(86_400.0, 0.0), NOW).health == "fine"
    assert pulse(beat(86_400.0, 0.0), NOW).limit_s is None


def test_what_fails_is_failing_since_its_first_failure() -> None:
    since = NOW - timedelta(minutes=4)
    found = pulse(beat(300, failing_since=since, error="refused", errors=3), NOW)
    assert (found.health, found.since, found.errors) == ("failing", since, 3)


def test_a_detector_that_worked_again_is_not_late() -> None:
    assert pulse(beat(9999, 0.0, kind="detector"), NOW).health == "fine"
