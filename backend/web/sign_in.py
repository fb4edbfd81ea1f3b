"""Sign-in, sign-out and the theme: the small forms that are no page of their own."""

from __future__ import annotations

import logging
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse
from jinja2 import Environment
from starlette.concurrency import run_in_threadpool

from backend import auth
from backend.auth import COOKIE
from backend.identity import deeds, oidc
from backend.identity.oidc import Issuer
from backend.web.base import HEADERS, Visit, bare_frame, checked, form, local_path, page, stranger, visit, whence
from backend.web.cookies import FLOW_COOKIE, FLOW_PATH, form_secret, give, give_session, is_our_form
from frontend.contexts import SignIn
from frontend.words import span

#: The theme is kept this long, in seconds (one year).
THEME_S = 31_536_000
STALE = "This form is older than an hour, or came from elsewhere. Send it again."

log = logging.getLogger("watchkeeper.sign_in")


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
        return away(request)

    @found.post("/sign-out/everywhere")
    async def sign_out_everywhere(request: Request, seen: Annotated[Visit, Depends(visit)]) -> Response:
        checked(seen, await form(request))
        await run_in_threadpool(deeds.sign_out_everywhere, seen.parts.store, seen.now, seen.person.name)
        return away(request)

    @found.get("/sign-in/oidc")
    def begin(request: Request, to: str = "/") -> Response:
        return begin_at_issuer(stranger(request), pages, local_path(to, "/"))

    @found.get("/sign-in/oidc/back")
    def back(request: Request) -> Response:
        return back_from_issuer(stranger(request), pages)

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
    issuer = issuer_of(seen.request)
    context = SignIn(
        frame=bare_frame(seen, "Sign in"),
        answer="Sign in to acknowledge, note, approve or reject.",
        action="/sign-in",
        to=to,
        name=name,
        error=error,
        csrf=form_secret(seen.request),
        issuer=issuer.host if issuer is not None else "",
    )
    return page(seen, pages, context, 401 if error else 200)


def try_to(seen: Visit, pages: Environment, fields: dict[str, str]) -> Response:
    """Slow by intent (argon2id), so it runs in a thread."""
    parts, to = seen.parts, local_path(fields.get("to", ""), "/")
    name, password = fields.get("name", "").strip(), fields.get("password", "")
    if not is_our_form(seen.request, fields):
        return sign_in_page(seen, pages, to, name[:200], STALE)
    rules, here = parts.settings.security, whence(seen.request)
    try:
        cookie = auth.sign_in(parts.store, rules, name, password, seen.now, parts.secret, here)
    except auth.SignInError as error:
        rule = f"After {rules.lockout_after} wrong tries in a row a name waits {span(rules.lockout_s)}."
        return sign_in_page(seen, pages, to, name[:200], f"{error} {rule}")
    give_session(seen.request, cookie)
    return RedirectResponse(to, 303, headers=HEADERS)


def end(seen: Visit) -> None:
    parts = seen.parts
    with parts.store.write() as session:
        auth.signed_out(session, seen.person.name, seen.request.cookies.get(COOKIE, ""), seen.now, parts.secret)


def away(request: Request) -> Response:
    give(request, COOKIE, "", lasts_s=0)
    return RedirectResponse("/sign-in", 303, headers=HEADERS)


# --- by an issuer -----------------------------------------------------------------------------------------------------


def issuer_of(request: Request) -> Issuer | None:
    found: object = getattr(request.app.state, "issuer", None)
    return found if isinstance(found, Issuer) else None


def begin_at_issuer(seen: Visit, pages: Environment, to: str) -> Response:
    """Off to the issuer; what has to match when the browser comes back stays in it, sealed."""
    issuer = issuer_of(seen.request)
    if issuer is None:
        return sign_in_page(seen, pages, to, error="No issuer is configured here; sign in with a password.")
    try:
        url, flow = issuer.begin(to, seen.now)
    except auth.SignInError as error:
        return refused(seen, pages, to, error)
    text = oidc.sealed(flow, seen.parts.secret)
    give(seen.request, FLOW_COOKIE, text, lasts_s=int(oidc.FLOW_S), path=FLOW_PATH)
    return RedirectResponse(url, 303, headers=HEADERS)


def back_from_issuer(seen: Visit, pages: Environment) -> Response:
    """Back from the issuer: a session, or why not. What was kept of the sign-in is spent either way."""
    parts, issuer = seen.parts, issuer_of(seen.request)
    flow = oidc.opened(seen.request.cookies.get(FLOW_COOKIE, ""), parts.secret)
    give(seen.request, FLOW_COOKIE, "", lasts_s=0, path=FLOW_PATH)
    if issuer is None or flow is None:
        return sign_in_page(seen, pages, "/", error="No sign-in is under way in this browser. Begin again.")
    to = local_path(flow.to, "/")
    try:
        given = issuer.finish(flow, seen.request.query_params, seen.now)
        rules, here = parts.settings.security, whence(seen.request)
        cookie = auth.sign_in_vouched(parts.store, rules, given, seen.now, parts.secret, here)
    except auth.SignInError as error:
        return refused(seen, pages, to, error)
    give_session(seen.request, cookie)
    return RedirectResponse(to, 303, headers=HEADERS)


def refused(seen: Visit, pages: Environment, to: str, error: auth.SignInError) -> Response:
    log.warning("no sign-in by the issuer: %s (%s)", error, type(error.__cause__ or error).__name__)
    return sign_in_page(seen, pages, to, error=str(error))
