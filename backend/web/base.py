"""From a request to who asks, which cluster and which theme; and from a context back to a guarded response."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment
from sqlmodel import Session

from backend import auth
from backend.answers.pages import Rail, rail
from backend.auth import COOKIE, LOCAL, Person, allows, person_of
from backend.proposals import Conflict, Refused
from backend.registry import Parts
from backend.security import csrf
from backend.watch import Watch
from backend.writes import Forbidden, Invalid, Missing
from frontend.contexts import Frame, Link, Place, Right, Told
from frontend.render import render
from frontend.words import MODES, clock, count

#: No script and no style but our own files; Plotly draws heat maps as data: images.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-cache, private",
}
#: Longest form that is read: a note has 4,000 characters.
FORM_BYTES = 64_000


class NeedSignIn(Exception):
    """Nobody is signed in, and this reader is not on loopback."""


class NoPage(Exception):
    """There is no such thing; says what was looked for."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One request: who asks, about which cluster, when. ``cookie`` is to be set with the answer (the demo's).

    ``feed`` is the newest change before anything was read: what comes later, the page hears from the live stream.
    """

    request: Request
    parts: Parts
    watch: Watch
    person: Person
    now: datetime
    feed: int = 0
    cookie: str = ""

    @property
    def signed_in(self) -> bool:
        return bool(self.person.csrf)

    @property
    def path(self) -> str:
        url = self.request.url
        return f"{url.path}?{url.query}" if url.query else url.path

    def link(self, path: str, **query: str) -> str:
        """An address of ours; keeps the cluster where there are several."""
        several = {"cluster": self.watch.cluster} if len(self.parts.watches) > 1 else {}
        pairs = {key: value for key, value in (query | several).items() if value}
        return f"{path}?{urlencode(pairs)}" if pairs else path

    def right(self, role: str, to: str) -> Right:
        """May this reader do what ``role`` may? If not: their role, who can, and where to sign in."""
        if allows(self.person, role) and self.signed_in:
            return Right(True, "")
        article = "An" if role[0] in "aeiou" else "A"
        why = f"Your role is {self.person.role}. {article} {role} can {to}."
        return Right(False, why, "" if self.signed_in else sign_in_path(self.path))


def sign_in_path(to: str) -> str:
    return f"/sign-in?to={quote(to, safe='')}" if to not in ("", "/") else "/sign-in"


def visit(request: Request) -> Visit:
    """Who asks. Reads on loopback go as a viewer; elsewhere they need a sign-in. Raises NeedSignIn, NoPage."""
    parts: Parts = request.app.state.parts
    now = parts.clock.now()
    found = Visit(request, parts, watch_of(request, parts), LOCAL, now, parts.changes.latest())
    cookie = request.cookies.get(COOKIE, "")
    with parts.store.read() as session:
        person = person_of(session, cookie, now, parts.secret)
    if person is not None:
        return replace(found, person=person)
    peer = request.client.host if request.client is not None else None
    if not auth.is_loopback(peer, parts.settings.server.host, request.headers):
        raise NeedSignIn
    if parts.demo_person and request.method == "GET" and "text/html" in request.headers.get("accept", ""):
        return as_demo(found)
    return found


def as_demo(found: Visit) -> Visit:
    """The demo signs its reader in by itself: only a browser on loopback, only where the demo's person exists."""
    parts = found.parts
    try:
        cookie = auth.sign_in_as(parts.store, parts.settings.security, parts.demo_person, found.now, parts.secret)
    except auth.SignInError:
        return found
    with parts.store.read() as session:
        person = person_of(session, cookie, found.now, parts.secret)
    return replace(found, person=person, cookie=cookie) if person is not None else found


def stranger(request: Request) -> Visit:
    """Somebody of whom nothing is known; about the first cluster."""
    parts: Parts = request.app.state.parts
    return Visit(request, parts, next(iter(parts.watches.values())), LOCAL, parts.clock.now())


def watch_of(request: Request, parts: Parts) -> Watch:
    name = request.query_params.get("cluster", "")
    if not name:
        return next(iter(parts.watches.values()))
    if name not in parts.watches:
        raise NoPage(f"There is no cluster {name}.")
    return parts.watches[name]


def set_session(response: Response, found: Visit, cookie: str) -> None:
    secure = found.request.url.scheme == "https"
    lasts_s = int(found.parts.settings.security.session_s)
    response.set_cookie(COOKIE, cookie, max_age=lasts_s, httponly=True, samesite="lax", secure=secure)


# --- the frame ------------------------------------------------------------------------------------------------------


