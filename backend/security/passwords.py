"""Passwords by argon2id; an unknown user costs as much as a known one."""

from __future__ import annotations

from argon2 import PasswordHasher, Type
from argon2.exceptions import InvalidHashError, VerificationError

#: OWASP Password Storage Cheat Sheet, argon2id: 19 MiB, two passes, one lane. Forty sign-ins at once stay under 1 GB.
MEMORY_KIB, PASSES, LANES = 19_456, 2, 1
#: A hash with these parameters that no password is known for: what a name that does not exist is checked against.
NOBODY = f"$argon2id$v=19$m={MEMORY_KIB},t={PASSES},p={LANES}$bm9ib2R5LW5vYm9keSEhIQ${'A' * 43}"
#: No person types more; a longer one is wrong without being hashed.
LONGEST = 1024


def hash_password(password: str) -> str:
    """The argon2id hash in PHC form, with its own salt. Raises ValueError for a password over LONGEST characters."""
    if len(password) > LONGEST:
        raise ValueError(f"a password has at most {LONGEST} characters")
    return _hasher().hash(_bytes(password))


def verify_password(password: str, known: str | None) -> bool:
    """True when ``password`` made the hash ``known``. None or "" (no such user, no password set): False, as slowly."""
    try:
        _hasher().verify(known or NOBODY, _bytes(password[:LONGEST]))
    except (VerificationError, InvalidHashError):
        return False
    return bool(known) and len(password) <= LONGEST


def is_outdated(known: str) -> bool:
    """True when the hash was made with other parameters: hash again at the next right password."""
    return _hasher().check_needs_rehash(known)


def _hasher() -> PasswordHasher:
    return PasswordHasher(time_cost=PASSES, memory_cost=MEMORY_KIB, parallelism=LANES, type=Type.ID)


def _bytes(password: str) -> bytes:
    return password.encode("utf-8", "surrogatepass")
