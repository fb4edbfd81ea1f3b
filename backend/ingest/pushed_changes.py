"""Pushed changes: what a configuration management did, or what a node found itself to run."""

from __future__ import annotations

from pydantic import AliasChoices, Field

from backend.facts import Batch, VersionFacts
from backend.ingest.jobs import Hosts
from backend.ingest.rows import MAX_AHEAD_S, MaybeMoment, Name, Reject, Row, counted, read, sifted

#: Where a row does not say who tells it.
SOURCE = "pushed"
#: Longest remark that is kept, in characters.
MOST_TEXT = 400


class ChangeRow(Row):
    """One change of one or many nodes, or of the whole cluster where it names none. Without ``ts``: now."""

    ts: MaybeMoment = None
    nodes: Hosts = Field((), validation_alias=AliasChoices("nodes", "node"))
    device: Name = ""
    job: Name = ""
    item: Name = Field(min_length=1, max_length=60, examples=["driver"])
    value: Name = Field(min_length=1)
    text: str = Field("", max_length=MOST_TEXT)
    by: Name = ""
    source: Name = SOURCE


def changes_batch(body: bytes, content_type: str, now: float) -> tuple[Batch, tuple[Reject, ...]]:
    """Versions of one push and the rows that were not taken. ``now`` in unix s.

    A row that says who did it (``by``) or why (``text``) is a change also where nobody knew what was before. Raises
    SourceError(permanent=True) where the body as a whole cannot be read.
    """

    def at(row: ChangeRow) -> float:
        return row.ts if row.ts is not None else now

    def wrong(row: ChangeRow) -> tuple[str, str] | None:
        late = at(row) > now + MAX_AHEAD_S
        return ("ts", "lies in the future: is the sender's clock right?") if late else None

    good = sifted(read(body, content_type, ChangeRow), wrong)
    told = tuple(
        VersionFacts(node, row.item, row.value, at(row), row.device, row.job, row.source, row.text, row.by)
        for row in good.rows
        for node in row.nodes or ("",)
    )
    return Batch("changes", now, now, versions=told, dropped=counted(good)), good.rejects
