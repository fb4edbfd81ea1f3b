"""Topology as a table: one line a node, or a hostlist of nodes, with whatever columns a site knows."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence

from backend.clients.hostlist import HostlistError, expand, is_host
from backend.facts import Batch, CableFacts, NodeFacts
from backend.ingest.base import SourceError
from backend.ingest.rows import MAX_ROWS, Reject, Rejects, decoded

#: What heads are called, in lower case. ``rail<N>`` (or ``rail_<N>``) is the leaf of that rail's port.
HEADS: Mapping[str, str] = {
    "node": "node",
    "name": "node",
    "host": "node",
    "hostname": "node",
    "nodes": "node",
    "rack": "rack",
    "switch": "switch",
    "leaf": "switch",
    "leaf_switch": "switch",
    "clique": "clique",
    "nvlink_domain": "clique",
    "nvlink": "clique",
    "model": "model",
    "gpu_model": "model",
    "partition": "partitions",
    "partitions": "partitions",
    "fs": "fs",
    "filesystems": "fs",
    "filesystem": "fs",
}
#: Between several partitions or file systems of one cell.
SEVERAL = ";"
#: Longest text of a cell, in characters.
MOST_CELL = 255


def csv_batch(body: bytes, now: float) -> tuple[Batch, tuple[Reject, ...]]:
    """Nodes and cables of one table, and the lines that were not taken. ``now`` in unix s.

    An empty cell says nothing: what was known stays. ``fs`` holds ``/scratch=lustre1; /home=nfs2``. Raises
    SourceError(permanent=True) where it is no table, or has no column with nodes.
    """
    text, _ = decoded(body.removeprefix(b"\xef\xbb\xbf"))
    lines = text if isinstance(text, str) else text.decode()
    rows = csv.reader(io.StringIO(lines, newline=""), delimiter=_delimiter(lines))
    heads = [head.strip().lower().replace(" ", "_").replace("-", "_") for head in next(rows, [])]
    columns = {i: name for i, head in enumerate(heads) if (name := HEADS.get(head) or _rail(head))}
    if "node" not in columns.values():
        raise SourceError(
            "The table has no column node. The first line names the columns: node,rack,switch", permanent=True
        )
    rejects = Rejects()
    nodes: dict[str, NodeFacts] = {}
    cables: list[CableFacts] = []
    for place, row in enumerate(rows, start=1):
        if place > MAX_ROWS:
            raise SourceError(f"The table has over {MAX_ROWS:,} lines.", permanent=True)
        cells = {columns[i]: cell.strip() for i, cell in enumerate(row) if i in columns}
        if not any(cells.values()):
            continue
        names = _names(cells, rejects, place, nodes)
        if names:
            nodes |= {name: _facts(name, cells) for name in names}
            cables += [cable for name in names for cable in _cables(name, cells)]
    told = tuple(rejects.told)
    dropped = {"rows that could not be read": rejects.count} if rejects.count else {}
    return Batch("topology", now, now, nodes=tuple(nodes.values()), cables=tuple(cables), dropped=dropped), told


def _delimiter(text: str) -> str:
    first = text.partition("\n")[0]
    return max(",;\t", key=first.count)


def _rail(head: str) -> str:
    number = head.removeprefix("rail").lstrip("_")
    return f"rail{int(number)}" if head.startswith("rail") and number.isdecimal() and len(number) < 4 else ""


def _names(cells: Mapping[str, str], rejects: Rejects, place: int, known: Mapping[str, object]) -> Sequence[str]:
    try:
        names = expand(cells["node"]) if cells.get("node") else []
    except HostlistError as error:
        rejects.add(place, "node", str(error))
        return ()
    wrong = next((name for name in names if not is_host(name)), None)
    if not names or wrong is not None:
        rejects.add(place, "node", f"{wrong!r} is no host name" if wrong else "is empty")
        return ()
    long = next((head for head, cell in cells.items() if head != "node" and not _fits(cell)), "")
    twice = next((name for name in names if name in known), "")
    if long or twice:
        rejects.add(
            place, long or "node", "is too long, or holds control characters" if long else f"{twice} stands here twice"
        )
        return ()
    return names


def _fits(cell: str) -> bool:
    return len(cell) <= MOST_CELL and cell.isprintable()


def _facts(name: str, cells: Mapping[str, str]) -> NodeFacts:
    return NodeFacts(
        name,
        rack=cells.get("rack", ""),
        switch=cells.get("switch", ""),
        clique=cells.get("clique", ""),
        model=cells.get("model", ""),
        partitions=tuple(_parts(cells.get("partitions", ""))),
    )


def _cables(name: str, cells: Mapping[str, str]) -> Iterator[CableFacts]:
    for head, cell in cells.items():
        if head.startswith("rail") and cell:
            yield CableFacts(name, head, cell, rail=head.removeprefix("rail"))
    for mount in _parts(cells.get("fs", "")):
        where, _, server = mount.partition("=")
        yield CableFacts(name, where.strip(), (server or where).strip(), kind="fs")


def _parts(cell: str) -> Iterator[str]:
    return (part.strip() for part in cell.split(SEVERAL) if part.strip())
