"""A site's own rules: which one applies, what it may change, and what is said of a rule that makes no sense."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.decide.decide import decide
from backend.decide.guards import Limits
from backend.decide.rules import Rule, fits, mistakes, rule_for
from backend.facts import Rung, Verb
from tests.backend.decide.cases import KINDS, NODE, case, incident, node


def steps(*rules: Rule, authority: str = "code") -> list[Rung]:
    one = case(incident=incident("gpu_bus_loss", authority))
    return [step.rung for step in decide(one, KINDS, Limits(rules=rules)).plan]


def test_the_first_rule_that_fits_replaces_the_ladder() -> None:
    gentle = Rule("gentle", ("drain_after_job", "ticket"), kinds=("gpu_*",))
    rough = Rule("rough", ("drain_now",), kinds=("gpu_bus_loss",))
    assert steps(gentle, rough) == [Rung.EXCLUDE, Rung.DRAIN_AFTER_JOB]
    assert Rung.DRAIN_NOW in steps(rough, gentle)


def test_a_rule_reaches_no_further_than_the_evidence() -> None:
    kinds = {**KINDS}
    rough = Rule("rough", ("drain_now",), kinds=("lemon_node",))
    one = case(incident=incident("lemon_node", "rate"))
    plan = decide(one, kinds, Limits(rules=(rough,))).plan
    assert [step.rung for step in plan] == [Rung.EXCLUDE, Rung.DRAIN_AFTER_JOB]
    assert not [step for step in plan if step.verb is Verb.REQUEUE]


def test_never_keeps_a_node_in_whatever_the_ladder_says() -> None:
    assert steps(Rule("keep", exclude="never")) == []


@pytest.mark.parametrize(
    ("rule", "applies"),
    [
        (Rule("a", exclude="never", severity="critical"), True),
        (Rule("a", exclude="never", evidence=("vote",)), False),
        (Rule("a", exclude="never", evidence=("code", "vote")), True),
        (Rule("a", exclude="never", seen=1), False),
        (Rule("a", exclude="never", nodes=("gpu-[0400-0500]",)), True),
        (Rule("a", exclude="never", nodes=("gpu-[400-500]",)), True),
        (Rule("a", exclude="never", partitions=("debug",)), False),
    ],
)
def test_each_word_of_a_rule_narrows_it(rule: Rule, applies: bool) -> None:
    one = case(node=node(partitions=("batch",)))
    assert (rule_for(one, (rule,), seen=0) is not None) == applies


def test_every_mistake_of_a_policy_is_a_sentence() -> None:
    wrong = (
        Rule("a", ("drain", "ticket"), kinds=("gpu_bus_los",)),
        Rule("b", ("ticket",), evidence=("rumour",), exclude="maybe", severity="loud"),
        Rule("c"),
        Rule("d", ("drain_now",), exclude="never"),
        Rule("e", ("ticket",), kinds=("gpu_bus_loss",), nodes=("x",)),
    )
    told = "\n".join(mistakes(wrong, KINDS))
    for words in (
        "no kind of fault",
        "'drain' is no rung",
        "no evidence",
        "maybe",
        "loud",
        "changes nothing",
        "advice",
    ):
        assert words in told, words
    assert "'c' stands before it" in told
    assert mistakes((Rule("good", ("drain_after_job",), kinds=("gpu_*",)),), KINDS) == []


@given(st.integers(0, 9999), st.integers(0, 9999), st.integers(0, 9999))
@settings(max_examples=60, deadline=None)
def test_a_range_holds_exactly_its_numbers(low: int, high: int, number: int) -> None:
    pattern = f"gpu-[{low:04d}-{high:04d}]"
    assert fits(f"gpu-{number:04d}", (pattern,)) == (low <= number <= high)
    assert not fits(f"cpu-{number:04d}", (pattern,))
    assert fits(NODE, ("*",))
