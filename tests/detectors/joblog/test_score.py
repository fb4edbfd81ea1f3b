"""Floors for the whole: accuracy, macro-F1, exclusions, false alarms, on logs the rules were not made from."""

from __future__ import annotations

from collections import Counter

from tests.corpora.joblogs import holdout
from tests.detectors.joblog.score import false_alarms, made_up, score, wilson


def test_the_holdout_has_five_logs_of_every_class() -> None:
    counts = Counter(case.log_class for case in holdout())
    assert len(counts) == 39
    assert min(counts.values()) >= 5


def test_the_holdout_is_named_right_and_no_node_is_excluded_wrongly() -> None:
    done = score(holdout())
    assert done.accuracy >= 0.95
    assert done.macro_f1() >= 0.94
    assert wilson(done.right, len(done.pairs))[0] >= 0.92
    assert done.wrong_exclusions == 0
    asked = [given for wanted, given in done.excludes if wanted]
    assert sum(asked) / len(asked) >= 0.95


def test_a_message_is_named_amid_noise_whatever_launcher_printed_it() -> None:
    done = score(made_up(copies=2))
    assert done.accuracy >= 0.97


def test_healthy_logs_raise_no_alarm() -> None:
    assert false_alarms(300) == 0


def test_wilson_is_the_interval_of_the_book() -> None:
    low, high = wilson(9, 10)
    assert (round(low, 3), round(high, 3)) == (0.596, 0.982)
