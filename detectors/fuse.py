"""Findings of one tick become ranked suspicions: what agrees is joined, what follows from a cause folds under it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from detectors.catalogue import Catalogue
from detectors.kernel.phrases import KERNEL_LOG, UNPROVEN_LOG
from detectors.model import Entity, FaultKind, Finding, Fleet, Severity
from detectors.places import system_names
from detectors.wording import counted

#: A consequence may be stamped this much before its cause, by another clock.
SKEW_S = 5.0
#: What may be relied on, best first (tables/kinds.csv). A lower one never outranks a higher one.
AUTHORITIES = ("code", "vote", "state", "trend", "rate", "rule", "band")

#: What a switch in trouble shows at the ports of its nodes.
FABRIC = "network_fabric"
AT_PORTS = frozenset({"ib_link_down", "ib_link_flap", "ib_port_degraded"})
#: What a job says of itself. It may print the driver's very words, so of a machine it is one witness and never enough.
OF_JOBS = frozenset({"joblog", "training"})
WORK = frozenset({"job", "run", "rank"})
#: Kinds that show as silence: a vote together with a job of theirs that stands still.
LOSSES = frozenset({"gpu_bus_loss", "node_unreachable"})
#: And the kind that shows as waiting: a vote together with the trainer's own clock.
SLOWS = "silent_slow_gpu"


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One possible cause. authority: code, state, vote, trend, rate, rule or band (tables/kinds.csv)."""

    kind: FaultKind
    entity: Entity
    score: float
    reason: str
    authority: str
    severity: Severity
    keys: frozenset[str]


@dataclass(frozen=True, slots=True)
class Suspicion:
    """What one fault looks like now: hypotheses, best first, and every finding it explains.

    ``opens`` False: worth a row, not an incident of its own (severity info).
    """

    hypotheses: tuple[Hypothesis, ...]
    findings: tuple[Finding, ...]
    entities: tuple[Entity, ...]
    severity: Severity
    node: str
    job: str
    opens: bool = True

    @property
    def cause(self) -> Hypothesis:
        return self.hypotheses[0]

    @property
    def since(self) -> float:
        """When the cause began, unix s."""
        return min(f.since for f in self.findings if f.key in self.cause.keys)


@dataclass(frozen=True, slots=True)
class _Claim:
    """All findings that say one kind of one entity (or of many GPUs of one node)."""

    hypothesis: Hypothesis
    findings: tuple[Finding, ...]

    @property
    def since(self) -> float:
        return min(f.since for f in self.findings)

    @property
    def rank(self) -> tuple[bool, bool, int, int, float, float, str, str]:
        """Lowest first: a switch that is the cause of what its ports show; what explains others, by authority and
        severity; then the rest by severity and authority (a code that only warns does not lead over a loud state); then
        age, confidence, and a fixed order."""
        h = self.hypothesis
        place, loud = AUTHORITIES.index(h.authority), -int(h.severity)
        weight = (place, loud) if _hard(h) else (loud, place)
        return (h.kind != FABRIC, not _hard(h), *weight, self.since, -h.score, h.entity.id, h.kind)


def fuse(findings: Iterable[Finding], fleet: Fleet, catalogue: Catalogue) -> tuple[Suspicion, ...]:
    """Suspicions of one tick, strongest first; the order of ``findings`` has no effect. Each finding is in exactly
    one suspicion."""
    given = list(findings)
    claims = _node_wide(_borne_out(_claims(given, fleet, catalogue), given, fleet, catalogue), fleet, catalogue)
    claims = _rack_wide(claims, fleet, catalogue)
    by_host: dict[str, list[_Claim]] = {}
    for place, claim in _under_switches(_same_port(claims), fleet):
        by_host.setdefault(place, []).append(claim)
    window_s = catalogue.limit("fuse_window_s")
    groups = [group for mine in by_host.values() for group in _grouped(_located(mine), window_s)]
    return tuple(_suspicion(group, fleet) for group in sorted(groups, key=lambda g: g[0].rank))


def _grouped(claims: Iterable[_Claim], window_s: float) -> list[list[_Claim]]:
    """Claims of one host under what leads them; each group begins with its leader."""
    groups: list[list[_Claim]] = []
    for claim in sorted(claims, key=lambda c: c.rank):
        home = next((group for group in groups if _belongs(claim, group[0], window_s)), None)
        if home is None:
            groups.append([claim])
        else:
            home.append(claim)
    return groups


