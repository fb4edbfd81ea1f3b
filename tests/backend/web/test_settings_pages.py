"""Settings: what is in force and where it was set; people, tokens, the audit chain and one's own account, by forms."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response
from sqlalchemy import text

from backend.auth import COOKIE
from backend.decide.rules import Rule
from backend.model.people import Audit
from backend.registry import Parts
from backend.settings import load
from backend.store import people
from tests.backend.web import site
from tests.backend.web.conftest import Reader, client_of
from tests.backend.web.test_pages import outline
from tests.backend.web.test_rights import csrf, sign_in

PARTS = ("/settings", "/settings/rules", "/settings/people", "/settings/tokens", "/settings/audit", "/settings/account")
NEW = "four words of my own"
TOML = """
mode = "propose"
[store]
url = "postgresql+psycopg://keeper:hunter2@db/x"
[[cluster]]
name = "main"
  [[cluster.prometheus]]
  url = "http://reader:hunter2@prom:9090"
  headers = { "X-Scope" = "hunter2" }
[[policy.rule]]
name = "try it"
kinds = ["gpu_*"]
ladder = ["ticket"]
shadow = true
"""


def words(page: str) -> str:
    """The text of a page, cell by cell."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", page))).replace("\u00a0", " ")


def sent(client: TestClient, path: str, **fields: str) -> Response:
    return client.post(path, data={"csrf": csrf(client, "/settings/account"), **fields})


def audited(parts: Parts) -> list[Audit]:
    with parts.store.read() as session:
        return list(people.audits(session, 10))


@pytest.mark.parametrize("role", ["", "viewer", "admin"])
def test_each_part_has_one_answer_and_nothing_inline_for_every_reader(reader: Reader, role: str) -> None:
    client = reader(role)
    for path in PARTS:
        got = client.get(path)
        page = outline(got.text)
        assert got.status_code == 200 and page.h1 == 1 and len(page.ids) == len(set(page.ids)) and not page.inline


def test_what_is_for_admins_says_so_to_everybody_else_and_shows_nothing(reader: Reader) -> None:
    client = reader("approver")
    for path in PARTS[2:5]:
        page = words(client.get(path).text)
        assert "Your role is approver. An admin can look at this part." in page
        assert "Add a person" not in page and "Make a token" not in page and "may sign in, " not in page


