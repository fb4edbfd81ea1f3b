"""Passwords by argon2id; an unknown user costs as much as a known one."""

from __future__ import annotations

from argon2 import PasswordHasher, Type
from argon2.exceptions import InvalidHashError, VerificationError

#: OWASP Password Storage Cheat Sheet, argon2id: 19 MiB, two passes, one lane. Forty sign-ins at once stay under 1 GB.
MEMORY_KIB, PASSES, LANES = 19_456, 2, 1
#: A hash with these parameters that no password is known for: what a name that does not exist is checked against.
NOBODY = f"$argon2id$v=19$m={MEMORY_KIB},t={PASSES},p={LANES}$bm9ib2R5LW5vYm9keSEhIQ${'A' * 43}"
#: What guessers try first; longer ones first, because each is taken out of what was typed.
EXPECTED = (
    *("watchkeeper", "administrator", "1234567890", "0987654321", "abcdefghijkl", "qwertyuiop", "asdfghjkl", "zxcvbnm"),
    *("correcthorsebatterystaple", "password", "passw0rd", "p@ssw0rd", "p@ssword", "letmein", "welcome", "changeme"),
    *("iloveyou", "sunshine", "princess", "football", "baseball", "superman", "trustno1", "whatever", "default"),
    *("abcdefgh", "12345678", "87654321", "qwerty", "azerty", "monkey", "dragon", "master", "secret", "cluster"),
    *("123456", "654321", "abcdef", "123123", "111111", "000000", "admin", "login", "hello", "12345", "1234", "4321"),
    *("abcd", "qwer", "asdf", "zxcv", "2024", "2025", "2026", "2027", "nvidia", "slurm", "root", "test", "123", "abc"),
)
#: No person types more; a longer one is wrong without being hashed.
LONGEST = 1024


def check_password(password: str, name: str, shortest: int) -> None:
    """Raises ValueError, with what is wrong, for a password that somebody would guess.

    NIST SP 800-63B rev. 4, 3.1.1.2: a length, no rules of composition, and nothing that is expected: the account's or
    the service's name, few characters over and over, runs of the keyboard or the alphabet, words of common lists.
    """
    if len(password) < shortest:
        raise ValueError(f"a password has at least {shortest} characters; this one has {len(password)}")
    if len(password) > LONGEST:
        raise ValueError(f"a password has at most {LONGEST} characters")
    left = password.casefold()
    for word in (name.casefold(), *EXPECTED):
        left = left.replace(word, "") if len(word) > 2 else left
    if len(left) < shortest // 2:
        raise ValueError("a password needs more than names, runs of keys and common words; take four words of your own")
    if len(set(password.casefold())) < 5:
        raise ValueError("a password needs at least five different characters")


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
