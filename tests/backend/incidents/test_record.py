"""Levels become rows: each row is news, and what could not be judged is neither held nor cleared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from backend.incidents.record import SCORE_STEP, Held, Ledger, frozen_keys, held_of
from backend.store import findings as store_findings
from backend.store.engine import Store
from detectors.model import Finding, Judged, Severity
from tests.backend.incidents.claims import AT, FLEET, finding, later, rows, written
from tests.detectors.fleets import entity, gpu


def blind(axis: str, name: str) -> dict[str, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Only the row of ``name`` could not be judged."""
    mask = np.zeros(len(FLEET.axes[axis]), np.bool_)
    mask[gpu(FLEET, name) if axis == "gpu" else FLEET.axes["node"].names.index(name)] = True
    return {axis: mask}


# --- rows -----------------------------------------------------------------------------------------------------------


def test_a_new_level_is_raised_as_one_row_with_both_its_times(store: Store) -> None:
    ledger: Ledger = {}
    delta = written(store, ledger, [finding()])
    (row,) = rows(store)
    assert delta.raised == (finding().key,) and not delta.empty
    assert (row.key, row.entity_name, row.node, row.severity) == (
        finding().key,
        "gpu-0001/gpu3",
        "gpu-0001",
        "critical",
    )
    assert (row.raised_at, row.emitted_at, row.cleared_at) == (AT, later(2), None)
    assert row.evidence[0]["ref"] == "event:7"
    assert ledger[finding().key].row_id == row.id


def test_a_level_asserted_again_writes_nothing(store: Store) -> None:
    ledger: Ledger = {}
    written(store, ledger, [finding()])
    delta = written(store, ledger, [finding(reason="the same, said otherwise")], later(15))
    assert delta.empty
    assert [row.reason for row in rows(store)] == [finding().reason]


@pytest.mark.parametrize(
    ("step", "changed"), [(SCORE_STEP * 0.9, False), (SCORE_STEP * 1.1, True), (-SCORE_STEP * 1.1, True)]
)
def test_a_score_is_news_once_it_moved_a_whole_step(sqlite_store: Store, step: float, changed: bool) -> None:
    ledger: Ledger = {}
    written(sqlite_store, ledger, [finding(score=0.5)])
    delta = written(sqlite_store, ledger, [finding(score=0.5 + step)], later(15))
    assert (len(delta.changed) == 1) is changed
    assert rows(sqlite_store)[0].score == pytest.approx(0.5 + step if changed else 0.5)


def test_small_steps_add_up_to_news(sqlite_store: Store) -> None:
    """Compared with what the row says, not with the step before: a slow rise is seen too."""
    ledger: Ledger = {}
    written(sqlite_store, ledger, [finding(score=0.5)])
    told = [written(sqlite_store, ledger, [finding(score=0.5 + 0.02 * i)], later(15 * i)).changed for i in (1, 2, 3)]
    assert [bool(keys) for keys in told] == [False, False, True]


def test_another_severity_is_news_and_changes_the_row_in_place(store: Store) -> None:
    ledger: Ledger = {}
    written(store, ledger, [finding(severity=Severity.WARNING)])
    delta = written(store, ledger, [finding(reason="worse")], later(15))
    (row,) = rows(store)
    assert delta.changed == (finding().key,)
    assert written(store, ledger, [finding(reason="worse")], later(30)).empty  # told once
    assert (row.severity, row.reason, row.raised_at, row.cleared_at) == ("critical", "worse", AT, None)


def test_a_level_no_longer_asserted_is_cleared_and_a_later_one_is_a_new_row(store: Store) -> None:
    ledger: Ledger = {}
    written(store, ledger, [finding()])
    gone = written(store, ledger, [], later(15))
    assert [held.finding.key for held in gone.cleared] == [finding().key] and ledger == {}
    written(store, ledger, [finding()], later(30))
    assert [(row.raised_at, row.cleared_at) for row in rows(store)] == [(AT, later(15)), (later(30), None)]


def test_a_frozen_level_is_neither_cleared_nor_touched(store: Store) -> None:
    ledger: Ledger = {}
    written(store, ledger, [finding()])
    delta = written(store, ledger, [], later(15), frozen=frozenset({finding().key}))
    assert delta.empty and finding().key in ledger
    assert rows(store)[0].cleared_at is None


def test_a_row_read_back_is_the_level_that_was_written(store: Store) -> None:
    ledger: Ledger = {}
    written(store, ledger, [finding()])
    with store.read() as session:
        (row,) = store_findings.active(session, "main")
    assert held_of(row) == Held(row.id or 0, finding())


# --- frozen ---------------------------------------------------------------------------------------------------------


def held(*findings: Finding) -> Ledger:
    return {f.key: Held(i, f) for i, f in enumerate(findings)}


def test_what_a_detector_saw_and_does_not_assert_is_not_frozen() -> None:
    assert frozen_keys(held(finding()), {"kernel/xid": Judged()}, FLEET, ()) == frozenset()


def test_a_detector_that_failed_freezes_its_own_levels_only() -> None:
    other = finding(detector="telemetry/silence")
    frozen = frozen_keys(held(finding(), other), {"telemetry/silence": Judged()}, FLEET, ())
    assert frozen == {finding().key}


@pytest.mark.parametrize(("axis", "name"), [("gpu", "gpu-0001/gpu3"), ("node", "gpu-0001")])
def test_a_level_is_frozen_while_its_row_or_its_node_is_blind(axis: str, name: str) -> None:
    judged = {"kernel/xid": Judged(blind=blind(axis, name))}
    assert frozen_keys(held(finding()), judged, FLEET, ()) == {finding().key}


@pytest.mark.parametrize(("axis", "name"), [("gpu", "gpu-0001/gpu4"), ("node", "gpu-0002")])
def test_a_blind_neighbour_freezes_nothing(axis: str, name: str) -> None:
    judged = {"kernel/xid": Judged(blind=blind(axis, name))}
    assert frozen_keys(held(finding()), judged, FLEET, ()) == frozenset()


def test_the_blind_eye_of_one_detector_does_not_freeze_what_another_says() -> None:
    judged = {"kernel/xid": Judged(), "telemetry/silence": Judged(blind=blind("gpu", "gpu-0001/gpu3"))}
    assert frozen_keys(held(finding()), judged, FLEET, ()) == frozenset()


def test_an_asserted_level_is_never_frozen() -> None:
    assert frozen_keys(held(finding()), {}, FLEET, [finding().key]) == frozenset()


def test_a_level_of_something_the_fleet_no_longer_has_can_clear() -> None:
    stranger = replace(finding(), entity=replace(entity(FLEET, "gpu-0001/gpu3"), id="GPU-gone", node="gpu-9999"))
    assert frozen_keys(held(stranger), {"kernel/xid": Judged(blind=blind("gpu", "gpu-0001/gpu3"))}, FLEET, ()) == set()
