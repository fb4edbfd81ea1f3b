"""Which incident a suspicion belongs to: pure, on facts; late victims fold into the incident of their job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from backend.facts import IncidentFacts
from detectors.fuse import AUTHORITIES, Hypothesis, Suspicion
from detectors.model import Entity, Severity

#: Everything on one node within this long of an incident's opening is one event.
NODE_S = 300.0
#: This many nodes whose telemetry goes dark at once are one event of the cluster, not of the nodes.
MANY_DARK = 3
#: Names written out in the sentence of such an event.
NAMED = 8
#: What a fault elsewhere brings about on the other nodes of its job: they wait, slow down, or are torn down. All else
#: is a fault of the node that shows it, whoever runs there: codes, heat, power and exporters do not travel.
FOLLOWING = frozenset({"gpu_memory_fault_app", "job_hang", "job_slow", "job_failed", "silent_slow_gpu", "loss_spike"})
#: Follows only below critical: a link complains when the peer behind it goes, a fatal error is its own.
FOLLOWING_QUIETLY = frozenset({"nvlink_error", "ib_port_degraded"})
#: The only records that follow a fault elsewhere: what the rest of a job reports when it is torn down.
FOLLOWING_RECORDS = frozenset({"gpu_memory_fault_app"})
#: What the torn-down attempt still says once its job was moved away; later lines are of the next attempt.
TEARDOWN_S = 60.0
#: A consequence may be stamped this much before its cause, by another clock.
SKEW_S = 5.0
#: Whose nodes are known by name: hosts(kind, id).
Hosts = Callable[[str, str], frozenset[str]]
LIVE = frozenset({"open", "acknowledged", "mitigated"})

#: same: the same fault. kept: a victim already linked. node: the same event on its node. cause, victim: the same job.
Relation = Literal["same", "kept", "node", "cause", "victim"]
NEARNESS: tuple[Relation, ...] = ("same", "kept", "node", "cause", "victim")
CONSEQUENCES = frozenset({"kept", "victim"})
#: What holds several nodes: told of the whole, it leads what was told of one of them.
WIDER = frozenset({"rack", "switch", "fs", "cluster"})
#: Matched by their nodes: a job follows the trouble of what its nodes share.
SPREAD = WIDER - {"cluster"} | {"job"}
#: One thing with one remedy: what it shows while an incident about it is live is the same story.
DEVICES = frozenset({"gpu", "nic"})


@dataclass(frozen=True, slots=True)
class Fold:
    """Where one suspicion goes. Exactly one of the two is set, or neither: then it opens an incident of its own.

    incident: id of an open or just-closed incident. opens_with: place (index into the answer of correlate) of the
    fold whose new incident this one joins; that fold always stands before it. ``victim``: it is a consequence there,
    not a cause. Suspicions with ``opens`` False and no incident to join get no Fold at all.
    """

    suspicion: Suspicion
    incident: int | None = None
    opens_with: int | None = None
    victim: bool = False


@dataclass(frozen=True, slots=True)
class _Cause:
    """What leads an incident, or a suspicion that opens one: enough to say who belongs to it. Times are unix s.

    keys: findings already linked. hosts: the nodes behind a rack, switch, file system or job; jobs: its own, and those
    of its victims. ends_at: when it was closed, None = live. held_to: when it was last asserted before that. strength:
    0 = a code that stands by itself, higher is weaker.
    """

    kind: str
    entity: tuple[str, str]
    node: str
    job: str
    begins_at: float
    ends_at: float | None
    moved_at: float | None
    held_to: float
    keys: frozenset[str]
    strength: tuple[bool, int, int]
    own: bool
    hosts: frozenset[str] = frozenset()
    jobs: frozenset[str] = frozenset()


def nowhere(kind: str, id_: str) -> frozenset[str]:
    """Default for ``hosts``: nobody knows which nodes stand behind an entity."""
    return frozenset()


class _Causes:
    """Causes by what a suspicion may share with them: finding, entity, node or job. A storm of suspicions is then
    compared with its neighbours only, not with every open incident."""

    def __init__(self, hosts: Hosts, causes: Iterable[tuple[int, _Cause]] = ()) -> None:
        self._hosts = hosts
        self._by: dict[tuple[str, ...], dict[int, _Cause]] = {}
        for place, cause in causes:
            self.add(place, cause)

    def add(self, place: int, cause: _Cause) -> None:
        shared = [("entity", cause.kind, *cause.entity), ("node", cause.node)]
        shared += [("job", job) for job in cause.jobs]
        shared += [("host", host) for host in cause.hosts]
        for key in (*shared, *(("finding", key) for key in cause.keys)):
            if key[-1]:
                self._by.setdefault(key, {})[place] = cause

    def hosts(self, lead: Hypothesis) -> frozenset[str]:
        return self._hosts(lead.entity.kind, lead.entity.id) if lead.entity.kind in SPREAD else frozenset()

    def near(self, suspicion: Suspicion) -> Mapping[int, _Cause]:
        lead = suspicion.cause
        shared = [("entity", lead.kind, lead.entity.kind, lead.entity.id), ("node", suspicion.node)]
        found: dict[int, _Cause] = {}
        shared += [("host", host) for host in self.hosts(lead)]
        for key in (*shared, ("job", suspicion.job), *(("finding", key) for key in lead.keys)):
            found |= self._by.get(key, {})
        return found


def correlate(
    suspicions: Iterable[Suspicion],
    incidents: Sequence[IncidentFacts],
    now: float,
    fold_s: float,
    node_s: float = NODE_S,
    many_dark: int = MANY_DARK,
    hosts: Hosts = nowhere,
) -> tuple[Fold, ...]:
    """One fold per suspicion that has a place, strongest first; the order of the input has no effect.

    incidents: live ones and those closed within ``fold_s`` seconds before ``now``. In this order: the incident that
    the suspicion's cause already belongs to; one of its node within ``node_s``; one of its job (or of a switch, rack or
    file system that nodes of its job share, by ``hosts``) within ``fold_s``
    (where a cause that stands by itself joins only an incident that has none, and leads it from then on); an incident
    that opens at the same time; else one of its own.
    """
    recent = (i for i in sorted(incidents, key=lambda i: i.id) if _recent(i, now, fold_s))
    known = [(i.id, _of_incident(i, hosts)) for i in recent]
    folds: list[Fold] = []
    old, fresh = _Causes(hosts, known), _Causes(hosts)
    for suspicion in sorted(_with_dark_gathered(suspicions, known, many_dark), key=_order):
        found = _home(suspicion, old, fold_s, node_s)
        if found is not None:
            place, relation = found
            folds.append(Fold(suspicion, incident=place, victim=relation in CONSEQUENCES))
            continue
        found = _home(suspicion, fresh, fold_s, node_s)
        if found is not None:
            place, relation = found
            folds.append(Fold(suspicion, opens_with=place, victim=relation in CONSEQUENCES))
        elif suspicion.opens:
            fresh.add(len(folds), _of_suspicion(suspicion, fresh.hosts(suspicion.cause)))
            folds.append(Fold(suspicion))
    return tuple(folds)


def _recent(incident: IncidentFacts, now: float, fold_s: float) -> bool:
    return incident.state in LIVE or (incident.closed_at is not None and now - incident.closed_at <= fold_s)


def _home(suspicion: Suspicion, causes: _Causes, fold_s: float, node_s: float) -> tuple[int, Relation] | None:
    """The best place among causes: the nearest relation, then the strongest cause, then the oldest."""
    found: list[tuple[tuple[int, tuple[bool, int, int], float, int], int, Relation]] = []
    for place, cause in causes.near(suspicion).items():
        relation = _relation(suspicion, cause, fold_s, node_s)
        if relation is None and cause.hosts & causes.hosts(suspicion.cause):
            relation = _along_nodes(suspicion, cause, fold_s, node_s)
        if relation is not None:
            order = (NEARNESS.index(relation), cause.strength, cause.begins_at, place)
            found.append((order, place, relation))
    if not found:
        return None
    _, place, relation = min(found)
    return place, relation


def _relation(suspicion: Suspicion, cause: _Cause, fold_s: float, node_s: float) -> Relation | None:
    lead, since = suspicion.cause, suspicion.since
    here = bool(suspicion.node) and suspicion.node == cause.node
    linked = bool(lead.keys & cause.keys)
    # Of a closed incident no news: a level that holds on, and a line from the time when it held. What came after its
    # last sign, while it waited to be closed, is a new fault.
    if cause.ends_at is None or since <= (cause.ends_at if linked else cause.held_to):
        if _is(lead, cause):
            return "same"
        if linked and lead.entity.kind in WIDER and cause.node and cause.ends_at is None:
            return "cause"
        if linked:
            return "same" if here else "kept"
    if here and _on_node(suspicion, cause, node_s):
        return "node"
    ends_at = cause.begins_at if cause.ends_at is None else max(cause.begins_at, cause.ends_at)
    if (
        not suspicion.job
        or suspicion.job not in cause.jobs
        or not cause.begins_at - node_s <= since <= ends_at + fold_s
    ):
        return None
    if cause.moved_at is not None and since > cause.moved_at + TEARDOWN_S:
        return None
    if not suspicion.opens and since < cause.begins_at - SKEW_S:
        return None
    return _along_job(lead, cause, opens=suspicion.opens)


def _along_job(lead: Hypothesis, cause: _Cause, *, opens: bool) -> Relation | None:
    """A fault that stands by itself is nobody's victim, but may turn out to be what a weaker incident waited for."""
    if not opens:
        return "victim" if lead.kind in FOLLOWING_RECORDS else None
    alone = _stands_alone(lead)
    sure = (alone and lead.severity >= Severity.HIGH) or lead.authority in ("code", "vote")
    if sure and cause.ends_at is None and not cause.own and _strength(lead) < cause.strength:
        return "cause"
    return None if alone else "victim"


