"""Which channels a message goes to. Pure: facts in, channels out."""

from __future__ import annotations

from collections.abc import Sequence, Set

from backend.tidings import MessageFacts
from detectors.model import Severity

#: Channels that keep one thread an incident and so can take every change; the others hear of open and close.
THREADED = frozenset({"email"})


def route(
    message: MessageFacts, channels: Sequence[str], notify_from: Severity, told: Set[str] | None = None
) -> tuple[str, ...]:
    """Of ``channels`` (kinds, as configured) those that this message goes to, in their order.

    notify_from: the lowest severity that starts a conversation. told: channels that already have a message of this
    incident; who was told of an open is told of the close, whatever the severity is by then, and a channel that was
    not told yet takes the change that lifts an incident over the floor as its open. None = not known: only the
    severity counts.
    """
    loud = message.severity >= notify_from
    return tuple(channel for channel in channels if _takes(message.kind, channel, loud, told))


def _takes(kind: str, channel: str, loud: bool, told: Set[str] | None) -> bool:
    heard = loud if told is None else channel in told
    if kind == "opened":
        return loud
    if kind == "closed":
        return heard
    if channel in THREADED:
        return loud or heard
    return told is not None and loud and not heard
