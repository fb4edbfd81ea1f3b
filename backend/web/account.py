"""The part of Settings about oneself: where one is signed in, the own password, out everywhere."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse
from jinja2 import Environment
from sqlmodel import Session
from starlette.concurrency import run_in_threadpool

from backend import auth
from backend.auth import COOKIE
from backend.identity import deeds
from backend.model.people import User
from backend.security import tokens
from backend.store import people
from backend.web.base import HEADERS, Visit, carried_out, checked, form, page, visit, whence
from backend.web.cookies import give_session
from backend.web.people import limits_of
from backend.web.settings import closed, part
from backend.writes import Forbidden, Invalid
from frontend.contexts import Chip, Told
from frontend.contexts_acting import Form, Input, SettingsPage
from frontend.contexts_cost import Table
from frontend.words import age, ago, clock, count, span

ACCOUNT = "/settings/account"
Seen = Annotated[Visit, Depends(visit)]


def router(pages: Environment) -> APIRouter:
    found = APIRouter()

    @found.get(ACCOUNT)
    def account_page(seen: Seen) -> Response:
        return page(seen, pages, of_account(seen))

    @found.post(f"{ACCOUNT}/password")
    async def password(request: Request, seen: Seen) -> Response:
        fields = await form(request)
        checked(seen, fields)
        return await run_in_threadpool(changed, seen, pages, fields)

    return found


def of_account(seen: Visit, told: Told | None = None) -> SettingsPage:
    why = "Nobody is signed in here."
    return closed(seen, ACCOUNT, why, lambda session: _account(session, seen, told))


def _account(session: Session, seen: Visit, told: Told | None) -> SettingsPage:
    row = people.user(session, seen.person.name)
    open_ = people.sessions_of(session, row.id or 0, seen.now) if row is not None else ()
    mine = tokens.hash_token(seen.request.cookies.get(COOKIE, ""), seen.parts.secret)
    made_ = tuple(
        (
            one.agent or "a browser that does not say which",
            one.address or "this machine",
            clock(one.created_at, seen.now),
            ago(one.last_used_at, seen.now),
            f"in {age((one.expires_at - seen.now).total_seconds())}",
            Chip("you", "this one") if one.id_hash == mine else Chip("info", "open"),
        )
        for one in open_
    )
    heads = ("Browser", "From", "~Since", "#Last used", "#~Ends", "!State")
    limits = limits_of(list(seen.person.clusters), list(seen.person.projects), list(seen.person.nodes))
    rules = seen.parts.settings.security
    return part(
        session,
        seen,
        ACCOUNT,
        f"{seen.person.name} has the role {seen.person.role}, {limits}; signed in {count(len(open_), 'time')}.",
        f"A sign-in ends after {span(rules.idle_s)} unused, and after {span(rules.session_s)} in any case.",
        (Table("sessions", "Where you are signed in", "", heads, made_, ("No session is open.", "")),),
        account_forms(seen, row),
        json_href="/api/v1/me",
        told=told,
    )


def account_forms(seen: Visit, row: User | None) -> tuple[Form, ...]:
    everywhere = Form(
        "everywhere",
        "Sign out everywhere",
        "Every session of yours ends, this one too.",
        "/sign-out/everywhere",
        "Sign out everywhere",
    )
    if row is None or row.origin != "local" or not row.password_hash:
        return (everywhere,)
    least = seen.parts.settings.security.password_min
    old = Input("old", "Old password", "", "password", needed=True, complete="current-password")
    new = Input(
        "new", "New password", f"At least {least} characters.", "password", needed=True, complete="new-password"
    )
    again = Input("again", "The new one again", "", "password", needed=True, complete="new-password")
    note = "You are signed out everywhere else."
    action = seen.link(f"{ACCOUNT}/password")
    return (
        Form("password", "Change your password", note, action, "Change password", (old, new, again), primary=True),
        everywhere,
    )


def changed(seen: Visit, pages: Environment, fields: dict[str, str]) -> Response:
    """A person's own new password; this browser goes on under a new session."""
    parts = seen.parts

    def deed() -> None:
        if fields.get("new", "") != fields.get("again", ""):
            raise Invalid("The new password was not typed the same twice; nothing changed.")
        rules, old, new = parts.settings.security, fields.get("old", ""), fields.get("new", "")
        here = whence(seen.request)
        try:
            cookie = deeds.change_password(parts.store, rules, seen.now, parts.secret, seen.person.name, old, new, here)
        except ValueError as error:
            raise Invalid(f"That cannot be: {error}.") from error
        except auth.SignInError as error:
            raise Forbidden("The old password is wrong; nothing changed.") from error
        give_session(seen.request, cookie)

    def with_told(told: Told, status: int) -> Response:
        return page(seen, pages, of_account(seen, told), status)

    answer = carried_out(seen, deed, seen.link(ACCOUNT), with_told)
    if isinstance(answer, RedirectResponse):
        answer.headers.update(HEADERS)
    return answer