def _along_nodes(suspicion: Suspicion, cause: _Cause, fold_s: float, node_s: float) -> Relation | None:
    """Some of their nodes are the same: a job that waits follows what its nodes share, and that leads what waited."""
    lead = suspicion.cause
    if lead.entity.kind == "job" and lead.kind in FOLLOWING and cause.entity[0] in WIDER:
        until = suspicion.since if cause.ends_at is None else max(cause.begins_at, cause.ends_at) + fold_s
        return "victim" if cause.begins_at - node_s <= suspicion.since <= until else None
    follows = cause.entity[0] == "job" and cause.kind in FOLLOWING and cause.ends_at is None
    near = abs(suspicion.since - cause.begins_at) <= fold_s
    return "cause" if follows and lead.entity.kind in WIDER and suspicion.opens and near else None


def _is(lead: Hypothesis, cause: _Cause) -> bool:
    return lead.kind == cause.kind and (lead.entity.kind, lead.entity.id) == cause.entity


def _on_node(suspicion: Suspicion, cause: _Cause, node_s: float) -> bool:
    """Close in time; or what a device shows after signs that were no code; or a weak sign of a device or an exporter
    that a live incident of the node accounts for."""
    if cause.ends_at is not None:
        return False
    lead = suspicion.cause
    if not suspicion.opens and not _follows(suspicion, cause):
        return False
    device = (lead.entity.kind, lead.entity.id) == cause.entity and lead.entity.kind in DEVICES
    if abs(suspicion.since - cause.begins_at) <= node_s or (device and cause.strength[1] > 0 and suspicion.opens):
        return True
    weak = lead.authority not in ("code", "vote") and suspicion.since >= cause.begins_at
    weak = weak and -int(lead.severity) >= cause.strength[2]  # a quiet incident accounts for nothing louder
    return weak and (lead.kind == "telemetry_dark" or (lead.entity.kind, lead.entity.id) == cause.entity)


