"""Small parts of a recording: effects, hostlists, numbers, columns, phases."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.simulate.recording.accounts import hostlist
from backend.simulate.recording.columns import KEPT, Columns
from backend.simulate.recording.effects import CHANNELS, Effect, Field
from backend.simulate.recording.openmetrics import block, numbers
from backend.simulate.recording.plant import plant
from backend.simulate.recording.scrapes import scrapes
from backend.simulate.recording.timetable import timetable
from backend.simulate.recording.work import Phase, runs, segments
from tests.backend.simulate.recording.reading import expand


def test_effects_join_as_their_channel_says() -> None:
    now = np.array([10.0, 10.0, 10.0])
    field = Field([
        Effect("cooling", (0, 1), 0.0, 20.0, 0.5), Effect("cooling", (1,), 5.0, 15.0, 0.5, 10.0),
        Effect("rows_bad", (2,), 0.0), Effect("rows_bad", (2,), 9.0), Effect("xid", (0,), 1.0, size=31.0),
        Effect("xid", (0,), 2.0, size=43.0), Effect("gone", (1,), 11.0),
    ])  # fmt: skip
    assert field.read("cooling", now).tolist() == [0.5, 0.375, 1.0]
    assert field.read("rows_bad", now).tolist() == [0.0, 0.0, 2.0]
    assert field.read("xid", now).tolist() == [43.0, 0.0, 0.0]
    assert field.read("gone", now).tolist() == [0.0, 0.0, 0.0]


def test_every_channel_reads_its_rest_where_nothing_acts() -> None:
    for channel, (_, rest, how) in CHANNELS.items():
        assert set(Field([]).read(channel, np.zeros(3))) == {rest} and how in ("times", "plus", "most", "put")


@settings(max_examples=40, deadline=None)
@given(st.sets(st.tuples(st.sampled_from(["a-r01-", "a-r02-", "b"]), st.integers(0, 120)), min_size=1, max_size=30))
def test_a_hostlist_names_exactly_its_hosts(hosts: set[tuple[str, int]]) -> None:
    names = sorted(f"{prefix}{number:03d}" for prefix, number in hosts)
    assert expand(hostlist(names)) == names


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_numbers_come_back_as_they_were(values: list[float]) -> None:
    assert [float(word) for word in numbers(np.array(values))] == values


def test_whole_numbers_have_no_point_and_sentinels_survive() -> None:
    assert numbers(np.array([3.0, 12.0])) == [b"3", b"12"]
    assert float(numbers(np.array([9_223_372_036_854_775_794.0]))[0]) == 2.0**63
    assert block(b"m{} ", np.array([1.0, 2.0]), [b"5.000\n", b"6.000\n"]) == b"m{} 1 5.000\nm{} 2 6.000\n"


@pytest.mark.parametrize("ticks", [1, KEPT, KEPT + 3])
def test_columns_give_back_each_series(ticks: int, tmp_path: Path) -> None:
    columns = Columns(tmp_path)
    for tick in range(ticks):
        columns.add({"gpu.x": np.arange(300.0) + 1000 * tick, "node.y": np.array([float(tick)])})
    columns.flush()
    found = dict(columns.series("gpu.x"))
    assert len(found) == 300 and found[299].tolist() == [299.0 + 1000 * tick for tick in range(ticks)]
    assert dict(columns.series("node.y"))[0].tolist() == [float(tick) for tick in range(ticks)]


def test_every_scrape_lies_in_its_own_interval() -> None:
    times = scrapes(5, 1000.0, 400, 30.0, 6)
    for found in (times.gpu, times.node):
        assert (np.diff(found, axis=0) > 0).all()
        assert ((found - 1000.0) // 30.0 == np.arange(400)[:, None]).all()


@pytest.mark.parametrize("seed", range(5))
def test_an_attempt_goes_through_its_phases_without_a_gap(seed: int) -> None:
    site = plant(seed, 12, 2)
    table = timetable(site, runs(seed, 10, 2), 0.0, 40_000.0)
    table.advance(40_000.0)
    for attempt in table.attempts:
        phases = segments(attempt, 40_000.0)
        each = phases.each()
        assert all(a[1] == b[0] for a, b in zip(each, each[1:], strict=False))
        assert all(begin < end for begin, end, _ in each)
        assert phases.at(np.array([attempt.start - 1.0, phases.end])).tolist() == [Phase.NONE, Phase.NONE]
        if attempt.state == "COMPLETED":
            assert [phase for _, _, phase in each][-2:] == [Phase.SAVE, Phase.TEARDOWN]
