"""One list of the API server, kept up to date: listed once, then watched from read to read, and listed when too old."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from backend.clients.kubernetes import KubeClient, KubeError
from backend.clients.kubernetes_json import text

Row = TypeVar("Row")
#: A watch listens this long, s; what happens later is told by the next read.
LISTEN_S = 1
#: A list whose beginning the server forgets this often while we read it is given up for now.
TRIES = 3


@dataclass
class Mirror(Generic[Row]):
    """What the server holds under ``path``, reduced by ``parse`` (None = of no concern).

    rows: by uid. fresh: rows that came or changed since the last sync. gone: rows that went since the last sync. With
    ``keep`` off only ``fresh`` is filled: for events, which are told and forgotten. needed: without it nothing works.
    """

    path: str
    parse: Callable[[Any], Row | None]
    params: Mapping[str, str] = field(default_factory=dict)
    keep: bool = True
    needed: bool = False
    rows: dict[str, Row] = field(default_factory=dict)
    fresh: list[Row] = field(default_factory=list)
    gone: list[Row] = field(default_factory=list)
    version: str = ""
    refused: str = ""
    relists: int = 0
    rejected: Counter[str] = field(default_factory=Counter)

    def sync(self, client: KubeClient) -> None:
        """Bring the rows up to now. Raises KubeError; one that is not needed and may not be read says so in
        ``refused`` instead."""
        self.fresh, self.gone = [], []
        try:
            if not (self.version and self._watch(client)):
                self._list(client)
            self.refused = ""
        except KubeError as failed:
            if self.needed or failed.status not in (403, 404):
                raise
            self.refused, self.version = str(failed), ""

    def _watch(self, client: KubeClient) -> bool:
        """Whether the server could tell what changed since the last sync."""
        try:
            seen = client.watch(self.path, self.version, self.params, LISTEN_S)
        except KubeError as failed:
            if failed.status != 410:
                raise
            return False
        for change, found in seen.events:
            if change == "DELETED":
                self._drop(text(found, "metadata", "uid"), found)
            else:
                self._take(found)
        self.version = seen.version
        return True

    def _list(self, client: KubeClient) -> None:
        before, self.rows, self.fresh = self.rows, {}, []
        self.relists += 1
        for left in reversed(range(TRIES)):
            try:
                for items, version in client.pages(self.path, self.params):
                    for found in items:
                        self._take(found)
                    self.version = version
                break
            except KubeError as failed:
                self.rows, self.version = before, ""
                if failed.status != 410 or not left:
                    raise
                self.rows, self.fresh = {}, []
        self.gone = [row for uid, row in before.items() if uid not in self.rows]

    def _take(self, found: Any) -> None:
        uid = text(found, "metadata", "uid")
        row = self.parse(found) if uid else None
        if row is None:
            self.rejected["no uid"] += not uid
            self.rows.pop(uid, None)
            return
        self.fresh.append(row)
        if self.keep:
            self.rows[uid] = row

    def _drop(self, uid: str, found: Any) -> None:
        """What is deleted is told once more as it was last."""
        last = self.parse(found)
        before = self.rows.pop(uid, None)
        if last is not None or before is not None:
            self.gone.append(last if last is not None else before)  # type: ignore[arg-type]  # one of them is a row
