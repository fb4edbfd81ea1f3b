"""The state of every GPU, and each reason why one is not healthy. Unknown is never healthy."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from sqlmodel import Session, col, select

from backend.answers.pulse import Pulse, Pulses, pulses
from backend.clock import unix, utc
from backend.facts import TAG
from backend.model.actions import Exclusion
from backend.model.cluster import Device, Node
from backend.model.events import Finding
from backend.model.incidents import Incident
from backend.store import actions, cluster, findings, incidents

State = Literal["ok", "excluded", "suspect", "draining", "unknown", "failed"]
#: From best to worst; the worst reason decides what a device is.
RANK: tuple[State, ...] = ("ok", "excluded", "suspect", "draining", "unknown", "failed")
#: Kinds that mean "nothing can be seen", not "something is broken" (kinds.csv).
BLIND = ("telemetry_dark", "telemetry_frozen")
#: How the names of sources begin that bring telemetry.
TELEMETRY = ("prometheus", "remote_write", "otlp")
#: Base states of a scheduler in which a node does no work (Slurm's words, lower case).
DOWN = ("down", "error", "fail")


@dataclass(frozen=True, slots=True)
class Trouble:
    """One reason why a node, or one of its GPUs (``gpu`` = place on the node), is not ok."""

    node: str
    gpu: int | None
    state: State
    reason: str
    since: datetime
    rack: str = ""
    job: str = ""
    incident: int | None = None


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node with the state of each of its GPUs in order of index; ``job`` holds it now, empty = nobody."""

    name: str
    rack: str
    job: str
    gpus: tuple[State, ...]

    @property
    def worst(self) -> State:
        return max(self.gpus, key=RANK.index, default="unknown")


class Gpu(NamedTuple):
    """A GPU as far as its place goes; ``number`` is its index at its exporter, empty = not known."""

    id: str
    node: str
    number: str


@dataclass(frozen=True, slots=True)
class Slots:
    """Which GPU of which node a device id is, and how many GPUs each node has."""

    place: Mapping[str, int]
    size: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class FleetState:
    """Nodes in physical order (rack, then name) and troubles, worst and oldest first. ``since``: when the first node
    was heard of, None where there is none."""

    nodes: tuple[NodeState, ...]
    troubles: tuple[Trouble, ...]
    counts: Mapping[State, int]
    slots: Slots
    since: datetime | None

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def healthy(self) -> int:
        return self.counts.get("ok", 0)


@dataclass(frozen=True, slots=True)
class Sight:
    """How this process sees telemetry. stale_s: older than this is no sight. sampled: unix s of each device's newest
    sample; None where no ring is filled here, and beats of sources are all there is to go by."""

    stale_s: float
    sampled: Mapping[str, float] | None = None


def fleet_state(session: Session, name: str, now: datetime, sight: Sight) -> FleetState:
    """All nodes of a cluster that are not retired; what was not heard lately, or sends no telemetry, is unknown."""
    nodes = [row for row in cluster.nodes(session, name) if row.retired_at is None]
    devices = gpus(session, name)
    slots = slots_of(devices, nodes)
    held = {row.node: row.job for row in cluster.open_allocations(session, name)}
    racks = {row.name: row.rack for row in nodes}
    found = [
        *(t for row in nodes for t in of_node(row, now - timedelta(seconds=sight.stale_s))),
        *of_telemetry(nodes, telemetry(pulses(session, name, now)), now),
        *of_samples(devices, slots, nodes, sight, now),
        *of_incidents(incidents.live_real(session, name), slots),
        *of_exclusions(actions.live_exclusions(session, name, now)),
        *of_findings(findings.active(session, name), slots),
    ]
    known = distinct(t for t in found if t.node in racks)
    states = _states(known, slots)
    order = sorted(nodes, key=lambda row: (natural(row.rack), natural(row.name)))
    drawn = tuple(NodeState(row.name, row.rack, held.get(row.name, ""), tuple(states[row.name])) for row in order)
    troubles = [
        Trouble(t.node, t.gpu, t.state, t.reason, t.since, racks[t.node], held.get(t.node, ""), t.incident)
        for t in known
    ]
    troubles.sort(key=lambda t: (-RANK.index(t.state), t.since, natural(t.node), t.gpu or 0))
    counts = Counter(state for node in drawn for state in node.gpus)
    return FleetState(drawn, tuple(troubles), counts, slots, min((row.first_seen for row in nodes), default=None))


