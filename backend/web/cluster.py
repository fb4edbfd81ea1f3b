"""Cluster: who runs something else than its kind, how it all hangs together, what changed lately."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Response
from jinja2 import Environment
from sqlmodel import Session

from backend.answers.odd_ones import Odd, Spread, odd_in
from backend.answers.topology import Topology, topology
from backend.model.past import Change
from backend.store import ledger
from backend.web.base import Visit, frame, page, visit
from backend.web.past import node_path
from frontend.contexts import Link
from frontend.contexts_cluster import ChangeRow, ClusterPage, OddRow, PartRow, PartTable
from frontend.words import age, capital, count, listed, shorten

MOST_ODD, MOST_WHO, MOST_PARTS, MOST_CHANGES = 40, 6, 24, 25
#: Kind to what its table is called, and what one of them is.
TITLES = {
    "rack": ("Racks", "rack"),
    "switch": ("Leaves", "leaf"),
    "clique": ("NVLink domains", "NVLink domain"),
    "rail": ("Rails", "rail"),
    "fs": ("File servers", "file server"),
    "partition": ("Partitions", "partition"),
}


def router(pages: Environment) -> APIRouter:
    found = APIRouter()

    @found.get("/cluster")
    def cluster(seen: Annotated[Visit, Depends(visit)]) -> Response:
        with seen.parts.store.read() as session:
            return page(seen, pages, context(session, seen))

    return found


def context(session: Session, seen: Visit) -> ClusterPage:
    name = seen.watch.cluster
    odd, spread = odd_in(session, name)
    drawn = topology(session, name)
    changes = ledger.changes(session, name, until=seen.now, limit=MOST_CHANGES)
    known = [kind for kind in TITLES if drawn.of(kind)]
    crumb = (Link("Fleet", seen.link("/fleet")), Link("Cluster", ""))
    return ClusterPage(
        frame=frame(
            session,
            seen,
            "Cluster",
            crumb,
            seen.link("/api/v1/topology"),
        ),
        answer=answer(odd, spread, drawn),
        lede=lede(odd, spread),
        odd=tuple(odd_row(one, seen) for one in odd[:MOST_ODD]),
        compared=compared(spread),
        parts=tuple(part_table(drawn, kind) for kind in known),
        unknown=tuple(TITLES[kind][0] for kind in TITLES if kind not in known and kind != "partition"),
        changes=tuple(change_row(one, seen) for one in changes),
    )


def answer(odd: tuple[Odd, ...], spread: tuple[Spread, ...], drawn: Topology) -> str:
    nodes, racked = drawn.coverage.nodes, drawn.coverage.placed.get("rack", 0)
    if not nodes:
        return "No node has been heard of yet."
    where = f"the rack of {racked:,} of {count(nodes, 'node')} is known"
    if not spread:
        return f"Nobody tells what nodes run; {where}."
    who = len({holder for one in odd for holder in one.holders})
    if not who:
        return f"No node runs anything odd; {where}."
    return f"{count(who, 'node runs', 'nodes run')} something odd; {where}."


def lede(odd: tuple[Odd, ...], spread: tuple[Spread, ...]) -> str:
    if not spread:
        return "Exporters with version labels, Slurm, Kubernetes or POST api/v1/changes tell it."
    if odd:
        return (
            f"{compared(spread)} An odd one out is held by at most a tenth of its kind, against at least four fifths."
        )
    return compared(spread)


def compared(spread: tuple[Spread, ...]) -> str:
    if not spread:
        return "Nothing was compared."
    items = len({one.item for one in spread})
    groups = len({one.group for one in spread})
    return f"{count(items, 'item')} compared within {count(groups, 'kind of node', 'kinds of nodes')}."


def odd_row(one: Odd, seen: Visit) -> OddRow:
    who = tuple(Link(name, seen.link(node_path(name.partition(" ")[0]))) for name in one.holders[:MOST_WHO])
    more = len(one.holders) - len(who)
    return OddRow(
        item=capital(one.item),
        value=one.value,
        who=who,
        more=f"and {more:,} more" if more else "",
        others=f"{one.common:,} of {one.size:,} run {one.custom}",
        group=one.group,
        source=one.source,
    )


def part_table(drawn: Topology, kind: str) -> PartTable:
    parts = sorted(drawn.of(kind), key=lambda part: (-len(part.nodes), part.name))
    rows = tuple(
        PartRow(
            part.name,
            f"{len(part.nodes):,}",
            f"{part.out:,}",
            shorten(part.hostlist, 60),
            f"rail {listed(part.rails)}" if part.rails else "",
        )
        for part in parts[:MOST_PARTS]
    )
    known = f"{drawn.coverage.placed.get(kind, 0):,} of {count(drawn.coverage.nodes, 'node')} placed"
    return PartTable(kind, TITLES[kind][0], known, rows, max(0, len(parts) - MOST_PARTS))


def change_row(one: Change, seen: Visit) -> ChangeRow:
    where = one.node or (f"job {one.job}" if one.job else "the whole cluster")
    what = f"Boot of {where}" if one.item == "boot" else f"{capital(one.item)} of {where}"
    who = ", ".join(part for part in (one.by, one.text) if part) or f"told by {one.source or 'nobody'}"
    return ChangeRow(
        what=f"{what}, {one.device}" if one.device else what,
        now=one.value,
        before=one.before or "not known",
        who=who,
        when=age((seen.now - one.at).total_seconds()),
        href=seen.link(node_path(one.node)) if one.node else "",
    )
