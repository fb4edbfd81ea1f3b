"""users, tokens and db: who may sign in, on the configured database."""

from __future__ import annotations

import re
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr
from sqlalchemy import text
from sqlmodel import select

from backend import auth
from backend.cli import main
from backend.clock import SystemClock
from backend.commands.server import begun
from backend.model.people import Audit
from backend.registry import build
from backend.settings import Security, Server, Settings
from backend.settings import Store as StoreSettings
from backend.store import people, system
from backend.store.engine import open_store

PASSWORD = "correct horse battery"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    file.write_text(PASSWORD + "\n")
    return file


def run(config: Path, *words: str) -> int:
    return main([*words, "--config", str(config)])


def test_a_person_that_was_added_can_sign_in_and_is_listed(
    config: Path, folder: Path, secret: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(config, "users", "add", "ada", "--role", "approver", "--password-file", str(secret)) == 0
    assert capsys.readouterr().out == "ada may sign in as approver.\n"
    assert run(config, "users", "list") == 0
    assert capsys.readouterr().out.split() == ["ada", "approver"]
    store, now = open_store("", folder), SystemClock().now()
    with store.write() as session:
        key = system.secret(session, "tokens", now)
    cookie = auth.sign_in(store, Security(), "ada", PASSWORD, now, key)
    with store.read() as session:
        assert auth.person_of(session, cookie, now, key) is not None
        assert [(a.actor, a.action, a.target) for a in session.exec(select(Audit))][0] == (
            "command line",
            "user set",
            "ada",
        )
    store.close()


def test_adding_a_known_person_changes_role_and_password(
    config: Path, secret: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for role in ("viewer", "admin"):
        assert run(config, "users", "add", "ada", "--role", role, "--password-file", str(secret)) == 0
    capsys.readouterr()
    run(config, "users", "list")
    assert capsys.readouterr().out.split() == ["ada", "admin"]


@pytest.mark.parametrize(("typed", "code"), [((PASSWORD, PASSWORD), 0), ((PASSWORD, "other words"), 1)])
def test_a_password_is_asked_for_twice(
    config: Path, typed: tuple[str, str], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(typed)
    monkeypatch.setattr("getpass.getpass", lambda _: next(answers))
    assert run(config, "users", "add", "ada") == code


def test_a_short_password_is_refused_and_nobody_is_added(
    config: Path, secret: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret.write_text("short\n")
    assert run(config, "users", "add", "ada", "--password-file", str(secret)) == 1
    assert capsys.readouterr().err == "watchkeeper: a password has at least 12 characters; this one has 5\n"
    run(config, "users", "list")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["", " ada", "a" * 65, "a\nb"])
def test_a_name_that_nobody_can_have_is_refused_in_one_line(
    config: Path, secret: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(config, "users", "add", name, "--password-file", str(secret)) == 1
    error = capsys.readouterr().err
    assert error.startswith("watchkeeper: a name has 1 to 64 printable characters") and error.count("\n") == 1


def test_a_password_file_that_cannot_be_read_is_named(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(config, "users", "add", "ada", "--password-file", str(tmp_path / "none")) == 1
    assert str(tmp_path / "none") in capsys.readouterr().err
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    assert run(config, "users", "add", "ada", "--password-file", str(tmp_path / "bytes")) == 1
    assert capsys.readouterr().err.startswith("watchkeeper: ")


def test_a_token_is_shown_once_and_its_text_is_kept_nowhere(
    config: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(config, "tokens", "add", "log agent", "--scope", "ingest") == 0
    text = capsys.readouterr().out.strip()
    assert re.fullmatch(r"\S{30,}", text)
    assert run(config, "tokens", "list") == 0
    listed = capsys.readouterr().out
    assert listed.split() == ["1", "log", "agent", "ingest", "live"] and text not in listed
    store, now = open_store("", folder), SystemClock().now()
    with store.write() as session:
        key = system.secret(session, "tokens", now)
        caller = auth.token_of(session, text, now, key)
        assert caller is not None and (caller.name, caller.scope) == ("log agent", "ingest")
        people.revoke_token(session, caller.token_id, now)
    store.close()
    assert all(text.encode() not in file.read_bytes() for file in folder.iterdir())
    run(config, "tokens", "list")
    assert capsys.readouterr().out.split()[-1] == "revoked"


def test_a_token_without_a_name_is_refused_in_one_line(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(config, "tokens", "add", " ") == 1
    assert capsys.readouterr().err == "watchkeeper: a token needs a printable name that says who uses it\n"


@pytest.mark.parametrize("words", ["users list", "tokens list", "db upgrade", "users add ada"])
def test_a_configuration_mistake_is_one_line_with_file_and_key(
    tmp_path: Path, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text("[store]\nfodler = '/x'\n")
    assert run(file, *words.split()) == 1
    error = capsys.readouterr().err
    assert "wrong.toml" in error and "fodler" in error and "Traceback" not in error


def test_a_database_that_is_away_is_said_with_its_fix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "away.toml"
    file.write_text(f"[store]\nurl = 'postgresql+psycopg://x:geheim@127.0.0.1:9/x'\nfolder = '{tmp_path}'\n")
    assert run(file, "db", "upgrade") == 1
    error = capsys.readouterr().err
    assert error.startswith("watchkeeper: ") and "geheim" not in error


def test_db_upgrade_makes_the_tables_once_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, file = tmp_path / "fresh", tmp_path / "fresh.toml"
    file.write_text(f"[store]\nfolder = '{folder}'\n")
    for _ in range(2):
        assert run(file, "db", "upgrade") == 0
        assert capsys.readouterr().out == f"sqlite:///{folder}/watchkeeper.db is up to date.\n"
    assert stat.S_IMODE((folder / "watchkeeper.db").stat().st_mode) & 0o077 == 0


def test_a_person_is_limited_changed_and_disabled(
    config: Path, secret: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add = ("users", "add", "ada", "--role", "operator", "--project", "atlas", "--password-file", str(secret))
    assert run(config, *add) == 0
    assert run(config, "users", "role", "ada", "approver") == 0
    capsys.readouterr()
    run(config, "users", "list")
    assert capsys.readouterr().out.split() == ["ada", "approver", "atlas"], "limits stay"
    assert run(config, "users", "role", "ada", "viewer", "--everywhere") == 0
    assert run(config, "users", "disable", "ada") == 0
    capsys.readouterr()
    run(config, "users", "list")
    assert capsys.readouterr().out.split() == ["ada", "viewer", "disabled"]
    for words in (("users", "role", "bob", "viewer"), ("users", "disable", "bob"), (*add[:3], "--cluster", "west")):
        assert run(config, *words) == 1
        assert capsys.readouterr().err.startswith("watchkeeper: ")


def test_a_token_is_bound_and_revoked_by_name_or_number(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(config, "tokens", "create", "agent", "--nodes", "gpu-[1-3]", "--days", "30") == 0
    for _ in range(2):
        assert run(config, "tokens", "add", "twice", "--scope", "read") == 0
    told = capsys.readouterr().out.split()[0]
    run(config, "tokens", "list")
    listed = capsys.readouterr().out
    assert "gpu-[1-3] live" in listed and told not in listed
    assert run(config, "tokens", "revoke", "agent") == 0
    assert run(config, "tokens", "revoke", "twice") == 1
    assert "give one's number: 2, 3" in capsys.readouterr().err
    assert run(config, "tokens", "revoke", "3") == 0
    assert run(config, "tokens", "revoke", "3") == 1
    assert run(config, "tokens", "add", "x", "--scope", "read", "--nodes", "gpu-1") == 1


def test_the_audit_chain_is_listed_and_verified(config: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        run(config, "tokens", "add", name)
    capsys.readouterr()
    assert run(config, "db", "audit", "--limit", "1") == 0
    assert capsys.readouterr().out.split()[-3:] == ["token", "made", "b"]
    assert run(config, "db", "audit", "--verify") == 0
    assert capsys.readouterr().out.startswith("The chain holds to row 2: ")
    store = open_store("", folder)
    with store.write() as session:
        session.connection().execute(text("DROP TRIGGER audit_no_delete"))
        session.connection().execute(text("DELETE FROM audit WHERE id = 2"))
    store.close()
    assert run(config, "db", "audit", "--verify") == 1
    assert "missing at the end" in capsys.readouterr().err


@pytest.mark.parametrize("admin", [False, True])
def test_off_loopback_nothing_starts_before_somebody_may_administer_it(
    folder: Path, tmp_path: Path, secret: Path, admin: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(
        server=Server(host="0.0.0.0", port=0),
        store=StoreSettings(folder=folder),
        security=Security(admin_password=SecretStr(PASSWORD) if admin else None),
    )
    parts = build(settings, SystemClock())
    try:
        if admin:
            begun(parts)
            begun(replace(parts, settings=settings.model_copy(update={"security": Security()})))
            with parts.store.read() as session:
                assert [(row.name, row.role) for row in people.users(session)] == [("admin", "admin")]
        else:
            with pytest.raises(OSError, match="users add NAME --role admin"):
                begun(parts)
            begun(replace(parts, settings=settings.model_copy(update={"server": Server()})))
    finally:
        parts.store.close()


@pytest.mark.parametrize("days", ["999999999999", "-1", "nan", "inf"])
def test_a_life_that_no_token_has_is_refused_in_one_line(
    config: Path, capsys: pytest.CaptureFixture[str], days: str
) -> None:
    assert main(["tokens", "add", "x", f"--days={days}", "--config", str(config)]) == 1
    assert "at most 3660 days" in capsys.readouterr().err


def test_a_time_zone_that_is_none_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "site.toml"
    path.write_text('[report]\ntimezone = "Mars/Phobos"\n')
    assert main(["serve", "--config", str(path)]) == 1
    told = capsys.readouterr().err
    assert "report.timezone" in told and "no time zone" in told


def test_an_exit_code_that_no_process_has_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["classify", str(tmp_path), "--exit-code", "99999999999999999999"])
    assert "is no exit code" in capsys.readouterr().err