def distinct(found: Iterable[Trouble]) -> list[Trouble]:
    """One reason for the same state of the same thing: that of an incident, else the oldest. What an incident says is
    broken need not be called dark as well."""
    best: dict[tuple[str, int | None, State], Trouble] = {}
    for t in sorted(found, key=lambda t: (t.incident is None, t.since)):
        broken = (t.node, t.gpu, "failed") in best and t.incident is None and t.state == "unknown"
        if not broken:
            best.setdefault((t.node, t.gpu, t.state), t)
    return list(best.values())


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Sort key: ``rack-2`` before ``rack-10``."""
    parts: list[tuple[int, str]] = []
    digits = ""
    for c in name + " ":
        if c.isdecimal():
            digits += c
            continue
        if digits:
            parts.append((int(digits), ""))
            digits = ""
        parts.append((-1, c))
    return tuple(parts)


def gpus(session: Session, name: str) -> list[Gpu]:
    """Every GPU that is not retired. Columns, not rows: ten thousand table objects take a second to build."""
    query = select(Device.id, Device.node, Device.index).where(
        col(Device.cluster) == name, col(Device.kind) == "gpu", col(Device.retired_at).is_(None)
    )
    return [Gpu(*row) for row in session.exec(query.order_by(col(Device.node), col(Device.pci), col(Device.id)))]


def slots_of(devices: Iterable[Gpu], nodes: Iterable[Node]) -> Slots:
    """A device sits at its index; where none is known, at the first free place."""
    by_node: defaultdict[str, list[Gpu]] = defaultdict(list)
    for device in devices:
        by_node[device.node].append(device)
    place: dict[str, int] = {}
    size: dict[str, int] = {}
    for node in nodes:
        taken = {int(d.number): d for d in by_node[node.name] if d.number.isdecimal() and len(d.number) < 4}
        at = {d.id: i for i, d in taken.items()}
        free = (i for i in range(10_000) if i not in taken)
        at |= {d.id: next(free) for d in by_node[node.name] if d.id not in at}
        place |= at
        size[node.name] = max([node.expected_gpus, *(i + 1 for i in at.values())], default=0)
    return Slots(place, size)


def _states(troubles: Sequence[Trouble], slots: Slots) -> dict[str, list[State]]:
    states: dict[str, list[State]] = {name: ["ok"] * size for name, size in slots.size.items()}
    for t in troubles:
        gpus = states[t.node]
        for i in range(len(gpus)) if t.gpu is None else (t.gpu,):
            if i < len(gpus) and RANK.index(t.state) > RANK.index(gpus[i]):
                gpus[i] = t.state
    return states


# --- reasons --------------------------------------------------------------------------------------------------------


def of_node(row: Node, silent_before: datetime) -> Iterator[Trouble]:
    """What the scheduler says of a node, and whether anything was heard of it at all."""
    flags = set(row.flags)
    since = row.state_at or row.first_seen
    by = f" by {row.reason_owner}" if row.reason_owner else ""
    why = f"{by}: {row.reason.removeprefix(TAG).strip()}" if row.reason else by
    out = "DRAIN" in flags
    if row.last_seen < silent_before:
        yield Trouble(row.name, None, "unknown", "Nothing was heard of it since then.", row.last_seen)
    elif row.state in DOWN and not (out and row.reason_owner == "watchkeeper"):
        yield Trouble(row.name, None, "failed", f"The scheduler says {row.state}{why}", since)
    if out:
        drained = row.state in ("idle", *DOWN) and "COMPLETING" not in flags
        word = "Drained" if drained else "Draining, work still runs,"
        yield Trouble(row.name, None, "excluded" if drained else "draining", f"{word}{why}", since)


def telemetry(found: Pulses) -> Sequence[Pulse]:
    """The sources that bring telemetry; the others know nodes and jobs, and not how a GPU fares."""
    return [p for p in found.sources if p.name.startswith(TELEMETRY)]


def of_telemetry(nodes: Sequence[Node], sources: Sequence[Pulse], now: datetime) -> Iterator[Trouble]:
    """Without a single source that speaks, no GPU of the cluster can be called healthy."""
    if any(p.health == "fine" for p in sources):
        return
    reason = (
        "Every telemetry source is silent." if sources else "No telemetry has ever come; the scheduler alone knows it."
    )
    since = min((p.since for p in sources if p.since is not None), default=None)
    yield from (Trouble(row.name, None, "unknown", reason, since or row.first_seen) for row in nodes)


def of_samples(
    devices: Iterable[Gpu], slots: Slots, nodes: Sequence[Node], sight: Sight, now: datetime
) -> Iterator[Trouble]:
    """GPUs whose own samples stopped or never came, while telemetry as a whole goes on; a whole node as one."""
    if sight.sampled is None:
        return
    since = {row.name: row.first_seen for row in nodes}
    lacking: defaultdict[str, dict[int, float | None]] = defaultdict(dict)
    for device in devices:
        at = sight.sampled.get(device.id)
        if device.id in slots.place and (at is None or unix(now) - at > sight.stale_s):
            lacking[device.node][slots.place[device.id]] = at
    for node, places in lacking.items():
        reason = "No telemetry of it comes." if any(places.values()) else "No telemetry of it has come yet."
        whole = len(places) == slots.size.get(node)
        for gpu, at in [(None, next(iter(places.values())))] if whole else places.items():
            yield Trouble(node, gpu, "unknown", reason, utc(at) if at else since[node])


def of_incidents(rows: Iterable[Incident], slots: Slots) -> Iterator[Trouble]:
    """Open incidents of nodes and GPUs. One of kind info, a job's own bug for instance, marks no device."""
    for row in rows:
        if row.severity == "info" or row.entity_kind not in ("gpu", "node"):
            continue
        state: State = "unknown" if row.kind in BLIND else "failed" if row.severity == "critical" else "suspect"
        gpu = slots.place.get(row.entity_id) if row.entity_kind == "gpu" else None
        yield Trouble(row.node, gpu, state, row.headline, row.opened_at, incident=row.id)


def of_exclusions(rows: Iterable[Exclusion]) -> Iterator[Trouble]:
    for row in rows:
        if row.origin != "proposed":
            reason = f"{row.reason.rstrip('.')}; by {row.owner} until {row.until.day} {row.until:%b %H:%M}"
            yield Trouble(row.node, None, "excluded", reason, row.created_at, incident=row.incident_id)


def of_findings(rows: Iterable[Finding], slots: Slots) -> Iterator[Trouble]:
    """Levels that hold without an incident: too weak to open one, and still no sign of health."""
    for row in rows:
        if row.incident_id is not None or row.severity == "info" or row.entity_kind not in ("gpu", "node"):
            continue
        state: State = "unknown" if row.kind in BLIND else "suspect"
        gpu = slots.place.get(row.entity_id) if row.entity_kind == "gpu" else None
        yield Trouble(row.node, gpu, state, row.reason, row.since)
