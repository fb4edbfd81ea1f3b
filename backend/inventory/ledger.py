"""The change ledger in memory: what each node runs by the word of each source, and what has become another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlmodel import Session

from backend.clock import utc
from backend.facts import VersionFacts
from backend.store import ledger as rows

#: A value that goes back to the one before within this time is two exporters at odds, not two changes, in s. The time
#: doubles with each return, up to a day.
FLAP_S, FLAP_MOST_S = 600.0, 86_400.0
#: Items and values are kept up to these lengths.
MOST_ITEM, MOST_VALUE = 60, 255
#: Values of jobs that are remembered; of a job's many nodes only those that differ from its first have their own.
MOST_OF_JOBS = 50_000

Key = tuple[str, str, str, str, str]


@dataclass(slots=True)
class _Known:
    value: str
    since: float
    before: str = ""
    patience_s: float = FLAP_S


class Ledger:
    """(node, device, job, item, source) to its value. First sight is no change."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._known: dict[Key, _Known] = {}
        self._of_jobs: dict[Key, None] = {}
        self._versions: dict[Key, dict[str, Any]] = {}
        self._changes: list[dict[str, Any]] = []
        self._by_item: dict[tuple[str, str], dict[str, str]] = {}

    def said(self, node: str, item: str) -> Mapping[str, str]:
        """The last word on an item of a node: by device, "" = of the node itself."""
        return self._by_item.get((node, item), {})

    def load(self, session: Session) -> None:
        self._known = {}
        for node, device, job, item, source, value, since in rows.versions(session, self._cluster):
            self._known[(node, device, job, item, source)] = _Known(value, since.timestamp())
            if not job:
                self._by_item.setdefault((node, item), {})[device] = value
        self._of_jobs = dict.fromkeys(key for key in self._known if key[2])

    def hear(self, told: Iterable[VersionFacts], source: str) -> None:
        """Take in what was said, oldest first."""
        for one in sorted(told, key=lambda one: one.at):
            item, value = _clean(one.item, MOST_ITEM).lower(), _clean(one.value, MOST_VALUE)
            if item and value:
                self._take(replace(one, item=item, value=value, source=one.source or source))

    def save(self, session: Session) -> None:
        """Write what is new, in the caller's transaction."""
        rows.put_versions(session, list(self._versions.values()))
        rows.add_changes(session, self._changes)
        self._versions.clear()
        self._changes = []

    def distrust(self) -> None:
        """The transaction was rolled back: what the store holds is read again before the next word is taken in."""
        self._known.clear()
        self._of_jobs.clear()

    def _take(self, one: VersionFacts) -> None:
        key: Key = (one.node, one.device, one.job, one.item, one.source)
        if one.job and not one.device:
            whole = self._known.get(("", "", *key[2:]))
            if whole is None or (whole.value == one.value and key not in self._known):
                key = ("", "", one.job, one.item, one.source)
        known = self._known.get(key)
        if known is None:
            self._keep(key, _Known(one.value, one.at))
            if one.by or one.text:
                self._changes.append(self._row(one, ""))
            return
        if known.value == one.value or one.at < known.since:
            return
        if one.value == known.before and one.at - known.since < known.patience_s:
            return
        patience_s = min(known.patience_s * 2, FLAP_MOST_S) if one.value == known.before else FLAP_S
        self._changes.append(self._row(one, known.value))
        self._keep(key, _Known(one.value, one.at, known.value, patience_s))

    def _keep(self, key: Key, known: _Known) -> None:
        self._known[key] = known
        node, device, job, item, source = key
        self._versions[key] = {
            "cluster": self._cluster,
            "node": node,
            "device": device,
            "job": job,
            "item": item,
            "source": source,
            "value": known.value,
            "since": utc(known.since),
        }
        if not job:
            self._by_item.setdefault((node, item), {})[device] = known.value
        else:
            self._of_jobs[key] = None
            while len(self._of_jobs) > MOST_OF_JOBS:
                oldest = next(iter(self._of_jobs))
                del self._of_jobs[oldest]
                self._known.pop(oldest, None)

    def _row(self, one: VersionFacts, before: str) -> dict[str, Any]:
        said: Mapping[str, Any] = {
            name: getattr(one, name) for name in ("node", "device", "job", "item", "value", "source", "text", "by")
        }
        return {"cluster": self._cluster, **said, "before": before, "at": utc(one.at)}


def _clean(text: str, most: int) -> str:
    """Printable, on one line, short."""
    return " ".join("".join(c if c.isprintable() else " " for c in text[: most * 2]).split())[:most]
