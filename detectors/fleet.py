"""Draws a Fleet from plain rows: codes for names, peers side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from detectors.model import Axis, BoolArray, Fleet, IntArray


@dataclass(frozen=True, slots=True)
class FleetRow:
    """One row of an axis; its place in the list is its slot. ``node`` is the slot of its node, -1 for none; empty texts
    mean none or unknown."""

    id: str
    name: str
    node: int
    live: bool = True
    job: str = ""
    role: str = ""
    model: str = ""
    rack: str = ""
    switch: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """Rows of an axis that sit in nodes and share their job, rack and switch: ports, mounts, NFS calls. The place of a
    row is its slot; ``node`` int32[n] holds the slots of the nodes."""

    kind: str
    ids: Sequence[str]
    names: Sequence[str]
    node: IntArray
    models: Sequence[str]
    roles: Sequence[str]


class _Codes(dict[str, int]):
    """Texts to numbers, in order of appearance; nothing is -1."""

    def of(self, texts: Iterable[str]) -> IntArray:
        return np.array([self.setdefault(text, len(self)) if text else -1 for text in texts], np.int32)


def draw(
    cluster: str, epoch: int, nodes: Sequence[FleetRow], gpus: Sequence[FleetRow], parts: Sequence[Parts] = ()
) -> Fleet:
    """The Fleet of these rows; a node's own ``node`` is its slot."""
    jobs, roles, models, racks, switches = _Codes(), _Codes(), _Codes(), _Codes(), _Codes()
    axes: dict[str, Axis] = {}
    for kind, rows in (("node", nodes), ("gpu", gpus)):
        live = np.array([row.live for row in rows], np.bool_)
        job_of, role_of = jobs.of(row.job for row in rows), roles.of(row.role for row in rows)
        model_of = models.of(row.model for row in rows)
        by_peers, starts = peers(live, job_of, model_of, role_of)
        axes[kind] = Axis(
            kind=kind,
            ids=tuple(row.id for row in rows),
            names=tuple(row.name for row in rows),
            live=live,
            node_of=np.array([row.node for row in rows], np.int32),
            job_of=job_of,
            role_of=role_of,
            model_of=model_of,
            rack_of=racks.of(row.rack for row in rows),
            by_peers=by_peers,
            peer_starts=starts,
            leaf_of=switches.of(row.switch for row in rows),
        )
    for some in parts:
        axes[some.kind] = _of_parts(some, axes["node"], models.of(some.models), roles.of(some.roles))
    return Fleet(
        cluster=cluster,
        epoch=epoch,
        axes=axes,
        nodes=tuple(row.id for row in nodes),
        jobs=tuple(jobs),
        roles=tuple(roles),
        models=tuple(models),
        racks=tuple(racks),
        slots={(kind, id_): slot for kind, axis in axes.items() for slot, id_ in enumerate(axis.ids)},
        switches=tuple(switches),
    )


def _of_parts(parts: Parts, nodes: Axis, model_of: IntArray, role_of: IntArray) -> Axis:
    node = parts.node
    live, job_of = nodes.live[node], nodes.job_of[node]
    by_peers, starts = peers(live, job_of, model_of, role_of)
    return Axis(
        kind=parts.kind,
        ids=tuple(parts.ids),
        names=tuple(parts.names),
        live=live,
        node_of=node,
        job_of=job_of,
        role_of=role_of,
        model_of=model_of,
        rack_of=nodes.rack_of[node],
        by_peers=by_peers,
        peer_starts=starts,
        leaf_of=nodes.leaf_of[node],
    )


def peers(live: BoolArray, job_of: IntArray, model_of: IntArray, role_of: IntArray) -> tuple[IntArray, IntArray]:
    """(by_peers, peer_starts): live rows that have a job, those of the same job, model and role side by side."""
    members = np.flatnonzero(live & (job_of >= 0))
    order = members[np.lexsort((members, role_of[members], model_of[members], job_of[members]))]
    key = np.stack([job_of[order], model_of[order], role_of[order]])
    first = np.ones(order.size, np.bool_)
    first[1:] = np.any(key[:, 1:] != key[:, :-1], axis=0)
    return order.astype(np.int32), np.append(np.flatnonzero(first), order.size).astype(np.int32)
