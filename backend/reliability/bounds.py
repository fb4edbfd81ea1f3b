"""Where the time of an attempt may have gone when its steps are not known: bounds that hold the truth.

The best of what is there: checkpoints say when it stepped at the latest; accounting alone says how it ended.
"""

from __future__ import annotations

from collections.abc import Sequence

from backend.facts import CheckpointFacts
from backend.reliability.attempts import Window
from backend.reliability.parts import NOTHING, Bounds, Part, Parts, at_most, exactly
from backend.reliability.spans import length, spans


def by_checkpoints(window: Window, checkpoints: Sequence[CheckpointFacts]) -> Parts:
    """Of an attempt whose saves and loads are all known. No steps: what was slow, hung or evaluated stays open."""
    loads = [c for c in checkpoints if c.kind == "load"]
    saves = sorted((c for c in checkpoints if c.kind == "save"), key=lambda c: c.at)
    reading = spans((max(window.begin, c.at - c.duration_s), min(c.at, window.end)) for c in loads)
    writing = spans((max(window.begin, c.at - c.duration_s), min(c.at, window.end)) for c in saves)
    blocking = spans((max(window.begin, c.at - c.duration_s), min(c.at, window.end)) for c in saves if c.blocking)
    ready = float(reading[0, 1]) if len(reading) else window.begin
    before = float(reading[0, 0]) if len(reading) else window.begin
    first = float(writing[0, 0]) if len(writing) else window.end
    last = float(writing[-1, 1]) if len(writing) else ready
    broken = window.ending == "broken"
    inner = float(writing[-1, 0]) - float(writing[0, 1]) - length(writing[1:-1]) if len(writing) > 1 else 0.0
    again = len(reading) > 1
    found: dict[Part, Bounds] = dict(NOTHING)
    found["startup"] = Bounds(before - window.begin, max(before - window.begin, first - window.begin))
    if again or not len(reading):
        found["startup"] = at_most(window.wall_s)
    found["load"] = exactly(length(reading))
    found["save_stall"] = at_most(length(blocking))
    upper = (last if broken and len(writing) else ready if broken else window.end) - ready
    found["productive"] = Bounds(0.0 if again else max(0.0, min(inner, upper)), max(0.0, upper))
    if broken:
        found["lost_since_checkpoint"] = at_most(window.end - (ready if again else max(last, ready)))
        found["hang"] = at_most(window.end - (ready if again else max(last, ready)))
    elif window.ending == "open":
        found["hang"] = at_most(window.end - last)
    else:
        found["teardown"] = at_most(window.end - last)
    return found


def by_accounting(window: Window) -> Parts:
    """Of an attempt of which only the times and the state are known."""
    whole = at_most(window.wall_s)
    found: dict[Part, Bounds] = dict(NOTHING)
    found["startup"] = found["load"] = found["productive"] = found["save_stall"] = whole
    if window.ending == "broken":
        found["lost_since_checkpoint"] = whole
    if window.ending != "completed":
        found["hang"] = whole
    else:
        found["teardown"] = whole
    return found


def without_saves(parts: Parts) -> Parts:
    """Of an attempt that broke, whose steps are known but not its saves: what was stepped may be kept or lost."""
    stepped = parts["productive"] + parts["lost_since_checkpoint"]
    found = dict(parts)
    found["productive"] = found["lost_since_checkpoint"] = found["save_stall"] = at_most(stepped.high)
    return found
