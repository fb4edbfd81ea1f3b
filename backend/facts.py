"""Frozen facts: what the pure rooms take. Never tables, never settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from backend.columns import Columns
from backend.reported import ReportFacts, ToldFacts
from detectors.model import FaultKind, Severity

Mode = Literal["observe", "propose", "act"]
Verdict = Literal["holds", "asks", "refuses"]


#: Every drain reason we write starts with this; a reason without it is somebody else's.
TAG = "[watchkeeper]"


def owner_of(reason: str, user: str = "") -> str:
    """Whose drain reason this is: "watchkeeper", the user who set it, "someone" where unnamed, "" for no reason."""
    if not reason:
        return ""
    return "watchkeeper" if reason.startswith(TAG) else (user or "someone")


class Rung(StrEnum):
    """One step of the ladder of ``kinds.csv``; the vocabulary of ``recommended_action``."""

    RECORD = "record"
    NOTIFY = "notify"
    EXCLUDE = "exclude"
    RESTART_JOB = "restart_job"
    REQUEUE = "requeue"
    RESET_GPU = "reset_gpu"
    DRAIN_AFTER_JOB = "drain_after_job"
    DRAIN_NOW = "drain_now"
    REBOOT = "reboot"
    CHECK = "check"
    TICKET = "ticket"
    REPLACE = "replace"


class Verb(StrEnum):
    """What an order asks of a cluster or of a hand beside it: the only writes a backend knows."""

    DRAIN = "drain"
    RESUME = "resume"
    REQUEUE = "requeue"
    REBOOT = "reboot"
    CHECK = "check"
    TICKET = "ticket"


#: What every scheduler can do; the other verbs are said by those backends that have them.
SCHEDULES = frozenset({Verb.DRAIN, Verb.RESUME, Verb.REQUEUE})


# --- one read of a source -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeviceLabel:
    """Who a series is about, as the exporter said it. Empty = not said. ``index`` is the exporter's at that time; of a
    port its name (``mlx5_0``), of a mount its mount point. ``export``: what is mounted there; ``operation``: the call
    of an NFS client, ``READ``."""

    axis: str
    node: str
    uuid: str = ""
    pci: str = ""
    index: str = ""
    model: str = ""
    job: str = ""
    export: str = ""
    operation: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Samples of one metric of one row: times (unix s, float64[k], rising) and values (float64[k], raw).

    ``part``: which of several series of the row, where the metric joins them (``controller=0``)."""

    metric: str
    label: DeviceLabel
    times: NDArray[np.float64]
    values: NDArray[np.float64]
    part: str = ""


