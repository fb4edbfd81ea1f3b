"""users and tokens: who may sign in, and what may call the API."""

from __future__ import annotations

import argparse
import getpass
import sys
from collections.abc import Callable
from pathlib import Path

from backend.clock import SystemClock
from backend.commands.server import settings_of
from backend.security import passwords
from backend.security import tokens as token_text
from backend.settings import SettingsError
from backend.store import people, system
from backend.store.engine import Store, StoreError, migrate, open_store

SHORTEST_PASSWORD = 10


def opened(config: Path | None) -> Store:
    """The configured database, brought up to date. Raises SettingsError or StoreError."""
    settings = settings_of(config)
    store = open_store(settings.store.url, settings.store.folder)
    migrate(store)
    return store


def password_of(arguments: argparse.Namespace) -> str:
    """Read from the file, or asked for twice. Raises OSError or ValueError."""
    file = arguments.password_file
    try:
        first = file.read_text().rstrip("\n") if file else getpass.getpass(f"Password for {arguments.name}: ")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} holds no text.") from error
    except EOFError as error:
        raise ValueError("there is no terminal to ask for the password; give --password-file.") from error
    if len(first) < SHORTEST_PASSWORD or (not file and getpass.getpass("Once more: ") != first):
        raise ValueError(f"a password needs {SHORTEST_PASSWORD} characters, twice the same.")
    return str(first)


def users(arguments: argparse.Namespace) -> int:
    return attempted(list_users if arguments.action == "list" else add_user, arguments)


def tokens(arguments: argparse.Namespace) -> int:
    return attempted(list_tokens if arguments.action == "list" else add_token, arguments)


def attempted(deed: Callable[[Store, argparse.Namespace], None], arguments: argparse.Namespace) -> int:
    """Do it on the configured database; what cannot be done is one line on stderr."""
    try:
        store = opened(arguments.config)
        try:
            deed(store, arguments)
        finally:
            store.close()
    except (SettingsError, StoreError, OSError, ValueError) as error:
        print(f"watchkeeper: {error}", file=sys.stderr)
        return 1
    return 0


def list_users(store: Store, _: argparse.Namespace) -> None:
    with store.read() as session:
        for row in people.users(session):
            print(f"{row.name:24} {row.role}")


def add_user(store: Store, arguments: argparse.Namespace) -> None:
    hashed, now = passwords.hash_password(password_of(arguments)), SystemClock().now()
    with store.write() as session:
        people.put_user(session, arguments.name, arguments.role, hashed, now)
        people.audit(session, now, "command line", "user set", arguments.name, {"role": arguments.role})
    print(f"{arguments.name} may sign in as {arguments.role}.")


def list_tokens(store: Store, _: argparse.Namespace) -> None:
    with store.read() as session:
        for row in people.tokens(session):
            print(f"{row.name:24} {row.scope:8} {'revoked' if row.revoked_at else 'live'}")


def add_token(store: Store, arguments: argparse.Namespace) -> None:
    text, now = token_text.new_token(), SystemClock().now()
    with store.write() as session:
        key = system.secret(session, "tokens", now)
        people.add_token(session, arguments.name, arguments.scope, token_text.hash_token(text, key), now)
        people.audit(session, now, "command line", "token made", arguments.name, {"scope": arguments.scope})
    print(text)
