"""Failed sign-ins by name and by address, so that nobody tries for ever: the same work whether a name exists or not."""

from __future__ import annotations

import hashlib
import ipaddress
from datetime import datetime, timedelta

from sqlalchemy import delete
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlmodel import Session, col, select

from backend.model.people import Try
from backend.store.upsert import table_of

#: A count that nobody added to for so long is forgotten.
FORGET = timedelta(days=1)


def name_key(name: str) -> str:
    """Under which tries at a name are counted. Hashed: what is typed there by mistake is now and then a password."""
    return "name:" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()


def address_key(address: str) -> str:
    """Under which tries from an address are counted; of IPv6 its /64, which is what one customer has."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return "address:" + hashlib.sha256(address.encode("utf-8", "surrogatepass")).hexdigest()
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    if isinstance(found, ipaddress.IPv6Address):
        return f"address:{ipaddress.ip_network((found, 64), strict=False)}"
    return f"address:{found}"


def count(session: Session, key: str, now: datetime, after: int, lockout_s: float) -> tuple[datetime | None, bool]:
    """Take one try before it is checked, so that many at once cannot get past the limit.

    (until, False): it waits until then. (None, locks): go on and check; it counts as failed until ``forgive``, and
    with ``locks`` it was the last for now. A lock that ran out gives a new round.
    """
    session.connection().execute(delete(Try).where(col(Try.at) < now - FORGET))
    known = {"key": key, "failures": 0, "at": now, "locked_until": None}
    insert = postgresql_insert if session.get_bind().dialect.name == "postgresql" else sqlite_insert
    session.connection().execute(insert(table_of(Try)).values(known).on_conflict_do_nothing())
    query = select(Try).where(col(Try.key) == key).with_for_update().execution_options(populate_existing=True)
    row = session.exec(query).one()
    if row.locked_until is not None and row.locked_until > now:
        return row.locked_until, False
    row.failures = 1 if row.locked_until is not None else row.failures + 1
    row.at = now
    row.locked_until = now + timedelta(seconds=lockout_s) if row.failures >= after else None
    session.add(row)
    session.flush()
    return None, row.locked_until is not None


def forget(session: Session, key: str) -> None:
    """The password was right: whoever has it may try anew."""
    session.connection().execute(delete(Try).where(col(Try.key) == key))


def forgive(session: Session, key: str) -> None:
    """This one try was right; those of others from the same address stay."""
    row = session.exec(select(Try).where(col(Try.key) == key).with_for_update()).one_or_none()
    if row is not None:
        row.failures, row.locked_until = max(row.failures - 1, 0), None
        session.add(row)
