"""Sign-in, sign-out and the theme: the small forms that are no page of their own."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse
from jinja2 import Environment
from starlette.concurrency import run_in_threadpool

from backend import auth
from backend.auth import COOKIE
from backend.web.base import HEADERS, Visit, bare_frame, checked, form, local_path, page, set_session, stranger, visit
from frontend.contexts import SignIn
from frontend.words import span

#: The theme is kept this long, in seconds (one year).
THEME_S = 31_536_000


def router(pages: Environment) -> APIRouter:
    found = APIRouter()

    @found.get("/sign-in")
    def show(request: Request, to: str = "/") -> Response:
        return sign_in_page(stranger(request), pages, local_path(to, "/"))

    @found.post("/sign-in")
    async def sign_in(request: Request) -> Response:
        fields = await form(request)
        return await run_in_threadpool(try_to, stranger(request), pages, fields)

    @found.post("/sign-out")
    async def sign_out(request: Request, seen: Annotated[Visit, Depends(visit)]) -> Response:
        checked(seen, await form(request))
        await run_in_threadpool(end, seen)
        response = RedirectResponse("/sign-in", 303, headers=HEADERS)
        response.delete_cookie(COOKIE)
        return response

    @found.post("/theme")
    async def theme(request: Request) -> Response:
        fields = await form(request)
        response = RedirectResponse(local_path(fields.get("back", ""), "/"), 303, headers=HEADERS)
        chosen = fields.get("theme", "")
        if chosen in ("light", "dark"):
            response.set_cookie("theme", chosen, max_age=THEME_S, samesite="lax")
        return response

    return found


def sign_in_page(seen: Visit, pages: Environment, to: str, name: str = "", error: str = "") -> Response:
    context = SignIn(
        frame=bare_frame(seen, "Sign in"),
        answer="Sign in to acknowledge, note, approve or reject.",
        action="/sign-in",
        to=to,
        name=name,
        error=error,
    )
    return page(seen, pages, context, 401 if error else 200)


def try_to(seen: Visit, pages: Environment, fields: dict[str, str]) -> Response:
    """Slow by intent (argon2id), so it runs in a thread."""
    parts, to = seen.parts, local_path(fields.get("to", ""), "/")
    name, password = fields.get("name", "").strip(), fields.get("password", "")
    try:
        cookie = auth.sign_in(parts.store, parts.settings.security, name, password, seen.now, parts.secret)
    except auth.SignInError as error:
        rules = parts.settings.security
        rule = f"After {rules.lockout_after} wrong tries in a row a name waits {span(rules.lockout_s)}."
        return sign_in_page(seen, pages, to, name[:200], f"{error} {rule}")
    response = RedirectResponse(to, 303, headers=HEADERS)
    set_session(response, seen, cookie)
    return response


def end(seen: Visit) -> None:
    with seen.parts.store.write() as session:
        auth.sign_out(session, seen.request.cookies.get(COOKIE, ""), seen.parts.secret)
