"""Random histories of faults on a made-up cluster, decided in act mode, with the invariants counted anew each step."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from backend.decide.decide import decide
from backend.decide.guards import Limits
from backend.facts import AttemptFacts, Case, DecisionFacts, MaintenanceFacts, NodeFacts, PastOrder, Rung, Verb
from detectors.model import Severity
from tests.backend.decide.cases import KINDS, cause, incident

OURS, THEIRS = "[watchkeeper] x inc=1", "disk swap"
#: What breaks: kind, authority, severity.
FAULTS = (
    ("gpu_bus_loss", "code", Severity.CRITICAL),
    ("gsp_timeout", "code", Severity.CRITICAL),
    ("thermal_throttle", "vote", Severity.HIGH),
    ("ib_link_flap", "trend", Severity.HIGH),
    ("node_unreachable", "vote", Severity.CRITICAL),
    ("lemon_node", "rate", Severity.HIGH),
    ("loss_divergence", "rule", Severity.HIGH),
    ("gpu_memory_fault_app", "code", Severity.INFO),
)


@dataclass
class Cluster:
    """The world of one history. ``taken``: (node, when) of every drain of ours, in order."""

    rng: random.Random
    limits: Limits
    nodes: dict[str, NodeFacts]
    jobs: dict[str, AttemptFacts]
    now: float = 1_800_000_000.0
    past: list[PastOrder] = field(default_factory=list)
    taken: list[tuple[str, float]] = field(default_factory=list)
    struck: dict[str, float] = field(default_factory=dict)
    excluded: set[str] = field(default_factory=set)
    windows: list[MaintenanceFacts] = field(default_factory=list)
    breaker: str = ""
    kill_switch: bool = False
    dark: tuple[str, ...] = ()

    def case(self, node: str, fault: tuple[str, str, Severity], stale: bool) -> Case:
        kind, authority, severity = fault
        read_at = self.now - (600.0 if stale else 5.0)
        fleet = tuple(replace(n, read_at=read_at) for n in self.nodes.values())
        job = next((j.job for j in self.jobs.values() if node in j.nodes), "")
        why = cause(kind, authority, node=node, entity=node, entity_kind="node")
        about = incident(
            kind, authority, node=node, job=job, severity=severity, entity=node, entity_kind="node",
            opened_at=self.now - 30.0, hypotheses=(why,),
        )  # fmt: skip
        since = self.now - self.limits.shift_s
        return Case(
            now=self.now,
            mode="act",
            incident=about,
            node=next(n for n in fleet if n.name == node),
            fleet=fleet,
            jobs=tuple(j for j in self.jobs.values() if node in j.nodes),
            running=tuple(self.jobs.values()),
            past=tuple(o for o in self.past if o.at > self.now - 86_400),
            can=frozenset(Verb),
            kill_switch=self.kill_switch,
            excluded=frozenset(self.excluded),
            dark=self.dark,
            maintenances=tuple(self.windows),
            struck=frozenset(name for name, at in self.struck.items() if at >= since),
            breaker=self.breaker,
        )

    def out(self) -> set[str]:
        return {n.name for n in self.nodes.values() if n.out} | self.excluded


def cluster(seed: int) -> Cluster:
    """Racks of 8, NVLink domains of 4 to 16, two partitions, jobs on about half of the nodes, limits at random."""
    rng = random.Random(seed)
    size, domain = rng.choice((6, 24, 48, 120)), rng.choice((4, 8, 16))
    limits = Limits(
        max_out_share=rng.choice((0.02, 0.05, 0.2)),
        max_out_min=rng.choice((0, 1, 2)),
        max_out_share_rack=rng.choice((0.25, 0.5)),
        rate_max=rng.choice((1, 3, 6)),
        cooldown_s=rng.choice((0.0, 600.0, 3600.0)),
        rack_at_once=rng.choice((1, 2)),
        protect_nodes=("n000", "n00[1-2]") if rng.random() < 0.5 else (),
    )
    nodes = {
        f"n{i:03d}": NodeFacts(
            f"n{i:03d}", "idle", rack=f"r{i // 8}", clique=f"c{i // domain}", expected_gpus=8,
            partitions=("batch",) if i % 3 else ("batch", "debug"),
        )
        for i in range(size)
    }  # fmt: skip
    made = Cluster(rng, limits, nodes, {})
    free = list(nodes)
    rng.shuffle(free)
    while len(free) > size // 2:
        take = [free.pop() for _ in range(min(rng.choice((1, 2, 4)), len(free)))]
        job = AttemptFacts(str(1000 + len(made.jobs)), state="RUNNING", start=made.now - 1e4, nodes=tuple(take))
        made.jobs[job.job] = replace(job, gpus_per_node=8, partition="batch", limit_s=rng.choice((None, 10_300.0, 1e6)))
        for name in take:
            nodes[name] = replace(nodes[name], state="allocated", jobs=(job.job,))
    return made


def step(world: Cluster) -> None:
    """Time goes on, others act, something breaks, and what is allowed is done; then everything is counted."""
    rng = world.rng
    world.now += rng.choice((5.0, 30.0, 400.0, 2000.0))
    node = rng.choice(list(world.nodes))
    chance = rng.random()
    if chance < 0.1:
        _drain(world, node, THEIRS, "eve")
    elif chance < 0.25:
        _give_back(world, node)
    elif chance < 0.3:
        world.windows = [
            MaintenanceFacts("m", tuple(rng.sample(list(world.nodes), 3)), world.now + 60, world.now + 900)
        ]
    elif chance < 0.34:
        world.kill_switch = not world.kill_switch
    elif chance < 0.38:
        world.dark = () if world.dark else ("prometheus", "logs")
    elif chance < 0.4:
        world.breaker = "" if world.breaker else "Many nodes broke."
    else:
        for hit in [node] if chance < 0.97 else rng.sample(list(world.nodes), len(world.nodes) * 2 // 3):
            _breaks(world, hit, stale=rng.random() < 0.1)


def _breaks(world: Cluster, node: str, stale: bool) -> None:
    fault = world.rng.choice(FAULTS)
    if fault[2] >= Severity.HIGH:
        world.struck[node] = world.now
    case = world.case(node, fault, stale)
    facts = decide(case, KINDS, world.limits)
    if facts.acts and facts.allowed:
        holds_all(world, case, facts, stale)
        _carry_out(world, case, facts)
        counted(world)


def holds_all(world: Cluster, case: Case, facts: DecisionFacts, stale: bool) -> None:
    """What an allowed plan never is, read off the world and not off the guards."""
    limits = world.limits
    taken = {s.node for s in facts.plan if s.verb is Verb.DRAIN or s.rung is Rung.EXCLUDE}
    assert not world.kill_switch and not world.breaker and not stale
    assert case.incident.kind not in ("loss_divergence", "gpu_memory_fault_app"), "a user's fault excludes no node"
    for name in taken:
        node = world.nodes[name]
        assert not ("DRAIN" in node.flags and node.reason == THEIRS), "over another's drain"
        assert not (limits.protect_nodes and name in ("n000", "n001", "n002")), "protected"
        for window in world.windows:
            soon = window.start - limits.maintenance_s <= world.now < (window.end or 1e99)
            assert not (soon and name in window.nodes), "maintenance"
        assert all(at <= world.now - limits.cooldown_s for who, at in world.taken if who == name), "cooldown"
    lately = {name for name, at in world.struck.items() if at >= world.now - limits.shift_s}
    assert len(lately) < max(limits.shift_min, limits.shift_share * len(world.nodes)), "a shift of the whole fleet"
    if "prometheus" in world.dark:
        assert not taken, "dark"


def counted(world: Cluster) -> None:
    """Shares, racks and rate after something of ours was taken out; what others took counts too."""
    limits, out = world.limits, world.out()
    if not world.taken or world.taken[-1][1] != world.now:
        return
    last = {name for name, at in world.taken if at == world.now}

    def fits(members: set[str], share: float) -> bool:
        return len(members & out) <= max(limits.max_out_min, int(share * len(members) + 1e-9))

    assert fits(set(world.nodes), limits.max_out_share)
    for groups, share in (
        ({n.name: (n.rack,) for n in world.nodes.values()}, limits.max_out_share_rack),
        ({n.name: (n.clique,) for n in world.nodes.values()}, limits.max_out_share_domain),
        ({n.name: n.partitions for n in world.nodes.values()}, limits.max_out_share_partition),
    ):
        for place in {place for name in last for place in groups[name]}:
            assert fits({name for name, places in groups.items() if place in places}, share), place
    for rack in {world.nodes[name].rack for name in last}:
        ours = [n for n in world.nodes.values() if n.rack == rack and "DRAIN" in n.flags and n.reason == OURS]
        assert len(ours) <= limits.rack_at_once
    recent = {name for name, at in world.taken if at > world.now - limits.rate_s}
    assert len(recent) <= limits.rate_max


def _carry_out(world: Cluster, case: Case, facts: DecisionFacts) -> None:
    for one in facts.plan:
        if one.verb is Verb.DRAIN:
            _drain(world, one.node, OURS, "watchkeeper")
            world.taken.append((one.node, world.now))
        elif one.rung is Rung.EXCLUDE:
            world.excluded.add(one.node)
        elif one.verb is Verb.REQUEUE:
            job = world.jobs.pop(one.job)
            for name in job.nodes:
                world.nodes[name] = replace(world.nodes[name], state="idle", jobs=())
        if one.verb is not None:
            world.past.append(PastOrder(one.verb, one.node, case.incident.kind, world.now, "done"))


def _drain(world: Cluster, name: str, reason: str, owner: str) -> None:
    node = world.nodes[name]
    world.nodes[name] = replace(node, flags=frozenset({"DRAIN"}), reason=reason, reason_owner=owner)


def _give_back(world: Cluster, name: str) -> None:
    world.excluded.discard(name)
    world.nodes[name] = replace(world.nodes[name], flags=frozenset(), reason="", reason_owner="")
