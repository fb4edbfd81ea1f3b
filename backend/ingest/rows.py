"""Pushed rows: a JSON array or JSON lines, each row checked by itself, the good ones kept, the bad ones named."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import PydanticCustomError

from backend.clients.hostlist import MAX_NAME
from backend.clients.hostlist import is_host as is_host
from backend.ingest.base import SourceError

#: Times outside are mistakes: before 2000 an unset clock, after 2100 milliseconds taken for seconds.
EARLIEST, LATEST = 946_684_800.0, 4_102_444_800.0
#: A clock that runs ahead by more than this is wrong, and would hold the future's ticks.
MAX_AHEAD_S = 300.0
#: Rows of one body. A body of the largest size holds this many real ones; more are a mistake that costs memory.
MAX_ROWS = 250_000
#: Bad rows that are described one by one; the rest is only counted.
TOLD_REJECTS = 100

#: Editors of some systems write it before the text.
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
#: Each escape of a JSON text in turn; the group holds half a surrogate pair, which no text may hold alone.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Reject:
    """One row that was not taken: its place from 0 (the line's in JSON lines), the field, and what is wrong."""

    row: int
    field: str
    problem: str


M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Rows(Generic[M]):
    """Good rows in order and their places, the first TOLD_REJECTS bad ones, how many bad ones there are, and how many
    rows held bytes that are no UTF-8 (replaced by U+FFFD)."""

    rows: tuple[M, ...]
    places: tuple[int, ...] = ()
    rejects: tuple[Reject, ...] = ()
    rejected: int = 0
    replaced: int = 0


@dataclass
class Rejects:
    """Collects bad rows: describes the first, counts all."""

    told: list[Reject] = field(default_factory=list)
    count: int = 0

    def add(self, row: int, name: str, problem: str) -> None:
        self.count += 1
        if len(self.told) < TOLD_REJECTS:
            self.told.append(Reject(row, name, problem))


class Row(BaseModel):
    """A row as pushed. Unknown fields are let pass: a sender may know more than we do."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, hide_input_in_errors=True)


def read(body: bytes, content_type: str, model: type[M]) -> Rows[M]:
    """Rows of one push. Raises SourceError(permanent=True) where nothing can be read of the body at all."""
    rejects = Rejects()
    documents, replaced = _documents(body, content_type, rejects)
    rows: list[M] = []
    places: list[int] = []
    for place, document in documents:
        try:
            rows.append(model.model_validate(document))
        except ValidationError as error:
            rejects.add(place, *problem_of(error))
        else:
            places.append(place)
    return Rows(tuple(rows), tuple(places), tuple(rejects.told), rejects.count, replaced)


def problem_of(error: ValidationError) -> tuple[str, str]:
    """(field, what is wrong with it) of the first problem of a row."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    name = ".".join(str(part) for part in first["loc"]) or "row"
    return name, first["msg"]


def _documents(body: bytes, content_type: str, rejects: Rejects) -> tuple[list[tuple[int, Any]], int]:
    """(place, JSON value) of each row, and how many rows had bytes replaced."""
    body = body.removeprefix(_BYTE_ORDER_MARK)
    kind = content_type.partition(";")[0].strip().lower()
    lines = kind in ("application/x-ndjson", "application/jsonl", "application/x-jsonlines", "application/json-lines")
    start = body.lstrip()[:1]
    if not start:
        raise SourceError("The body is empty. Send a JSON array or one JSON object a line.", permanent=True)
    if start == b"[" and not lines:
        return _array(body)
    return _lines(body, rejects)


def _array(body: bytes) -> tuple[list[tuple[int, Any]], int]:
    try:
        found, broken = loaded(body)
    except orjson.JSONDecodeError as error:
        raise SourceError(
            f"The body is not JSON: {error}. Send a JSON array, or JSON lines.", permanent=True
        ) from error
    if len(found) > MAX_ROWS:
        raise _too_many(len(found))
    replaced = sum("\ufffd" in str(document) for document in found) if broken else 0
    return list(enumerate(found)), replaced


def _lines(body: bytes, rejects: Rejects) -> tuple[list[tuple[int, Any]], int]:
    found: list[tuple[int, Any]] = []
    replaced = 0
    if (count := body.count(b"\n")) > MAX_ROWS:
        raise _too_many(count)
    for place, line in enumerate(body.split(b"\n")):
        if not line.strip():
            continue
        try:
            document, broken = loaded(line)
        except orjson.JSONDecodeError as error:
            rejects.add(place, "row", f"is not JSON: {error}")
            continue
        found.append((place, document))
        replaced += broken
    return found, replaced


def _too_many(count: int) -> SourceError:
    return SourceError(f"The body has {count:,} rows; send at most {MAX_ROWS:,} at once.", permanent=True)


def loaded(raw: bytes) -> tuple[Any, bool]:
    """The JSON value, and whether something that is no text had to be replaced by U+FFFD: bytes that are no UTF-8, or
    halves of surrogate pairs, as Python's json writes them for such bytes. Raises orjson.JSONDecodeError."""
    text, broken = decoded(raw)
    try:
        return orjson.loads(text), broken
    except orjson.JSONDecodeError:
        encoded = text.encode() if isinstance(text, str) else text
        mended = _ESCAPE.sub(lambda escape: rb"\ufffd" if escape[1] else escape[0], encoded)
        if mended == encoded:
            raise
        return orjson.loads(mended), True


def decoded(raw: bytes) -> tuple[bytes | str, bool]:
    """The text, and whether bytes that are no UTF-8 had to be replaced by U+FFFD."""
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("utf-8", errors="replace"), True
    return raw, False


# --- kinds of fields ------------------------------------------------------------------------------------------------


def clean(text: str) -> str:
    """Text that every database takes: NUL and halves of surrogate pairs become U+FFFD."""
    if "\0" in text or not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
        return "".join("\ufffd" if c == "\0" or "\ud800" <= c <= "\udfff" else c for c in text)
    return text


def _moment(value: object) -> object:
    """Unix seconds, or an RFC 3339 time with its offset; null and "" are no time."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            raise PydanticCustomError("moment", "is no time: write unix seconds, or RFC 3339") from None
        if at.tzinfo is None:
            raise PydanticCustomError("moment", "has no offset: write it as 2026-03-01T12:00:00+00:00, or with Z")
        value = at.timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise PydanticCustomError("moment", "must be unix seconds, or an RFC 3339 text")
    if not EARLIEST <= value <= LATEST:
        raise PydanticCustomError("moment", "lies outside the years 2000 to 2100: write unix seconds, not milliseconds")
    return float(value)


def _name(value: object) -> object:
    """A short text; numbers are taken as text, as many senders give job ids so."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise PydanticCustomError("name", "must be text")
    if len(value) > MAX_NAME:
        raise PydanticCustomError("name", "is longer than {most} characters", {"most": MAX_NAME})
    if value != value.strip() or not value.isprintable():
        raise PydanticCustomError("name", "must not begin or end with a space or hold control characters")
    return clean(value)


def _host(value: object) -> object:
    if not isinstance(value, str) or not value:
        raise PydanticCustomError("host", "must be the name of a host")
    if not is_host(value):
        raise PydanticCustomError(
            "host", "must be a host name: letters, digits, - _ and . only, up to {most}", {"most": MAX_NAME}
        )
    return value


#: Unix seconds; RFC 3339 text with an offset is taken too.
Moment = Annotated[float, BeforeValidator(_moment)]
MaybeMoment = Annotated[float | None, BeforeValidator(_moment)]
Name = Annotated[str, BeforeValidator(_name)]
Host = Annotated[str, BeforeValidator(_host)]


def counted(rows: Rows[Any]) -> dict[str, int]:
    """What a Batch shows as dropped: rows that were not taken, rows with replaced bytes."""
    found = {"rows that could not be read": rows.rejected, "rows with bytes that are no UTF-8": rows.replaced}
    return {reason: count for reason, count in found.items() if count}


def sifted(rows: Rows[M], wrong: Callable[[M], tuple[str, str] | None]) -> Rows[M]:
    """The rows in which ``wrong`` finds nothing; of any other it gives the field and what is wrong with it, and is
    asked in their order, each once."""
    rejects = Rejects(list(rows.rejects), rows.rejected)
    good: list[tuple[int, M]] = []
    for place, row in numbered(rows):
        problem = wrong(row)
        if problem is None:
            good.append((place, row))
        else:
            rejects.add(place, *problem)
    places, kept = tuple(place for place, _ in good), tuple(row for _, row in good)
    return Rows(kept, places, tuple(rejects.told), rejects.count, rows.replaced)


def numbered(rows: Rows[M]) -> Iterator[tuple[int, M]]:
    return zip(rows.places, rows.rows, strict=True)


def object_of(body: bytes) -> Mapping[str, Any] | None:
    """The body as one JSON object; None where it is something else."""
    try:
        found, _ = loaded(body.removeprefix(_BYTE_ORDER_MARK))
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None
