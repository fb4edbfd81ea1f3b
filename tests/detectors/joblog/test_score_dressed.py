"""Floors on the hold-outs in the forms of launchers and containers: classes, false alarms, culprits, exclusions."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.corpora.dressed_joblogs import cases, healthy, jobs
from tests.detectors.joblog.score_dressed import culprits, graded, scored

ALL = ("second", "third", "fifth", "sixth", "seventh", "eighth")


@pytest.mark.parametrize("name", ALL)
def test_failures_are_named_right_and_no_node_is_excluded_wrongly(name: str) -> None:
    done = scored(graded([*cases(name), *jobs(name)]))
    assert done.accuracy >= 0.95
    assert done.macro_f1(least=2) >= 0.95
    assert done.wrong_exclusions == 0
    asked = [given for wanted, given in done.excludes if wanted]
    assert sum(asked) / len(asked) >= 0.95


@pytest.mark.parametrize("name", (*ALL, "ninth"))
def test_logs_that_went_well_raise_no_alarm_and_exclude_nothing(name: str) -> None:
    wrong = [one.case.source for one in graded(healthy(name)) if not one.right or one.given.exclude_node]
    assert not wrong


@pytest.mark.parametrize("name", ALL)
def test_the_rank_and_the_node_at_fault_are_named_though_clocks_are_apart(name: str) -> None:
    ranks, nodes = culprits(graded(jobs(name)))
    assert sum(ranks) / len(ranks) >= 0.95
    assert sum(nodes) / len(nodes) >= 0.95


def test_the_second_holdout_is_large_and_holds_five_of_nearly_every_class() -> None:
    counts = Counter(case.log_class for case in cases("second"))
    assert sum(counts.values()) >= 220
    assert len(counts) == 38
    assert sum(n >= 5 for n in counts.values()) >= 37
