"""Texts that people and programs send: what no database, scheduler or page can take is refused here."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, Field, StringConstraints
from pydantic_core import PydanticCustomError

from backend.clients import hostlist
from backend.model.base import LARGEST_ID
from backend.writes import NOTE_MAX

#: Longest reason or remark, in characters; a note has its own limit.
REASON_MAX = 1000
#: Years that may be asked about.
FIRST_YEAR, LAST_YEAR = 1970, 2200


def _storable(text: str) -> str:
    """No control characters but line ends and tabs, and no halves of surrogate pairs."""
    bad = next((c for c in text if (c < " " and c not in "\n\r\t") or "\ud800" <= c <= "\udfff"), None)
    if bad is not None:
        raise PydanticCustomError("text", "holds {bad}, which is no text", {"bad": f"U+{ord(bad):04X}"})
    return text


def _within(at: datetime) -> datetime:
    """In UTC. What lies at the ends of the calendar would be off it in another zone, or a week earlier."""
    if not FIRST_YEAR <= at.year <= LAST_YEAR:
        raise PydanticCustomError("moment", "must lie in the years {a} to {b}", {"a": FIRST_YEAR, "b": LAST_YEAR})
    return at.astimezone(UTC)


def _host(name: str) -> str:
    if not hostlist.is_host(name):
        raise PydanticCustomError("host", "must be a host name: letters, digits, - _ and . only")
    return name


Host = Annotated[str, StringConstraints(min_length=1, max_length=hostlist.MAX_NAME), AfterValidator(_host)]
Reason = Annotated[str, StringConstraints(min_length=1, max_length=REASON_MAX), AfterValidator(_storable)]
Remark = Annotated[str, StringConstraints(max_length=REASON_MAX), AfterValidator(_storable)]
#: The id of a job, as schedulers write it.
JobId = Annotated[
    str, StringConstraints(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f\x7f]+$"), AfterValidator(_storable)
]
#: The text of a note, as long as it may be there.
Note = Annotated[str, StringConstraints(min_length=1, max_length=NOTE_MAX), AfterValidator(_storable)]
#: The number of a row, as its database can hold it.
RowId = Annotated[int, Field(ge=1, le=LARGEST_ID)]
#: A moment that is asked about.
Moment = Annotated[AwareDatetime, AfterValidator(_within)]
#: A name that is asked about; it need not be of anything.
Asked = Annotated[str, StringConstraints(max_length=255), AfterValidator(_storable)]
