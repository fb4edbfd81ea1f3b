"""Signatures of what other services post to us: over the time and the body, and no older than five minutes."""

from __future__ import annotations

import hashlib
import hmac

#: Slack's own limit: an older request may have been recorded and sent again.
OLDEST_S = 300.0


def slack_signature(key: bytes, at: str, body: bytes) -> str:
    """``v0=`` and the hex of HMAC-SHA256 over ``v0:TIME:BODY`` (Slack, "Verifying requests")."""
    return "v0=" + hmac.new(key, b"v0:" + at.encode() + b":" + body, hashlib.sha256).hexdigest()


def is_slacks(key: bytes, at: str, given: str, body: bytes, now: float) -> bool:
    """Whether Slack signed this body, lately. ``at``: the header's unix s; ``now``: unix s."""
    if not key or not (at.isascii() and at.isdigit() and len(at) <= 12) or abs(now - int(at)) > OLDEST_S:
        return False
    return hmac.compare_digest(slack_signature(key, at, body).encode(), given.encode("utf-8", "replace"))
