"""Turning the truth in time: windows wrap, matchings stay one to one."""

from __future__ import annotations

import numpy as np
import pytest

from backend.score.chance import LEAST_TURN, Pairs, chance, turns


def pairs(links: list[tuple[int, int]], begins: list[float], lasts: list[float], opened: list[float]) -> Pairs:
    found = np.array(links, dtype=np.int64).reshape(-1, 2)
    fits = np.ones(len(links), dtype=np.bool_)
    return Pairs(found[:, 0], found[:, 1], fits, fits, np.array(begins), np.array(lasts), np.array(opened), 100.0)


def test_a_window_wraps_around_the_end_of_the_span() -> None:
    one = pairs([(0, 0)], [70.0], [10.0], [5.0])
    assert [one.found(turn) for turn in (20.0, 25.0, 30.0, 35.0, 36.0)] == [0, 1, 1, 1, 0]


def test_one_incident_finds_one_fault_in_any_turn() -> None:
    both = pairs([(0, 0), (1, 0)], [10.0, 10.0], [20.0, 20.0], [15.0])
    assert both.found(0.0) == 1


def test_a_fault_that_nothing_shows_is_never_met() -> None:
    assert pairs([(0, 0)], [np.nan], [np.nan], [5.0]).found(10.0) == 0


def test_chance_of_a_window_is_its_share_of_the_span() -> None:
    one = pairs([(0, 0)], [0.0], [25.0], [50.0])
    found = chance(one, [0], [float(turn) for turn in range(100)])
    assert found.mean == pytest.approx(0.26)
    assert (found.n, found.draws) == (1, 100)


def test_only_the_pairs_that_count_make_chance() -> None:
    other = pairs([(0, 0)], [0.0], [100.0], [50.0])
    assert chance(other, [0], [10.0]).mean == 1.0
    assert chance(other.only(~other.fits), [0], [10.0]).mean == 0.0


def test_turns_are_seeded_and_keep_away_from_the_truth() -> None:
    drawn = turns(1000.0, 50, 4)
    assert drawn == turns(1000.0, 50, 4) != turns(1000.0, 50, 5)
    assert all(1000 * LEAST_TURN <= turn <= 1000 * (1 - LEAST_TURN) for turn in drawn)
    assert turns(0.0, 50, 4) == ()