def noisy_or(scores: Iterable[float]) -> float:
    """Chance that at least one of several independent witnesses is right: 1 - product(1 - score)."""
    return 1.0 - math.prod(1.0 - score for score in scores)


def _claims(findings: Sequence[Finding], fleet: Fleet, catalogue: Catalogue) -> list[_Claim]:
    """By kind and entity; a server goes by the name of its file system."""
    groups: dict[tuple[Entity, FaultKind], list[Finding]] = {}
    systems = system_names(fleet) if any(f.entity.kind == "fs" for f in findings) else {}
    for finding in findings:
        entity = finding.entity
        if entity.kind == "fs" and entity.id in systems:
            entity = replace(entity, id=systems[entity.id], name=f"fs:{systems[entity.id]}")
        groups.setdefault((entity, finding.kind), []).append(finding)
    return [_claim(entity, kind, group, catalogue) for (entity, kind), group in groups.items()]


def _claim(entity: Entity, kind: FaultKind, group: Sequence[Finding], catalogue: Catalogue) -> _Claim:
    ordered = sorted(group, key=lambda f: (f.family != "kernel", -f.severity, -f.score, f.key))
    best = ordered[0]
    families: dict[str, float] = {}
    for finding in ordered:
        families[finding.family] = max(finding.score, families.get(finding.family, 0.0))
    hypothesis = Hypothesis(
        kind=kind,
        entity=entity,
        score=round(noisy_or(families.values()), 4),
        reason=best.reason,
        authority="rule" if _jobs_word(entity, ordered) else _authority(kind, ordered, catalogue),
        severity=max(f.severity for f in ordered),
        keys=frozenset(f.key for f in ordered),
    )
    return _Claim(hypothesis, tuple(ordered))


def _jobs_word(entity: Entity, group: Sequence[Finding]) -> bool:
    """Does nothing but the log of a job say this of a machine? No kernel of the host, telemetry or scheduler did."""
    families = {f.family for f in group}
    return entity.kind not in WORK and "joblog" in families and families <= OF_JOBS


def _authority(kind: FaultKind, group: Sequence[Finding], catalogue: Catalogue) -> str:
    """Code where the kernel said it as loud as its kind is, or loud enough to act on, and the kind may be believed by
    code (a link that flaps, a slow server or heat may not: its lines count as any sign); vote where two families agree.
    One family alone has the best word its kind allows below a vote. What is left (a code that only warns of a kind
    that is a fault, one detector of a kind that is only believed by code or vote, a kernel's words from a log that
    anybody may write to) is a rule: told, not acted on."""
    known = catalogue.kinds.get(kind)
    believed = known is None or "code" in known.authorities
    if any(map(_unproven, group)) and {f.family for f in group if not _unproven(f)} <= OF_JOBS:
        return "rule"
    kernels = [f.severity for f in group if f.family == "kernel" and not _unproven(f)]
    coded = max(kernels, default=None) if believed else None
    if coded is not None and coded >= min(Severity.HIGH, known.severity if known is not None else Severity.HIGH):
        return "code"
    if len({f.family for f in group}) > 1:
        return "vote"
    allowed = known.authorities if known is not None and coded is None else ()
    return next((word for word in AUTHORITIES[2:] if word in allowed), "rule")


def _unproven(finding: Finding) -> bool:
    """Do all of its lines come from where anybody may speak in the kernel's name? A job may then have written them."""
    said = {piece.what for piece in finding.evidence} if finding.family == "kernel" else set()
    return UNPROVEN_LOG in said and KERNEL_LOG not in said


def _under_switches(claims: Sequence[_Claim], fleet: Fleet) -> list[tuple[str, _Claim]]:
    """Each claim with the place it belongs to: its host; but what the ports of a node show while its switch (or rack)
    is in trouble belongs there. Where kernels said it too, the switch has a vote."""
    over = {str(c.hypothesis.entity): c for c in claims if c.hypothesis.kind == FABRIC}
    if not over:
        return [(claim.hypothesis.entity.host, claim) for claim in claims]
    placed = [(_place_of(claim, over, fleet), claim) for claim in claims]
    said = {place for place, claim in placed if any(f.family == "kernel" for f in claim.findings)}
    return [
        (place, replace(claim, hypothesis=replace(claim.hypothesis, authority="vote")))
        if claim.hypothesis.kind == FABRIC and place in said
        else (place, claim)
        for place, claim in placed
    ]