def test_the_configuration_tells_each_origin_and_no_secret(parts: Parts, tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text(TOML)
    settings = load(file, {"WATCHKEEPER_POLICY__RATE_MAX": "3"})
    page = client_of(replace(parts, settings=settings), "viewer").get("/settings").text
    told = words(page)
    assert "hunter2" not in page and "set, hidden" in told
    assert "site.toml:2" in told and "environment WATCHKEEPER_POLICY__RATE_MAX" in told, told
    assert "policy.rate_max" in told and "policy.rate_s" not in told, "only what is set here, until all is asked for"
    assert "policy.rate_s" in client_of(replace(parts, settings=settings), "viewer").get("/settings?show=all").text
    body = client_of(replace(parts, settings=settings), "viewer").get("/api/v1/settings")
    assert "hunter2" not in body.text
    keys = {row["key"]: row for row in body.json()["items"]}
    assert keys["mode"]["value"] == "propose" and keys["policy.rate_s"]["origin"] == "default"


def test_rules_in_shadow_and_thresholds_of_this_site_are_shown_with_their_sources(parts: Parts) -> None:
    watch = parts.watches["main"]
    limits = replace(watch.rules.limits, rules=(Rule("try it", ("ticket",), shadow=True),))
    watch.rules = replace(watch.rules, limits=limits, shadow=("telemetry/shape", "job_slow"))
    watch.catalogue = watch.catalogue.with_thresholds({"kernel_soft_s": 17.0})
    page = words(client_of(parts, "viewer").get("/settings/rules").text)
    assert "1 rule of this site; 1 of" in page and "try it rule its plan is told" in page
    assert "kernel_soft_s 17 s this site; else 300" in page
    assert "telemetry/shape detector 0 findings in 7 days" in page and "job_slow kind 0 findings" in page
    told = client_of(parts, "viewer").get("/api/v1/settings").json()["shadow"]
    assert told[0] == {"name": "telemetry/shape", "findings": 0, "newest": ""}


def test_an_admin_adds_a_person_who_then_signs_in_and_it_is_audited(reader: Reader, parts: Parts) -> None:
    admin = reader("admin")
    got = sent(admin, "/settings/people/add", name="ada", role="operator", password=NEW, projects="atlas, vision")
    assert got.status_code == 303, words(got.text)
    row = audited(parts)[0]
    assert (row.actor, row.action, row.target, row.details["projects"]) == (
        "admin", "user set", "ada", ["atlas", "vision"],
    )  # fmt: skip
    assert sign_in(client_of(parts), name="ada", password=NEW).status_code == 303
    assert "ada operator projects atlas and vision" in words(admin.get("/settings/people").text)


def test_a_new_role_leaves_the_limits_unless_new_ones_are_asked_for(reader: Reader, parts: Parts) -> None:
    admin = reader("admin")
    assert sent(admin, "/settings/people/add", name="ada", role="viewer", password=NEW, projects="atlas").is_redirect
    assert sent(admin, "/settings/people/role", name="ada", role="operator", projects="").is_redirect
    assert audited(parts)[0].details["projects"] == ["atlas"]
    assert sent(
        admin, "/settings/people/role", name="ada", role="operator", limits="new", projects="vision"
    ).is_redirect
    assert audited(parts)[0].details["projects"] == ["vision"]


WRONG = (
    ("people/add", {"name": "admin", "role": "viewer", "password": NEW}, "there is a person named admin already"),
    ("people/add", {"name": "bob", "role": "king", "password": NEW}, "no role 'king'"),
    ("people/add", {"name": "bob", "role": "viewer", "password": "short"}, "12 characters"),
    (
        "people/add",
        {"name": "b", "role": "viewer", "password": NEW, "clusters": "mars"},
        "there is no cluster mars",
    ),
    ("people/role", {"name": "admin", "role": "viewer"}, "is the last admin"),
    ("people/disable", {"name": "nobody"}, "nobody is named nobody"),
    ("tokens/make", {"name": "x", "scope": "everything"}, "no scope 'everything'"),
    ("tokens/make", {"name": "x", "scope": "read", "days": "soon"}, "is no number of days"),
    ("tokens/make", {"name": "x", "scope": "read", "days": "nan"}, "number of days"),
    ("tokens/make", {"name": "x", "scope": "read", "nodes": "gpu-[1-"}, "That cannot be"),
    ("tokens/revoke", {"token": "²"}, "no token was chosen"),
    ("tokens/revoke", {"token": "77"}, "there is no live token 77"),
)


def test_what_cannot_be_is_said_and_nothing_happens(reader: Reader, parts: Parts) -> None:
    admin = reader("admin")
    before = len(audited(parts))
    for path, fields, why in WRONG:
        got = sent(admin, f"/settings/{path}", **fields)
        assert got.status_code == 422 and why in words(got.text), path
    assert len(audited(parts)) == before


def test_nobody_but_an_admin_of_all_clusters_changes_people_or_tokens(reader: Reader, parts: Parts) -> None:
    fields = {"name": "viewer", "role": "admin", "password": NEW, "scope": "approve", "token": "1"}
    with parts.store.write() as session:
        people.put_user(session, "local admin", "admin", "", parts.clock.now(), people.Scope(("main",)))
    approver, local, admin = reader("approver"), reader("local admin"), reader("admin")
    for path in ("people/add", "people/role", "people/disable", "tokens/make", "tokens/revoke"):
        assert sent(approver, f"/settings/{path}", **fields).status_code == 403
        assert sent(local, f"/settings/{path}", **fields).status_code == 403
        assert admin.post(f"/settings/{path}", data=fields).status_code == 422, "no secret of the session"


def test_a_token_is_shown_once_and_lets_in_until_it_is_revoked(reader: Reader, parts: Parts) -> None:
    admin = reader("admin")
    got = sent(admin, "/settings/tokens/make", name="agent", scope="read", days="1")
    assert got.status_code == 201 and got.headers["cache-control"] == "no-store"
    found = re.search(r"wk_[A-Za-z0-9_-]+", got.text)
    assert found is not None
    bearer = {"Authorization": f"Bearer {found[0]}"}
    assert admin.get("/api/v1/me", headers=bearer).json()["name"] == "token:agent"
    assert found[0] not in admin.get("/settings/tokens").text
    with parts.store.read() as session:
        (row,) = [one for one in people.tokens(session) if one.name == "agent"]
    assert row.expires_at is not None
    assert sent(admin, "/settings/tokens/revoke", token=str(row.id)).status_code == 303
    assert admin.get("/api/v1/me", headers=bearer).status_code == 401
    assert "read, revoked" in words(admin.get("/settings/tokens").text)


def test_the_audit_log_turns_pages_keeps_to_one_person_and_finds_a_changed_row(reader: Reader, parts: Parts) -> None:
    admin = reader("admin")
    with parts.store.write() as session:
        for number in range(120):
            people.audit(session, parts.clock.now(), "ada" if number % 2 else "bob", "note", f"incident {number}")
    page = admin.get("/settings/audit").text
    assert "incident 119" in page and "incident 3<" not in page and "Older" in page
    only = words(admin.get("/settings/audit?actor=bob").text)
    assert "incident 118" in only and "incident 119" not in only
    assert "The chain holds" in words(admin.get("/settings/audit?verify=1").text)
    with parts.store.write() as session:
        session.connection().execute(text("DROP TRIGGER IF EXISTS audit_no_update"))
        names = session.connection().execute(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).scalars()
        for name in list(names):
            session.connection().execute(text(f'DROP TRIGGER "{name}"'))
        session.connection().execute(text("UPDATE audit SET target = 'nothing' WHERE target = 'incident 7'"))
    assert "The chain is broken: Row" in words(admin.get("/settings/audit?verify=1").text)


def test_a_new_password_ends_other_sessions_and_keeps_this_browser_in(reader: Reader, parts: Parts) -> None:
    here, there = client_of(parts), client_of(parts)
    for client in (here, there):
        assert sign_in(client, name="viewer", password=site.PASSWORD).status_code == 303
    assert "no limit; signed in 2 times" in words(here.get("/settings/account").text)
    wrong = sent(here, "/settings/account/password", old="no", new=NEW, again=NEW)
    assert wrong.status_code == 403 and "The old password is wrong" in words(wrong.text)
    twice = sent(here, "/settings/account/password", old=site.PASSWORD, new=NEW, again="else")
    assert twice.status_code == 422 and "not typed the same twice" in words(twice.text)
    got = sent(here, "/settings/account/password", old=site.PASSWORD, new=NEW, again=NEW)
    assert got.status_code == 303 and COOKIE in got.cookies
    assert "viewer , viewer" in words(here.get("/").text)
    assert "Nobody signed in" in words(there.get("/").text)
    assert sign_in(client_of(parts), name="viewer", password=site.PASSWORD).status_code == 401


def test_signing_out_everywhere_ends_every_session(reader: Reader, parts: Parts) -> None:
    one, other = client_of(parts, "operator"), client_of(parts, "operator")
    assert sent(one, "/sign-out/everywhere").status_code == 303
    assert "Nobody signed in" in words(one.get("/").text) and "Nobody signed in" in words(other.get("/").text)
