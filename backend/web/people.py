"""The parts of Settings about people: who may sign in, tokens of programs, and what was done."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from jinja2 import Environment
from sqlmodel import Session
from starlette.concurrency import run_in_threadpool

from backend import auth, rights
from backend.clients import hostlist
from backend.identity import deeds
from backend.model.people import Token, User
from backend.store import people
from backend.store.people import ROLES, SCOPES, Scope
from backend.web.base import Visit, carried_out, checked, form, page, visit
from backend.web.settings import closed, part
from backend.writes import Forbidden, Invalid
from frontend.contexts import Chip, Link, Option, Told
from frontend.contexts_acting import Form, Input, Once, SettingsPage, Tab
from frontend.contexts_cost import Table
from frontend.words import age, ago, clock, count, listed

Seen = Annotated[Visit, Depends(visit)]
Fields = dict[str, str]
PEOPLE, TOKENS, AUDIT = "/settings/people", "/settings/tokens", "/settings/audit"
#: Rows of the audit log on one page.
ROWS = 100
NEVER_CACHED = {"Cache-Control": "no-store"}


def router(pages: Environment) -> APIRouter:
    found = APIRouter()

    @found.get(PEOPLE)
    def people_page(seen: Seen) -> Response:
        return page(seen, pages, of_people(seen))

    @found.get(TOKENS)
    def tokens_page(seen: Seen) -> Response:
        return page(seen, pages, of_tokens(seen))

    @found.get(AUDIT)
    def audit_page(seen: Seen, before: int = 0, actor: str = "", verify: str = "") -> Response:
        return page(seen, pages, of_audit(seen, before, actor[:64], verify=verify == "1"))

    for path, deed in ((f"{PEOPLE}/add", add), (f"{PEOPLE}/role", role), (f"{PEOPLE}/disable", disable)):
        found.add_api_route(path, sender(pages, deed, PEOPLE, of_people), methods=["POST"])
    found.add_api_route(f"{TOKENS}/revoke", sender(pages, revoke, TOKENS, of_tokens), methods=["POST"])

    @found.post(f"{TOKENS}/make")
    async def make(request: Request, seen: Seen) -> Response:
        fields = await form(request)
        checked(seen, fields)
        return await run_in_threadpool(made, seen, pages, fields)

    return found


def sender(
    pages: Environment, deed: Callable[[Visit, Fields], object], path: str, shown: Callable[..., SettingsPage]
) -> Callable[..., object]:
    """A route that takes one form, does its deed, and shows the part again."""

    async def sent(request: Request, seen: Seen) -> Response:
        fields = await form(request)
        checked(seen, fields)

        def with_told(told: Told, status: int) -> Response:
            return page(seen, pages, shown(seen, told), status)

        return await run_in_threadpool(
            carried_out, seen, lambda: as_admin(seen, deed, fields), seen.link(path), with_told
        )

    return sent


def as_admin(seen: Visit, deed: Callable[[Visit, Fields], object], fields: Fields) -> object:
    """Raises Forbidden for who may not, Invalid with words for what cannot be."""
    if not auth.may(seen.person, "users") or rights.beyond(
        rights.rule_of("POST", f"{PEOPLE}/add"), seen.person.clusters, seen.person.projects
    ):
        raise Forbidden(f"Your role is {seen.person.role}; people and tokens need an admin of all clusters.")
    return said(lambda: deed(seen, fields))


def said(deed: Callable[[], object]) -> object:
    """Raises Invalid in place of what a deed raises."""
    try:
        return deed()
    except LookupError as error:
        raise Invalid(f"That cannot be: {error.args[0]}.") from error
    except ValueError as error:
        raise Invalid(f"That cannot be: {error}.") from error


# --- people -----------------------------------------------------------------------------------------------------------


def of_people(seen: Visit, told: Told | None = None) -> SettingsPage:
    return closed(seen, PEOPLE, "People and their roles are for admins.", lambda session: _people(session, seen, told))


def _people(session: Session, seen: Visit, told: Told | None) -> SettingsPage:
    rows = people.users(session)
    live = [row for row in rows if row.disabled_at is None]
    admins = people.admins(session)
    alone = f" {admins[0].name} is the only admin of all clusters." if len(admins) == 1 else ""
    return part(
        session,
        seen,
        PEOPLE,
        f"{count(len(live), 'person', 'people')} may sign in, {len(admins)} of them as admin.",
        "Viewers read, operators acknowledge and exclude, approvers approve, admins do all; vendors see their own "
        f"nodes only.{alone}",
        (_people_table(session, rows, seen),),
        people_forms(seen, rows),
        json_href="/api/v1/users",
        told=told,
    )


def _people_table(session: Session, rows: Sequence[User], seen: Visit) -> Table:
    made = tuple(
        (
            row.name,
            Chip("excluded", "disabled") if row.disabled_at is not None else Chip("ok", row.role),
            limits_of(row.clusters, row.projects, row.nodes),
            "a password here" if row.origin == "local" else row.origin,
            str(len(people.sessions_of(session, row.id or 0, seen.now))),
            clock(row.created_at, seen.now),
        )
        for row in rows
    )
    heads = ("Name", "!Role", "=Limited to", "~Signs in by", "#Sessions", "#~Since")
    return Table("people", "Who may sign in", "", heads, made, ("Nobody may sign in yet.", "Add the first one here."))


def people_forms(seen: Visit, rows: Sequence[User]) -> tuple[Form, ...]:
    least = seen.parts.settings.security.password_min
    own = [row for row in rows if row.origin == "local"]
    names = tuple(Option(row.name, row.name) for row in own)
    live = tuple(Option(row.name, row.name) for row in rows if row.disabled_at is None)
    role_ = Input("role", "Role", "", "select", tuple(Option(name, name) for name in ROLES[:]), True, "viewer")
    hint = f"At least {least} characters."
    password = Input("password", "Password", hint, "password", needed=True, complete="new-password")
    name = Input("name", "Name", "As it stands under what they do.", needed=True)
    return (
        Form(
            "add",
            "Add a person",
            "They sign in with this password and change it under Your account.",
            seen.link(f"{PEOPLE}/add"),
            "Add",
            (name, role_, password, *limit_inputs()),
            primary=True,
            size="c-7",
        ),
        Form(
            "role",
            "Change a role",
            "Their open sessions end. Their limits stay, unless new ones are to hold.",
            seen.link(f"{PEOPLE}/role"),
            "Change role",
            (Input("name", "Person", "", "select", names, True), role_, KEEP, *limit_inputs()),
        ),
        Form(
            "disable",
            "Disable a person",
            "Their sessions end and they cannot sign in. What they did stays under their name.",
            seen.link(f"{PEOPLE}/disable"),
            "Disable",
            (Input("name", "Person", "", "select", live, True),),
        ),
    )


#: Whether a new role comes with new limits; what nobody touched stays.
KEEP = Input(
    "limits",
    "Limits",
    "New ones: as given below.",
    "select",
    (Option("", "stay as they are"), Option("new", "new ones")),
)


def limit_inputs() -> tuple[Input, ...]:
    return (
        Input("clusters", "Clusters", "By commas; empty: all."),
        Input("projects", "Projects", "Accounts or teams, by commas; empty: all."),
        Input("nodes", "Nodes", "Hostlist: of a vendor, what they see."),
    )


def limits_of(clusters: list[str], projects: list[str], nodes: list[str]) -> str:
    held = [f"clusters {listed(clusters)}"] if clusters else []
    held += [f"projects {listed(projects)}"] if projects else []
    held += [f"nodes {hostlist.render(nodes)}"] if nodes else []
    return "; ".join(held) or "no limit"


def scope_of(seen: Visit, fields: Fields) -> Scope:
    """Raises ValueError for a cluster that is not watched, or a hostlist that cannot be read."""
    clusters, projects = _names(fields.get("clusters", "")), _names(fields.get("projects", ""))
    unknown = [name for name in clusters if name not in seen.parts.watches]
    if unknown:
        raise ValueError(f"there is no cluster {', '.join(unknown)} here")
    try:
        nodes = hostlist.expand(fields["nodes"]) if fields.get("nodes", "").strip() else []
    except hostlist.HostlistError as error:
        raise ValueError(str(error)) from error
    return Scope(clusters, projects, tuple(nodes))


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(re.findall(r"[^\s,;]+", text)))


def add(seen: Visit, fields: Fields) -> None:
    rules, scope = seen.parts.settings.security, scope_of(seen, fields)
    name, password = fields.get("name", "").strip(), fields.get("password", "")
    deeds.add_user(
        seen.parts.store, rules, seen.person.name, seen.now, name, fields.get("role", ""), password, scope, anew=False
    )


def role(seen: Visit, fields: Fields) -> None:
    name, wanted = fields.get("name", ""), fields.get("role", "")
    scope = scope_of(seen, fields) if fields.get("limits") == "new" else None
    deeds.change_role(seen.parts.store, seen.person.name, seen.now, name, wanted, scope)


def disable(seen: Visit, fields: Fields) -> None:
    deeds.disable(seen.parts.store, seen.person.name, seen.now, fields.get("name", ""))


# --- tokens -----------------------------------------------------------------------------------------------------------


def of_tokens(seen: Visit, told: Told | None = None, once: Once | None = None) -> SettingsPage:
    why = "Tokens of programs are for admins."
    return closed(seen, TOKENS, why, lambda session: _tokens(session, seen, told, once))


def _tokens(session: Session, seen: Visit, told: Told | None, once: Once | None) -> SettingsPage:
    rows = people.tokens(session)
    live = [row for row in rows if is_live(row, seen)]
    unused = [row for row in live if row.last_used_at is None]
    lasting = [row for row in live if row.expires_at is None]
    said_ = f" {count(len(unused), 'token')} never used," if unused else ""
    return part(
        session,
        seen,
        TOKENS,
        f"{count(len(live), 'token')} in force, {len(rows) - len(live)} ended.",
        f"Only a keyed hash of each is kept, so none can be shown again.{said_} {len(lasting)} without an end."
        if live
        else "A program sends one as Authorization: Bearer. Only a keyed hash of it is kept.",
        (_token_table(rows, seen),),
        token_forms(seen, live),
        json_href="/api/v1/tokens",
        told=told,
        once=once,
    )


def is_live(row: Token, seen: Visit) -> bool:
    return row.revoked_at is None and (row.expires_at is None or row.expires_at > seen.now)


def _token_table(rows: Sequence[Token], seen: Visit) -> Table:
    ordered = sorted(rows, key=lambda row: (not is_live(row, seen), row.name, row.id))
    made = tuple(
        (
            f"{row.name} ({row.id})",
            _token_chip(row, seen),
            limits_of(row.clusters, row.projects, row.nodes),
            f"{row.created_by or 'the command line'}, {clock(row.created_at, seen.now)}",
            f"{ago(row.last_used_at, seen.now)}" if row.last_used_at is not None else "never",
            f"in {age((row.expires_at - seen.now).total_seconds())}"
            if row.expires_at is not None and row.expires_at > seen.now
            else ("ended" if row.expires_at is not None else "none"),
        )
        for row in ordered
    )
    heads = ("Token", "!Scope", "=Limited to", "~Made by", "#Last used", "#Ends")
    return Table(
        "tokens", "Tokens", "", heads, made, ("There is no token.", "On loopback, programs need none to read.")
    )


def _token_chip(row: Token, seen: Visit) -> Chip:
    if row.revoked_at is not None:
        return Chip("excluded", f"{row.scope}, revoked")
    return Chip("ok", row.scope) if is_live(row, seen) else Chip("excluded", f"{row.scope}, run out")


def token_forms(seen: Visit, live: Sequence[Token]) -> tuple[Form, ...]:
    scopes = tuple(Option(name, name) for name in SCOPES)
    names = tuple(Option(str(row.id), f"{row.name} ({row.id}, {row.scope})") for row in live)
    return (
        Form(
            "make",
            "Make a token",
            "It is shown once, on the page that follows.",
            seen.link(f"{TOKENS}/make"),
            "Make token",
            (
                Input("name", "Name", "Which program uses it.", needed=True),
                Input("scope", "Scope", "ingest brings telemetry; read reads.", "select", scopes, True, "ingest"),
                Input("days", "Days", "How long it lasts; empty: until it is revoked.", "number", value="90"),
                *limit_inputs(),
            ),
            primary=True,
            size="c-7",
        ),
        Form(
            "revoke",
            "Revoke a token",
            "It is refused within 2 s everywhere.",
            seen.link(f"{TOKENS}/revoke"),
            "Revoke",
            (Input("token", "Token", "", "select", names, True),),
        ),
    )


def made(seen: Visit, pages: Environment, fields: Fields) -> Response:
    """The page that shows the new token, once; no cache keeps it."""
    found: list[deeds.Made] = []

    def deed(seen: Visit, fields: Fields) -> None:
        text = fields.get("days", "").strip()
        try:
            lasts = timedelta(days=float(text)) if text else None
        except (ValueError, OverflowError):
            raise ValueError(f"{text[:20]!r} is no number of days") from None
        parts, name = seen.parts, fields.get("name", "").strip()
        reach = scope_of(seen, fields)
        found.append(
            deeds.make_token(
                parts.store, parts.secret, seen.person.name, seen.now, name, fields.get("scope", ""), reach, lasts
            )
        )

    def with_told(told: Told, status: int) -> Response:
        return page(seen, pages, of_tokens(seen, told), status)

    answer = carried_out(seen, lambda: as_admin(seen, deed, fields), seen.link(TOKENS), with_told)
    if not found:
        return answer
    noticed(seen)
    note = "Copy it now: it is kept nowhere and never shown again. Programs send it as Authorization: Bearer."
    shown = of_tokens(seen, None, Once(f"The token {found[0].row.name}", found[0].text, note))
    answer = page(seen, pages, shown, 201)
    answer.headers.update(NEVER_CACHED)
    return answer


def revoke(seen: Visit, fields: Fields) -> None:
    text = fields.get("token", "")
    if not (text.isascii() and text.isdigit() and len(text) < 18):
        raise ValueError("no token was chosen")
    deeds.revoke_tokens(seen.parts.store, seen.person.name, seen.now, [int(text)])
    noticed(seen)


def noticed(seen: Visit) -> None:
    """The API of this process looks anew which tokens hold."""
    book = getattr(seen.request.app.state, "callers", None)
    if book is not None:
        book.forget()


# --- audit ------------------------------------------------------------------------------------------------------------


def of_audit(seen: Visit, before: int, actor: str, *, verify: bool) -> SettingsPage:
    why = "Who did what is for admins."
    return closed(seen, AUDIT, why, lambda session: _audit(session, seen, before, actor, verify))


def _audit(session: Session, seen: Visit, before: int, actor: str, verify: bool) -> SettingsPage:
    rows = people.audits(session, ROWS, before if 0 < before < 2**62 else None, actor)
    last, newest = people.audit_head(session)
    flaw = people.audit_flaw(session) if verify else ""
    made_ = tuple(
        (
            clock(row.at, seen.now),
            Link(row.actor or "nobody", seen.link(AUDIT, actor=row.actor)),
            row.action,
            row.target,
            "; ".join(f"{key} {_detail(value)}" for key, value in row.details.items() if value not in ("", [], None)),
            str(row.id),
        )
        for row in rows
    )
    verdict = (
        (f"The chain is broken: {flaw}" if flaw else "The chain holds: no row was changed, taken out or moved.")
        if verify
        else "Who did what, newest first."
    )
    more = Link("Older", seen.link(AUDIT, before=str(rows[-1].id), actor=actor)) if len(rows) == ROWS else None
    heads = ("Time, UTC", "Who", "What", "=On", "~=Details", "#Row")
    by = f" by {actor}" if actor else ""
    empty = (f"Nothing was written{by}.", "Every write is a row here.")
    return part(
        session,
        seen,
        AUDIT,
        verdict,
        f"{count(last, 'row')}. Each row's hash covers the one before; the newest is {newest[:16]}. Keep it elsewhere: "
        "who owns the database could write the whole chain anew.",
        (Table("audit", f"Writes{by}", "", heads, made_, empty, more),),
        json_href=seen.link("/api/v1/audit", actor=actor, verify="1" if verify else ""),
        filters=(
            Tab("all", seen.link(AUDIT), not actor and not verify),
            Tab("check the whole chain", seen.link(AUDIT, verify="1", actor=actor), verify),
            *((Tab(f"only {actor}", seen.link(AUDIT, actor=actor), not verify),) if actor else ()),
        ),
        query={"actor": actor, "before": str(before) if before else "", "verify": "1" if verify else ""},
    )


def _detail(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
