"""Users, their sessions, API tokens and the audit chain. These are global: no cluster in their keys."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlmodel import Field, SQLModel

from backend.model.base import RowId, row_id, stored, when


class User(SQLModel, table=True):
    """A person. role: viewer, operator, approver or admin. ``password_hash`` is argon2id."""

    __tablename__ = "users"
    id: int | None = row_id()
    name: str = Field(unique=True, index=True)
    role: str
    password_hash: str
    created_at: datetime = when()
    disabled_at: datetime | None = when(default=None)
    failures: int = 0
    locked_until: datetime | None = when(default=None)


class Session(SQLModel, table=True):
    """A signed-in browser. ``id_hash`` is the keyed SHA-256 of the cookie; the cookie itself is never stored."""

    __tablename__ = "sessions"
    id_hash: str = Field(primary_key=True)
    user_id: int = Field(index=True, sa_type=RowId)
    csrf: str
    created_at: datetime = when()
    expires_at: datetime = when()
    last_used_at: datetime = when()


class Token(SQLModel, table=True):
    """An API token. scope: ingest, read, operate or approve. Only its keyed SHA-256 is stored."""

    __tablename__ = "tokens"
    id: int | None = row_id()
    name: str
    scope: str
    token_hash: str = Field(unique=True, index=True)
    created_at: datetime = when()
    expires_at: datetime | None = when(default=None)
    last_used_at: datetime | None = when(default=None)
    revoked_at: datetime | None = when(default=None)


class Audit(SQLModel, table=True):
    """One write by a person, chained: ``hash`` covers the row and the hash before it."""

    id: int | None = row_id()
    at: datetime = when()
    actor: str
    action: str
    target: str
    details: dict[str, Any] = stored(dict)
    previous: str
    hash: str
