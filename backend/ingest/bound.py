"""What a sender that is bound to its nodes may bring: facts about those nodes, and of nobody else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from backend.columns import Columns
from backend.facts import Batch
from backend.ingest.logs import LogRow
from backend.ingest.rows import Rows

#: Under which rows about others are counted.
REASON = "not_its_node"

T = TypeVar("T")


def is_its(host: str, nodes: frozenset[str]) -> bool:
    """True where ``host`` is one of the nodes, with its domain or without; no node at all is nobody's own."""
    return host in nodes or host.partition(".")[0] in nodes


def bound(batch: Batch, nodes: frozenset[str]) -> Batch:
    """``batch`` less what is about others, counted under REASON. No ``nodes``: as it is.

    Job records, training rows, maintenance and outages are about more than one node: a bound sender has no say in them.
    Nor is what it brings ever a listing, by whose silence nodes would leave the fleet.
    """
    if not nodes:
        return batch
    left = 0

    def kept(rows: Sequence[T], host: Callable[[T], str]) -> tuple[T, ...]:
        nonlocal left
        found = tuple(row for row in rows if is_its(host(row), nodes))
        left += len(rows) - len(found)
        return found

    own = replace(
        batch,
        series=kept(batch.series, lambda row: row.label.node),
        events=kept(batch.events, lambda row: row.host),
        nodes=kept(batch.nodes, lambda row: row.name),
        versions=kept(batch.versions, lambda row: row.node if not row.by else ""),
        cables=kept(batch.cables, lambda row: row.node),
        reports=kept(batch.reports, lambda row: row.host),
        attempts=kept(batch.attempts, lambda _: ""),
        outages=kept(batch.outages, lambda _: ""),
        maintenances=kept(batch.maintenances, lambda _: ""),
        steps=kept(batch.steps, lambda _: ""),
        checkpoints=kept(batch.checkpoints, lambda _: ""),
        told=kept(batch.told, lambda row: row.host),
        printed=kept(batch.printed, lambda row: row.stream.partition("/")[0]),
        columns=its_columns(batch.columns, nodes),
        listing=None,
    )
    left += len(batch.columns or ()) - len(own.columns or ())
    return replace(own, dropped={**own.dropped, REASON: own.dropped.get(REASON, 0) + left}) if left else own


def its_columns(columns: Columns | None, nodes: frozenset[str]) -> Columns | None:
    """The samples of its own rows; each label is looked at once."""
    if columns is None:
        return None
    of_sample = columns.book.label[columns.targets]
    labels, place = np.unique(of_sample, return_inverse=True)
    its = np.array([is_its(getattr(columns.book.labels[n], "node", ""), nodes) for n in labels], bool)
    keep = its[place] if labels.size else np.zeros(0, bool)
    return Columns(
        columns.book,
        columns.targets[keep],
        columns.times[keep],
        columns.values[keep],
        tuple(node for node in columns.nodes if is_its(node, nodes)),
    )


def bound_rows(rows: Rows[LogRow], nodes: frozenset[str]) -> tuple[Rows[LogRow], int]:
    """The rows of its own nodes, and how many were of others; before anything of them is kept."""
    if not nodes:
        return rows, 0
    its = [place for place, row in enumerate(rows.rows) if is_its(row.host, nodes)]
    own = replace(rows, rows=tuple(rows.rows[n] for n in its), places=tuple(rows.places[n] for n in its))
    return own, len(rows.rows) - len(its)
