"""Against forged requests: a secret per session in every form, and a look at where the request came from."""

from __future__ import annotations

import hmac
import secrets
from urllib.parse import urlsplit

#: The form field and the request header (htmx sends it) that carry the secret.
FIELD, HEADER = "csrf", "X-CSRF-Token"


def new_csrf() -> str:
    return secrets.token_urlsafe(32)


def is_ours(given: str | None, known: str) -> bool:
    """True when the request carries the session's secret; compared in constant time."""
    return bool(given) and bool(known) and hmac.compare_digest((given or "").encode(), known.encode())


def same_origin(origin: str | None, host: str | None) -> bool:
    """True when a browser's Origin names this host, or there is none (not a browser, or a plain old form)."""
    if origin is None:
        return True
    try:
        named = urlsplit(origin).netloc
    except ValueError:
        return False
    return bool(host) and named.lower() == (host or "").lower()
