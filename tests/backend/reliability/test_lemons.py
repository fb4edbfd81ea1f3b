"""Lemon nodes are named, unlucky ones and those of large jobs are not."""

from __future__ import annotations

from typing import Any

import pytest

from backend.facts import AttemptFacts
from backend.reliability.account import account
from backend.reliability.history import History
from backend.reliability.lemons import LEAST_FAULTS, lemons
from backend.reliability.report import reliability_json
from tests.backend.reliability.fleets import DAY, make


def named(seed: int, **how: Any) -> tuple[set[str], frozenset[str]]:
    fleet = make(seed, **how)
    return {row.node for row in lemons(account(fleet.history)) if row.lemon}, fleet.lemons


def test_named_ones_are_lemons_and_most_lemons_are_named_over_many_fleets() -> None:
    found = [named(seed) for seed in range(500, 530)] + [named(seed, times=(30, 50), huge=20) for seed in range(15)]
    hits = sum(len(names & real) for names, real in found)
    assert hits / sum(len(names) for names, _ in found) >= 0.9
    assert hits / sum(len(real) for _, real in found) >= 0.8


def test_a_fleet_without_lemons_has_none() -> None:
    assert sum(len(named(seed, lemons=0)[0]) for seed in range(600, 630)) <= 1


def test_the_chance_of_a_false_accusation_is_kept() -> None:
    rows = []
    for seed in range(700, 740):
        fleet = make(seed)
        rows += [(row, row.node in fleet.lemons) for row in lemons(account(fleet.history)) if row.lemon]
    wrong = sum(not lemon for _, lemon in rows)
    said = sum(row.p_false for row, _ in rows)
    assert wrong <= 2 * said + 3
    assert all(row.p_false <= 0.35 and row.failures >= LEAST_FAULTS for row, _ in rows)


@pytest.mark.parametrize("nodes", [60, 200])
def test_healthy_nodes_of_a_huge_job_that_often_fails_are_not_named(nodes: int) -> None:
    names = tuple(f"n{i:03d}" for i in range(nodes))
    attempts = [
        AttemptFacts(
            job="1", restart=i, run="big", state="NODE_FAIL", submit=i * DAY / 2, start=i * DAY / 2, nodes=names,
            eligible=i * DAY / 2, end=(i + 0.9) * DAY / 2,
        )
        for i in range(56)
    ]  # fmt: skip
    told = account(History(0.0, 28 * DAY, attempts))
    rows = lemons(told)
    assert not any(row.lemon for row in rows)
    assert all(row.signals["multi_node_node_fails"] == 56 for row in rows)
    assert sum(row.shared for row in rows) == pytest.approx(56)


def test_exclusions_stand_beside_the_score_and_not_in_it() -> None:
    fleet = make(3)
    excluded = [
        AttemptFacts(job=f"x{i}", state="COMPLETED", submit=DAY, start=DAY, end=DAY + 60, nodes=("n000",), user="v",
                     excluded=("n009",))
        for i in range(200)
    ]  # fmt: skip
    plain = {row.node: row for row in lemons(account(fleet.history))}
    history = History(
        0.0, fleet.history.end, [*fleet.history.attempts, *excluded],
        incidents=fleet.history.incidents, outages=fleet.history.outages,
    )  # fmt: skip
    shown = {row.node: row for row in lemons(account(history))}
    assert shown["n009"].signals["excl_jobid_count"] >= 200  # type: ignore[operator]
    assert shown["n009"].lemon is plain["n009"].lemon
    assert shown["n009"].p_false == pytest.approx(plain["n009"].p_false, abs=0.01)


def test_what_was_not_read_is_not_known() -> None:
    row = reliability_json(account(make(1).history))["lemons"][0]
    assert row["signals"]["xid_cnt"] is None
    assert row["signals"]["tickets"] is None
    assert set(row["signals"]) == {
        "excl_jobid_count",
        "xid_cnt",
        "tickets",
        "out_count",
        "multi_node_node_fails",
        "single_node_node_fails",
        "single_node_node_failure_rate",
    }
