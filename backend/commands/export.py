"""export: a table of a running server, or of the archive, as a file."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime

from backend.commands.ask import AskError, ask

KINDS = {"json": "application/json", "csv": "text/csv", "parquet": "application/vnd.apache.parquet"}


def export(arguments: argparse.Namespace) -> int:
    """Raises nothing: what is wrong is said on stderr."""
    form = "json" if arguments.json else arguments.format
    if form == "parquet" and arguments.out is None and sys.stdout.isatty():
        print("watchkeeper: Parquet is no text; name a file with --out", file=sys.stderr)
        return 1
    try:
        body = of_archive(arguments, form) if arguments.archive is not None else of_server(arguments, form)
    except (AskError, OSError, ValueError) as error:
        print(f"watchkeeper: {error}", file=sys.stderr)
        return 1
    if arguments.out is not None:
        arguments.out.write_bytes(body)
    else:
        sys.stdout.buffer.write(body)
    return 0


def of_server(arguments: argparse.Namespace, form: str) -> bytes:
    span = {name: value for name in ("since", "until") if (value := getattr(arguments, name))}
    return ask(arguments, f"export/{arguments.table}", KINDS[form], format=form, **span).content


def of_archive(arguments: argparse.Namespace, form: str) -> bytes:
    """Rows that left the database. Raises ValueError for what the archive cannot give."""
    from backend import archive
    from backend.export import NoParquet, as_csv, as_json

    if arguments.table not in archive.OLD or form == "parquet":
        raise ValueError(f"the archive holds {' and '.join(archive.OLD)}, as Parquet already; ask for json or csv")
    since = moment(arguments.since, datetime(1970, 1, 1, tzinfo=UTC))
    until = moment(arguments.until, datetime(2200, 1, 1, tzinfo=UTC))
    try:
        rows = archive.archived(arguments.archive, arguments.cluster or "main", arguments.table, since, until)
    except NoParquet as error:
        raise ValueError(str(error)) from error
    return b"".join(as_json(rows) if form == "json" else as_csv(arguments.table, rows))


def moment(text: str, otherwise: datetime) -> datetime:
    """Raises ValueError for what is no time with a zone."""
    if not text:
        return otherwise
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError(f"{text} needs a zone, as in 2026-03-01T00:00:00Z")
    return found
