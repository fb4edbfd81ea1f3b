"""Two accounts of one past: each incident is paired once, differences are named, and the same past has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.backtest.both import both
from backend.backtest.compare import MOST, as_lines, compare, sentence
from backend.ingest.bundle.bundle import open_bundle
from backend.settings import Settings
from detectors.catalogue import TableError, load
from tests.backend.replay.test_run import a_lost_gpu
from tests.bundles import T


def incident(at: float = 0.0, entity: str = "n1/gpu3", kind: str = "gpu_bus_loss", **more: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "opened_at": T + at,
        "closed_at": None,
        "entity": entity,
        "entities": [entity],
        "kind": kind,
        "severity": "critical",
        "recommended_action": "drain_now",
        "exclude": [entity.partition("/")[0]],
    }
    return usual | more


def test_the_same_account_twice_has_no_difference() -> None:
    rows = [incident(), incident(60, "n2"), incident(90, "n2", "node_down")]
    found = compare(rows, rows)
    assert (found.same, found.differences, found.gained, found.lost) == (3, (), (), ())
    assert sentence(found).startswith("No difference")


def test_what_only_one_set_raises_is_named_with_the_nodes_it_keeps_from_work() -> None:
    found = compare([incident()], [incident(), incident(60, "n2", severity="info")])
    (one,) = found.differences
    assert (one.what, one.entity, found.gained, found.lost) == ("raised", "n2", ("n2",), ())
    assert (found.today.above_info, found.tried.above_info) == (1, 1)
    back = compare([incident(), incident(60, "n2")], [incident()])
    assert [one.what for one in back.differences] == ["not raised"] and back.lost == ("n2",)
    assert "n2" in sentence(back)


def test_what_both_raise_but_not_alike_says_how() -> None:
    tried = incident(90, severity="warning", recommended_action="notify", exclude=[])
    (one,) = compare([incident()], [tried]).differences
    assert one.what == "changed"
    for words in ("severity: critical today, warning tried", "advice: drain now", "no more keeps n1", "90 s later"):
        assert words in one.words


def test_two_incidents_of_one_place_are_paired_by_kind_and_time() -> None:
    today = [incident(0, closed_at=T + 100), incident(7200)]
    assert compare(today, [today[1]]).differences[0].at == T
    renamed = compare([incident()], [incident(kind="gpu_hang")])
    assert [one.what for one in renamed.differences] == ["changed"]
    apart = compare([incident(0, closed_at=T + 100)], [incident(7200)])
    assert sorted(one.what for one in apart.differences) == ["not raised", "raised"]


def test_many_differences_are_counted_and_not_all_named() -> None:
    found = compare([], [incident(i, f"n{i}") for i in range(MOST + 7)])
    assert len(found.differences) == MOST and found.more == 7
    assert list(as_lines(found))[-1] == "... and 7 more"


rows = st.lists(
    st.builds(
        lambda at, node, kind, long: incident(at, f"n{node}", kind, closed_at=T + at + long if long else None),
        st.integers(0, 5000),
        st.integers(0, 3),
        st.sampled_from(["a", "b"]),
        st.sampled_from([0, 50, 3000]),
    ),
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(rows, rows)
def test_every_incident_is_either_paired_or_named(today: list[dict[str, Any]], tried: list[dict[str, Any]]) -> None:
    found = compare(today, tried)
    kinds = [one.what for one in found.differences]
    paired = found.same + kinds.count("changed")
    assert paired + kinds.count("not raised") == len(today) and paired + kinds.count("raised") == len(tried)
    other = compare(tried, today)
    assert (other.gained, other.lost) == (found.lost, found.gained)


def test_one_past_goes_through_both_rule_sets(tmp_path: Path) -> None:
    bundle = open_bundle(a_lost_gpu(tmp_path / "bundle"))
    told: list[float] = []
    found = both(bundle, tmp_path / "out", load(), Settings(), {}, lambda share, _: told.append(share))
    assert found.same == found.today.incidents > 0 and not found.differences
    assert told == sorted(told) and 0.9 < told[-1] <= 1.0
    with pytest.raises(TableError, match="no_such"):
        both(bundle, tmp_path / "none", load(), Settings(), {"no_such": 1.0})
    assert not (tmp_path / "none").exists()
