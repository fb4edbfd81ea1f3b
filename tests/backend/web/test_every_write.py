"""Each route that writes, walked by real requests: who may leaves an audit row, everybody else leaves nothing.

A new route that writes fails here until it stands in DEEDS with a request that it carries out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from fastapi.testclient import TestClient

from backend import rights
from backend.auth import COOKIE, RIGHTS, ROLES, person_of
from backend.clock import ManualClock
from backend.model.actions import Exclusion
from backend.model.people import Audit
from backend.model.tasks import Task
from backend.registry import Parts
from backend.security import csrf, tokens
from backend.store import incidents, people, system, tasks
from tests.backend.api import rows
from tests.backend.api.conftest import Site
from tests.backend.web import site as pages
from tests.backend.web.conftest import client_of
from tests.backend.web.test_rights import fresh

#: Whose right is not a role: signed by Slack, whose member's user is asked; forms of a stranger.
ELSEWHERE = {"POST /api/v1/slack/actions", "POST /sign-in"}
NEW = "four words of my own"
NUMBERS = count(1)


@dataclass
class World:
    """A filled site and one signed-in reader a role; makes what a deed is done to."""

    parts: Parts
    site: Site

    def reader(self, role: str) -> TestClient:
        return client_of(self.parts, role)

    def incident(self) -> int:
        return rows.an_incident(self.site, f"gpu-{next(NUMBERS) % 12 + 5:03d}")

    def plan(self) -> tuple[int, int]:
        number = next(NUMBERS) % 40 + 5
        found = rows.an_incident(self.site, f"gpu-{number:03d}")
        return found, rows.a_plan(self.site, found, f"gpu-{number:03d}")

    def order(self, state: str) -> int:
        number = next(NUMBERS)
        node = f"spare-{number}"
        return rows.an_order(self.site, rows.an_incident(self.site, node), 10_000 + number, state, node)

    def exclusion(self) -> int:
        now = self.parts.clock.now()
        row = Exclusion(cluster="main", node="gpu-001", owner="operator", origin="person", reason="x", created_at=now,
                        until=now + timedelta(days=1))  # fmt: skip
        return rows.add(self.site, row)

    def backtest(self, state: str = "waiting", *, adopted: bool = False) -> int:
        asked = {"start": 1.0, "end": 2.0, "thresholds": {"silence_ticks": 3.0}}
        now = self.parts.clock.now()
        with self.parts.store.write() as session:
            for old in tasks.open_ones(session, "main"):
                session.delete(old)  # only so many may wait
        row = Task(cluster="main", kind="backtest", at=now, by="x", asked=asked, state=state,
                   adopted_at=now if adopted else None)  # fmt: skip
        return rows.add(self.site, row)

    def token(self) -> int:
        with self.parts.store.write() as session:
            row = people.add_token(session, "t", "read", tokens.hash_token(tokens.new_token(), b"k"), pages_now(self))
            return row.id or 0

    def somebody(self) -> str:
        name = f"somebody {next(NUMBERS)}"
        with self.parts.store.write() as session:
            people.put_user(session, name, "viewer", pages.hashed_password(), pages_now(self))
        return name

    def tripped(self) -> None:
        with self.parts.store.write() as session:
            system.trip_breaker(session, "main", "29 nodes of 48 broke.", pages_now(self))

    def audits(self) -> list[Audit]:
        with self.parts.store.read() as session:
            return list(people.audits(session, 3))


def pages_now(world: World) -> Any:
    return world.parts.clock.now()


@pytest.fixture
def world(parts: Parts, clock: ManualClock) -> Iterator[World]:
    fresh(parts, clock)
    watch = parts.watches["main"]
    wide = replace(watch.rules.limits, max_out_share=1.0, max_out_share_rack=1.0, shift_min=1000)
    watch.rules = replace(watch.rules, limits=wide)
    with parts.store.write() as session:
        people.put_user(session, "vendor", "vendor", pages.hashed_password(), clock.now())
    yield World(parts, Site(parts, clock, pages.app_of(parts)))


#: (path, body): what is sent; a body of a page is a form.
Sent = tuple[str, dict[str, Any]]
Deed = Callable[[World], Sent]
WHY = {"reason": "the leaf is back"}


def _until(world: World) -> str:
    return str((pages_now(world) + timedelta(hours=2)).isoformat())


def _silence(world: World) -> int:
    body = {"matches": {"node": ["gpu-040"]}, "comment": "swap", "hours": 2}
    got = signed(world, "admin").post("/api/v1/silences", json=body)
    return int(got.json()["id"])


def _no_drill(world: World) -> None:
    """Only one drill at a time."""
    with world.parts.store.write() as session:
        for row in incidents.live(session, "main"):
            if row.drill:
                row.state = "resolved"
                session.add(row)


API = "/api/v1"
TRY: dict[str, Any] = {
    "start": "2026-02-02T00:00:00Z",
    "end": "2026-02-02T06:00:00Z",
    "thresholds": {"silence_ticks": 3},
}
DEEDS: dict[str, Deed] = {
    f"POST {API}/incidents/{{incident_id}}/ack": lambda w: (f"{API}/incidents/{w.incident()}/ack", {}),
    f"POST {API}/incidents/{{incident_id}}/resolve": lambda w: (f"{API}/incidents/{w.incident()}/resolve", {}),
    f"POST {API}/incidents/{{incident_id}}/notes": lambda w: (f"{API}/incidents/{w.incident()}/notes", {"text": "n"}),
    "POST /incidents/{number}/acknowledge": lambda w: (f"/incidents/{w.incident()}/acknowledge", {}),
    "POST /incidents/{number}/resolve": lambda w: (f"/incidents/{w.incident()}/resolve", {}),
    "POST /incidents/{number}/notes": lambda w: (f"/incidents/{w.incident()}/notes", {"note": "n"}),
    f"POST {API}/labels": lambda w: (f"{API}/labels", {"incident": w.incident(), "right": True}),
    "POST /incidents/{number}/labels": lambda w: (f"/incidents/{w.incident()}/labels", {"right": "yes"}),
    f"POST {API}/orders/{{order_id}}/approve": lambda w: (f"{API}/orders/d{w.plan()[1]}/approve", {}),
    f"POST {API}/orders/{{order_id}}/reject": lambda w: (f"{API}/orders/d{w.plan()[1]}/reject", {}),
    f"POST {API}/orders/{{order_id}}/cancel": lambda w: (f"{API}/orders/{w.order('waiting')}/cancel", {}),
    f"POST {API}/orders/{{order_id}}/undo": lambda w: (f"{API}/orders/{w.order('done')}/undo", {}),
    "POST /incidents/{number}/decisions/{which}/approve": lambda w: (
        "/incidents/{}/decisions/{}/approve".format(*w.plan()), {},
    ),
    "POST /incidents/{number}/decisions/{which}/reject": lambda w: (
        "/incidents/{}/decisions/{}/reject".format(*w.plan()), {},
    ),
    "POST /actions/plans/{which}/approve": lambda w: (f"/actions/plans/{w.plan()[1]}/approve", {}),
    "POST /actions/plans/{which}/reject": lambda w: (f"/actions/plans/{w.plan()[1]}/reject", {}),
    "POST /actions/orders/{which}/cancel": lambda w: (f"/actions/orders/{w.order('waiting')}/cancel", {}),
    "POST /actions/orders/{which}/undo": lambda w: (f"/actions/orders/{w.order('done')}/undo", {}),
    "POST /actions/breaker": lambda w: (w.tripped(), ("/actions/breaker", WHY))[1],  # type: ignore[func-returns-value]
    f"POST {API}/breaker/reset": lambda w: (w.tripped(), (f"{API}/breaker/reset", WHY))[1],  # type: ignore[func-returns-value]
    f"POST {API}/drills": lambda w: (_no_drill(w), (f"{API}/drills", {"kind": "gpu_bus_loss", "node": "gpu-001"}))[1],  # type: ignore[func-returns-value]
    "POST /actions/kill-switch": lambda w: ("/actions/kill-switch", {"on": "0"}),
    "POST /system/kill-switch": lambda w: ("/system/kill-switch", {"on": "0"}),
    f"POST {API}/exclusions": lambda w: (f"{API}/exclusions", {"node": "gpu-001", "reason": "x", "until": _until(w)}),
    f"DELETE {API}/exclusions/{{exclusion_id}}": lambda w: (f"{API}/exclusions/{w.exclusion()}", {}),
    f"PATCH {API}/exclusions/{{exclusion_id}}": lambda w: (f"{API}/exclusions/{w.exclusion()}", {"until": _until(w)}),
    "POST /exclusions": lambda w: ("/exclusions", {"nodes": "gpu-001", "node": "gpu-001", "reason": "x", "hours": "2"}),
    "POST /exclusions/{which}/extend": lambda w: (f"/exclusions/{w.exclusion()}/extend", {"hours": "3", "reason": "y"}),
    "POST /exclusions/{which}/lift": lambda w: (f"/exclusions/{w.exclusion()}/lift", {"reason": "swapped"}),
    "POST /runs/{name}/labels": lambda w: ("/runs/41207/labels", {"right": "yes", "job": "41207"}),
    f"POST {API}/backtests": lambda w: (w.backtest(), (f"{API}/backtests", TRY))[1],
    f"POST {API}/backtests/{{number}}/cancel": lambda w: (f"{API}/backtests/{w.backtest()}/cancel", {}),
    f"POST {API}/backtests/{{number}}/adopt": lambda w: (f"{API}/backtests/{w.backtest('done')}/adopt", {}),
    f"POST {API}/backtests/{{number}}/withdraw": lambda w: (
        f"{API}/backtests/{w.backtest('done', adopted=True)}/withdraw", {},
    ),
    "POST /backtest": lambda w: (w.backtest(), ("/backtest", TRY | {"thresholds": "silence_ticks = 3"}))[1],
    "POST /backtest/{number}/cancel": lambda w: (f"/backtest/{w.backtest()}/cancel", {}),
    "POST /backtest/{number}/adopt": lambda w: (f"/backtest/{w.backtest('done')}/adopt", {}),
    "POST /backtest/{number}/withdraw": lambda w: (f"/backtest/{w.backtest('done', adopted=True)}/withdraw", {}),
    f"POST {API}/silences": lambda w: (
        f"{API}/silences", {"matches": {"node": ["gpu-040"]}, "comment": "swap", "hours": 2},
    ),
    f"DELETE {API}/silences/{{silence_id}}": lambda w: (f"{API}/silences/{_silence(w)}", {}),
    "POST /alerts/silences": lambda w: ("/alerts/silences", {"node": "gpu-040", "comment": "swap", "hours": "2"}),
    "POST /alerts/silences/{number}/end": lambda w: (f"/alerts/silences/{_silence(w)}/end", {}),
    f"POST {API}/users": lambda w: (f"{API}/users", {"name": f"n{next(NUMBERS)}", "role": "viewer", "password": NEW}),
    f"PATCH {API}/users/{{name}}": lambda w: (f"{API}/users/{w.somebody()}", {"role": "operator"}),
    f"DELETE {API}/users/{{name}}": lambda w: (f"{API}/users/{w.somebody()}", {}),
    f"POST {API}/tokens": lambda w: (f"{API}/tokens", {"name": "agent", "scope": "ingest"}),
    f"DELETE {API}/tokens/{{token_id}}": lambda w: (f"{API}/tokens/{w.token()}", {}),
    "POST /settings/people/add": lambda w: (
        "/settings/people/add", {"name": f"m{next(NUMBERS)}", "role": "viewer", "password": NEW},
    ),
    "POST /settings/people/role": lambda w: ("/settings/people/role", {"name": w.somebody(), "role": "operator"}),
    "POST /settings/people/disable": lambda w: ("/settings/people/disable", {"name": w.somebody()}),
    "POST /settings/tokens/make": lambda w: ("/settings/tokens/make", {"name": "agent", "scope": "ingest"}),
    "POST /settings/tokens/revoke": lambda w: ("/settings/tokens/revoke", {"token": str(w.token())}),
    "POST /settings/account/password": lambda w: (
        "/settings/account/password", {"old": pages.PASSWORD, "new": NEW, "again": NEW},
    ),
    "POST /sign-out": lambda w: ("/sign-out", {}),
    "POST /sign-out/everywhere": lambda w: ("/sign-out/everywhere", {}),
}  # fmt: skip
#: Routes whose deed needs what no row here gives; their own tests walk them.
WALKED_ELSEWHERE = {
    "POST /runs/{name}/labels": "tests/backend/web/test_told.py",
    f"POST {API}/alerts/{{delivery_id}}/send-again": "the tests of alerts",
    "POST /alerts/{number}/send-again": "the tests of alerts",
}


def writing() -> dict[str, rights.Rule]:
    """Every route that writes by somebody's right."""
    return {name: rule for name, rule in rights.TABLE.items() if rule.writes and name not in ELSEWHERE}


