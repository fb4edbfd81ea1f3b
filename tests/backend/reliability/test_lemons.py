"""Lemon nodes are named, unlucky ones and those of large jobs are not."""

from __future__ import annotations

import pytest

from backend.facts import AttemptFacts
from backend.reliability.account import account
from backend.reliability.history import History
from backend.reliability.lemons import LEAST_FAULTS, P_FALSE, lemons
from backend.reliability.report import reliability_json
from tests.backend.reliability import moving
from tests.backend.reliability.fleets import DAY, make


def test_named_ones_are_lemons_and_most_lemons_are_named_and_the_chance_of_a_false_accusation_is_kept() -> None:
    fleets = [make(seed) for seed in range(500, 515)] + [make(seed, times=(30, 50), huge=20) for seed in range(8)]
    told = [(row, row.node in fleet.lemons) for fleet in fleets for row in lemons(account(fleet.history)) if row.lemon]
    hits = sum(lemon for _, lemon in told)
    assert hits / len(told) >= 0.9
    assert hits / sum(len(fleet.lemons) for fleet in fleets) >= 0.8
    assert len(told) - hits <= 2 * sum(row.p_false for row, _ in told) + 3
    assert all(row.p_false <= P_FALSE and row.failures + row.shared >= LEAST_FAULTS for row, _ in told)


def test_lemons_are_told_by_the_company_they_keep_where_nobody_names_a_culprit() -> None:
    found = []
    for seed in range(300, 306):
        town = moving.make(seed, times=(30, 60))
        found.append(({row.node for row in lemons(account(town.history())) if row.lemon}, town.bad))
    hits = sum(len(names & real) for names, real in found)
    assert hits / sum(len(names) for names, _ in found) >= 0.9
    assert hits / sum(len(real) for _, real in found) >= 0.8


def test_where_jobs_move_and_no_node_is_a_lemon_hardly_any_is_named() -> None:
    towns = [moving.make(seed, lemons=0, nodes=60) for seed in range(320, 323)]
    assert sum(row.lemon for town in towns for row in lemons(account(town.history()))) <= 1


def test_a_user_who_fails_every_day_on_one_node_makes_no_lemon_of_it() -> None:
    rows = [
        AttemptFacts(job=f"b{i}", state="FAILED", user="v", name=f"try{i}", submit=i * 3600.0, eligible=i * 3600.0,
                     start=i * 3600.0, end=i * 3600.0 + 600, nodes=("n001",))
        for i in range(300)
    ]  # fmt: skip
    others = [
        AttemptFacts(job=f"o{i}", state="COMPLETED", user="w", submit=0.0, eligible=0.0, start=0.0, end=20 * DAY,
                     nodes=(f"n{i:03d}",))
        for i in range(40)
    ]  # fmt: skip
    assert not any(row.lemon for row in lemons(account(History(0.0, 28 * DAY, [*rows, *others]))))


def test_a_fleet_without_lemons_has_none() -> None:
    fleets = [make(seed, lemons=0) for seed in range(600, 615)]
    assert sum(row.lemon for fleet in fleets for row in lemons(account(fleet.history))) <= 1


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
