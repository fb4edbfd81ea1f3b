"""Median and MAD by group agree with numpy, group by group."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.telemetry.robust import group_statistics


@given(
    sizes=st.lists(st.integers(0, 12), max_size=8),
    seed=st.integers(0, 2**16),
    absent=st.sampled_from((0.0, 0.3, 1.0)),
)
@settings(max_examples=100, deadline=None)
def test_every_group_has_the_median_and_mad_of_its_members(sizes: list[int], seed: int, absent: float) -> None:
    dice = np.random.default_rng(seed)
    starts = np.array([0, *np.cumsum(sizes)], np.int32)
    values = dice.normal(60, 5, (2, starts[-1])).astype(np.float32)
    values[dice.random(values.shape) < absent] = np.nan
    found = group_statistics(values, starts, 255)
    for metric in range(2):
        for group, (begin, end) in enumerate(zip(starts[:-1], starts[1:], strict=True)):
            members = values[metric, begin:end]
            members = members[~np.isnan(members)]
            assert found.count[metric, group] == len(members)
            if len(members):
                centre = np.median(members)
                assert np.isclose(found.median[metric, group], centre)
                assert np.isclose(found.mad[metric, group], np.median(np.abs(members - centre)), atol=1e-4)
            else:
                assert np.isnan(found.median[metric, group])


def test_a_large_group_is_judged_by_members_from_all_over_it() -> None:
    """A whole rack of the group is hot: a stride sees it in proportion, the first 255 would see nothing else."""
    values = np.full((1, 4096), 60.0, np.float32)
    values[0, :600] = 95.0
    values += np.random.default_rng(1).normal(0, 1, values.shape).astype(np.float32)
    found = group_statistics(values, np.array([0, 4096], np.int32), 255)
    assert abs(float(found.median[0, 0]) - 60.0) < 1.0
    assert found.count[0, 0] == 4096


def test_no_groups_are_no_trouble() -> None:
    found = group_statistics(np.zeros((3, 0), np.float32), np.zeros(1, np.int32), 255)
    assert found.median.shape == (3, 0)
