"""The database on SQLite and PostgreSQL: missing, empty, current, later, unreachable; and who may sign in."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from sqlalchemy import text

from backend.doctor.database import database
from backend.doctor.line import Line, State
from backend.settings import Server, Settings, Store
from backend.store import people
from backend.store.engine import Store as Opened


def settings_of(store: Opened, **more: object) -> Settings:
    url = store.engine.url.render_as_string(hide_password=False)
    return Settings(store=Store(url=url, folder=store.folder)).model_copy(update=more)


def found(settings: Settings) -> dict[str, Line]:
    return {line.check: line for line in database(settings)}


def test_an_sqlite_file_that_is_not_there_is_told_and_not_made(tmp_path: Path) -> None:
    line = found(Settings(store=Store(folder=tmp_path / "new")))["database"]
    assert line.state is State.WARNING and "db upgrade" in line.fix
    assert list(tmp_path.iterdir()) == []


def test_a_migrated_database_is_up_to_date_and_nobody_can_sign_in(store: Opened) -> None:
    lines = found(settings_of(store))
    assert lines["database"].state is State.OK
    assert lines["people"].state is State.WARNING and "users add" in lines["people"].fix


def test_an_empty_postgresql_wants_an_upgrade(postgres_url: str, tmp_path: Path) -> None:
    lines = found(Settings(store=Store(url=postgres_url, folder=tmp_path)))
    assert lines["database"].state is State.WARNING and "it is empty" in lines["database"].what
    assert "people" not in lines


def test_an_empty_postgresql_where_we_may_make_no_tables_is_failed(postgres_url: str, tmp_path: Path) -> None:
    import psycopg

    with psycopg.connect(postgres_url.replace("+psycopg", "")) as connection:
        connection.execute("CREATE ROLE visitor LOGIN PASSWORD 'only-a-visitor'")
        connection.execute("REVOKE CREATE ON SCHEMA public FROM public")
    url = postgres_url.replace("watchkeeper:only-for-tests", "visitor:only-a-visitor")
    try:
        line = found(Settings(store=Store(url=url, folder=tmp_path)))["database"]
    finally:
        with psycopg.connect(postgres_url.replace("+psycopg", "")) as connection:
            connection.execute("DROP ROLE visitor")
    assert line.state is State.FAILED and "GRANT CREATE" in line.fix and "only-a-visitor" not in str(line)


def test_tables_of_a_later_version_are_failed(store: Opened) -> None:
    with store.write() as session:
        session.connection().execute(text("UPDATE alembic_version SET version_num = '9999'"))
    line = found(settings_of(store))["database"]
    assert line.state is State.FAILED and "later version" in line.what


def test_a_server_that_is_not_there_is_failed_without_its_password(tmp_path: Path) -> None:
    url = "postgresql+psycopg://ada:sesame-open@127.0.0.1:1/nothing"
    line = found(Settings(store=Store(url=url, folder=tmp_path)))["database"]
    assert line.state is State.FAILED and line.fix and "sesame-open" not in str(line)


def test_a_file_that_is_no_database_is_failed(tmp_path: Path) -> None:
    (tmp_path / "watchkeeper.db").write_text("not a database, and longer than a header " * 50)
    assert found(Settings(store=Store(folder=tmp_path)))["database"].state is State.FAILED


def test_a_database_file_that_others_may_read_is_a_warning(sqlite_store: Opened) -> None:
    (sqlite_store.folder / "watchkeeper.db").chmod(0o644)
    line = found(settings_of(sqlite_store))["database file"]
    assert line.state is State.WARNING and "chmod 600" in line.fix


@pytest.mark.parametrize(("role", "state"), [("viewer", State.WARNING), ("approver", State.OK)])
def test_propose_wants_somebody_who_may_approve(store: Opened, now: datetime, role: str, state: State) -> None:
    with store.write() as session:
        people.put_user(session, "ada", role, "a hash", now)
    assert found(settings_of(store, mode="propose"))["people"].state is state
    assert found(settings_of(store))["people"].state is State.OK


def test_off_loopback_somebody_needs_an_ingest_token(store: Opened, now: datetime) -> None:
    settings = settings_of(store, server=Server(host="0.0.0.0"))
    assert found(settings)["tokens"].state is State.WARNING
    with store.write() as session:
        people.add_token(session, "agent", "ingest", "a hash", now)
    assert found(settings)["tokens"].state is State.OK
