"""What is told to people, and what a channel answers: the facts that incidents hand to notify."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from detectors.model import Severity


@dataclass(frozen=True, slots=True)
class MessageFacts:
    """One thing to say about one incident on one channel, whole: no channel looks anything up.

    id: stable over resends (the Message-ID, the dedup key). ``thread`` is the same for all messages of an incident.
    ``facts`` are label/value pairs in reading order. ``subject`` is what the thread is called, the same in all its
    messages; the outbox takes the headline of the first. A ``report`` is about no incident: that is 0.
    """

    id: str
    thread: str
    kind: Literal["opened", "changed", "closed", "report"]
    cluster: str
    incident: int
    severity: Severity
    headline: str
    why: str
    facts: tuple[tuple[str, str], ...]
    evidence: tuple[str, ...]
    advice: str
    url: str
    at: float
    simulated: bool = False
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the channel answered; stored with the delivery."""

    text: str
    attrs: Mapping[str, str] = field(default_factory=dict)
