"""How a database stands: its revision against ours, and what we may do there. Reads, and changes nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from backend.store.engine import Store, StoreError, alembic_config


@dataclass(frozen=True, slots=True)
class Standing:
    """``current`` is "" where there are no tables; ``known`` is False for a revision of a later version. ``ahead_s`` is
    how far the server's clock is ahead of ours, 0 on SQLite."""

    current: str
    head: str
    known: bool
    may_create: bool = True
    ahead_s: float = 0.0

    @property
    def up_to_date(self) -> bool:
        return self.current == self.head


def standing(store: Store) -> Standing:
    """Raises StoreError where the database may not be read or written."""
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    try:
        with store.read() as session:
            connection = session.connection()
            scripts = ScriptDirectory.from_config(alembic_config(connection))
            current = MigrationContext.configure(connection).get_current_revision() or ""
        may_create, ahead_s = _server(store) if store.dialect == "postgresql" else _file(store)
    except DBAPIError as error:
        said = str(error.orig).splitlines()[0]
        raise StoreError(
            f"{store.where} refuses: {said}", "Give the account the right to read and write it."
        ) from error
    known = current in {"", *(script.revision for script in scripts.walk_revisions())}
    return Standing(current, scripts.get_current_head() or "", known, may_create, ahead_s)


_ASKED = """SELECT has_schema_privilege(current_schema(), 'CREATE'), pg_is_in_recovery(),
extract(epoch FROM clock_timestamp())"""


def _server(store: Store) -> tuple[bool, float]:
    with store.read() as session:
        connection = session.connection()
        sent = time.time()
        may_create, replica, at = connection.execute(text(_ASKED)).one()
        ours = (sent + time.time()) / 2
    if replica:
        raise StoreError(f"{store.where} is a read-only replica", "Set [store] url to the primary.")
    return bool(may_create), float(at) - ours


def _file(store: Store) -> tuple[bool, float]:
    """Takes the lock of a writer, and lets go."""
    with store.write() as session:
        session.connection()
    return True, 0.0