@dataclass(frozen=True, slots=True)
class RawEvent:
    """An event before identity is resolved. ``dedupe`` is the same text for the same thing said twice."""

    at: float
    host: str
    namespace: str
    code: str
    text: str
    dedupe: str
    pci: str = ""
    job: str = ""
    attrs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GpuFacts:
    index: int
    uuid: str = ""
    pci: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node as its cluster described it at ``read_at`` (unix s).

    state: the scheduler's base state in lower case (idle, allocated, mixed, down, unknown); flags: DRAIN,
    COMPLETING ... ``reason_owner`` is "watchkeeper" where the reason carries our tag, the user's name where somebody
    set it, else "". ``switch`` is the leaf; ``clique`` the NVLink domain; ``labels`` what else its cluster says of it.
    """

    name: str
    state: str = "unknown"
    flags: frozenset[str] = frozenset()
    reason: str = ""
    reason_owner: str = ""
    rack: str = ""
    switch: str = ""
    model: str = ""
    gpus: tuple[GpuFacts, ...] = ()
    expected_gpus: int = 0
    boot_at: float | None = None
    jobs: tuple[str, ...] = ()
    read_at: float = 0.0
    clique: str = ""
    partitions: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def draining(self) -> bool:
        """DRAIN is set and work still runs."""
        return "DRAIN" in self.flags and not self.drained

    @property
    def drained(self) -> bool:
        """DRAIN with IDLE or DOWN and not COMPLETING: nothing runs any more."""
        return "DRAIN" in self.flags and self.state in ("idle", "down") and "COMPLETING" not in self.flags

    @property
    def out(self) -> bool:
        """Not available to new work, whoever took it out."""
        return "DRAIN" in self.flags or self.state in ("down", "error")


@dataclass(frozen=True, slots=True)
class AttemptFacts:
    """One attempt of a job: (job, restart). Times are unix s; None = not yet.

    ``job`` is the raw id. ``restart`` below 0: its source does not number attempts, they are told apart by their times.
    ``life`` is counted by the store: schedulers give ids anew. ``unit`` is the scheduler's own unique id of the
    submission (SLUID, pod UID), "" = none. ``array`` is "1200_7" for a task of an array. ``gpus`` are the indices held
    on each node, where the scheduler says them. ``roles`` are the node's parts in the job (trainer, sampler, stage-3).
    ``requeued_by`` is the person or system that asked for the restart which made this attempt, "" = not known.
    ``outputs`` are its log files, expanded. ``asks_nodes``: of a queued job, 0 = not known.
    """

    job: str
    restart: int = 0
    run: str = ""
    user: str = ""
    state: str = "UNKNOWN"
    submit: float | None = None
    eligible: float | None = None
    start: float | None = None
    end: float | None = None
    nodes: tuple[str, ...] = ()
    gpus_per_node: int = 0
    excluded: tuple[str, ...] = ()
    unit: str = ""
    name: str = ""
    array: str = ""
    partition: str = ""
    account: str = ""
    gpus: tuple[tuple[str, tuple[int, ...]], ...] = ()
    roles: tuple[tuple[str, str], ...] = ()
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    dependency: str = ""
    requeued_by: str = ""
    limit_s: float | None = None
    outputs: tuple[str, ...] = ()
    source: str = ""
    life: int = 0
    asks_nodes: int = 0


@dataclass(frozen=True, slots=True)
class VersionFacts:
    """What a node (or one device of it) runs, from ``at`` on (unix s): item is driver, vbios, firmware, kernel, nccl,
    image, config, bios, slurm, kubelet, cuda or a site's own word. ``job`` where only that job's processes say so;
    ``text`` and ``by`` where somebody tells of a change, which is kept also when nobody knows what was before."""

    node: str
    item: str
    value: str
    at: float
    device: str = ""
    job: str = ""
    source: str = ""
    text: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True)
class OutageFacts:
    """A span (unix s; end None = still) in which a node was out, and by whose word: sacctmgr events, cordons."""

    node: str
    start: float
    end: float | None
    state: str
    reason: str = ""
    user: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class MaintenanceFacts:
    """A window that somebody announced (a MAINT reservation, a cloud notice). Unix s; ``name`` is its identity."""

    name: str
    nodes: tuple[str, ...]
    start: float
    end: float | None
    text: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class CableFacts:
    """One tie of a node: kind ib or eth, a port (mlx5_0/1) to its leaf; kind fs, a mount (/scratch) to its server.
    ``rail`` is the plane that the port belongs to."""

    node: str
    port: str
    peer: str
    peer_port: str = ""
    kind: str = "ib"
    rail: str = ""


@dataclass(frozen=True, slots=True)
class StepFacts:
    """One row of training: covers (previous row of its attempt, at]. None = not said."""

    at: float
    run: str
    job: str
    step: int
    loss: float | None = None
    grad_norm: float | None = None
    step_time_s: float | None = None
    tokens: float | None = None
    rank: int | None = None
    replicas_live: int | None = None
    replicas_total: int | None = None
    attrs: Mapping[str, float | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """A save or a load that finished at ``at`` and covers [at - duration_s, at]. ``job`` "" = not said."""

    at: float
    run: str
    step: int
    kind: Literal["save", "load"]
    duration_s: float
    bytes: float | None = None
    job: str = ""
    blocking: bool = True


@dataclass(frozen=True, slots=True)
class PrintedFacts:
    """A line that a job printed, as pushed at ``at`` (unix s). ``stream``: host and rank, else host and source."""

    at: float
    job: str
    stream: str
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """All that one read brought. ``start`` to ``end`` is the span it covered, so that absence means something.

    dark: a recording's word on which sources did not answer from then on; None = it says nothing of that.
    marks: how far the source has come, by name (None = forget it); kept in the same transaction as the events, so that
    nothing is lost and nothing comes twice. more: the source was not at its end; read again at once.
    listing: ``nodes`` names every node that its source has (True), or some of them (False); None = it does not say.
    A read that failed half-way is never a listing: by what a listing leaves out, nodes leave the fleet.
    columns: samples of series that are known already, beside those of ``series``.
    """

    source: str
    start: float
    end: float
    series: tuple[Series, ...] = ()
    events: tuple[RawEvent, ...] = ()
    nodes: tuple[NodeFacts, ...] = ()
    attempts: tuple[AttemptFacts, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)
    dark: tuple[str, ...] | None = None
    versions: tuple[VersionFacts, ...] = ()
    outages: tuple[OutageFacts, ...] = ()
    maintenances: tuple[MaintenanceFacts, ...] = ()
    steps: tuple[StepFacts, ...] = ()
    checkpoints: tuple[CheckpointFacts, ...] = ()
    told: tuple[ToldFacts, ...] = ()
    printed: tuple[PrintedFacts, ...] = ()
    marks: Mapping[str, str | None] = field(default_factory=dict)
    more: bool = False
    cables: tuple[CableFacts, ...] = ()
    reports: tuple[ReportFacts, ...] = ()
    listing: bool | None = None
    columns: Columns | None = None


# --- incidents ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HypothesisFacts:
    """A ranked cause. ``authority`` is code, state, vote, trend, rate, rule or band (``kinds.md``)."""

    kind: FaultKind
    entity: str
    entity_kind: str
    node: str
    score: float
    reason: str
    authority: str


@dataclass(frozen=True, slots=True)
class IncidentFacts:
    """One incident. ``asserted_at``: when one of its findings last held (unix s), None = not known. ``victims`` as they
    print."""

    id: int
    cluster: str
    kind: FaultKind
    severity: Severity
    state: str
    entity: str
    entity_kind: str
    entity_id: str
    node: str
    job: str
    opened_at: float
    closed_at: float | None
    hypotheses: tuple[HypothesisFacts, ...] = ()
    entities: tuple[str, ...] = ()
    keys: frozenset[str] = frozenset()
    dark: tuple[str, ...] = ()
    asserted_at: float | None = None
    moved_at: float | None = None
    victims: tuple[str, ...] = ()


# --- deciding and acting --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PastOrder:
    """An order that once ran, as far as cooldown and the ladder's memory need it."""

    verb: Verb
    node: str
    kind: FaultKind
    at: float
    state: str