def _follows(suspicion: Suspicion, cause: _Cause) -> bool:
    """A record follows a fault of its node only of the same job, and not before it."""
    same_job = not suspicion.job or not cause.job or suspicion.job == cause.job
    later = suspicion.since >= cause.begins_at - SKEW_S
    return suspicion.cause.kind in FOLLOWING_RECORDS and same_job and later


def _stands_alone(lead: Hypothesis) -> bool:
    """A fault that another node of the job cannot have caused."""
    quiet = lead.kind in FOLLOWING_QUIETLY and lead.severity < Severity.CRITICAL
    return lead.severity > Severity.INFO and lead.kind not in FOLLOWING and not quiet


def _strength(lead: Hypothesis) -> tuple[bool, int, int]:
    return (not _stands_alone(lead), AUTHORITIES.index(lead.authority), -int(lead.severity))


def _order(suspicion: Suspicion) -> tuple[bool, tuple[bool, int, int], float, str, str]:
    """Strongest first, then earliest, then by name: who opens an incident and who joins it."""
    lead = suspicion.cause
    return (not suspicion.opens, _strength(lead), suspicion.since, lead.entity.id, lead.kind)


def _of_suspicion(suspicion: Suspicion, hosts: frozenset[str]) -> _Cause:
    lead = suspicion.cause
    return _Cause(
        kind=lead.kind,
        entity=(lead.entity.kind, lead.entity.id),
        node=suspicion.node,
        job=suspicion.job,
        begins_at=suspicion.since,
        ends_at=None,
        moved_at=None,
        held_to=suspicion.since,
        keys=lead.keys,
        strength=_strength(lead),
        own=_stands_alone(lead),
        hosts=hosts,
        jobs=frozenset({suspicion.job}),
    )


