"""Opens the database and hands out sessions: one transaction to write, one snapshot to read."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import orjson
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlmodel import Session

from backend.store.filesystem import MOUNTS, network_type
from backend.store.texts import mend_parameters, to_json

if TYPE_CHECKING:
    from alembic.config import Config as AlembicConfig

Dialect = Literal["sqlite", "postgresql"]

#: How long a writer waits for another writer, in this process or another one.
BUSY_S = 30.0
#: How long to wait for PostgreSQL to take a connection.
CONNECT_S = 5
#: A server that a network no longer reaches is given up after some half a minute, not after the system's two hours.
ALIVE = {"keepalives_idle": 15, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 30_000}
#: Every statement of ours is short; a longer one is a mistake or a blocked table.
STATEMENT_S = 60
#: Longest wait for another process that migrates, and for one step of ours.
MIGRATE_S = 600
#: Any fixed number of ours ("watchkee" in ASCII); two programs with the same one would only wait for each other.
MIGRATE_LOCK = 0x77617463686B6565
#: Ten steady connections and ten for a rush: four such processes fit PostgreSQL's default of 100.
POOL = {"pool_size": 10, "max_overflow": 10, "pool_timeout": 30.0}
POSTGRES = ("postgresql", "postgres", "postgresql+psycopg")


class StoreError(Exception):
    """The database cannot be used: what is wrong and where, and the fix. Never holds a password."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(f"{what}. {fix}" if fix else what)
        self.what = what
        self.fix = fix


class Store:
    """One open database. Threads share it; each ``with`` block has its own session and transaction."""

    def __init__(self, engine: Engine, dialect: Dialect, folder: Path) -> None:
        self.engine = engine
        self.dialect: Dialect = dialect
        self.folder = folder
        snapshot = {"postgresql_readonly": True, "isolation_level": "REPEATABLE READ"}
        self._reads = engine.execution_options(**({"reads": True} if dialect == "sqlite" else snapshot))
        self._turn = threading.Lock()
        self._mine = threading.local()

    @property
    def where(self) -> str:
        """The URL without its password, for people."""
        return self.engine.url.render_as_string(hide_password=True)

    @contextmanager
    def write(self) -> Iterator[Session]:
        """One transaction: committed at the end of the block, rolled back when it raises.

        Rows stay readable after the block. Raises StoreError when SQLite stays busy for BUSY_S, and RuntimeError for
        a write inside a write of the same thread, which would wait for itself.
        """
        if getattr(self._mine, "writing", False):
            raise RuntimeError("a write inside a write: hand the session down instead")
        self._mine.writing = True
        try:
            with self._alone(), Session(self.engine, expire_on_commit=False) as session, session.begin():
                yield session
        finally:
            self._mine.writing = False

    @contextmanager
    def read(self) -> Iterator[Session]:
        """One snapshot; the database refuses any write in it. Rows stay readable after the block."""
        with Session(self._reads, expire_on_commit=False, autoflush=False) as session:
            yield session

    def close(self) -> None:
        """Give all connections back; the store is of no use afterwards."""
        self.engine.dispose()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """SQLite has one writer: threads queue here in turn, rather than poll its lock."""
        if self.dialect != "sqlite":
            yield
            return
        if not self._turn.acquire(timeout=BUSY_S):
            raise StoreError(f"{self.where} was busy for {BUSY_S:.0f} s", "Move to PostgreSQL: set [store] url.")
        try:
            yield
        finally:
            self._turn.release()


def open_store(url: str, folder: Path, mounts: Path = MOUNTS, *, durable: bool = True) -> Store:
    """Open the database at ``url``, or ``watchkeeper.db`` in ``folder`` when it is empty. Nothing is migrated.

    durable False: SQLite does not wait for the disk; for a replay's own database, which a crash makes worthless anyway.
    Raises StoreError for an unknown URL, a network file system under SQLite, or a server that does not answer.
    """
    parsed = _parsed(url, folder)
    if parsed.get_backend_name() == "sqlite":
        return _open_sqlite(parsed, folder, mounts, durable=durable)
    return _open_postgresql(parsed, folder)


def file_of(url: str, folder: Path) -> Path | None:
    """The SQLite file that ``open_store`` would open, or make; None for a server. Raises StoreError for a bad URL."""
    parsed = _parsed(url, folder)
    return Path(parsed.database or "").absolute() if parsed.get_backend_name() == "sqlite" else None


def _parsed(url: str, folder: Path) -> URL:
    if not url:
        return URL.create("sqlite", database=str(folder / "watchkeeper.db"))
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise StoreError("[store] url is not a database URL", _URL_FIX) from error
    if parsed.drivername in POSTGRES:
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername in ("sqlite", "sqlite+pysqlite"):
        if parsed.database in (None, "", ":memory:"):
            raise StoreError("[store] url names an SQLite database in memory, which forgets", _URL_FIX)
        return parsed
    raise StoreError(f"[store] url asks for {parsed.drivername!r}, which Watchkeeper does not speak", _URL_FIX)


_URL_FIX = (
    "Leave it empty for SQLite in the data folder, or write sqlite:////absolute/path.db or "
    "postgresql+psycopg://user:password@host/name."
)


# --- SQLite ---------------------------------------------------------------------------------------------------------