def signed(world: World, role: str) -> TestClient:
    """A reader of this role whose requests carry their session's secret, in a form or a header."""
    client = world.reader(role)
    with world.parts.store.read() as session:
        person = person_of(session, client.cookies[COOKIE], pages_now(world), world.parts.secret)
    assert person is not None
    client.headers[csrf.HEADER] = person.csrf
    return client


def send(client: TestClient, name: str, sent: Sent) -> int:
    method, (path, body) = name.split()[0], sent
    if path.startswith(API):
        return int(client.request(method, path, json=body or None).status_code)
    secret = client.headers.get(csrf.HEADER, "")
    return int(client.request(method, path, data={csrf.FIELD: secret, **body}).status_code)


def test_every_route_that_writes_is_walked() -> None:
    roles = {name for name, rule in writing().items() if rule.need != "ingest"}
    assert roles - set(WALKED_ELSEWHERE) <= set(DEEDS), "add a request that it carries out"


@pytest.mark.parametrize("part", range(4))
def test_who_may_leaves_an_audit_row_and_who_may_not_leaves_nothing(world: World, part: int) -> None:
    clients = {role: signed(world, role) for role in ROLES}
    nobody = client_of(world.parts)
    for number, (name, deed) in enumerate(DEEDS.items()):
        if number % 4 != part or name in WALKED_ELSEWHERE:
            continue
        needed = RIGHTS[rights.TABLE[name].need]
        below = ROLES.index(needed) - 1
        refused = [nobody, *([clients[ROLES[below]]] if below >= 0 else [])]
        for client in refused:
            sent = deed(world)
            before = world.audits()[0].id
            assert send(client, name, sent) in (303, 401, 403), name
            assert world.audits()[0].id == before, f"{name}: a refused write left a row"
        sent = deed(world)
        before = world.audits()[0].id or 0
        status = send(signed(world, "viewer") if needed == "vendor" else clients[needed], name, sent)
        assert status in (200, 201, 204, 303), f"{name}: {status}"
        row = world.audits()[0]
        assert (row.id or 0) > before, f"{name} left no audit row"
        assert row.actor in (needed, "viewer"), f"{name}: {row.actor}"
    with world.parts.store.read() as session:
        assert people.audit_flaw(session) == ""