def _same_port(claims: Sequence[_Claim]) -> list[_Claim]:
    """Kernels name a port by its address, exporters by its device. Where both families say the same of one port
    each on one host, it is the same port, and a vote of two families."""
    at_ports: dict[tuple[str, FaultKind], list[_Claim]] = {}
    for claim in claims:
        h = claim.hypothesis
        if h.kind in AT_PORTS and h.entity.host:
            at_ports.setdefault((h.entity.host, h.kind), []).append(claim)
    out = list(claims)
    for group in at_ports.values():
        kernel = [c for c in group if all(f.family == "kernel" for f in c.findings)]
        seen = [c for c in group if c not in kernel]
        if len(kernel) == 1 and len(seen) == 1:
            joined = _joined(kernel[0], seen[0])
            word = "code" if kernel[0].hypothesis.authority == "code" else "vote"
            out = [c for c in out if c is not kernel[0] and c is not seen[0]]
            out.append(replace(joined, hypothesis=replace(joined.hypothesis, authority=word)))
    return out


def _place_of(claim: _Claim, over: Mapping[str, _Claim], fleet: Fleet) -> str:
    h = claim.hypothesis
    if h.kind == FABRIC:
        return str(h.entity)
    axis = fleet.axes.get("node")
    slot = fleet.slots.get(("node", h.entity.host))
    if h.kind in AT_PORTS and axis is not None and slot is not None:
        for codes, names, word in ((axis.leaf_of, fleet.switches, "switch"), (axis.rack_of, fleet.racks, "rack")):
            code = int(codes[slot]) if slot < len(codes) else -1
            if code >= 0 and f"{word}:{names[code]}" in over:
                return f"{word}:{names[code]}"
    return h.entity.host


def _borne_out(claims: list[_Claim], findings: Sequence[Finding], fleet: Fleet, catalogue: Catalogue) -> list[_Claim]:
    """What fell silent while its job came to stand still is lost: two signs from different machines, and the vote that
    kinds.csv asks for. (An exporter that stops does not stop a job.) So is a GPU slow that its peers wait for, once the
    trainer's clock says that steps take longer."""
    window_s = catalogue.limit("fuse_window_s")
    stalls = {f.entity.id: f for f in findings if f.kind == "job_hang" and f.entity.kind == "job"}
    steps = [f for f in findings if f.kind == "job_slow" and f.family == "training" and f.severity > Severity.INFO]
    slows = [c.hypothesis.entity for c in claims if steps and c.hypothesis.kind == SLOWS]
    out = []
    for claim in claims:
        h = claim.hypothesis
        lost = h.kind in LOSSES and h.authority != "code" and not _jobs_word(h.entity, claim.findings)
        stall = stalls.get(fleet.job_of(h.entity)) if lost else None
        if stall is not None and stall.severity > Severity.INFO and abs(stall.since - claim.since) <= window_s:
            h = _voted(h, stall, "Its job stands still since then.", catalogue)
        late = _held_up(claim, steps, slows, fleet, catalogue.limit("fuse_slow_window_s")) if h.kind == SLOWS else None
        if late is not None:
            h = _voted(h, late, "By the trainer's own clock too the steps take longer since then.", catalogue)
        out.append(replace(claim, hypothesis=h))
    return out


def _voted(h: Hypothesis, other: Finding, words: str, catalogue: Catalogue) -> Hypothesis:
    known = catalogue.kinds.get(h.kind)
    return replace(
        h,
        authority="vote",
        score=round(noisy_or((h.score, other.score)), 4),
        severity=max(h.severity, known.severity if known is not None else h.severity),
        reason=f"{h.reason} {words}",
    )


