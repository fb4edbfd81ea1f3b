"""Every guard by name, what it measures, and what holds for all of them whatever the case."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.decide.decide import decide
from backend.decide.guards import Limits, guards, judge
from backend.facts import Case, GuardVerdict, PlannedStep, Rung, Verb
from detectors.model import Severity
from tests.backend.decide.cases import KINDS, NODE, NOW, case, fleet, incident, job, node, ordered

LIMITS = Limits()
DRAINED = frozenset({"DRAIN"})


def verdict(name: str, one: Case, limits: Limits = LIMITS, plan: tuple[PlannedStep, ...] | None = None) -> GuardVerdict:
    steps = decide(one, KINDS, limits).plan if plan is None else plan
    return next(g for g in judge(one, steps, limits) if g.guard == name)


def test_all_guards_run_and_are_recorded_in_one_order() -> None:
    names = [guard.name for guard in guards()]
    assert len(set(names)) == len(names) == 21
    for one in (case(), case(kill_switch=True, mode="observe", node=None, can=frozenset())):
        assert [g.guard for g in decide(one, KINDS, LIMITS).guards] == names


def test_the_kill_switch_stops_everything_also_a_resume() -> None:
    assert verdict("kill switch", case()).verdict == "holds"
    for plan in (None, ()):
        assert verdict("kill switch", case(kill_switch=True), plan=plan).verdict == "refuses"


def test_observe_refuses_propose_asks_and_act_goes_on() -> None:
    found = {m: decide(case(mode=m), KINDS, LIMITS) for m in ("observe", "propose", "act")}
    assert [f.allowed for f in found.values()] == [False, True, True]
    asked = {m: verdict("a person approves", case(mode=m)).verdict for m in found}
    assert asked == {"observe": "asks", "propose": "asks", "act": "holds"}


@pytest.mark.parametrize(
    ("more", "owner"),
    [
        ({"flags": DRAINED, "reason": "disk swap", "reason_owner": "eve"}, "eve"),
        ({"flags": DRAINED}, "someone"),
        ({"flags": frozenset({"FAIL"}), "reason": "fan", "reason_owner": "eve"}, "eve"),
        ({"state": "down", "reason": "broken", "reason_owner": "eve"}, "eve"),
    ],
)
def test_another_owners_node_is_refused_by_name(more: dict[str, Any], owner: str) -> None:
    said = verdict("foreign owner", case(node=node(**more)))
    assert said.verdict == "refuses" and said.measured == owner and owner in said.reason


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"flags": DRAINED, "reason": "[watchkeeper] x inc=1", "reason_owner": "watchkeeper"},
        {"state": "down", "reason": "Not responding", "reason_owner": "slurm"},
        {"state": "idle", "reason": "old note", "reason_owner": "eve"},
    ],
)
def test_our_own_and_ownerless_nodes_are_not_foreign(more: dict[str, Any]) -> None:
    assert verdict("foreign owner", case(node=node(**more))).verdict == "holds"


def test_the_breaker_holds_up_to_its_limit_and_refuses_beyond_it() -> None:
    last = verdict("nodes out of the fleet", case(fleet=fleet(300, out=14)))
    assert (last.verdict, last.measured, last.limit) == ("holds", "15 of 15", "15")
    over = verdict("nodes out of the fleet", case(fleet=fleet(300, out=15)))
    assert (over.verdict, over.measured) == ("refuses", "16 of 15")


def test_the_breaker_refuses_once_half_the_fleet_is_out() -> None:
    limits = Limits(max_out_share=0.5)
    assert verdict("nodes out of the fleet", case(fleet=fleet(8, out=3)), limits).verdict == "holds"
    assert verdict("nodes out of the fleet", case(fleet=fleet(8, out=4)), limits).verdict == "refuses"


def test_a_small_fleet_may_lose_max_out_min_nodes() -> None:
    assert verdict("nodes out of the fleet", case(fleet=fleet(4))).measured == "1 of 1"
    assert verdict("nodes out of the fleet", case(fleet=fleet(4)), Limits(max_out_min=0)).verdict == "refuses"
    assert (
        verdict("nodes out of the fleet", case(fleet=fleet(4), excluded=frozenset({"gpu-0001"}))).verdict == "refuses"
    )


def test_a_fleet_of_unknown_size_is_refused() -> None:
    assert verdict("nodes out of the fleet", case(fleet=())).verdict == "refuses"
    assert verdict("nodes out of the fleet", case(fleet=()), plan=()).verdict == "holds"


def test_a_second_action_within_the_cooldown_is_refused() -> None:
    said = verdict("cooldown", case(past=(ordered(Verb.RESUME, ago_s=1440),)))
    assert (said.verdict, said.measured, said.limit) == ("refuses", "24 min ago", "60 min apart")
    for fine in (ordered(ago_s=3601), ordered(node="gpu-0001", ago_s=10), ordered(ago_s=100, state="refused")):
        assert verdict("cooldown", case(past=(fine,))).verdict == "holds"


def test_the_steps_of_one_incident_are_one_action() -> None:
    drained = node(flags=DRAINED, reason="[watchkeeper] x inc=812", reason_owner="watchkeeper")
    requeue = case(past=(ordered(ago_s=30),), node=drained, excluded=frozenset({NODE}))
    assert [s.verb for s in decide(requeue, KINDS, LIMITS).plan] == [Verb.REQUEUE]
    assert verdict("cooldown", requeue).verdict == "holds"
    assert verdict("cooldown", case(past=(ordered(Verb.RESUME, ago_s=30, kind="gsp_timeout"),))).verdict == "refuses"


def test_a_drain_that_somebody_lifted_is_not_set_again_at_once() -> None:
    lifted = case(past=(ordered(ago_s=30),), excluded=frozenset({NODE}), jobs=())
    assert [s.verb for s in decide(lifted, KINDS, LIMITS).plan] == [Verb.DRAIN]
    assert verdict("cooldown", lifted).verdict == "refuses"


@pytest.mark.parametrize(
    ("at", "refuses"),
    [
        (node(read_at=NOW - 60), False),
        (node(read_at=NOW - 61), True),
        (node(read_at=NOW + 3600), True),
        (node(state="unknown"), True),
        (None, True),
    ],
)
def test_only_a_node_that_was_read_lately_is_acted_on(at: Any, refuses: bool) -> None:
    one = case(node=at, fleet=fleet(of=at) if at else fleet(of=node("gpu-0999")))
    assert (verdict("fresh", one).verdict == "refuses") is refuses


@pytest.mark.parametrize(
    ("dark", "authority", "mode", "said"),
    [
        ((), "code", "propose", "holds"),
        (("prometheus",), "code", "act", "holds"),
        (("prometheus",), "vote", "propose", "asks"),
        (("prometheus-2",), "vote", "act", "refuses"),
        (("logs",), "code", "propose", "asks"),
        (("slurm",), "vote", "act", "holds"),
    ],
)
def test_a_dark_source_is_named_and_asks_where_the_evidence_came_from_it(
    dark: tuple[str, ...], authority: str, mode: str, said: str
) -> None:
    found = verdict("dark sources", case(dark=dark, mode=mode, incident=incident(authority=authority)))
    assert found.verdict == said and all(name in found.reason for name in dark)


def test_a_backend_that_cannot_do_a_step_is_refused() -> None:
    said = verdict("backend", case(can=frozenset({Verb.DRAIN})))
    assert said.verdict == "refuses" and "cannot requeue" in said.reason
    assert verdict("backend", case(can=frozenset()), plan=()).verdict == "holds"


# --- whatever the case ----------------------------------------------------------------------------------------------

NODES = st.builds(
    node,
    st.sampled_from([NODE, "gpu-0001", "gpu-0002"]),
    state=st.sampled_from(["idle", "allocated", "down", "unknown"]),
    flags=st.sampled_from([frozenset(), DRAINED, frozenset({"DRAIN", "COMPLETING"}), frozenset({"FAIL"})]),
    reason=st.sampled_from(["", "disk", "Not responding", "[watchkeeper] x inc=812"]),
    reason_owner=st.sampled_from(["", "eve", "watchkeeper", "slurm"]),
    read_at=st.floats(NOW - 200, NOW + 200),
)
PAST = st.builds(
    ordered,
    st.sampled_from(list(Verb)),
    st.floats(0, 100_000),
    kind=st.sampled_from(["gpu_bus_loss", "gsp_timeout"]),
    node=st.sampled_from([NODE, "gpu-0001"]),
    state=st.sampled_from(["waiting", "claimed", "sent", "done", "failed", "refused", "cancelled", "uncertain"]),
)
AUTHORITY = st.sampled_from(["code", "state", "vote", "trend", "rate", "rule", "band", ""])
INCIDENTS = st.builds(
    lambda kind, authority, severity, entity_kind, at, run: incident(
        kind, authority, severity=severity, entity_kind=entity_kind, node=at, job=run
    ),
    st.sampled_from([*sorted(KINDS), "unheard_of"]),
    AUTHORITY,
    st.sampled_from(list(Severity)),
    st.sampled_from(["gpu", "node", "job", "nic", "rack"]),
    st.sampled_from([NODE, "gpu-0001", ""]),
    st.sampled_from(["", "48213"]),
)
CASES = st.builds(
    case,
    mode=st.sampled_from(["observe", "propose", "act"]),
    incident=INCIDENTS,
    node=st.one_of(st.none(), NODES),
    fleet=st.lists(NODES, max_size=4, unique_by=lambda n: n.name).map(tuple),
    jobs=st.lists(st.builds(job, st.sampled_from(["1", "2", "48213"])), max_size=3, unique_by=lambda j: j.job).map(
        tuple
    ),
    past=st.lists(PAST, max_size=4).map(tuple),
    can=st.frozensets(st.sampled_from(list(Verb))),
    kill_switch=st.booleans(),
    excluded=st.frozensets(st.sampled_from([NODE, "gpu-0001"])),
    dark=st.lists(st.sampled_from(["prometheus", "slurm", "logs"]), unique=True).map(tuple),
)
LIMIT = st.builds(
    Limits,
    max_out_share=st.floats(0.01, 1),
    max_out_min=st.integers(0, 3),
    cooldown_s=st.floats(0, 7200),
    fresh_s=st.floats(1, 300),
)


@settings(max_examples=250, deadline=None)
@given(CASES, LIMIT)
def test_what_is_allowed_to_act_breaks_no_rule(one: Case, limits: Limits) -> None:
    facts = decide(one, KINDS, limits)
    assert [g.guard for g in facts.guards] == [g.name for g in guards()]
    assert facts == decide(one, KINDS, limits)
    assert all(g.reason and g.reason[-1] == "." for g in facts.guards) and facts.sentence.endswith(".")
    if not (facts.allowed and facts.acts):
        return
    assert one.mode != "observe" and not one.kill_switch
    assert one.mode == "act" or any(g.verdict == "asks" for g in facts.guards)
    assert {s.verb for s in facts.plan if s.verb} <= one.can
    taken = {s.node for s in facts.plan if s.verb is Verb.DRAIN or s.rung is Rung.EXCLUDE}
    out = taken | one.excluded | {n.name for n in one.fleet if n.out}
    assert not taken or len(out) <= max(limits.max_out_min, limits.max_out_share * len(one.fleet) + 1e-6)
    for name in {s.node for s in facts.plan if s.node}:
        at = one.node if one.node and one.node.name == name else next(n for n in one.fleet if n.name == name)
        assert at.state != "unknown" and abs(one.now - at.read_at) <= limits.fresh_s
        assert "DRAIN" not in at.flags or at.reason_owner == "watchkeeper"


@settings(max_examples=250, deadline=None)
@given(CASES, LIMIT)
def test_a_plan_never_exceeds_its_kind_and_its_authority(one: Case, limits: Limits) -> None:
    facts = decide(one, KINDS, limits)
    kind = KINDS.get(one.incident.kind)
    authority = one.incident.hypotheses[0].authority
    takes = any(s.verb is Verb.DRAIN or s.rung is Rung.EXCLUDE for s in facts.plan)
    if kind is None or kind.exclude in ("never", "by_class"):
        assert not takes
    if authority in ("rule", "band", "") or kind is None or authority not in kind.authorities:
        assert facts.plan == () and not facts.acts
    if authority in ("trend", "rate"):
        assert not any(s.rung is Rung.DRAIN_NOW or s.verb is Verb.REQUEUE for s in facts.plan if takes)
    assert set(facts.blast.jobs).isdisjoint(facts.blast.other_jobs) and facts.blast.gpus >= 0


@settings(max_examples=100, deadline=None)
@given(CASES, LIMIT)
def test_observe_never_yields_anything_binding(one: Case, limits: Limits) -> None:
    facts = decide(replace(one, mode="observe"), KINDS, limits)
    assert not facts.allowed and facts.mode == "observe"


@settings(max_examples=100, deadline=None)
@given(CASES, LIMIT)
def test_a_guard_never_gets_milder_when_the_world_gets_worse(one: Case, limits: Limits) -> None:
    plan = decide(one, KINDS, limits).plan
    before = {g.guard: g.verdict for g in judge(one, plan, limits)}
    worse = replace(one, kill_switch=True, can=frozenset(), excluded=one.excluded | {"gpu-0777"})
    after = {g.guard: g.verdict for g in judge(worse, plan, limits)}
    assert all(after[name] == "refuses" for name, verdict in before.items() if verdict == "refuses")
