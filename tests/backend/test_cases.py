"""A case holds what jobs asked for and saved, so that guards and recovery advice rest on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from backend import pipeline
from backend.cases import case_of, plan_of, restart_of, rhythms, saved_by
from backend.clock import ManualClock
from backend.decide.guards import judge
from backend.facts import AttemptFacts, Batch, CheckpointFacts, StepFacts, Verb
from backend.model.incidents import Incident
from backend.store import cluster as rows
from backend.store import incidents
from backend.store.engine import Store
from backend.trained import Trained
from tests.backend.bench import Bench


@pytest.fixture
def bench(sqlite_store: Store, clock: ManualClock, tmp_path: Path) -> Bench:
    made = Bench(sqlite_store, clock)
    made.watch.trained = Trained(tmp_path / "trained")
    made.ticks(3)
    return made


def saves(bench: Bench, job: str, *ago_s: float) -> None:
    made = [CheckpointFacts(bench.now - ago, "atlas", 1000 - int(ago), "save", 20.0, job=job) for ago in ago_s]
    steps = [StepFacts(bench.now - ago, "atlas", job, 1000 - int(ago)) for ago in range(900, 0, -10)]
    assert bench.watch.trained is not None
    bench.watch.trained.append(steps, made)


def broken(bench: Bench) -> tuple[str, str]:
    node = bench.busy_node()
    bench.xid(node, 3, 48)  # an uncorrectable error: its job goes on until the drain
    bench.turn()
    return node, bench.job_of(node)


def incident(bench: Bench) -> Incident:
    with bench.watch.store.read() as session:
        return incidents.live(session, "main")[0]


def test_the_next_save_of_the_job_on_it_is_waited_for_and_its_steps_are_told(bench: Bench) -> None:
    node = bench.busy_node()
    saves(bench, bench.job_of(node), 700.0, 400.0, 100.0)
    _, job = broken(bench)
    with bench.watch.store.read() as session:
        found = case_of(session, bench.watch, incident(bench))
    last, apart = found.saves[job]
    assert (round(bench.now - last), apart) == (100, 300.0)
    first = replace(plan_of(bench.decision())[0], job=job)
    plan = (first, replace(first, verb=Verb.REQUEUE))
    said = {g.guard: g for g in judge(found, plan, bench.watch.rules.limits)}["work in hand"]
    assert said.verdict == "asks" and f"The next checkpoint of job {job} is due in" in said.reason
    told = " ".join(bench.decision().advice)
    assert f"Job {job}: Restart from step 900." in told and "spare node" in told and "GPU-hours" in told


def test_a_loss_spike_restarts_before_its_onset_and_passes_over_its_batches(bench: Bench) -> None:
    node = bench.busy_node()
    job = bench.job_of(node)
    saves(bench, job, 700.0, 400.0, 100.0)
    broken(bench)
    with bench.watch.store.read() as session:
        found = case_of(session, bench.watch, incident(bench))
    spike = replace(found, incident=replace(found.incident, kind="loss_spike", job=job))
    way = restart_of(bench.watch, spike)
    assert way is not None and way.step == 600 and way.skip is not None and way.skip[0] == 990


def test_without_a_word_of_saves_nothing_is_claimed(bench: Bench) -> None:
    broken(bench)
    with bench.watch.store.read() as session:
        found = case_of(session, bench.watch, incident(bench))
    assert found.saves == {} and restart_of(bench.watch, found) is None
    bench.watch.trained = None
    assert saved_by(bench.watch, {"1"}) == {} and rhythms({}) == {}


def test_queued_jobs_count_by_what_they_ask_for_but_not_those_that_may_not_start(bench: Bench) -> None:
    queued = [
        AttemptFacts("900", state="PENDING", submit=bench.now, partition="big", asks_nodes=40, reason="Resources"),
        AttemptFacts("901", state="PENDING", submit=bench.now, partition="big", asks_nodes=41, reason="Dependency"),
        AttemptFacts("902", state="PENDING", submit=bench.now, partition="big"),
    ]
    pipeline.accept(bench.watch, Batch("slurm", bench.now, bench.now, attempts=tuple(queued)))
    with bench.watch.store.read() as session:
        assert rows.waiting(session, "main") == [("900", "big", 40)]
    broken(bench)
    with bench.watch.store.read() as session:
        assert case_of(session, bench.watch, incident(bench)).waiting == (("900", "big", 40),)
