"""Which rung, which steps: the ladder of every kind, its authority, its condition and its history."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.decide.decide import decide
from backend.decide.guards import Limits
from backend.facts import Case, DecisionFacts, PlannedStep, Rung, Verb
from detectors.model import Severity
from tests.backend.decide.cases import KINDS, NODE, NOW, case, cause, incident, job, node, ordered


def decided(one: Case) -> DecisionFacts:
    return decide(one, KINDS, Limits())


def rungs(facts: DecisionFacts) -> list[Rung]:
    return [step.rung for step in facts.plan]


def test_a_lost_gpu_is_excluded_drained_and_its_job_runs_elsewhere() -> None:
    facts = decided(case())
    assert facts.plan == (
        PlannedStep(Rung.EXCLUDE, None, NODE, "", "Exclude gpu-0412 for 7 days."),
        PlannedStep(Rung.DRAIN_NOW, Verb.DRAIN, NODE, "", "Drain gpu-0412 now."),
        PlannedStep(Rung.REQUEUE, Verb.REQUEUE, NODE, "48213", "Requeue job 48213 without gpu-0412."),
    )
    assert facts.recommended is Rung.DRAIN_NOW
    assert facts.sentence == "Drain gpu-0412 and requeue job 48213 without it."
    assert facts.advice == (
        "Reboot gpu-0412 once it is empty.",
        "If it comes back after that, open a ticket with the vendor.",
    )
    assert facts.acts and facts.allowed


def test_an_idle_node_is_drained_and_no_job_is_touched() -> None:
    facts = decided(case(jobs=()))
    assert rungs(facts) == [Rung.EXCLUDE, Rung.DRAIN_NOW]
    assert facts.sentence == "Drain gpu-0412; no job runs there."
    assert (facts.blast.jobs, facts.blast.other_jobs, facts.blast.gpus) == ((), (), 8)


def test_every_job_on_the_node_is_requeued_in_the_order_of_its_number() -> None:
    facts = decided(case(jobs=(job("100"), job("99"), job("7", nodes=("gpu-0001",)))))
    assert [s.job for s in facts.plan if s.verb is Verb.REQUEUE] == ["99", "100"]
    assert facts.sentence == "Drain gpu-0412 and requeue jobs 99 and 100 without it."


def test_drain_after_job_lets_the_job_end() -> None:
    facts = decided(case(incident=incident("thermal_throttle", "vote", severity=Severity.HIGH)))
    assert rungs(facts) == [Rung.EXCLUDE, Rung.DRAIN_AFTER_JOB] and facts.recommended is Rung.DRAIN_AFTER_JOB
    assert facts.sentence == "Drain gpu-0412; job 48213 may end by itself."
    assert facts.blast.jobs == () and facts.blast.other_jobs == ("48213",)


def test_a_reset_needs_an_empty_node() -> None:
    facts = decided(case(incident=incident("gpu_ecc_uncorrectable")))
    assert facts.recommended is Rung.RESET_GPU and rungs(facts) == [Rung.EXCLUDE, Rung.DRAIN_AFTER_JOB]
    assert facts.advice[0] == "Reset gpu-0412/gpu3 once nothing runs on it."


@pytest.mark.parametrize("authority", ["rule", "band", "state", "", "guess"])
def test_a_weak_or_foreign_authority_only_tells(authority: str) -> None:
    facts = decided(case(incident=incident("gpu_bus_loss", authority)))
    assert facts.plan == () and facts.recommended is Rung.NOTIFY and not facts.acts


@pytest.mark.parametrize(("kind", "authority"), [("gpu_remap_trend_loss", "trend"), ("lemon_node", "rate")])
def test_a_trend_or_a_rate_never_ends_a_job(kind: str, authority: str) -> None:
    facts = decided(case(incident=incident(kind, authority)))
    assert rungs(facts) == [Rung.EXCLUDE, Rung.DRAIN_AFTER_JOB]
    again = decided(case(incident=incident(kind, authority), past=(ordered(kind=kind),)))
    assert again.recommended is Rung.DRAIN_AFTER_JOB


def test_a_trend_turns_an_immediate_drain_into_one_that_waits() -> None:
    kinds = {**KINDS, "gpu_bus_loss": replace(KINDS["gpu_bus_loss"], authorities=("trend",))}
    facts = decide(case(incident=incident("gpu_bus_loss", "trend")), kinds, Limits())
    assert rungs(facts) == [Rung.EXCLUDE, Rung.DRAIN_AFTER_JOB]


@pytest.mark.parametrize("kind", sorted(k for k, row in KINDS.items() if row.exclude == "never"))
@pytest.mark.parametrize("authority", ["code", "state", "vote"])
def test_what_never_excludes_never_takes_a_node_out(kind: str, authority: str) -> None:
    facts = decided(case(incident=incident(kind, authority)))
    assert not any(s.rung is Rung.EXCLUDE or s.verb is Verb.DRAIN for s in facts.plan)


def test_a_users_bug_leaves_the_node_in_service() -> None:
    facts = decided(case(incident=incident("gpu_memory_fault_app", severity=Severity.INFO)))
    assert facts.plan == () and facts.recommended is Rung.RESTART_JOB
    assert facts.sentence == "Leave the node in service: this stopped job 48213 only."


def test_a_first_contained_memory_error_restarts_the_job_and_a_second_excludes() -> None:
    first = decided(case(incident=incident("gpu_ecc_uncorrectable", severity=Severity.HIGH)))
    assert first.plan == () and first.recommended is Rung.RESTART_JOB and "contained" in first.advice[0]
    assert rungs(decided(case(incident=incident("gpu_ecc_uncorrectable")))) == [Rung.EXCLUDE, Rung.DRAIN_AFTER_JOB]


@pytest.mark.parametrize(
    ("severity", "reason", "recommended", "acts"),
    [
        (Severity.CRITICAL, "GPU 3 of gpu-0412 has a fatal NVLink error (Xid 145).", Rung.RESET_GPU, True),
        (Severity.CRITICAL, "GPU 3 of gpu-0412 has a nonfatal NVLink error (Xid 145).", Rung.NOTIFY, False),
        (Severity.WARNING, "GPU 3 of gpu-0412 has an NVLink error (Xid 147).", Rung.NOTIFY, False),
        (Severity.INFO, "GPU 3 of gpu-0412 has a nonfatal NVLink error (Xid 145).", Rung.RECORD, False),
    ],
)
def test_only_a_fatal_nvlink_error_excludes(severity: Severity, reason: str, recommended: Rung, acts: bool) -> None:
    told = incident("nvlink_error", severity=severity, hypotheses=(cause("nvlink_error", reason=reason),))
    facts = decided(case(incident=told))
    assert (facts.recommended, facts.acts) == (recommended, acts)


@pytest.mark.parametrize(("entity_kind", "excludes"), [("job", False), ("rank", False), ("node", True)])
def test_a_hang_excludes_only_the_node_that_the_evidence_names(entity_kind: str, excludes: bool) -> None:
    facts = decided(case(incident=incident("job_hang", "vote", entity_kind=entity_kind)))
    assert (Rung.EXCLUDE in rungs(facts)) is excludes
    requeue = next(s for s in facts.plan if s.verb is Verb.REQUEUE)
    assert (requeue.job, requeue.node) == ("48213", NODE if excludes else "")
    assert not any(s.verb is Verb.DRAIN for s in facts.plan)
    without = " without gpu-0412" if excludes else ""
    assert facts.sentence == f"Requeue job 48213{without}."


def test_a_full_disk_is_told_before_anything_is_done() -> None:
    facts = decided(case(incident=incident("disk_full", "state", entity_kind="node")))
    assert facts.plan == () and facts.recommended is Rung.NOTIFY


@pytest.mark.parametrize(("times", "recommended"), [(0, "drain_now"), (1, "reboot"), (2, "ticket"), (5, "ticket")])
def test_the_same_fault_after_an_action_moves_one_rung_up(times: int, recommended: str) -> None:
    past = tuple(ordered(ago_s=4000 + 3600 * i) for i in range(times))
    facts = decided(case(past=past))
    assert facts.recommended == recommended
    assert rungs(facts) == [Rung.EXCLUDE, Rung.DRAIN_NOW, Rung.REQUEUE]


def test_only_drains_that_ran_for_this_kind_on_this_node_within_a_day_count() -> None:
    others = (
        ordered(ago_s=90_000),
        ordered(node="gpu-0001"),
        ordered(kind="gsp_timeout"),
        ordered(state="refused"),
        ordered(verb=Verb.RESUME),
        ordered(ago_s=30),
    )
    assert decided(case(past=others)).recommended is Rung.DRAIN_NOW


@pytest.mark.parametrize("word", ["job_failed", "unheard_of"])
def test_a_kind_without_a_ladder_is_told(word: str) -> None:
    facts = decided(case(incident=incident(word, "state")))
    assert facts.plan == () and facts.recommended is Rung.NOTIFY and facts.sentence.startswith("Tell who owns")


def test_an_incident_without_a_node_takes_none_out() -> None:
    facts = decided(case(incident=incident("ib_link_down", node="", entity_kind="link"), node=None, jobs=()))
    assert facts.plan == ()


def test_what_was_done_for_this_incident_is_not_proposed_again() -> None:
    drained = node(flags=frozenset({"DRAIN"}), reason="[watchkeeper] gpu_bus_loss inc=812", reason_owner="watchkeeper")
    out = case(node=drained, excluded=frozenset({NODE}), jobs=())
    assert decided(out).plan == ()
    assert decided(out).sentence == "gpu-0412 is kept out of new work already. Nothing more to do on the cluster."
    still = replace(out, jobs=(job(),))
    assert rungs(decided(still)) == [Rung.REQUEUE]
    sent = replace(still, past=(ordered(Verb.REQUEUE, ago_s=5, state="sent"),))
    assert decided(sent).plan == ()
    restarted_on_it = replace(still, jobs=(replace(job(), restart=1, start=NOW - 2),), past=sent.past)
    assert rungs(decided(restarted_on_it)) == [Rung.REQUEUE]


def test_a_drain_on_its_way_is_not_proposed_again_and_one_that_somebody_lifted_is() -> None:
    waiting = case(past=(ordered(ago_s=5, state="waiting"),), excluded=frozenset({NODE}), jobs=())
    assert decided(waiting).plan == ()
    lifted = replace(waiting, past=(ordered(ago_s=30, state="done"),))
    assert rungs(decided(lifted)) == [Rung.DRAIN_NOW]


def test_the_cause_decides_and_a_stale_ranking_does_not() -> None:
    assert decided(case(incident=incident(hypotheses=()))).plan == ()
    assert decided(case(incident=incident(hypotheses=(cause("gsp_timeout"),)))).plan == ()


def test_the_days_of_the_exclusion_are_the_sites_own() -> None:
    steps = decide(case(), KINDS, Limits(exclude_s=86_400.0)).plan
    assert steps[0].text == "Exclude gpu-0412 for 1 day."
