"""Users, their sessions, API tokens and the audit chain. These are global: no cluster in their keys."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlmodel import Field, SQLModel

from backend.model.base import RowId, row_id, stored, when


class User(SQLModel, table=True):
    """A person. role: vendor, viewer, operator, approver or admin. ``password_hash`` is argon2id, empty = no password.

    ``origin`` is who vouches for them: local (a password here), oidc or proxy; ``subject`` is their name there.
    ``clusters`` and ``projects`` (accounts, teams) are what their role holds for, ``nodes`` what a vendor sees; empty =
    all of them.
    """

    __tablename__ = "users"
    id: int | None = row_id()
    name: str = Field(unique=True, index=True)
    role: str
    password_hash: str
    origin: str = "local"
    subject: str = ""
    clusters: list[str] = stored(list)
    projects: list[str] = stored(list)
    nodes: list[str] = stored(list)
    created_at: datetime = when()
    disabled_at: datetime | None = when(default=None)


class Session(SQLModel, table=True):
    """A signed-in browser. ``id_hash`` is the keyed SHA-256 of the cookie; the cookie itself is never stored.

    ``expires_at`` moves on while it is used, to ``ends_at`` at most. ``address`` and ``agent`` are what it came from.
    """

    __tablename__ = "sessions"
    id_hash: str = Field(primary_key=True)
    user_id: int = Field(index=True, sa_type=RowId)
    csrf: str
    created_at: datetime = when()
    expires_at: datetime = when()
    ends_at: datetime = when()
    last_used_at: datetime = when()
    address: str = ""
    agent: str = ""


class Try(SQLModel, table=True):
    """Failed sign-ins under one key: a name (hashed, whether somebody has it or not) or an address."""

    __tablename__ = "tries"
    key: str = Field(primary_key=True)
    failures: int = 0
    at: datetime = when()
    locked_until: datetime | None = when(default=None)


class Token(SQLModel, table=True):
    """An API token. scope: ingest, vendor, read, operate or approve. Only its keyed SHA-256 is stored.

    ``nodes``: of an ingest token, the only nodes it may speak of; of a vendor token, those it may see; empty = all.
    """

    __tablename__ = "tokens"
    id: int | None = row_id()
    name: str
    scope: str
    token_hash: str = Field(unique=True, index=True)
    clusters: list[str] = stored(list)
    projects: list[str] = stored(list)
    nodes: list[str] = stored(list)
    created_at: datetime = when()
    created_by: str = ""
    expires_at: datetime | None = when(default=None)
    last_used_at: datetime | None = when(default=None)
    revoked_at: datetime | None = when(default=None)


class Audit(SQLModel, table=True):
    """One write, chained: ``hash`` covers the row and the hash before it. The database lets none be changed or gone."""

    id: int | None = row_id()
    at: datetime = when()
    actor: str
    action: str
    target: str
    details: dict[str, Any] = stored(dict)
    previous: str
    hash: str


class AuditHead(SQLModel, table=True):
    """The newest audit row, kept apart, so that a chain that was cut off at its end shows. One row, id 1."""

    __tablename__ = "audithead"
    id: int = Field(primary_key=True, sa_type=RowId)
    last_id: int = Field(sa_type=RowId)
    hash: str
