"""A channel that takes nothing for long is told of on the others, once an outage."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlmodel import Session

from backend.clock import unix
from backend.notify import outbox
from backend.notify.heartbeat import STUCK_S
from backend.store import messages
from backend.tidings import MessageFacts
from detectors.model import Severity


def tell_lost(
    session: Session, cluster: str, channels: Sequence[str], now: datetime, url: str, *, simulated: bool = False
) -> int:
    """Put a message into the outbox for each channel whose oldest message has waited too long; returns how many.

    An outage lasts until the channel takes something; within it, and for the same message, nothing is told again.

    Raises nothing of its own. Where there is no other channel, nobody can be told but the page and the heartbeat.
    """
    told = 0
    for channel, since in sorted(messages.oldest_waiting(session, cluster).items()):
        others = [name for name in channels if name != channel]
        number = int(unix(since))
        if (now - since).total_seconds() <= STUCK_S or not others:
            continue
        said = _message(cluster, channel, since, now, messages.last_error(session, cluster, channel), url, simulated)
        if not (
            messages.told_since_sent(session, cluster, said.kind, channel)
            or messages.was_told(session, cluster, said.kind, number, channel)
        ):
            outbox.put(session, said, number, dict.fromkeys(others, ()), now, route=channel)
            told += 1
    return told


def _message(
    cluster: str, channel: str, since: datetime, now: datetime, error: str, url: str, simulated: bool
) -> MessageFacts:
    minutes = int((now - since).total_seconds() // 60)
    name = f"{cluster}-lost-{channel}-{int(unix(since))}"
    return MessageFacts(
        id=name,
        thread=name,
        kind="lost",
        cluster=cluster,
        incident=0,
        severity=Severity.HIGH,
        headline=f"Nobody can be told by {channel}: a message has waited for {minutes} min.",
        why=f"Watchkeeper goes on trying. The last answer: {error}" if error else "Watchkeeper goes on trying.",
        facts=(("Channel", channel), ("Waits since", f"{since:%Y-%m-%d %H:%M:%S} UTC")),
        evidence=(),
        advice=f"Look at {channel} and at its section of the settings. What waits goes out by itself.",
        url=f"{url.rstrip('/')}/alerts" if url else "",
        at=unix(now),
        simulated=simulated,
    )