def _held_up(
    claim: _Claim, steps: Sequence[Finding], slows: Sequence[Entity], fleet: Fleet, window_s: float
) -> Finding | None:
    """What the trainer says of the steps of the job that this GPU slows, if it bears the GPU out. Telemetry's own word
    on the job rests on the very readings that name the GPU, so it counts for nothing here. Nor does the trainer's where
    it names a rank of another node, or where GPUs of several nodes of the job are said to be the slow one; a mere
    warning about a GPU needs a rank of its node."""
    gpu = claim.hypothesis.entity
    job = fleet.job_of(gpu)
    if not job or any(fleet.job_of(other) == job and other.host != gpu.host for other in slows):
        return None
    mine = [f for f in steps if fleet.job_of(f.entity) == job and abs(f.since - claim.since) <= window_s]
    ranks = [f for f in mine if f.entity.kind == "rank"]
    if any(f.entity.host != gpu.host for f in ranks):
        return None
    told = ranks if claim.hypothesis.severity < Severity.HIGH else ranks or mine
    return min(told, key=lambda f: (-f.score, f.key), default=None)


def _node_wide(claims: list[_Claim], fleet: Fleet, catalogue: Catalogue) -> list[_Claim]:
    """Many GPUs of one node with the same state are one claim about the node, where the kind knows that scope."""
    groups: dict[tuple[str, FaultKind], list[_Claim]] = {}
    for claim in claims:
        h = claim.hypothesis
        known = catalogue.kinds.get(h.kind)
        if h.entity.kind == "gpu" and h.entity.host and h.authority != "code" and known and "node" in known.scopes:
            groups.setdefault((h.entity.host, h.kind), []).append(claim)
    joined: list[_Claim] = []
    taken: set[int] = set()
    for (host, kind), group in groups.items():
        gpus = _gpus(fleet, host) if len(group) > 1 else 0
        if gpus and len(group) >= max(2, math.ceil(catalogue.limit("fuse_node_share") * gpus)):
            joined.append(_of_node(host, kind, sorted(group, key=lambda c: c.rank), gpus))
            taken |= {id(claim) for claim in group}
    return [claim for claim in claims if id(claim) not in taken] + joined


def _of_node(host: str, kind: FaultKind, group: Sequence[_Claim], gpus: int) -> _Claim:
    best = group[0].hypothesis
    findings = tuple(f for claim in group for f in claim.findings)
    hypothesis = replace(
        best,
        entity=Entity(best.entity.cluster, "node", host, host, host),
        score=max(c.hypothesis.score for c in group),
        severity=max(c.hypothesis.severity for c in group),
        reason=f"{len(group)} of {counted(gpus, 'GPU')} of {host} show it together: {best.reason}",
        keys=frozenset(f.key for f in findings),
    )
    return _Claim(hypothesis, findings)


def _rack_wide(claims: list[_Claim], fleet: Fleet, catalogue: Catalogue) -> list[_Claim]:
    """Several nodes of one rack with the same state are one claim about the rack, where the kind knows that scope: its
    air, or its power. What the nodes show are consequences."""
    axis = fleet.axes.get("node")
    if axis is None or not fleet.racks:
        return claims
    groups: dict[tuple[int, FaultKind], list[_Claim]] = {}
    for claim in claims:
        h = claim.hypothesis
        known, slot = catalogue.kinds.get(h.kind), fleet.slots.get(("node", h.entity.host))
        rack = int(axis.rack_of[slot]) if slot is not None and slot < len(axis) else -1
        if rack >= 0 and h.authority != "code" and h.severity > Severity.INFO and known and "rack" in known.scopes:
            groups.setdefault((rack, h.kind), []).append(claim)
    joined: list[_Claim] = []
    taken: set[int] = set()
    for (rack, _), group in groups.items():
        nodes = len({claim.hypothesis.entity.host for claim in group})
        size = int(np.count_nonzero(axis.live & (axis.rack_of == rack)))
        if nodes >= max(catalogue.limit("fuse_rack_nodes"), math.ceil(catalogue.limit("fuse_rack_share") * size)):
            joined.append(_of_rack(fleet.racks[rack], sorted(group, key=lambda c: c.rank), nodes, size))
            taken |= {id(claim) for claim in group}
    return [claim for claim in claims if id(claim) not in taken] + joined


