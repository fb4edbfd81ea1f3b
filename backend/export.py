"""Rows of a table as JSON, CSV or Parquet, for other tools: notebooks, DuckDB, spreadsheets."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
from sqlalchemy import Boolean, Column, Float, Integer, select
from sqlmodel import Session, SQLModel

from backend.model.base import UtcDateTime
from backend.model.events import Event, Finding
from backend.model.incidents import Incident
from backend.model.reckoning import Rollup, Run
from backend.model.work import Allocation, Attempt
from backend.store.upsert import table_of

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Exported:
    """A table that may leave: its rows are asked for by ``at``, in the order of ``key``; ``without`` stays here."""

    model: type[SQLModel]
    at: str
    key: tuple[str, ...]
    without: tuple[str, ...] = ("cluster",)

    @property
    def columns(self) -> list[Column[Any]]:
        return [column for column in table_of(self.model).columns if column.name not in self.without]


#: What may be asked for, by name.
TABLES: Mapping[str, Exported] = {
    "runs": Exported(Run, "moved_at", ("moved_at", "name"), ("cluster", "digest", "document")),
    "rollups": Exported(Rollup, "hour", ("hour", "job", "node")),
    "attempts": Exported(Attempt, "start", ("start", "job", "life", "restart")),
    "allocations": Exported(Allocation, "start", ("id",)),
    "incidents": Exported(Incident, "opened_at", ("id",)),
    "findings": Exported(Finding, "raised_at", ("id",)),
    "events": Exported(Event, "at", ("id",)),
}
#: Rows fetched at once.
PIECE = 2000


class NoParquet(Exception):
    """DuckDB is not installed here; the text says how to get it."""


def rows_of(session: Session, cluster: str, name: str, since: datetime, until: datetime) -> Iterator[Row]:
    """Rows from ``since`` up to ``until``, by the time that stands in ``TABLES``; times as aware datetimes."""
    what = TABLES[name]
    table = table_of(what.model)
    at = table.c[what.at]
    query = select(*what.columns).where(table.c.cluster == cluster, at >= since, at < until)
    query = query.order_by(*(table.c[key] for key in what.key))
    found = session.execute(query, execution_options={"yield_per": PIECE})
    for row in found:
        yield dict(row._mapping)


def as_json(rows: Iterable[Row]) -> Iterator[bytes]:
    """A JSON array, piece by piece."""
    before = b"["
    for row in rows:
        yield before + orjson.dumps(row)
        before = b",\n"
    yield b"]" if before == b",\n" else b"[]"


def as_csv(name: str, rows: Iterable[Row]) -> Iterator[bytes]:
    """CSV with a header; lists and objects as JSON; what a spreadsheet would take for a formula is quoted off."""
    columns = [column.name for column in TABLES[name].columns]
    out = io.StringIO()
    sheet = csv.writer(out, lineterminator="\r\n")
    sheet.writerow(columns)
    for row in rows:
        sheet.writerow([_cell(row[column]) for column in columns])
        if out.tell() > 65_536:
            yield _taken(out)
    yield _taken(out)


def _taken(out: io.StringIO) -> bytes:
    text = out.getvalue().encode()
    out.seek(0)
    out.truncate()
    return text


def _cell(value: Any) -> str | float | int:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list | dict):
        return orjson.dumps(value).decode()
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return value if isinstance(value, float | int) else str(value)


def to_parquet(name: str, rows: Iterable[Row], file: Path) -> int:
    """Write ``file`` whole or not at all; how many rows. Raises NoParquet without DuckDB, OSError on a full disk."""
    types = {column.name: _duck_type(column) for column in TABLES[name].columns}
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        lines, made = Path(folder) / "rows.jsonl", Path(folder) / "rows.parquet"
        count = 0
        with lines.open("wb") as out:
            for row in rows:
                out.write(orjson.dumps({key: _plain(value) for key, value in row.items()}) + b"\n")
                count += 1
        shape = ", ".join(f"{_quoted(key)}: {_quoted(kind)}" for key, kind in types.items())
        read = f"read_json({_quoted(str(lines))}, format='newline_delimited', columns={{{shape}}})"
        source = f"SELECT * FROM {read}{'' if count else ' LIMIT 0'}"  # nosec B608: names of our own, quoted
        with duck() as base:
            base.execute(f"COPY ({source}) TO {_quoted(str(made))} (FORMAT parquet, COMPRESSION zstd)")
        made.replace(file)
    return count


def duck() -> Any:
    """A DuckDB in memory that reaches no network. Any: it has no types of its own. Raises NoParquet."""
    try:
        import duckdb
    except ImportError:
        raise NoParquet("Parquet needs DuckDB: pip install 'watchkeeper[archive]'") from None
    base = duckdb.connect(":memory:")
    base.execute("SET autoinstall_known_extensions = false; SET autoload_known_extensions = false; SET threads = 1")
    base.execute("SET TimeZone = 'UTC'")
    return base


def from_parquet(files: Iterable[Path], key: tuple[str, ...], since: datetime, until: datetime, at: str) -> list[Row]:
    """Rows of Parquet files from ``since`` up to ``until``, each once by ``key``. Raises NoParquet."""
    names = [str(file) for file in files]
    if not names:
        return []
    listed = ", ".join(_quoted(name) for name in names)
    on = ", ".join(f'"{column}"' for column in key)
    with duck() as base:
        rows = f"SELECT DISTINCT ON ({on}) * FROM read_parquet([{listed}])"  # nosec B608: names of our own, quoted
        found = base.execute(f'{rows} WHERE "{at}" >= ? AND "{at}" < ? ORDER BY {on}', [since, until])
        columns = [one[0] for one in found.description]
        return [dict(zip(columns, row, strict=True)) for row in found.fetchall()]


def _duck_type(column: Column[Any]) -> str:
    kind = column.type
    if isinstance(kind, UtcDateTime):
        return "TIMESTAMPTZ"
    if isinstance(kind, Boolean):
        return "BOOLEAN"
    if isinstance(kind, Integer) or column.name == "id" or column.name.endswith("_id") and "INT" in str(kind).upper():
        return "BIGINT"
    return "DOUBLE" if isinstance(kind, Float) else "VARCHAR"


def _plain(value: Any) -> Any:
    return orjson.dumps(value).decode() if isinstance(value, list | dict) else value


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
