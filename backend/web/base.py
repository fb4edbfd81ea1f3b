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

from backend import auth, rights
from backend.answers.pages import Rail, rail
from backend.auth import COOKIE, LOCAL, RIGHTS, Person, allows, person_of
from backend.identity import proxy
from backend.proposals import Conflict, Refused
from backend.registry import Parts
from backend.security import csrf
from backend.watch import Watch
from backend.web.cookies import give_session, is_https
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
#: Over https a browser is to come by https only, for a year.
STAY = {"Strict-Transport-Security": "max-age=31536000"}
#: Longest form that is read: a note has 4,000 characters.
FORM_BYTES = 64_000


class NeedSignIn(Exception):
    """Nobody is signed in, and this reader is not on loopback."""


class NoPage(Exception):
    """There is no such thing; says what was looked for."""


class Beyond(Exception):
    """They may not see this page; says why. ``to``: a page that they may see instead."""

    def __init__(self, why: str, to: str = "") -> None:
        super().__init__(why)
        self.to = to


@dataclass(frozen=True, slots=True)
class Visit:
    """One request: who asks, about which cluster, when.

    ``feed`` is the newest change before anything was read: what comes later, the page hears from the live stream.
    """

    request: Request
    parts: Parts
    watch: Watch
    person: Person
    now: datetime
    feed: int = 0

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
    """Who asks. Reads on loopback go as a viewer; elsewhere they need a sign-in. Raises NeedSignIn, NoPage, Beyond."""
    parts: Parts = request.app.state.parts
    now = parts.clock.now()
    latest = parts.changes.latest()
    person, known = signed_in(request, now)
    found = Visit(request, parts, watch_of(request, parts, person), person, now, latest)
    if known:
        return within(found)
    if not is_local(request):
        raise NeedSignIn
    if parts.demo_person and wants_page(request):
        return as_demo(found)
    return found


def signed_in(request: Request, now: datetime) -> tuple[Person, bool]:
    """Who is signed in, by this session or by the proxy in front, which then opens one; else LOCAL and False."""
    parts: Parts = request.app.state.parts
    rules, cookie = parts.settings.security, request.cookies.get(COOKIE, "")
    with parts.store.read() as session:
        person = person_of(session, cookie, now, parts.secret)
    given = proxy.vouched(parts.settings.proxy, peer_of(request), request.headers)
    if given is not None and (person is None or (person.name, person.role) != (given.name, given.role)):
        if not wants_page(request):
            return LOCAL, False
        try:
            cookie = auth.sign_in_vouched(parts.store, rules, given, now, parts.secret, whence(request))
        except auth.SignInError as error:
            raise Beyond(str(error)) from error
        give_session(request, cookie)
        with parts.store.read() as session:
            person = person_of(session, cookie, now, parts.secret)
    elif person is not None and wants_page(request):
        fresh = auth.kept_alive(parts.store, rules, cookie, now, parts.secret)
        if fresh:
            give_session(request, fresh)
    return (person, True) if person is not None else (LOCAL, False)


def within(found: Visit) -> Visit:
    """``found``, once it is clear that the page lies within what its reader may see. Raises Beyond."""
    person, request = found.person, found.request
    rule = rights.rule_of(request.method, str(getattr(request.scope.get("route"), "path", "")))
    mine = "/hardware" if not allows(person, "viewer") else "/incidents" if person.projects else ""
    if far := rights.beyond(rule, person.clusters, person.projects):
        raise Beyond(far, mine)
    needed = RIGHTS.get(rule.need, "viewer") if request.method in ("GET", "HEAD") else "vendor"
    if rule.need != "open" and not allows(person, needed):
        raise Beyond(f"Your role is {person.role}; this page needs {needed}.", mine)
    return found


def wants_page(request: Request) -> bool:
    return request.method == "GET" and "text/html" in request.headers.get("accept", "")


def peer_of(request: Request) -> str | None:
    return request.client.host if request.client is not None else None


def is_local(request: Request) -> bool:
    """From this very machine, and by no proxy of ours."""
    parts: Parts = request.app.state.parts
    if proxy.is_trusted(parts.settings.proxy, peer_of(request)):
        return False
    return auth.is_loopback(peer_of(request), parts.settings.server.host, request.headers)


def whence(request: Request) -> auth.Whence:
    """The client's address, which a believed proxy tells, and what the browser calls itself."""
    parts: Parts = request.app.state.parts
    address = proxy.client_address(parts.settings.proxy, peer_of(request), request.headers)
    return auth.Whence(address, request.headers.get("user-agent", "")[:200])


def as_demo(found: Visit) -> Visit:
    """The demo signs its reader in by itself: only a browser on loopback, only where the demo's person exists."""
    parts = found.parts
    try:
        rules, here = parts.settings.security, whence(found.request)
        cookie = auth.sign_in_as(parts.store, rules, parts.demo_person, found.now, parts.secret, here)
    except auth.SignInError:
        return found
    with parts.store.read() as session:
        person = person_of(session, cookie, found.now, parts.secret)
    if person is None:
        return found
    give_session(found.request, cookie)
    return replace(found, person=person)


def stranger(request: Request) -> Visit:
    """Somebody of whom nothing is known; about the first cluster."""
    parts: Parts = request.app.state.parts
    return Visit(request, parts, next(iter(parts.watches.values())), LOCAL, parts.clock.now())


def watch_of(request: Request, parts: Parts, person: Person = LOCAL) -> Watch:
    """The cluster asked for, or the first that they see. Raises NoPage for one that is, for them, not there."""
    name = request.query_params.get("cluster", "")
    seen = [known for known in parts.watches if person.sees_cluster(known)]
    if name and name not in seen:
        raise NoPage(f"There is no cluster {name}.")
    if not seen:
        raise NoPage(f"There is no cluster {', '.join(person.clusters)} here.")
    return parts.watches[name or seen[0]]


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
    others = [n for n in found.parts.watches if n != found.watch.cluster and found.person.sees_cluster(n)]
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
    if not allows(found.person, "viewer"):
        return (Place("Hardware", found.link("/hardware"), current == "Hardware"),)
    dark = len(beside.pulses.dark)
    waits = f"waits for {'you' if allows(found.person, 'approver') else 'an approver'}"
    badge, waiting = (str(n) if n else "" for n in (beside.open, beside.waiting))
    return (
        Place("Now", found.link("/"), current == "Now"),
        Place("Fleet", found.link("/fleet"), current == "Fleet"),
        Place("Incidents", found.link("/incidents"), current == "Incidents", badge, waiting, waits),
        Place("Alerts", found.link("/alerts"), current == "Alerts"),
        Place("Actions", found.link("/actions"), current == "Actions"),
        Place("Exclusions", found.link("/exclusions"), current == "Exclusions"),
        Place("Runs", found.link("/runs"), current == "Runs"),
        Place("Reliability", found.link("/reliability"), current == "Reliability"),
        Place("Storage & checkpoints", found.link("/storage"), current == "Storage & checkpoints"),
        Place("Planner", found.link("/planner"), current == "Planner"),
        Place("Backtest", found.link("/backtest"), current == "Backtest"),
        Place("System", found.link("/system"), current == "System", f"{dark} dark" if dark else ""),
        Place("Settings", found.link("/settings"), current == "Settings"),
    )


# --- answers --------------------------------------------------------------------------------------------------------


def page(found: Visit, pages: Environment, context: Any, status: int = 200) -> HTMLResponse:
    headers = HEADERS | STAY if is_https(found.request) else HEADERS
    return HTMLResponse(render(pages, context), status, headers)


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
