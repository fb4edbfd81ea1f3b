"""users, tokens and audit over REST: admins only, a secret told once, every deed in the chain."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest
from sqlmodel import select

from backend.model.people import Audit, Token
from backend.store import people
from backend.store.people import Scope
from tests.backend.api.conftest import NOW, Site, problem

PASSWORD = "four words of my own"
FAR = ("10.1.2.3", 50_000)


def test_an_admin_adds_changes_and_disables_a_person(site: Site) -> None:
    admin = site.person("admin")
    new = {"name": "ada", "role": "approver", "password": PASSWORD, "clusters": ["main"], "projects": ["atlas"]}
    made = admin.post("/api/v1/users", json=new)
    assert made.status_code == 201 and made.json()["projects"] == ["atlas"] and PASSWORD not in made.text
    problem(admin.post("/api/v1/users", json=new), 422)
    changed = admin.patch("/api/v1/users/ada", json={"role": "viewer"}).json()
    assert (changed["role"], changed["clusters"]) == ("viewer", ["main"]), "limits that are not named stay"
    assert admin.delete("/api/v1/users/ada").status_code == 204
    listed = {row["name"]: row for row in admin.get("/api/v1/users").json()["items"]}
    assert listed["ada"]["disabled_at"] and "password" not in str(listed)
    problem(admin.delete("/api/v1/users/nobody"), 404)
    actions = [row["action"] for row in admin.get("/api/v1/audit?actor=admin").json()["items"]]
    assert actions[:3] == ["user disabled", "role changed", "user set"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"password": "short"}, "at least 12"),
        ({"password": "ada-password-1234"}, "more than names"),
        ({"clusters": ["west"]}, "no cluster west"),
        ({"nodes": "gpu-[1-"}, ""),
        ({"name": " ada"}, "1 to 64 printable"),
    ],
)
def test_what_cannot_be_is_refused_and_nobody_is_added(site: Site, change: dict[str, object], says: str) -> None:
    admin = site.person("admin")
    new: dict[str, object] = {"name": "ada", "role": "viewer", "password": PASSWORD}
    body = problem(admin.post("/api/v1/users", json=new | change), 422)
    assert says in body["detail"] and "ada-password-1234" not in str(body)
    with site.parts.store.read() as session:
        assert [row.name for row in people.users(session)] == ["admin"]


def test_the_last_admin_stays(site: Site) -> None:
    admin = site.person("admin")
    problem(admin.patch("/api/v1/users/admin", json={"role": "viewer"}), 422)
    problem(admin.delete("/api/v1/users/admin"), 422)


@pytest.mark.parametrize("role", ["viewer", "operator", "approver"])
@pytest.mark.parametrize("path", ["/api/v1/users", "/api/v1/tokens", "/api/v1/audit"])
def test_only_admins_look_at_people_tokens_and_audit(site: Site, role: str, path: str) -> None:
    problem(site.person(role).get(path), 403)
    problem(site.client().get(path), 403)
    problem(site.program("approve").get(path), 403)


def test_a_token_is_told_once_works_at_once_and_dies_when_it_is_revoked(site: Site) -> None:
    admin = site.person("admin")
    made = admin.post("/api/v1/tokens", json={"name": "prolog", "scope": "read", "days": 1})
    assert made.status_code == 201 and made.headers["Cache-Control"] == "no-store"
    text, token_id = made.json()["token"], made.json()["id"]
    program = site.client(FAR, Authorization=f"Bearer {text}")
    assert program.get("/api/v1/nodes").status_code == 200
    assert text not in admin.get("/api/v1/tokens").text and text not in admin.get("/api/v1/audit").text
    assert admin.delete(f"/api/v1/tokens/{token_id}").status_code == 204
    problem(program.get("/api/v1/nodes"), 401)
    problem(admin.delete(f"/api/v1/tokens/{token_id}"), 404)
    with site.parts.store.read() as session:
        row = session.exec(select(Token)).one()
        assert text not in str(row.model_dump()) and row.created_by == "admin"


def test_a_token_ends_by_itself(site: Site) -> None:
    text = site.person("admin").post("/api/v1/tokens", json={"name": "x", "scope": "read", "days": 1}).json()["token"]
    program = site.client(FAR, Authorization=f"Bearer {text}")
    site.clock.set(site.clock.now() + timedelta(seconds=86_399))
    assert program.get("/api/v1/nodes").status_code == 200
    site.clock.set(site.clock.now() + timedelta(seconds=1))
    problem(program.get("/api/v1/nodes"), 401)


def test_a_verdict_with_a_token_asks_the_database_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    program = site.program("read", FAR)
    assert program.get("/api/v1/nodes/gpu-1").status_code == 200

    def nobody(*_: object) -> None:
        raise AssertionError("a question to the database")

    monkeypatch.setattr(site.app.state.callers, "is_fresh", lambda: True)
    monkeypatch.setattr(people, "live_tokens", nobody)
    monkeypatch.setattr(people, "tokens_mark", nobody)
    monkeypatch.setattr(people, "token_by_hash", nobody)
    assert program.get("/api/v1/nodes/gpu-1").status_code == 200


def test_the_chain_is_verified_over_rest(site: Site) -> None:
    admin = site.person("admin")
    assert admin.get("/api/v1/audit").json()["flaw"] is None
    assert admin.get("/api/v1/audit?verify=1").json()["flaw"] == ""
    pages, before = [], ""
    while True:
        page = admin.get(f"/api/v1/audit?limit=1{before}").json()
        pages += page["items"]
        if page["next"] is None or not page["items"]:
            break
        before = f"&before={page['next']}"
    with site.parts.store.read() as session:
        assert [row["id"] for row in pages] == sorted((r.id or 0 for r in session.exec(select(Audit))), reverse=True)


def test_no_secret_reaches_a_log(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    admin = site.person("admin")
    admin.post("/api/v1/users", json={"name": "ada", "role": "viewer", "password": PASSWORD})
    admin.post("/api/v1/users", json={"name": 7, "role": "root", "password": PASSWORD})
    text = admin.post("/api/v1/tokens", json={"name": "x", "scope": "read"}).json()["token"]
    site.client(FAR, Authorization=f"Bearer {text}").get("/api/v1/nodes")
    site.client(FAR, Authorization=f"Bearer {text}x").get("/api/v1/nodes")
    cookie = next(iter(admin.cookies.values()))
    said = "\n".join(f"{record.getMessage()} {record.exc_info}" for record in caplog.records)
    assert said and all(secret not in said for secret in (PASSWORD, text, cookie))


# --- limits ---------------------------------------------------------------------------------------------------------


def limited(site: Site, role: str, scope: Scope) -> object:
    client = site.person(role)
    with site.parts.store.write() as session:
        row = people.user(session, role)
        assert row is not None
        row.clusters, row.projects = list(scope.clusters), list(scope.projects)
        session.add(row)
    return client


def test_a_cluster_that_somebody_may_not_see_is_not_there_for_them(two_clusters: Site) -> None:
    client = limited(two_clusters, "operator", Scope(clusters=("east",)))
    for path in ("/api/v1/nodes", "/api/v1/incidents", "/api/v1/nodes/gpu-1", "/api/v1/orders"):
        assert client.get(f"{path}?cluster=east").status_code == 200, path  # type: ignore[attr-defined]
        assert "west" not in problem(client.get(f"{path}?cluster=west"), 404)["detail"].partition("here")[2]  # type: ignore[attr-defined]
    new = {"node": "gpu-1", "reason": "swap", "hours": 1}
    assert client.post("/api/v1/exclusions?cluster=east", json=new).status_code == 201  # type: ignore[attr-defined]
    problem(client.post("/api/v1/exclusions?cluster=west", json=new), 404)  # type: ignore[attr-defined]
    problem(client.get("/metrics"), 403)  # type: ignore[attr-defined]


def test_a_token_of_one_cluster_pushes_to_no_other(two_clusters: Site) -> None:
    admin = two_clusters.person("admin")
    text = admin.post("/api/v1/tokens", json={"name": "east", "scope": "ingest", "clusters": ["east"]}).json()["token"]
    client = two_clusters.client(FAR, Authorization=f"Bearer {text}")
    row = {"ts": NOW.timestamp(), "host": "gpu-1", "source": "kernel", "line": "hello"}
    assert client.post("/api/v1/ingest/logs?cluster=east", json=[row]).status_code == 200
    problem(client.post("/api/v1/ingest/logs?cluster=west", json=[row]), 404)


# --- tokens that are bound to nodes -----------------------------------------------------------------------------------

XID = "NVRM: Xid (PCI:0000:9d:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def bound_client(site: Site, nodes: str) -> object:
    made = site.person("admin").post("/api/v1/tokens", json={"name": "agent", "scope": "ingest", "nodes": nodes})
    assert made.status_code == 201, made.text
    return site.client(FAR, Authorization=f"Bearer {made.json()['token']}")


def test_a_bound_token_speaks_of_its_own_nodes_only(site: Site) -> None:
    client = bound_client(site, "gpu-[1-2]")

    def line(host: str, after: float = 0) -> dict[str, object]:
        return {"ts": NOW.timestamp() + after, "host": host, "source": "kernel", "line": XID}

    post = client.post  # type: ignore[attr-defined]
    both = post("/api/v1/ingest/logs", json=[line("gpu-1"), line("gpu-3")]).json()
    assert both["accepted"] == 1 and both["dropped"]["not_its_node"] == 1
    assert post("/api/v1/ingest/logs", json=[line("gpu-2.cluster.local")]).json()["accepted"] == 1
    assert "gpu-1" in problem(post("/api/v1/ingest/logs", json=[line("gpu-3", 9)]), 403)["detail"]
    problem(
        post(
            "/api/v1/ingest/jobs", json=[{"job": "1", "state": "RUNNING", "submit": NOW.timestamp(), "nodes": "gpu-1"}]
        ),
        403,
    )
    topology = {"nodes": [{"name": "gpu-1"}, {"name": "gpu-9"}]}
    assert post("/api/v1/ingest/topology", json=topology).json()["dropped"]["not_its_node"] == 1
    change = [{"ts": NOW.timestamp(), "nodes": "gpu-9", "item": "driver", "value": "1"}]
    problem(post("/api/v1/changes", json=change), 403)
    nodes = {row["node"] for row in site.client().get("/api/v1/nodes").json()["items"]}
    assert "gpu-9" not in nodes and "gpu-3" not in nodes


def test_who_pushed_is_in_the_audit_once_a_day(site: Site) -> None:
    client = site.program("ingest", FAR)
    row = {"ts": NOW.timestamp(), "host": "gpu-1", "source": "kernel", "line": "hello"}
    for _ in range(3):
        assert client.post("/api/v1/ingest/logs", json=[row]).status_code == 200
    site.clock.set(site.clock.now() + timedelta(seconds=timedelta(days=1).total_seconds()))
    assert client.post("/api/v1/ingest/logs", json=[row]).status_code == 200
    with site.parts.store.read() as session:
        pushes = [(r.actor, r.target) for r in session.exec(select(Audit)) if r.action == "push"]
    assert pushes == [("token:ingest robot", "/api/v1/ingest/logs")] * 2
