"""Who is told too when nobody has acknowledged: the steps of a route, counted from its first message. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from backend.notify.routing import Escalation


def next_step_at(
    steps: Sequence[Escalation], taken: int, told_at: datetime, now: datetime | None = None
) -> datetime | None:
    """When the step after ``taken`` of them is due, counted from the first message at ``told_at``; None: there is none.
    With ``now`` (the moment of the step before) the wait between the two steps is counted from it."""
    if taken >= len(steps):
        return None
    if now is None or taken == 0:
        return told_at + timedelta(seconds=steps[taken].after_s)
    between_s = max(0.0, steps[taken].after_s - steps[taken - 1].after_s)
    return now + timedelta(seconds=between_s)


def due_step(steps: Sequence[Escalation], taken: int, due_at: datetime | None, now: datetime) -> Escalation | None:
    """The step whose moment has come; None: none has."""
    if due_at is None or due_at > now or taken >= len(steps):
        return None
    return steps[taken]