def _open_sqlite(url: URL, folder: Path, mounts: Path, *, durable: bool) -> Store:
    file = Path(url.database or "").absolute()
    if kind := network_type(file.parent, mounts):
        raise StoreError(
            f"the database {file} would lie on a network file system ({kind}), where SQLite loses writes",
            "Set [store] folder to a local disk, or [store] url to a PostgreSQL server.",
        )
    _make(file, folder)
    engine = create_engine(
        url.set(database=str(file)),
        json_serializer=to_json,
        json_deserializer=orjson.loads,
        connect_args={"timeout": BUSY_S, "check_same_thread": False},
        **POOL,
    )
    mend_parameters(engine)
    event.listen(engine, "connect", _prepare_sqlite)
    if not durable:
        event.listen(engine, "connect", lambda raw, _record: raw.execute("PRAGMA synchronous=OFF"))
    event.listen(engine, "begin", _begin_sqlite)
    _reach(engine, f"the SQLite file {file} cannot be opened", "Is it an SQLite database, and yours to write?")
    return Store(engine, "sqlite", folder)


def _make(file: Path, folder: Path) -> None:
    """Only the owner may read: the file holds hashes of passwords and tokens."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise StoreError(
            f"the database {file} cannot be written: {error.strerror}", "Set [store] folder to a folder of yours."
        ) from error


def _prepare_sqlite(raw: Any, _record: object) -> None:
    """FULL: a 2xx says committed, and with NORMAL a power cut takes the last commits of a WAL file away."""
    raw.isolation_level = None  # the driver must not begin transactions by itself
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"busy_timeout={int(BUSY_S * 1000)}"):
        raw.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    """Writers take the lock at once: a reader that turns writer late cannot be made to wait, it fails."""
    reads = connection.get_execution_options().get("reads", False)
    connection.exec_driver_sql(f"PRAGMA query_only={'ON' if reads else 'OFF'}")
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


# --- PostgreSQL -----------------------------------------------------------------------------------------------------


def _open_postgresql(url: URL, folder: Path) -> Store:
    try:
        engine = create_engine(
            url,
            json_serializer=to_json,
            json_deserializer=orjson.loads,
            connect_args={"connect_timeout": CONNECT_S, "application_name": "watchkeeper", **ALIVE},
            pool_pre_ping=True,
            **POOL,
        )
    except (ImportError, NoSuchModuleError) as error:
        raise StoreError("the PostgreSQL driver is missing", "Install psycopg[binary].") from error
    mend_parameters(engine)
    event.listen(engine, "connect", _prepare_postgresql)
    where = f"{url.host or 'the local socket'}{f':{url.port}' if url.port else ''}"
    _reach(
        engine,
        f"PostgreSQL at {where}, database {url.database!r}, user {url.username!r}, does not answer",
        "Check [store] url, that the server runs and listens there, and that the user may connect.",
    )
    return Store(engine, "postgresql", folder)


def _prepare_postgresql(raw: Any, _record: object) -> None:
    with raw.cursor() as cursor:
        cursor.execute(f"SET statement_timeout = '{STATEMENT_S}s'")
        cursor.execute("SET idle_in_transaction_session_timeout = '120s'")
        cursor.execute("SET timezone = 'UTC'")
    raw.commit()


def _reach(engine: Engine, what: str, fix: str) -> None:
    """Connect once, so that a mistake stops the start and not the first request."""
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("SELECT 1")
    except DBAPIError as error:
        engine.dispose()
        raise StoreError(f"{what}: {_said(error, engine.url)}", fix) from error


def _said(error: DBAPIError, url: URL) -> str:
    """The first line of what the driver said, without the password."""
    lines = [line for line in str(error.orig).splitlines() if line.strip()] or [type(error.orig).__name__]
    return lines[0].replace(str(url.password), "***") if url.password else lines[0]


# --- tables ---------------------------------------------------------------------------------------------------------


def migrate(store: Store) -> None:
    """Bring the tables to this version, in one transaction.

    Processes that start together queue: on PostgreSQL at an advisory lock, on SQLite at BEGIN IMMEDIATE. Raises
    StoreError where the database is of a later version, or stays locked.
    """
    from alembic.util import CommandError

    from alembic import command

    try:
        with store.engine.begin() as connection:
            if store.dialect == "postgresql":
                connection.exec_driver_sql(f"SET LOCAL statement_timeout = '{MIGRATE_S}s'")
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({MIGRATE_LOCK})")
            command.upgrade(alembic_config(connection), "head")
    except CommandError as error:
        raise StoreError(
            f"the tables of {store.where} are not of this version: {error}", "Run the version that last used them."
        ) from error
    except DBAPIError as error:
        raise StoreError(
            f"the tables of {store.where} cannot be brought up to date: {_said(error, store.engine.url)}",
            "Nothing was changed. Watchkeeper needs a database of its own, a user who may create tables there, and no "
            "other version of it running.",
        ) from error


def alembic_config(connection: Connection) -> AlembicConfig:
    """Alembic on this connection, with the scripts of the wheel (backend/migrations) or of the repository."""
    from alembic.config import Config

    packaged = Path(__file__).resolve().parent.parent / "migrations"
    scripts = packaged if packaged.is_dir() else packaged.parent.parent / "alembic"
    config = Config()
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
