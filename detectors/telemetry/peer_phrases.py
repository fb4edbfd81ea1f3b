"""Rows that stand apart from their peers as findings: the sentence and the numbers behind it."""

from __future__ import annotations

from collections.abc import Sequence

from detectors.model import Entity, Evidence, Finding, Severity
from detectors.wording import number, subject

#: (what, unit, metric, digits) in the order of peers.METRICS.
COLUMNS = (
    ("temperature", "°C", "gpu/temperature_c", 0),
    ("SM clock", "MHz", "gpu/sm_clock_mhz", 0),
    ("power", "W", "gpu/power_w", 0),
    ("utilisation", "%", "gpu/utilisation_pct", 0),
)
#: Heat with the clock to show for it; heat alone; a low clock alone (one detector, not yet a vote).
THROTTLED_SCORE, HOT_SCORE, SLOW_SCORE = 0.85, 0.55, 0.6


def finding_of(
    detector: str,
    entity: Entity,
    held: Sequence[bool],
    since: Sequence[float],
    value: Sequence[float],
    expected: Sequence[float],
    peers: int,
) -> tuple[Finding, ...]:
    """The findings of one row: thermal_throttle, silent_slow_gpu, or both while one turns into the other.

    held, since: per rule (throttled, hot, slow); value, expected: per column, NaN or 0 where there is none.
    """
    throttled, hot, slow = held
    evidence = _evidence(value, expected)
    found = []
    if throttled or hot:
        severity = Severity.HIGH if throttled else Severity.WARNING
        score = THROTTLED_SCORE if throttled else HOT_SCORE
        begin = min(at for at, holds in zip(since[:2], held[:2], strict=True) if holds)
        reason = _hot(entity, value, expected, peers, throttled=throttled)
        found.append(Finding(detector, "thermal_throttle", entity, severity, score, begin, reason, evidence))
    if slow:
        reason = _slow(entity, value, expected, peers)
        found.append(
            Finding(detector, "silent_slow_gpu", entity, Severity.WARNING, SLOW_SCORE, since[2], reason, evidence)
        )
    return tuple(found)


def _known(value: Sequence[float], expected: Sequence[float], column: int) -> bool:
    return value[column] == value[column] and expected[column] == expected[column] and expected[column] != 0.0


def _against(value: Sequence[float], expected: Sequence[float], column: int) -> str:
    """``1,230 MHz against 1,905 MHz``."""
    _, unit, _, digits = COLUMNS[column]
    return f"{number(value[column], digits)} {unit} against {number(expected[column], digits)} {unit}"


def _hot(entity: Entity, value: Sequence[float], expected: Sequence[float], peers: int, *, throttled: bool) -> str:
    who = f"{subject(entity)} runs at {_against(value, expected, 0)} of its {peers:,} peers"
    if throttled:
        return f"{who} and slows down for it: SM clock {_against(value, expected, 1)}."
    return f"{who}." if not _known(value, expected, 1) else f"{who}; its clock still holds."


def _slow(entity: Entity, value: Sequence[float], expected: Sequence[float], peers: int) -> str:
    draws = f", draws {_against(value, expected, 2)}" if _known(value, expected, 2) else ""
    return (
        f"{subject(entity)} works at SM clock {_against(value, expected, 1)} of its {peers:,} peers{draws}"
        f" and is not hot: its peers wait for it."
    )


def _evidence(value: Sequence[float], expected: Sequence[float]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(what, number(value[at], digits), number(expected[at], digits), unit, f"metric:{metric}", "derived")
        for at, (what, unit, metric, digits) in enumerate(COLUMNS)
        if _known(value, expected, at)
    )
