"""The audit chain: each row's hash covers the row and the hash before it, so a changed or missing row shows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

#: What the first row follows.
START = "0" * 64


@dataclass(frozen=True, slots=True)
class Link:
    """One row of the chain as it was written. ``details`` holds JSON values only."""

    id: int
    at: datetime
    actor: str
    action: str
    target: str
    previous: str
    hash: str
    details: Mapping[str, Any] = field(default_factory=dict)


def hash_of(previous: str, at: datetime, actor: str, action: str, target: str, details: Mapping[str, Any]) -> str:
    """SHA-256 in hex over the hash before and the row as canonical JSON (sorted keys, UTC to the microsecond)."""
    moment = at.astimezone(UTC).isoformat(timespec="microseconds")
    row = [previous, moment, actor, action, target, details]
    text = json.dumps(row, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def first_broken(links: Iterable[Link], previous: str = START) -> int | None:
    """Id of the first row that was changed, or that follows a missing one; None when the chain holds.

    links: in the order of their ids. previous: the hash before the first of them, where older rows were archived.
    A chain cut off at its end looks whole: compare its last hash with one kept elsewhere.
    """
    for link in links:
        made = hash_of(previous, link.at, link.actor, link.action, link.target, link.details)
        if link.previous != previous or link.hash != made:
            return link.id
        previous = link.hash
    return None