def _of_incident(incident: IncidentFacts, hosts: Hosts) -> _Cause:
    """Authority by the hypothesis of its kind; an incident without hypotheses counts as strong, so that nothing takes
    it over."""
    lead = next((h for h in incident.hypotheses if h.kind == incident.kind), None)
    authority = lead.authority if lead is not None and lead.authority in AUTHORITIES else AUTHORITIES[0]
    entity = Entity(incident.cluster, incident.entity_kind, incident.entity_id)
    as_lead = Hypothesis(incident.kind, entity, 1.0, "", authority, incident.severity, incident.keys)
    return _Cause(
        kind=incident.kind,
        entity=(incident.entity_kind, incident.entity_id),
        node=incident.node,
        job=incident.job,
        begins_at=incident.opened_at,
        ends_at=None if incident.state in LIVE else incident.closed_at,
        moved_at=incident.moved_at,
        held_to=incident.opened_at if incident.asserted_at is None else incident.asserted_at,
        keys=incident.keys,
        strength=_strength(as_lead),
        own=_stands_alone(as_lead),
        hosts=hosts(incident.entity_kind, incident.entity_id) if incident.entity_kind in SPREAD else frozenset(),
        jobs=_jobs(incident),
    )


def _jobs(incident: IncidentFacts) -> frozenset[str]:
    """Its job; of what several jobs share, those that were seen to wait for it too."""
    waiting = incident.victims if incident.entity_kind in WIDER else ()
    return frozenset({incident.job, *(v.partition("job:")[2] for v in waiting if v.startswith("job:"))})


def _with_dark_gathered(
    suspicions: Iterable[Suspicion], known: Sequence[tuple[int, _Cause]], many_dark: int
) -> list[Suspicion]:
    """Nodes that go dark together are one suspicion of their cluster. A node whose own incident is live keeps it; an
    open incident of the cluster takes in every other, however few."""
    given = list(suspicions)
    own = frozenset[str]().union(*(c.keys for _, c in known if c.entity[0] != "cluster" and c.ends_at is None))
    clusters = {c.entity[1] for _, c in known if c.entity[0] == "cluster" and c.kind == "telemetry_dark"}
    dark: dict[str, list[Suspicion]] = {}
    for suspicion in given:
        lead = suspicion.cause
        if lead.kind == "telemetry_dark" and lead.entity.kind == "node" and not lead.keys & own:
            dark.setdefault(lead.entity.cluster, []).append(suspicion)
    for cluster, group in dark.items():
        if len(group) >= many_dark or cluster in clusters:
            members = {id(s) for s in group}
            given = [s for s in given if id(s) not in members] + [_cluster_dark(cluster, group)]
    return given


def _cluster_dark(cluster: str, group: Sequence[Suspicion]) -> Suspicion:
    ordered = sorted(group, key=lambda s: (s.node, s.since))
    names = [s.node for s in ordered]
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    plural = "node sends" if len(names) == 1 else "nodes send"
    lead = Hypothesis(
        kind="telemetry_dark",
        entity=Entity(cluster, "cluster", cluster, f"cluster:{cluster}"),
        score=max(s.cause.score for s in ordered),
        reason=f"{len(names):,} {plural} no GPU data at the same time: {', '.join(names[:NAMED])}{more}.",
        authority="state",
        severity=max(s.cause.severity for s in ordered),
        keys=frozenset[str]().union(*(s.cause.keys for s in ordered)),
    )
    entities = {lead.entity: None} | {e: None for s in ordered for e in s.entities}
    return Suspicion(
        hypotheses=(lead,),
        findings=tuple(f for s in ordered for f in s.findings),
        entities=tuple(entities),
        severity=max(s.severity for s in ordered),
        node="",
        job="",
        opens=True,
    )