def test_every_push_of_a_token_is_in_the_audit_once_a_day(world: World) -> None:
    text = tokens.new_token()
    with world.parts.store.write() as session:
        people.add_token(session, "agent", "ingest", tokens.hash_token(text, world.parts.secret), pages_now(world))
        read = tokens.new_token()
        people.add_token(session, "look", "read", tokens.hash_token(read, world.parts.secret), pages_now(world))
    client = client_of(world.parts)
    for name in (name for name, rule in writing().items() if rule.need == "ingest"):
        path = name.split()[1]
        assert client.post(path, json=[], headers={"Authorization": f"Bearer {read}"}).status_code == 403, path
        client.post(path, json=[], headers={"Authorization": f"Bearer {text}"})
        row = world.audits()[0]
        assert (row.actor, row.target) == ("token:agent", path)
        client.post(path, json=[], headers={"Authorization": f"Bearer {text}"})
        assert world.audits()[0].id == row.id, f"{path}: a row a push would be a row a second"


def test_no_read_is_open_to_less_than_its_rule_says(world: World) -> None:
    """Each read that needs a right, asked by the role below it and by who is not signed in from elsewhere."""
    elsewhere = TestClient(
        world.site.app, base_url="http://10.0.0.5", client=("10.0.0.9", 50_000), follow_redirects=False
    )
    vendor = world.reader("vendor")
    approver = world.reader("approver")
    for name, rule in rights.TABLE.items():
        method, path = name.split()
        if method != "GET" or rule.need == "open" or "sign_in" in name:
            continue
        real = path.replace("{number}", "1").replace("{incident_id}", "1").replace("{order_id}", "1")
        real = real.replace("{", "").replace("}", "")
        assert elsewhere.get(real).status_code in (303, 401, 404), name
        role = RIGHTS[rule.need]
        if role == "viewer":
            got = vendor.get(real)
            assert got.status_code in (403, 404, 422) or got.headers.get("location") == "/hardware", name
        if role == "admin":
            assert approver.get(real).status_code == 403, name
