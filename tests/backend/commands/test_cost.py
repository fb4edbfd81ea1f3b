"""runs, plan, report and policy explain against a server that really answers."""

from __future__ import annotations

import json

import pytest

from backend.cli import main
from backend.rollups.keep import Keeper
from tests.backend.commands.conftest import Served
from tests.backend.rollups import months

Out = pytest.CaptureFixture[str]


@pytest.fixture
def ten_days(served: Served) -> Served:
    """Ten days of runs, accounted."""
    parts = served.parts
    with parts.store.write() as session:
        months.fill(session, "main", parts.clock.now(), 10)
    Keeper(parts.store, parts.clock, "main", 10).step()
    return served


def asked(served: Served, *words: str) -> int:
    return main([*words, "--server", served.url])


def test_runs_are_a_table_and_one_run_tells_its_attempts_and_its_losses(ten_days: Served, capsys: Out) -> None:
    assert asked(ten_days, "runs") == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["run", "state"] and {line.split()[0] for line in lines} >= {"atlas-70b", "moe-8x22b"}
    assert asked(ten_days, "runs", "atlas-70b") == 0
    told = capsys.readouterr().out
    assert told.startswith("atlas-70b (40049): ETTR ") and "attempt" in told and "hours" in told
    assert "R / (Q + R + U)" in told
    assert asked(ten_days, "runs", "40049", "--json") == 0
    assert json.loads(capsys.readouterr().out)["run"] == "atlas-70b (40049)"


def test_a_plan_says_what_ettr_to_expect_and_where_its_numbers_come_from(served: Served, capsys: Out) -> None:
    assert asked(served, "plan", "--nodes", "256", "--per-node-day", "0.0065") == 0
    said, *inputs = capsys.readouterr().out.splitlines()
    assert said.startswith("ETTR 0.") and "on 256 nodes" in said and "spare nodes" in said
    assert any("0.0065" in line for line in inputs)


def test_a_choice_of_jobs_says_which_wait(served: Served, capsys: Out) -> None:
    assert asked(served, "plan", "--nodes", "100", "--job", "atlas:32-128:2", "--job", "moe:64") == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("96 of 100 nodes") and [row.split()[1] for row in rows[1:]] != ["64", "32"]
    assert asked(served, "plan", "--nodes", "100", "--job", "atlas") == 1
    assert "name:nodes" in capsys.readouterr().err


def test_what_stands_behind_the_failures_is_told_by_component(ten_days: Served, capsys: Out) -> None:
    assert asked(ten_days, "reliability", "--window", "7d") == 0
    told = capsys.readouterr().out
    assert "component" in told and "values asked" in told and "28 are needed" in told


def test_the_weekly_report_comes_as_a_letter(ten_days: Served, capsys: Out) -> None:
    assert asked(ten_days, "report") == 0
    assert len(capsys.readouterr().out.splitlines()) > 5


def test_a_policy_is_explained_for_a_kind_and_a_node(served: Served, capsys: Out) -> None:
    assert asked(served, "policy", "explain", "gpu_bus_loss", "gpu-0001") == 0
    assert "guards hold" in capsys.readouterr().out
    assert asked(served, "policy", "explain", "no_such_kind", "gpu-0001") == 1
    assert "no_such_kind" in capsys.readouterr().err
