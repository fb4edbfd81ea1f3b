"""users and tokens: who may sign in, and what may call the API."""

from __future__ import annotations

import argparse
import getpass
import sys
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
    if arguments.password_file is not None:
        return str(Path(arguments.password_file).read_text().rstrip("\n"))
    first = getpass.getpass(f"Password for {arguments.name}: ")
    return first if first == getpass.getpass("Once more: ") else ""


def users(arguments: argparse.Namespace) -> int:
    try:
        store = opened(arguments.config)
        if arguments.action == "list":
            with store.read() as session:
                for row in people.users(session):
                    print(f"{row.name:24} {row.role}")
            return 0
        password = password_of(arguments)
    except (SettingsError, StoreError, OSError) as error:
        print(f"watchkeeper: {error}", file=sys.stderr)
        return 1
    if len(password) < SHORTEST_PASSWORD:
        print(f"watchkeeper: a password needs {SHORTEST_PASSWORD} characters, twice the same.", file=sys.stderr)
        return 1
    now = SystemClock().now()
    with store.write() as session:
        people.put_user(session, arguments.name, arguments.role, passwords.hash_password(password), now)
        people.audit(session, now, "command line", "user set", arguments.name, {"role": arguments.role})
    print(f"{arguments.name} may sign in as {arguments.role}.")
    return 0


def tokens(arguments: argparse.Namespace) -> int:
    try:
        store = opened(arguments.config)
    except (SettingsError, StoreError) as error:
        print(f"watchkeeper: {error}", file=sys.stderr)
        return 1
    if arguments.action == "list":
        with store.read() as session:
            for row in people.tokens(session):
                print(f"{row.name:24} {row.scope:8} {'revoked' if row.revoked_at else 'live'}")
        return 0
    now = SystemClock().now()
    text = token_text.new_token()
    with store.write() as session:
        key = system.secret(session, "tokens", now)
        people.add_token(session, arguments.name, arguments.scope, token_text.hash_token(text, key), now)
        people.audit(session, now, "command line", "token made", arguments.name, {"scope": arguments.scope})
    print(text)
    return 0