@dataclass(frozen=True, slots=True)
class Case:
    """Everything a decision may depend on.

    running: all jobs of the fleet; waiting: (job, partition, nodes it asks for). saves: job -> (when its last
    checkpoint finished, how far they are apart). struck: nodes that broke lately. breaker: why it was
    tripped, "" = closed. approved_by: who approved this plan so far.
    """

    now: float
    mode: Mode
    incident: IncidentFacts
    node: NodeFacts | None
    fleet: tuple[NodeFacts, ...]
    jobs: tuple[AttemptFacts, ...]
    past: tuple[PastOrder, ...] = ()
    can: frozenset[Verb] = frozenset()
    kill_switch: bool = False
    excluded: frozenset[str] = frozenset()
    dark: tuple[str, ...] = ()
    running: tuple[AttemptFacts, ...] = ()
    waiting: tuple[tuple[str, str, int], ...] = ()
    saves: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    maintenances: tuple[MaintenanceFacts, ...] = ()
    struck: frozenset[str] = frozenset()
    breaker: str = ""
    approved_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GuardVerdict:
    """One guard's word: what it looked at, what it measured against which limit."""

    guard: str
    verdict: Verdict
    reason: str
    measured: str = ""
    limit: str = ""


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step of a plan: ``verb`` None is a step of ours (exclude) or advice (reboot, ticket)."""

    rung: Rung
    verb: Verb | None
    node: str
    job: str
    text: str


@dataclass(frozen=True, slots=True)
class Blast:
    """What a plan would touch. Zero is said, never left out."""

    nodes: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    other_jobs: tuple[str, ...] = ()
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class DecisionFacts:
    sentence: str
    recommended: Rung
    plan: tuple[PlannedStep, ...]
    advice: tuple[str, ...]
    blast: Blast
    guards: tuple[GuardVerdict, ...]
    mode: Mode
    dark: tuple[str, ...] = ()

    @property
    def allowed(self) -> bool:
        """No guard refuses."""
        return all(g.verdict != "refuses" for g in self.guards)

    @property
    def acts(self) -> bool:
        """Something in the plan would bind or be sent."""
        return any(s.verb is not None or s.rung is Rung.EXCLUDE for s in self.plan)


@dataclass(frozen=True, slots=True)
class OrderFacts:
    """One write to a cluster. ``witness`` is what was read before the call (boot id, restart count)."""

    id: int
    cluster: str
    verb: Verb
    node: str
    job: str
    kind: FaultKind
    incident: int
    reason: str
    exclude: tuple[str, ...] = ()
    witness: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a backend did. ``changed`` False = it already was so. ``text`` is a sentence for people."""

    changed: bool
    text: str
    attrs: Mapping[str, str] = field(default_factory=dict)
