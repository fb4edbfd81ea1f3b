"""The nouns every detector speaks: Axis, Fleet, Tick, Event, Finding, Judged, Evidence, Entity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int32]

#: (axis kind, canonical metric name), for example ``("gpu", "temperature_c")``.
MetricKey = tuple[str, str]
#: What a detector asks ingest for: a metric of an axis, or an event namespace.
Need = MetricKey | str
#: A row of ``tables/kinds.csv``: ``gpu_bus_loss``, ``telemetry_dark`` ...
FaultKind = str
Grade = Literal["observed", "derived", "inferred"]


class Severity(IntEnum):
    """How loud a finding is; the order is the comparison."""

    INFO = 0
    WARNING = 1
    HIGH = 2
    CRITICAL = 3

    @property
    def word(self) -> str:
        return self.name.lower()

    @classmethod
    def of(cls, word: str) -> Severity:
        """``Severity.of("high")``; raises KeyError for a word outside the vocabulary."""
        return cls[word.upper()]


@dataclass(frozen=True, slots=True)
class Entity:
    """One thing that can fail. Identity is (cluster, kind, id); ``name`` is what people read.

    kind: cluster, rack, switch, node, gpu, nic, link, mount, run, job or rank. For a device ``id`` is its UUID or
    serial, else its PCI address, never the index; ``name`` is ``node/gpu3`` with the index of the moment.
    """

    cluster: str
    kind: str
    id: str
    name: str = field(default="", compare=False)
    node: str = field(default="", compare=False)

    def __str__(self) -> str:
        return self.name or self.id

    @property
    def host(self) -> str:
        """Name of the node this entity is, or sits in; empty for jobs, runs and switches."""
        return self.id if self.kind == "node" else self.node


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """A family of rows with stable slots: the GPUs, the nodes. All arrays have length ``len(ids)``.

    A slot is never reused within an epoch; a retired row keeps its slot with ``live`` False. ``node_of``, ``job_of``,
    ``role_of``, ``model_of`` and ``rack_of`` hold codes into the tuples of the Fleet, -1 for "none" or "unknown".
    ``by_peers`` lists the live slots that have a job, so that peers (same job, model and role) are contiguous;
    ``peer_starts`` holds the offsets of the groups in it and ends with ``len(by_peers)``. ``leaf_of`` holds codes into
    ``Fleet.switches`` (-1 = unknown), or nothing where no switch is known.

    Ports (nic): the role is the rail, ``mlx5_0``. Mounts (mount): the role is the mount point, the model what is
    mounted there. NFS calls (mount_op): the role is the call, the model the export, the name that of the mount.
    """

    kind: str
    ids: tuple[str, ...]
    names: tuple[str, ...]
    live: BoolArray
    node_of: IntArray
    job_of: IntArray
    role_of: IntArray
    model_of: IntArray
    rack_of: IntArray
    by_peers: IntArray
    peer_starts: IntArray
    leaf_of: IntArray = field(default_factory=lambda: np.zeros(0, np.int32))

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True, eq=False)
class Fleet:
    """The axes at one time. ``slots`` maps (axis kind, id) to the row; ``epoch`` rises when rows come or go."""

    cluster: str
    epoch: int
    axes: Mapping[str, Axis]
    nodes: tuple[str, ...]
    jobs: tuple[str, ...]
    roles: tuple[str, ...]
    models: tuple[str, ...]
    racks: tuple[str, ...]
    slots: Mapping[tuple[str, str], int]
    switches: tuple[str, ...] = ()

    def entity(self, kind: str, slot: int) -> Entity:
        """The entity in one row; raises KeyError or IndexError for a row that does not exist."""
        axis = self.axes[kind]
        at = int(axis.node_of[slot])
        return Entity(self.cluster, kind, axis.ids[slot], axis.names[slot], self.nodes[at] if at >= 0 else "")

    def slot(self, entity: Entity) -> int | None:
        return self.slots.get((entity.kind, entity.id))

    def job_of(self, entity: Entity) -> str:
        """The job that holds this entity now, else its node (a port, a mount), or an empty string."""
        kind, slot = entity.kind, self.slot(entity)
        if kind == "job":
            return entity.id
        if slot is None or kind not in self.axes:
            kind, slot = "node", self.slots.get(("node", entity.node))
        if slot is None or kind not in self.axes:
            return ""
        job = int(self.axes[kind].job_of[slot])
        return self.jobs[job] if job >= 0 else ""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened: a kernel code, a scheduler record, a boot. ``seq`` is its row in the event log."""

    at: float
    entity: Entity
    namespace: str
    code: str
    text: str = ""
    seq: int = 0
    late: bool = False
    attrs: Mapping[str, str] = field(default_factory=dict)

    def mends(self, kind: str) -> bool:
        """Of a "mended" event: does it end faults of this kind? It names its kinds; one that names none ends all."""
        return "kinds" not in self.attrs or kind in self.attrs["kinds"].split()


@dataclass(frozen=True, slots=True, eq=False)
class Tick:
    """What is known at ``at`` (unix s, UTC). Values are levels, rates or deltas, float32[n], NaN = missing.

    ``sampled`` parts "not due" (False) from "missing" (True and NaN). An event-only tick has no values at all.
    """

    at: float
    values: Mapping[MetricKey, FloatArray] = field(default_factory=dict)
    sampled: Mapping[MetricKey, BoolArray] = field(default_factory=dict)
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """One reason to believe a finding; ``ref`` names its source, ``event:123`` or ``metric:gpu/temperature_c``."""

    what: str
    value: str
    expected: str = ""
    unit: str = ""
    ref: str = ""
    grade: Grade = "observed"


@dataclass(frozen=True, slots=True)
class Finding:
    """A level: one detector's claim about one entity, asserted again each step under the same key."""

    detector: str
    kind: FaultKind
    entity: Entity
    severity: Severity
    score: float
    since: float
    reason: str
    evidence: tuple[Evidence, ...] = ()

    @property
    def key(self) -> str:
        """(detector, kind, entity) as text: what stays the same while the level is held."""
        return f"{self.detector}|{self.kind}|{self.entity.kind}:{self.entity.id}"

    @property
    def family(self) -> str:
        """kernel, telemetry, joblog or training: two families that agree make a vote."""
        return self.detector.split("/", 1)[0]


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """Findings of one step, and ``blind``: per axis the rows this step could not judge (bool[n]).

    An axis that is missing from ``blind`` was seen whole. What is neither found nor blind is clear.
    """

    findings: tuple[Finding, ...] = ()
    blind: Mapping[str, BoolArray] = field(default_factory=dict)