def frame(
    session: Session,
    found: Visit,
    title: str,
    crumb: tuple[Link, ...],
    json_href: str = "",
    told: Told | None = None,
    path: str = "",
) -> Frame:
    """Rail, bar and foot of any page. ``path``: its own address, where a form's answer stands at another."""
    beside = rail(session, found.watch.cluster, found.now)
    row, mode = beside.pulses.cluster, found.watch.rules.mode
    others = [name for name in found.parts.watches if name != found.watch.cluster]
    thrown = f"{row.kill_switch_by}, {clock(row.kill_switch_at, found.now)} UTC" if row.kill_switch_at else "somebody"
    return Frame(
        title=title,
        crumb=crumb,
        path=path or found.path,
        places=places(found, beside, crumb[0].text),
        as_of=found.now,
        cluster=Link(found.watch.cluster, found.link("/")),
        clusters=tuple(Link(name, f"/?{urlencode({'cluster': name})}") for name in others),
        simulated=row.simulated,
        size=f"{count(beside.gpus, 'GPU')} on {count(beside.nodes, 'node')}",
        mode=mode,
        mode_means=MODES[mode],
        stopped=thrown if row.kill_switch else "",
        person=found.person.name if found.signed_in else "",
        role=found.person.role,
        csrf=found.person.csrf,
        theme=theme_of(found.request),
        sign_in=sign_in_path(found.path),
        feed=found.feed,
        json_href=json_href,
        told=told,
    )


def bare_frame(found: Visit, title: str, told: Told | None = None) -> Frame:
    """The frame for strangers, and for when the store is away: it tells nothing about the cluster."""
    return Frame(
        title=title,
        crumb=(Link(title, ""),),
        path="/",
        places=(),
        as_of=found.now,
        cluster=Link("", "/"),
        clusters=(),
        simulated=found.watch.rules.simulated,
        size="",
        mode="",
        mode_means="",
        stopped="",
        person="",
        role="",
        csrf="",
        theme=theme_of(found.request),
        sign_in="/sign-in",
        feed=found.feed,
        told=told,
    )


def theme_of(request: Request) -> Any:
    """light, dark, or empty for as the system. Any: a Literal that a cookie cannot prove."""
    chosen = request.cookies.get("theme", "")
    return chosen if chosen in ("light", "dark") else ""


def places(found: Visit, beside: Rail, current: str) -> tuple[Place, ...]:
    dark = len(beside.pulses.dark)
    waits = f"waits for {'you' if allows(found.person, 'approver') else 'an approver'}"
    badge, waiting = (str(n) if n else "" for n in (beside.open, beside.waiting))
    return (
        Place("Now", found.link("/"), current == "Now"),
        Place("Fleet", found.link("/fleet"), current == "Fleet"),
        Place("Incidents", found.link("/incidents"), current == "Incidents", badge, waiting, waits),
        Place("System", found.link("/system"), current == "System", f"{dark} dark" if dark else ""),
    )


# --- answers --------------------------------------------------------------------------------------------------------


def page(found: Visit, pages: Environment, context: Any, status: int = 200) -> HTMLResponse:
    response = HTMLResponse(render(pages, context), status, HEADERS)
    if found.cookie:
        set_session(response, found, found.cookie)
    return response


def local_path(given: str, otherwise: str) -> str:
    """A path of this site, never an address elsewhere."""
    plain = given.startswith("/") and not given.startswith(("//", "/\\")) and given.isprintable()
    return given if plain else otherwise


async def form(request: Request) -> dict[str, str]:
    """The fields of a small form. Raises Invalid where it is too large, says no length, or comes from elsewhere."""
    length = request.headers.get("content-length", "")
    if not length.isdecimal() or int(length) > FORM_BYTES:
        raise Invalid(f"A form has at most {FORM_BYTES:,} bytes.")
    if not csrf.same_origin(request.headers.get("origin"), request.headers.get("host")):
        raise Invalid("This form came from another site. Open the page here and send it again.")
    sent = await request.form()
    return {key: value for key, value in sent.items() if isinstance(value, str)}


def checked(found: Visit, fields: dict[str, str]) -> None:
    """A person's form carries their session's secret. Raises NeedSignIn, Invalid."""
    if not found.signed_in:
        raise NeedSignIn
    if not csrf.is_ours(fields.get("csrf"), found.person.csrf):
        raise Invalid("This form is older than your sign-in. Reload the page and send it again.")


def carried_out(
    found: Visit, deed: Callable[[], object], back: str, page_with: Callable[[Told, int], Response]
) -> Response:
    """Do it and go back; or stay, and say why nothing happened."""
    try:
        deed()
    except Refused as refused:
        against = tuple(g.reason for g in refused.guards if g.verdict == "refuses")
        return page_with(Told(False, "A guard refuses; nothing happened.", against), 409)
    except Conflict as conflict:
        return page_with(Told(False, str(conflict)), 409)
    except Forbidden as forbidden:
        return page_with(Told(False, str(forbidden)), 403)
    except (Invalid, Missing) as invalid:
        return page_with(Told(False, str(invalid)), 422)
    return RedirectResponse(back, 303)
