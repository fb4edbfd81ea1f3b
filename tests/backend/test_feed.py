"""The feed of training: what was appended is read once, in order, also over files, crashes and other processes."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from backend.feed import Feed, Place


def test_rows_are_read_once_and_in_their_order(tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    feed.append([{"n": n} for n in range(5)])
    first, place = feed.read(Place(), 3)
    feed.append([{"n": 5}])
    rest, end = Feed(tmp_path).read(place, 100)
    assert [row["n"] for row in first + rest] == [0, 1, 2, 3, 4, 5]
    assert feed.read(end, 100) == ([], end)
    assert Place.of(end.saved) == end


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(1, 40), max_size=12), most=st.integers(1, 50))
def test_no_row_is_lost_or_doubled_where_one_file_follows_another(
    tmp_path_factory: object, sizes: list[int], most: int
) -> None:
    folder = tmp_path_factory.mktemp("feed")  # type: ignore[attr-defined]  # pytest's factory
    feed, place, read, sent = Feed(folder, file_bytes=200, most_bytes=10**9), Place(), [], 0
    for size in sizes:
        feed.append([{"n": sent + k} for k in range(size)])
        sent += size
        rows, place = feed.read(place, most)
        read += rows
    while True:
        rows, after = feed.read(place, most)
        read += rows
        if after == place:
            break
        place = after
    assert [row["n"] for row in read] == list(range(sent))


def test_a_row_that_a_crash_tore_costs_no_other(tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    feed.append([{"n": 1}])
    with (tmp_path / "00000001.jsonl").open("ab") as file:
        file.write(b'{"n": 2, "at')
    assert [row["n"] for row in feed.read(Place(), 10)[0]] == [1]
    feed.append([{"n": 3}])
    assert [row["n"] for row in feed.read(Place(), 10)[0]] == [1, 3]


def test_a_torn_row_at_the_end_of_a_file_stops_nothing_that_follows(tmp_path: Path) -> None:
    feed = Feed(tmp_path, file_bytes=20)
    feed.append([{"n": 1}])
    with (tmp_path / "00000001.jsonl").open("ab") as file:
        file.write(b'{"n": 2, "at": 17723')
    first, place = feed.read(Place(), 10)
    feed.append([{"n": 3}])
    rest, end = feed.read(place, 1)
    assert [row["n"] for row in first + rest] == [1, 3]
    assert feed.read(end, 10) == ([], end)
    assert [row["n"] for row in feed.read(Place(), 10)[0]] == [1, 3]


def test_rows_that_were_read_stay_until_their_place_is_saved(tmp_path: Path) -> None:
    feed, saved = Feed(tmp_path, file_bytes=20), Place()
    for n in range(10):
        feed.append([{"n": n, "more": "x" * 20}])
    rows, place = feed.read(saved, 100)
    assert feed.read(saved, 100)[0] == rows, "a watch whose commit failed goes back"
    feed.drop_before(place)
    assert len(list(tmp_path.glob("*.jsonl"))) == 1
    assert feed.lost == 0


def test_a_place_in_the_feed_of_another_host_stands_for_the_end_of_this_one(tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    feed.append([{"n": 1}])
    rows, place = feed.read(Place("of another host", 7, 900), 10)
    assert rows == []
    feed.append([{"n": 2}])
    assert [row["n"] for row in feed.read(place, 10)[0]] == [2]


def test_what_nobody_reads_is_bounded_and_counted(tmp_path: Path) -> None:
    feed = Feed(tmp_path, file_bytes=100, most_bytes=300)
    for n in range(100):
        feed.append([{"n": n, "more": "x" * 60}])
    rows, _ = feed.read(Place("", 1, 0), 1000)
    assert rows[-1]["n"] == 99
    assert len(rows) < 20
    assert feed.lost > 0


def test_what_is_sent_again_is_known_unless_it_was_not_kept(tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    assert feed.fresh([("a", 1), ("a", 1), ("b", 2)]) == [("a", 1), ("b", 2)]
    assert feed.fresh([("a", 1)]) == []
    feed.forget([("a", 1)])
    assert feed.fresh([("a", 1)]) == [("a", 1)]
