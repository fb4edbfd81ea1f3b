"""Idle nodes are checked before work goes there: once, only in act mode, and whose failure it is is told by groups."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend import sweeps, writes
from backend.act.checks import Check, Report
from backend.clock import ManualClock
from backend.decide import sweeping
from backend.facts import NodeFacts
from backend.model.checks import Check as Row
from backend.model.incidents import Incident
from backend.store import checks, incidents
from backend.store.engine import Store
from tests.backend.bench import Bench
from tests.backend.test_breaker import ADMIN

GEMM = Check("gemm", ("/opt/gemm", "{node}"), "idle", every_s=3600.0)
PAIR = Check("nccl", ("/opt/pair", "{node}", "{peer}"), "idle", every_s=3600.0, kind="host_hardware")
SUM = Check("sum", ("/opt/sum", "{node}"), "idle", every_s=3600.0, compare=True, kind="silent_data_corruption")


@pytest.fixture
def bench(sqlite_store: Store, clock: ManualClock) -> Bench:
    made = Bench(sqlite_store, clock, mode="act")
    made.ticks(2)
    return made


class Said:
    """Checks as a test wants them; remembers what was asked."""

    def __init__(self, bad: tuple[str, ...] = (), digests: dict[str, str] | None = None) -> None:
        self.bad, self.digests = bad, digests or {}
        self.asked: list[tuple[str, str, str]] = []

    def __call__(self, check: Check, node: str, peer: str) -> Report:
        self.asked.append((check.name, node, peer))
        fails = node in self.bad or peer in self.bad
        return Report("fail" if fails else "pass", "as the test says", {"tflops": 700.0}, self.digests.get(node, "abc"))


def swept(bench: Bench, check: Check, said: Said) -> list[Row]:
    bench.watch.checks = (check,)
    while sweeps.sweep(bench.watch, said):
        assert len(said.asked) < 500
    with bench.watch.store.read() as session:
        return [row for row in checks.of_node(session, "main", "", 500) if row.name == check.name]


def idle(bench: Bench) -> list[str]:
    return [node.name for node in bench.backend.inventory() if not node.jobs and node.state == "idle" and not node.out]


def opened(bench: Bench) -> list[Incident]:
    with bench.watch.store.read() as session:
        return list(incidents.live(session, "main"))


def test_each_idle_node_is_checked_once_and_no_busy_one(bench: Bench) -> None:
    said = Said()
    rows = swept(bench, GEMM, said)
    assert sorted(node for _, node, _ in said.asked) == sorted(idle(bench)) and {r.verdict for r in rows} == {"pass"}
    bench.ticks(10)
    assert not sweeps.sweep(bench.watch, said), "they are not due again"


@pytest.mark.parametrize("mode", ["observe", "propose"])
def test_only_act_mode_runs_anything_on_the_cluster(bench: Bench, mode: str) -> None:
    bench.watch.rules = replace(bench.watch.rules, mode=mode)  # type: ignore[arg-type]  # a Mode
    said = Said()
    assert not swept(bench, GEMM, said) and not said.asked


def test_the_kill_switch_stops_sweeps(bench: Bench) -> None:
    writes.set_kill_switch(bench.watch, True, ADMIN)
    said = Said()
    assert not swept(bench, GEMM, said) and not said.asked


def test_a_node_that_fails_opens_one_incident_that_stays_until_the_check_passes(bench: Bench) -> None:
    bad = idle(bench)[0]
    swept(bench, GEMM, Said((bad,)))
    (row,) = opened(bench)
    assert (row.kind, row.node) == ("gpu_hardware_other", bad) and "Check gemm" in row.headline
    bench.turn()
    assert [e.node for e in bench.exclusions()] == [bad], "the guards let act mode keep work away"
    for _ in range(8):
        bench.ticks(1)
        sweeps.sweep(bench.watch, Said((bad,)))
    assert opened(bench)[0].clear_s < bench.watch.rules.hold_s, "silence of a check does not make it clear"
    bench.clock.set(bench.clock.now() + timedelta(seconds=sweeps.AGAIN_S))
    bench.read_cluster()
    again = Said()
    bench.watch.checks = (GEMM,)
    while sweeps.sweep(bench.watch, again):
        assert len(again.asked) < 100
    assert bad in [node for _, node, _ in again.asked]
    bench.ticks(10)
    assert not opened(bench)


def test_a_failed_check_holds_its_node_while_the_sweep_is_busy_elsewhere(bench: Bench) -> None:
    bad = idle(bench)[0]
    swept(bench, GEMM, Said((bad,)))
    bench.ticks(8)  # two minutes of another check, in which no sweep looks at what must hold
    (row,) = opened(bench)
    assert row.node == bad and [e.node for e in bench.exclusions()] == [bad]


def test_pair_tests_name_the_one_that_fails_with_everybody(bench: Bench) -> None:
    names = idle(bench)
    if len(names) < 4:
        pytest.fail("the bench has too few idle nodes")
    bad = names[1]
    rows = swept(bench, PAIR, Said((bad,)))
    assert [row.node for row in rows if row.verdict == "fail"] == [bad]
    assert all(row.verdict == "pass" for row in rows if row.node != bad)
    assert [row.node for row in opened(bench)] == [bad]


def test_where_nobody_passes_nobody_is_named(bench: Bench) -> None:
    rows = swept(bench, PAIR, Said(tuple(idle(bench))))
    assert {row.verdict for row in rows} == {"unknown"} and not opened(bench)


def test_a_node_that_computes_something_else_than_the_others_is_found(bench: Bench) -> None:
    names = idle(bench)
    rows = swept(bench, SUM, Said(digests={names[-1]: "abd"}))
    failed = [row for row in rows if row.verdict == "fail"]
    assert [row.node for row in failed] == [names[-1]] and "not that of" in failed[0].text
    assert opened(bench)[0].kind == "silent_data_corruption"


def test_a_node_that_work_reached_meanwhile_is_left_alone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = idle(bench)[0]
    read = bench.backend.read
    busy = lambda name: replace(read(name), jobs=("9",)) if name == taken else read(name)  # noqa: E731
    monkeypatch.setattr(bench.backend, "read", busy)
    said = Said()
    bench.watch.checks = (GEMM,)
    sweeps.sweep(bench.watch, said)
    assert taken not in [node for _, node, _ in said.asked]


def test_somebody_elses_node_is_never_swept() -> None:
    theirs = NodeFacts("n1", "idle", frozenset({"DRAIN"}), "disk", "root")
    ours = replace(theirs, reason="[watchkeeper] x inc=1", reason_owner="watchkeeper")
    assert not sweeping.sweepable(theirs, (), ("n1",)) and not sweeping.sweepable(ours, (), ())
    assert sweeping.sweepable(ours, ("n1",), ("n1",)) and not sweeping.sweepable(NodeFacts("n1", "idle"), ("n1",), ())


@given(st.integers(4, 16), st.data())
@settings(max_examples=60, deadline=None)
def test_groups_name_a_single_bad_node_and_never_a_good_one(size: int, drawn: st.DataObject) -> None:
    nodes = [f"n{i:02d}" for i in range(size)]
    bad = drawn.draw(st.sets(st.sampled_from(nodes), max_size=2))
    turn = drawn.draw(st.integers(0, 40))
    fine, named = sweeping.suspects_of(nodes, lambda a, b: not {a, b} & bad, turn)
    assert set(named) <= bad and all(node not in bad for node, good in fine.items() if good)
    assert len(bad) != 1 or set(named) == bad


def test_few_results_and_ties_condemn_nobody() -> None:
    assert sweeping.differs("x", {"a": "y", "b": "y"}) == ""
    assert sweeping.differs("x", {"a": "y", "b": "y", "c": "z", "d": "w"}) == ""
    assert "3 of 3" in sweeping.differs("x", dict.fromkeys("abc", "y"))
