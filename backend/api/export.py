"""GET export: a table as JSON, CSV or Parquet, for notebooks, DuckDB and spreadsheets."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response, StreamingResponse

from backend import export
from backend.api.guard import Reader
from backend.api.history import WatchOf
from backend.api.problems import Problem
from backend.api.words import Moment
from backend.watch import Watch

router = APIRouter(prefix="/export", tags=["export"])

Table = Literal["runs", "rollups", "attempts", "allocations", "incidents", "findings", "events"]
Format = Literal["json", "csv", "parquet"]
KINDS: dict[str, str] = {
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
}


SHAPES = {"application/json": {"type": "array", "items": {"type": "object"}}}


@router.get(
    "/{table}",
    operation_id="export_table",
    response_class=Response,
    responses={200: {"content": {kind: {"schema": SHAPES.get(kind, {"type": "string"})} for kind in KINDS.values()}}},
)
def export_table(
    _: Reader,
    watch: WatchOf,
    table: Table,
    form: Annotated[Format, Query(alias="format")] = "json",
    since: Annotated[Moment | None, Query(description="From then on; 30 days back where it is left out.")] = None,
    until: Annotated[Moment | None, Query(description="Up to then; now where it is left out.")] = None,
) -> Response:
    """All rows of one table over a span of time, streamed. Parquet needs the extra ``archive`` on the server."""
    end = until or watch.clock.now() + timedelta(seconds=1)
    start = since or end - timedelta(days=30)
    name = f'attachment; filename="watchkeeper-{table}.{form}"'
    headers = {"Content-Disposition": name, "Cache-Control": "no-store"}

    def rows() -> Iterator[export.Row]:
        with watch.store.read() as session:
            yield from export.rows_of(session, watch.cluster, table, start, end)

    if form == "parquet":
        return Response(parquet(watch, table, rows()), media_type=KINDS[form], headers=headers)
    pieces = export.as_json(rows()) if form == "json" else export.as_csv(table, rows())
    return StreamingResponse(pieces, media_type=KINDS[form], headers=headers)


def parquet(watch: Watch, table: str, rows: Iterator[export.Row]) -> bytes:
    """Raises Problem 503 where it cannot be made here."""
    with tempfile.TemporaryDirectory(dir=watch.store.folder) as folder:
        try:
            export.to_parquet(table, rows, Path(folder) / "rows.parquet")
        except (export.NoParquet, OSError) as error:
            raise Problem(503, str(error)) from error
        return (Path(folder) / "rows.parquet").read_bytes()
