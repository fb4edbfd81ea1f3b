"""The database: reachable, ours to write, at this version's tables; and who may sign in."""

from __future__ import annotations

from collections.abc import Iterator

from sqlmodel import Session

from backend.auth import is_loopback
from backend.doctor.line import Line, failed, ok, warning
from backend.settings import Settings
from backend.store import people
from backend.store.engine import StoreError, file_of, open_store
from backend.store.standing import Standing, standing

#: A database whose clock is further off than this makes leases and expiries of several processes disagree.
APART_S = 5.0
UPGRADE = "Run watchkeeper db upgrade (serve does it too)."


def database(settings: Settings) -> Iterator[Line]:
    """Nothing is made: an SQLite file that is not there yet is only told."""
    place = settings.store
    try:
        file = file_of(place.url, place.folder)
        if file is not None and not file.exists():
            yield warning("database", f"{file} does not exist yet", UPGRADE)
            return
        if file is not None and (others := file.stat().st_mode & 0o077):
            yield warning("database file", f"{file} is open to others ({others:03o})", f"Run chmod 600 {file}.")
        store = open_store(place.url, place.folder)
    except (StoreError, OSError) as error:
        yield failed("database", *_told(error))
        return
    try:
        found = standing(store)
        yield from reached(store.where, found)
        if found.up_to_date:
            with store.read() as session:
                yield from who_may(session, settings)
    except StoreError as error:
        yield failed("database", *_told(error))
    finally:
        store.close()


def _told(error: StoreError | OSError) -> tuple[str, str]:
    if isinstance(error, StoreError):
        return error.what, error.fix
    return str(error), "Give this account the right to read and write it."


def reached(where: str, found: Standing) -> Iterator[Line]:
    if not found.known:
        text = f"{where} has tables of a later version ({found.current})"
        yield failed("database", text, "Run the version that last used them.")
    elif found.up_to_date:
        yield ok("database", f"{where} answers, tables are up to date ({found.head})")
    elif not found.may_create:
        text = f"{where} answers, but its tables are not made and this user may not make any"
        yield failed("database", text, "GRANT CREATE ON SCHEMA to the user of [store] url, or make it the owner.")
    else:
        state = f"its tables are at {found.current}, this version needs" if found.current else "it is empty, it needs"
        yield warning("database", f"{where} answers; {state} {found.head}", UPGRADE)
    if abs(found.ahead_s) > APART_S:
        text = f"the database's clock is {found.ahead_s:+.0f} s from ours"
        yield warning("database clock", text, "Run NTP on both hosts.")


def who_may(session: Session, settings: Settings) -> Iterator[Line]:
    """People who can sign in, and tokens where callers need one."""
    known = [user for user in people.users(session) if user.disabled_at is None]
    approvers = [user.name for user in known if user.role in ("approver", "admin")]
    if not known:
        yield warning("people", "nobody can sign in", "Run watchkeeper users add NAME --role approver.")
    elif settings.mode != "observe" and not approvers:
        text = f"{len(known)} may sign in, but nobody may approve"
        yield warning("people", text, "Run watchkeeper users add NAME --role approver.")
    else:
        yield ok("people", f"{len(known)} may sign in, {len(approvers)} of them may approve")
    if is_loopback("127.0.0.1", settings.server.host, {}):
        return
    live = [token for token in people.tokens(session) if token.revoked_at is None]
    if any(token.scope == "ingest" for token in live):
        yield ok("tokens", f"{len(live)} live")
    else:
        text = f"{settings.server.host} is not loopback and there is no ingest token, so nothing can be pushed"
        yield warning("tokens", text, "Run watchkeeper tokens add NAME --scope ingest.")
