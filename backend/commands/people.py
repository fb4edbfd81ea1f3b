"""users, tokens and the audit chain, on the configured database: who may sign in, what may call us, who did what."""

from __future__ import annotations

import argparse
import getpass
import json
import sys
from collections.abc import Callable
from pathlib import Path

from backend.clients import hostlist
from backend.clock import SystemClock
from backend.commands.server import settings_of
from backend.identity import deeds
from backend.security import passwords
from backend.settings import Settings, SettingsError
from backend.store import people, system
from backend.store.engine import Store, StoreError, migrate, open_store
from backend.store.people import Scope

BY = "command line"
Deed = Callable[[Store, Settings, argparse.Namespace], None]


def password_of(arguments: argparse.Namespace, shortest: int) -> str:
    """Read from the file, or asked for twice. Raises OSError or ValueError."""
    file: Path | None = arguments.password_file
    try:
        first = file.read_text().rstrip("\n") if file else getpass.getpass(f"Password for {arguments.name}: ")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} holds no text.") from error
    except EOFError as error:
        raise ValueError("there is no terminal to ask for the password; give --password-file.") from error
    passwords.check_password(first, arguments.name, shortest)
    if not file and getpass.getpass("Once more: ") != first:
        raise ValueError("the two passwords are not the same")
    return first


def users(arguments: argparse.Namespace) -> int:
    deeds_: dict[str, Deed] = {"list": list_users, "add": add_user, "role": change_role, "disable": disable_user}
    return attempted(deeds_[arguments.action], arguments)


def tokens(arguments: argparse.Namespace) -> int:
    deeds_: dict[str, Deed] = {"list": list_tokens, "add": add_token, "create": add_token, "revoke": revoke_token}
    return attempted(deeds_[arguments.action], arguments)


def audit(arguments: argparse.Namespace) -> int:
    return attempted(list_audit, arguments)


def attempted(deed: Deed, arguments: argparse.Namespace) -> int:
    """Do it on the configured database; what cannot be done is one line on stderr."""
    try:
        settings = settings_of(arguments.config)
        store = open_store(settings.store.url, settings.store.folder)
        try:
            migrate(store)
            deed(store, settings, arguments)
        finally:
            store.close()
    except LookupError as error:
        print(f"watchkeeper: {error.args[0]}", file=sys.stderr)
        return 1
    except (SettingsError, StoreError, OSError, ValueError) as error:
        print(f"watchkeeper: {error}", file=sys.stderr)
        return 1
    return 0


def scope_of(arguments: argparse.Namespace, settings: Settings) -> Scope:
    """The limits on the command line. Raises ValueError for an unknown cluster or a hostlist that cannot be read."""
    known = [cluster.name for cluster in settings.cluster]
    unknown = sorted(set(arguments.cluster) - set(known))
    if unknown:
        raise ValueError(f"there is no cluster {', '.join(unknown)} in the configuration; there is {', '.join(known)}")
    held = hostlist.expand(arguments.nodes) if arguments.nodes else []
    return Scope(tuple(arguments.cluster), tuple(arguments.project), tuple(held))


def limits(row: Scope) -> str:
    """In words; empty = none."""
    parts = (*row.clusters, *row.projects, hostlist.render(row.nodes) if row.nodes else "")
    return ", ".join(part for part in parts if part)


def list_users(store: Store, _: Settings, __: argparse.Namespace) -> None:
    with store.read() as session:
        for row in people.users(session):
            held = limits(Scope(tuple(row.clusters), tuple(row.projects), tuple(row.nodes)))
            words = (held, row.origin if row.origin != "local" else "", "disabled" if row.disabled_at else "")
            print(f"{row.name:24} {row.role:9} {' '.join(word for word in words if word)}".rstrip())


def add_user(store: Store, settings: Settings, arguments: argparse.Namespace) -> None:
    rules, scope = settings.security, scope_of(arguments, settings)
    people.check_person(arguments.name, arguments.role)
    password = password_of(arguments, rules.password_min)
    with store.read() as session:
        known = people.user(session, arguments.name) is not None
    deeds.add_user(store, rules, BY, SystemClock().now(), arguments.name, arguments.role, password, scope)
    anew = " Password, role and limits are new; open sessions ended." if known else ""
    print(f"{arguments.name} may sign in as {arguments.role}.{anew}")


def change_role(store: Store, settings: Settings, arguments: argparse.Namespace) -> None:
    scope = scope_of(arguments, settings)
    given = scope if arguments.everywhere or limits(scope) else None
    deeds.change_role(store, BY, SystemClock().now(), arguments.name, arguments.role, given)
    print(f"{arguments.name} is {arguments.role} now; their open sessions ended.")


def disable_user(store: Store, _: Settings, arguments: argparse.Namespace) -> None:
    deeds.disable(store, BY, SystemClock().now(), arguments.name)
    print(f"{arguments.name} cannot sign in any more; their open sessions ended.")


def list_tokens(store: Store, _: Settings, __: argparse.Namespace) -> None:
    now = SystemClock().now()
    with store.read() as session:
        for row in people.tokens(session):
            over = row.expires_at is not None and row.expires_at <= now
            state = "revoked" if row.revoked_at else "ended" if over else "live"
            held = limits(Scope(tuple(row.clusters), tuple(row.projects), tuple(row.nodes)))
            used = f"used {row.last_used_at:%Y-%m-%d %H:%M}" if row.last_used_at else ""
            words = (held, used, state)
            print(f"{row.id:5} {row.name:24} {row.scope:8} {' '.join(word for word in words if word)}")


def add_token(store: Store, settings: Settings, arguments: argparse.Namespace) -> None:
    now, lasts = SystemClock().now(), deeds.life(arguments.days)
    with store.write() as session:
        key = system.secret(session, "tokens", now)
    scope = scope_of(arguments, settings)
    print(deeds.make_token(store, key, BY, now, arguments.name, arguments.scope, scope, lasts).text)


def revoke_token(store: Store, _: Settings, arguments: argparse.Namespace) -> None:
    """By number, or by a name that one live token has."""
    named = arguments.token
    with store.read() as session:
        ids = [row.id or 0 for row in people.token_named(session, named)]
    if not ids and named.isascii() and named.isdigit() and len(named) < 16:
        ids = [int(named)]
    if not ids:
        raise LookupError(f"there is no live token {named}")
    if len(ids) > 1:
        raise ValueError(f"{len(ids)} live tokens are named {named}; give one's number: {', '.join(map(str, ids))}")
    deeds.revoke_tokens(store, BY, SystemClock().now(), ids)
    print(f"Token {named} is revoked; running servers refuse it within 2 s.")


def list_audit(store: Store, _: Settings, arguments: argparse.Namespace) -> None:
    """Newest first; with --verify only whether the chain holds. Raises ValueError where it does not."""
    with store.read() as session:
        flaw = people.audit_flaw(session) if arguments.verify else ""
        number, head = people.audit_head(session)
        rows = [] if arguments.verify else people.audits(session, arguments.limit)
    if flaw:
        raise ValueError(flaw)
    if arguments.verify:
        found = {"rows_to": number, "hash": head, "holds": True}
        print(json.dumps(found) if arguments.json else f"The chain holds to row {number}: {head}")
        return
    for row in rows:
        if arguments.json:
            print(json.dumps(row.model_dump(mode="json")))
        else:
            print(f"{row.id:6} {row.at:%Y-%m-%d %H:%M:%S} {row.actor or '-':20} {row.action:20} {row.target}")
