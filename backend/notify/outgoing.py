"""A message as it may leave the house: secrets out, no control characters, no direction tricks, bounded in size."""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections.abc import Iterable

from backend.security.redact import redact
from backend.tidings import MessageFacts

#: One text: above any real kernel line or reason; a mail of all texts at their limit stays well under 1 MB.
TEXT_CHARS = 20_000
#: Rows of facts and lines of evidence in one message.
ROWS = 50
#: Lines of a small figure.
CURVES = 4
#: Characters that reorder what is shown (Unicode bidirectional controls): a name could read as another one.
_DIRECTION = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def outgoing(message: MessageFacts) -> MessageFacts:
    """The message with every text fit to leave. What is too long is cut and says by how much."""
    return dataclasses.replace(
        message,
        headline=fit(message.headline),
        why=fit(message.why),
        facts=tuple((fit(label), fit(value)) for label, value in message.facts[:ROWS])
        + tuple(("More", rest) for rest in _rest(message.facts)),
        evidence=tuple(fit(line) for line in message.evidence[:ROWS]) + tuple(_rest(message.evidence)),
        advice=fit(message.advice),
        subject=fit(message.subject),
        fault=fit(message.fault),
        node=fit(message.node),
        job=fit(message.job),
        moments=tuple((at, fit(words)) for at, words in message.moments[:ROWS]),
        curves=tuple((fit(name), fit(unit), points) for name, unit, points in message.curves[:CURVES]),
    )


def fit(text: str) -> str:
    """One text on one line, redacted, valid UTF-8, at most TEXT_CHARS characters and a word about the rest."""
    shown = "".join(" " if unicodedata.category(c) == "Cc" and c != "\n" else c for c in _DIRECTION.sub("", text))
    line = " ".join(redact(shown).encode("utf-8", "replace").decode("utf-8").split())
    if len(line) <= TEXT_CHARS:
        return line
    return f"{line[:TEXT_CHARS]} … and {len(line) - TEXT_CHARS:,} characters more in the incident"


def said(answer: object, secrets: Iterable[str] = ()) -> str:
    """What the other side answered, safe to store and to show: decoded, without our secrets, at most 200 characters."""
    text = answer.decode("utf-8", "replace") if isinstance(answer, bytes) else str(answer)
    for secret in sorted((s for s in secrets if s), key=len, reverse=True):
        text = text.replace(secret, "***")
    return fit(text[:2000])[:200]


def link(message: MessageFacts, url: str) -> str:
    """The absolute link to the incident, empty where nobody could follow it (no server URL set, or not http)."""
    whole = message.url if "://" in message.url else url.rstrip("/") + message.url if url and message.url else ""
    return whole if re.fullmatch(r"https?://[^\s<>\"|]+", whole) else ""


def _rest(rows: tuple[object, ...]) -> list[str]:
    return [f"{len(rows) - ROWS:,} more in the incident"] if len(rows) > ROWS else []
