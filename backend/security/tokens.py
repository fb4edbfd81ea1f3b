"""Random tokens and their keyed hashes: only the hash is stored, and checking one takes microseconds."""

from __future__ import annotations

import hmac
import secrets

#: A prefix lets scanners of repositories and logs recognise a leaked token, and redact() mask it.
PREFIX = "wk_"
BYTES = 32


def new_token() -> str:
    """An API token with 256 bits of randomness."""
    return PREFIX + secrets.token_urlsafe(BYTES)


def new_cookie() -> str:
    """The value of a session cookie."""
    return secrets.token_urlsafe(BYTES)


def hash_token(text: str, key: bytes) -> str:
    """Keyed SHA-256 in hex: without the key a stolen table is of no use, and no slow hash is needed at 256 bits."""
    return hmac.digest(key, text.encode("utf-8", "surrogatepass"), "sha256").hex()


def bearer_of(header: str) -> str:
    """The token of an Authorization header; "" where there is none."""
    scheme, _, text = header.strip().partition(" ")
    return text.strip() if scheme.lower() == "bearer" else ""
