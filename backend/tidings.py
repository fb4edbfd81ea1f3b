"""What is told to people, and what a channel answers: the facts that incidents hand to notify."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from detectors.model import Severity

#: What a message does. ``changed`` is any news of an incident; ``proposal``: a plan waits for an approver; ``owner``:
#: the verdict on a dead job, to whom it belongs; ``silenced``: one that a silence holds back from now on; ``lost``:
#: Watchkeeper's own heartbeat or a channel of it fails; ``test``: somebody tries a channel.
MessageKind = Literal[
    "opened", "changed", "escalated", "proposal", "closed", "owner", "digest", "silenced", "lost", "report", "test"
]
#: Kinds that are about no incident, or end with themselves: they begin no conversation that a close must end.
ALONE: frozenset[str] = frozenset({"owner", "digest", "lost", "report", "test"})
#: (name, unit, ((unix s, value), ...)): a line of a small figure.
Curve = tuple[str, str, tuple[tuple[float, float], ...]]


@dataclass(frozen=True, slots=True)
class MessageFacts:
    """One thing to say about one incident on one channel, whole: no channel looks anything up.

    id: stable over resends (the Message-ID, the dedup key). ``thread`` is the same for all messages of an incident.
    ``facts`` are label/value pairs in reading order. ``subject`` is what the thread is called, the same in all its
    messages; the outbox takes the headline of the first. A ``report`` is about no incident: that is 0.

    state: open, acknowledged, mitigated or resolved. fault: a kind of ``kinds.csv``. decision: the plan that waits for
    an approver, 0 = none. moments: (unix s, words) and curves: what a small figure shows. to: who gets it on this
    channel instead of those in the settings (an owner's address). The delivery adds ``earlier``: the attrs of the
    receipts that this channel gave for this thread, later ones over earlier ones (where its thread is); and ``again``:
    a try before this one may have arrived, so a channel that can reads back first.
    """

    id: str
    thread: str
    kind: MessageKind
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
    state: str = "open"
    fault: str = ""
    node: str = ""
    job: str = ""
    decision: int = 0
    moments: tuple[tuple[float, str], ...] = ()
    curves: tuple[Curve, ...] = ()
    to: tuple[str, ...] = ()
    earlier: Mapping[str, str] = field(default_factory=dict)
    again: bool = False


def frozen(value: Any) -> Any:
    """Lists of JSON, at any depth, as the tuples they were."""
    return tuple(frozen(each) for each in value) if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the channel answered; stored with the delivery."""

    text: str
    attrs: Mapping[str, str] = field(default_factory=dict)
