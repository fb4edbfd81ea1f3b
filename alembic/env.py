"""Alembic's entry: runs on the connection that migrate() hands over, or on the configured database from the shell."""

from __future__ import annotations

import importlib
import os
import pkgutil
from typing import Literal

from sqlalchemy import Connection
from sqlmodel import AutoString, SQLModel

import backend.model
from alembic import context
from backend.model.base import UtcDateTime


def _all_tables() -> None:
    for found in pkgutil.iter_modules(backend.model.__path__, "backend.model."):
        importlib.import_module(found.name)


def _render(kind: str, item: object, _context: object) -> str | Literal[False]:
    """Revisions name no module of ours, so that they still run when the models have moved on."""
    if kind != "type":
        return False
    if isinstance(item, UtcDateTime):
        return "sa.DateTime(timezone=True)"
    return "sa.String()" if isinstance(item, AutoString) else False


def _run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=SQLModel.metadata,
        compare_type=True,
        render_item=_render,
        render_as_batch=connection.dialect.name == "sqlite",
        transactional_ddl=True,  # on SQLite too: our connections begin by themselves
    )
    with context.begin_transaction():
        context.run_migrations()


def _from_the_shell() -> None:
    from backend.settings import load
    from backend.store.engine import open_store

    wanted = load(None, os.environ).store
    store = open_store(wanted.url, wanted.folder)
    with store.engine.begin() as connection:
        _run(connection)
    store.close()


_all_tables()
if (given := context.config.attributes.get("connection")) is not None:
    _run(given)
else:
    _from_the_shell()
