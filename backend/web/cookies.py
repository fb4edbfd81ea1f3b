"""The session cookie: set with whatever answer its request gets, so that a renewed one is never lost on the way."""

from __future__ import annotations

import secrets
from http.cookies import SimpleCookie

from fastapi import Request
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.auth import COOKIE
from backend.registry import Parts
from backend.security import csrf

#: Of who is not signed in: a form that signs in carries what this cookie holds, so that no other site can send it.
FORM_COOKIE = "watchkeeper_form"
FORM_S = 3600
#: Of a sign-in that is under way at an issuer.
FLOW_COOKIE = "watchkeeper_oidc"
FLOW_PATH = "/sign-in"


class SessionCookie:
    """ASGI middleware: adds the cookies that a request's handlers asked for with ``give``."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asked: list[str] = []
        scope.setdefault("state", {})["cookies"] = asked

        async def with_cookies(message: Message) -> None:
            if message["type"] == "http.response.start" and asked:
                headers = MutableHeaders(scope=message)
                for line in asked:
                    headers.append("set-cookie", line)
            await send(message)

        await self._app(scope, receive, with_cookies)


def give(request: Request, name: str, value: str, *, lasts_s: int, path: str = "/", strict: bool = False) -> None:
    """Set a cookie that no script reads. ``lasts_s`` 0 takes it away."""
    jar: SimpleCookie = SimpleCookie()
    jar[name] = value
    morsel = jar[name]
    morsel["httponly"], morsel["samesite"], morsel["path"] = True, "strict" if strict else "lax", path
    morsel["max-age"] = lasts_s
    if is_https(request):
        morsel["secure"] = True
    asked = getattr(request.state, "cookies", None)
    if isinstance(asked, list):
        asked.append(morsel.OutputString())


def is_https(request: Request) -> bool:
    """By how people reach this server: a proxy in front may end TLS."""
    parts: Parts = request.app.state.parts
    return request.url.scheme == "https" or parts.settings.server.url.startswith("https://")


def give_session(request: Request, cookie: str) -> None:
    parts: Parts = request.app.state.parts
    give(request, COOKIE, cookie, lasts_s=int(parts.settings.security.session_s))


def form_secret(request: Request) -> str:
    """What the sign-in form of this browser must carry; given a cookie for it where it has none."""
    known = request.cookies.get(FORM_COOKIE, "")
    if len(known) >= 32 and known.isascii():
        return known
    fresh = secrets.token_urlsafe(32)
    give(request, FORM_COOKIE, fresh, lasts_s=FORM_S, strict=True)
    return fresh


def is_our_form(request: Request, fields: dict[str, str]) -> bool:
    return csrf.is_ours(fields.get(csrf.FIELD), request.cookies.get(FORM_COOKIE, ""))