def _of_rack(rack: str, group: Sequence[_Claim], nodes: int, size: int) -> _Claim:
    best, name = group[0].hypothesis, f"rack:{rack}"
    findings = tuple(f for claim in group for f in claim.findings)
    hypothesis = replace(
        best,
        entity=Entity(best.entity.cluster, "rack", rack, name),
        score=round(noisy_or(sorted((c.hypothesis.score for c in group), reverse=True)[:2]), 4),
        severity=max(c.hypothesis.severity for c in group),
        reason=f"{nodes} of {counted(size, 'node')} of {name} show it together, so it is the rack: {best.reason}",
        keys=frozenset(f.key for f in findings),
    )
    return _Claim(hypothesis, findings)


def _gpus(fleet: Fleet, host: str) -> int:
    axis = fleet.axes.get("gpu")
    if axis is None or host not in fleet.nodes:
        return 0
    return int(np.count_nonzero(axis.live & (axis.node_of == fleet.nodes.index(host))))


def _located(claims: list[_Claim]) -> list[_Claim]:
    """Of one host: a kernel line without a device, or a job's log that names the node alone, is about the one GPU that
    another detector names for that kind. Log and detector are two witnesses."""
    out = list(claims)
    for vague in [c for c in claims if c.hypothesis.entity.kind == "node" and _is_vague(c)]:
        same = [c for c in out if c.hypothesis.kind == vague.hypothesis.kind and c is not vague]
        if len(same) == 1 and same[0].hypothesis.entity.kind == "gpu":
            one = _joined(vague, same[0])
            if vague.hypothesis.authority != "code" and same[0].hypothesis.authority != "code":
                word = "rule" if _jobs_word(one.hypothesis.entity, one.findings) else "vote"
                one = replace(one, hypothesis=replace(one.hypothesis, authority=word))
            out = [c for c in out if c is not vague and c is not same[0]] + [one]
    return out


def _is_vague(claim: _Claim) -> bool:
    return claim.hypothesis.authority == "code" or _jobs_word(claim.hypothesis.entity, claim.findings)


def _joined(code: _Claim, located: _Claim) -> _Claim:
    a, b = code.hypothesis, located.hypothesis
    score, severity = round(noisy_or((a.score, b.score)), 4), max(a.severity, b.severity)
    joined = replace(b, score=score, severity=severity, authority="code", keys=a.keys | b.keys)
    return _Claim(joined, code.findings + located.findings)


def _belongs(claim: _Claim, head: _Claim, window_s: float) -> bool:
    """Is this the same device, or a consequence of what leads the group?"""
    a, b = head.hypothesis, claim.hypothesis
    if a.entity == b.entity or (a.kind == FABRIC and b.kind in AT_PORTS):
        return True
    if not a.entity.host or a.entity.host != b.entity.host or not _hard(a):
        return False
    later = claim.since >= head.since - window_s
    together = abs(claim.since - head.since) <= window_s
    if b.kind == "telemetry_dark" and b.entity.kind == "node":
        return later
    if b.severity == Severity.INFO:
        return together and claim.since >= head.since - SKEW_S
    return a.kind == "gpu_bus_loss" and b.kind == "nvlink_error" and together


def _hard(hypothesis: Hypothesis) -> bool:
    """Strong enough to explain others: a code or a vote that is no mere record."""
    return hypothesis.authority in ("code", "vote") and hypothesis.severity >= Severity.HIGH


def _suspicion(group: Sequence[_Claim], fleet: Fleet) -> Suspicion:
    """The first claim leads. What it explains keeps the chance that is left to it: score x (1 - score of the cause)."""
    lead, *others = group
    cause = lead.hypothesis
    rivals = [c.hypothesis for c in others if c.hypothesis.severity > Severity.INFO]
    if _hard(cause):
        rivals = [replace(h, score=round(h.score * (1.0 - cause.score), 4)) for h in rivals]
    severity = max([cause.severity, *([] if _hard(cause) else [h.severity for h in rivals])])
    findings = tuple(f for claim in group for f in claim.findings)
    entities = {cause.entity: None} | {f.entity: None for f in findings}
    return Suspicion(
        hypotheses=(cause, *sorted(rivals, key=lambda h: -h.score)),
        findings=findings,
        entities=tuple(entities),
        severity=severity,
        node=cause.entity.host,
        job=next((job for entity in entities if (job := fleet.job_of(entity))), ""),
        opens=severity > Severity.INFO,
    )
