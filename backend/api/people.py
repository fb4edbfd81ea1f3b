"""users, tokens and audit: who may do what, and who did. For admins of all clusters."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Depends, Query
from fastapi import Path as InPath
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, SecretStr
from starlette.requests import Request

from backend.api.guard import Admin, AdminReader, book_of, parts_of
from backend.api.nodes import json
from backend.api.problems import Problem
from backend.api.words import Asked, RowId
from backend.clients import hostlist
from backend.identity import deeds
from backend.model.people import Audit, Token, User
from backend.registry import Parts
from backend.store import people
from backend.store.people import Scope

router = APIRouter()

PartsOf = Annotated[Parts, Depends(parts_of)]
Role = Literal["vendor", "viewer", "operator", "approver", "admin"]
Name = Annotated[str, Field(min_length=1, max_length=64)]
Names = Annotated[list[Name], Field(max_length=1000)]
Person = Annotated[str, InPath(min_length=1, max_length=64)]

T = TypeVar("T")


class Limits(BaseModel):
    """What a role or token holds for; empty: everything."""

    model_config = ConfigDict(extra="forbid")
    clusters: Names = Field([], examples=[["main"]])
    projects: Names = Field([], description="Accounts or teams, as jobs name them.", examples=[["atlas"]])
    nodes: str = Field("", description="Hostlist: of a vendor, what they see; of an ingest token, what it may push.")

    def reach(self, parts: Parts) -> Scope:
        """Raises ValueError for a cluster that is not watched, or a hostlist that cannot be read."""
        return scope_of(parts, self.clusters, self.projects, self.nodes)


class NewUser(Limits):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"name": "ada", "role": "approver", "password": "four words of my own"}]},
    )
    name: Name
    role: Role = "viewer"
    password: SecretStr


class NewRole(Limits):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"role": "operator"}]})
    role: Role


class UserRow(BaseModel):
    name: str
    role: str
    origin: str = Field(description="local: signs in with a password; oidc or proxy: vouched for there.")
    clusters: list[str]
    projects: list[str]
    nodes: str
    created_at: datetime
    disabled_at: datetime | None


class UserList(BaseModel):
    items: list[UserRow]


class NewToken(Limits):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"name": "gpu-0412 agent", "scope": "ingest", "nodes": "gpu-0412", "days": 90}]
        },
    )
    name: Name
    scope: Literal["ingest", "vendor", "read", "operate", "approve"] = "ingest"
    days: float | None = Field(None, gt=0, le=3660, description="How long it lasts; empty: until it is revoked.")


class TokenRow(BaseModel):
    id: int
    name: str
    scope: str
    clusters: list[str]
    projects: list[str]
    nodes: str
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    last_used_at: datetime | None = Field(description="To the minute.")
    revoked_at: datetime | None


class MadeToken(TokenRow):
    token: str = Field(description="The token itself. It is told now and never again.", examples=["wk_..."])


class TokenList(BaseModel):
    items: list[TokenRow]


class AuditRow(BaseModel):
    id: int
    at: datetime
    actor: str = Field(description="A person, token:<name>, or the command line.")
    action: str
    target: str
    details: dict[str, Any]
    hash: str = Field(description="Covers this row and the hash of the one before.")


class AuditList(BaseModel):
    items: list[AuditRow]
    next: int | None = Field(description="Give it as ``before`` for older ones; null: that was all.")
    flaw: str | None = Field(description="Where ``verify=1``: what is wrong with the chain; empty: nothing is.")


def scope_of(parts: Parts, clusters: list[str], projects: list[str], nodes: str) -> Scope:
    """Raises ValueError for a cluster that is not watched, or a hostlist that cannot be read."""
    unknown = [name for name in clusters if name not in parts.watches]
    if unknown:
        raise ValueError(f"there is no cluster {', '.join(unknown)} here; there is {', '.join(sorted(parts.watches))}")
    try:
        held = hostlist.expand(nodes) if nodes.strip() else []
    except hostlist.HostlistError as error:
        raise ValueError(str(error)) from error
    return Scope(tuple(clusters), tuple(projects), tuple(held))


def done(deed: Callable[[], T]) -> T:
    """Raises Problem: 404 for nobody, 422 for what cannot be."""
    try:
        return deed()
    except LookupError as error:
        raise Problem(404, f"That cannot be: {error.args[0]}.") from error
    except ValueError as error:
        raise Problem(422, f"That cannot be: {error}.") from error


def of_user(row: User) -> dict[str, Any]:
    names = ("name", "role", "origin", "clusters", "projects", "created_at", "disabled_at")
    return {name: getattr(row, name) for name in names} | {"nodes": hostlist.render(row.nodes)}


def of_token(row: Token) -> dict[str, Any]:
    names = ("id", "name", "scope", "clusters", "projects", "created_at", "created_by", "expires_at", "last_used_at")
    return {name: getattr(row, name) for name in (*names, "revoked_at")} | {"nodes": hostlist.render(row.nodes)}


def of_audit(row: Audit) -> dict[str, Any]:
    return {name: getattr(row, name) for name in ("id", "at", "actor", "action", "target", "details", "hash")}


@router.get("/users", operation_id="list_users", response_model=UserList, tags=["people"])
def list_users(_: AdminReader, parts: PartsOf) -> Response:
    """Everybody who may or might sign in, by name."""
    with parts.store.read() as session:
        return json({"items": [of_user(row) for row in people.users(session)]})


@router.post("/users", operation_id="add_user", response_model=UserRow, status_code=201, tags=["people"])
def add_user(new: NewUser, person: Admin, parts: PartsOf) -> Response:
    """Add a person who signs in with a password. A known name is refused: change its role instead."""
    rules, now, secret = parts.settings.security, parts.clock.now(), new.password.get_secret_value()
    row = done(
        lambda: deeds.add_user(
            parts.store, rules, person.name, now, new.name, new.role, secret, new.reach(parts), anew=False
        )
    )
    return json(of_user(row), 201)


@router.patch("/users/{name}", operation_id="change_role", response_model=UserRow, tags=["people"])
def change_role(name: Person, new: NewRole, person: Admin, parts: PartsOf) -> Response:
    """Another role, and other limits where any is given. Their open sessions end. The last admin stays one."""
    now, limited = parts.clock.now(), bool(new.model_fields_set - {"role"})

    def deed() -> User:
        return deeds.change_role(parts.store, person.name, now, name, new.role, new.reach(parts) if limited else None)

    row = done(deed)
    return json(of_user(row))


@router.delete("/users/{name}", operation_id="disable_user", status_code=204, tags=["people"])
def disable_user(name: Person, person: Admin, parts: PartsOf) -> Response:
    """Disable a person: their sessions end and they cannot sign in. What they did stays under their name."""
    done(lambda: deeds.disable(parts.store, person.name, parts.clock.now(), name))
    return Response(status_code=204)


@router.get("/tokens", operation_id="list_tokens", response_model=TokenList, tags=["people"])
def list_tokens(_: AdminReader, parts: PartsOf) -> Response:
    """All tokens, also revoked ones, by name; never their text."""
    with parts.store.read() as session:
        return json({"items": [of_token(row) for row in people.tokens(session)]})


@router.post("/tokens", operation_id="make_token", response_model=MadeToken, status_code=201, tags=["people"])
def make_token(request: Request, new: NewToken, person: Admin, parts: PartsOf) -> Response:
    """Make a token for a program. Its text is in this answer and nowhere else."""
    now, lasts = parts.clock.now(), timedelta(days=new.days) if new.days is not None else None
    made = done(
        lambda: deeds.make_token(
            parts.store, parts.secret, person.name, now, new.name, new.scope, new.reach(parts), lasts
        )
    )
    book_of(request).forget()
    found = json(of_token(made.row) | {"token": made.text}, 201)
    found.headers["Cache-Control"] = "no-store"
    return found


@router.delete("/tokens/{token_id}", operation_id="revoke_token", status_code=204, tags=["people"])
def revoke_token(request: Request, token_id: RowId, person: Admin, parts: PartsOf) -> Response:
    """Revoke a token: here at once, in other processes within 2 seconds."""
    done(lambda: deeds.revoke_tokens(parts.store, person.name, parts.clock.now(), [token_id]))
    book_of(request).forget()
    return Response(status_code=204)


@router.get("/audit", operation_id="list_audit", response_model=AuditList, tags=["people"])
def list_audit(
    _: AdminReader,
    parts: PartsOf,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: Annotated[RowId | None, Query()] = None,
    actor: Annotated[Asked, Query(description="Only what this one did.")] = "",
    verify: Annotated[bool, Query(description="Also check the whole chain; reads all of it.")] = False,
) -> Response:
    """Who did what, newest first."""
    with parts.store.read() as session:
        rows = people.audits(session, limit, before, actor)
        flaw = people.audit_flaw(session) if verify else None
    more = rows[-1].id if len(rows) == limit else None
    return json({"items": [of_audit(row) for row in rows], "next": more, "flaw": flaw})
