"""The numbers behind an incident: whose they are, who the peers are, what is older, and what is said where none are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from backend.answers.telemetry import MOST_PEERS, PastError, Telemetry, band, own_gpus, peers_of, telemetry
from backend.history import History, Range
from backend.model.incidents import Incident
from detectors.catalogue import load
from detectors.fleet import FleetRow, draw
from detectors.model import Fleet, Tick

T0 = 1_800_000_000.0
GPU = ("gpu", "temperature_c")


def fleet_of(nodes: int, job: str = "7", gpus: int = 4) -> Fleet:
    """Nodes n0, n1, ... with GPUs n0-0, n0-1 ...; the last node runs nothing."""
    names = [f"n{n}" for n in range(nodes)]
    jobs = [job] * (nodes - 1) + [""]
    rows = [FleetRow(name, name, n, job=jobs[n]) for n, name in enumerate(names)]
    cards = [
        FleetRow(f"{name}-{g}", f"{name}/gpu{g}", n, job=jobs[n], model="H100")
        for n, name in enumerate(names)
        for g in range(gpus)
    ]
    return draw("main", 1, rows, cards)


def incident(kind: str, id_: str, node: str, job: str = "7") -> Incident:
    return Incident(
        cluster="main",
        kind="gpu_bus_loss",
        severity="high",
        headline="",
        entity_kind=kind,
        entity_id=id_,
        entity_name=id_,
        node=node,
        job=job,
    )


def filled(folder: Path, fleet: Fleet, ticks: int = 40) -> History:
    """Every GPU at 60 degrees plus its row; the first one at 90."""
    history = History.open(folder, "main", mode="write")
    values = 60 + np.arange(len(fleet.axes["gpu"]), dtype=np.float32)
    values[0] = 90
    for n in range(ticks):
        history.add(Tick(T0 + 30 * (n + 1), {GPU: values}), fleet)
    return history


def told(history: History | None, fleet: Fleet, row: Incident, start: float = T0, past=None, ask=True) -> Telemetry:
    return telemetry(history, past, fleet, load(), row, start, T0 + 1200, ask=ask)


def test_a_gpu_is_drawn_beside_the_gpus_of_its_job(tmp_path: Path) -> None:
    fleet = fleet_of(5)
    found = told(filled(tmp_path, fleet), fleet, incident("gpu", "n0-0", "n0"))
    assert (found.gpus, found.peers, found.among, found.older) == (1, 15, "of job 7", "")
    (course,) = found.courses
    assert course.metric == "temperature_c" and course.own.mean.tolist() == [90.0] * 4
    assert course.low.tolist() == [61.0] * 4 and course.high.tolist() == [75.0] * 4


def test_a_gpu_without_a_job_has_its_node_for_peers() -> None:
    fleet = fleet_of(3)
    assert peers_of(fleet, incident("gpu", "n2-1", "n2", ""), ("n2-1",)) == (("n2-0", "n2-2", "n2-3"), "on n2")


def test_peers_are_those_of_when_it_opened_even_if_the_job_has_ended() -> None:
    row = incident("gpu", "n0-0", "n0", "ended")
    ids, among = peers_of(fleet_of(4), row, ("n0-0",), ("n0", "n2", "gone"))
    assert ids == ("n0-1", "n0-2", "n0-3", "n2-0", "n2-1", "n2-2", "n2-3") and among == "of job ended"


def test_two_peers_make_no_band() -> None:
    assert peers_of(fleet_of(2, gpus=3), incident("gpu", "n1-1", "n1", ""), ("n1-1",)) == ((), "")


def test_a_large_job_is_stood_for_by_some() -> None:
    ids, _ = peers_of(fleet_of(200), incident("gpu", "n0-0", "n0"), ("n0-0",))
    assert len(ids) == len(set(ids)) == MOST_PEERS and "n0-0" not in ids


def test_a_node_is_drawn_as_all_of_its_gpus(tmp_path: Path) -> None:
    fleet = fleet_of(3)
    found = told(filled(tmp_path, fleet), fleet, incident("node", "n0", "n0"))
    (course,) = found.courses
    assert found.gpus == 4 and course.own.least[0] == 61 and course.own.most[0] == 90
    assert course.own.mean[0] == pytest.approx((90 + 61 + 62 + 63) / 4)


def test_other_things_have_no_lines(tmp_path: Path) -> None:
    fleet = fleet_of(3)
    assert own_gpus(fleet, incident("job", "7", "")) == own_gpus(fleet, incident("node", "gone", "gone")) == ()
    assert told(filled(tmp_path, fleet), fleet, incident("job", "7", "")).courses == ()


def test_a_gpu_that_the_fleet_no_longer_knows_keeps_its_line(tmp_path: Path) -> None:
    fleet = fleet_of(3)
    history = filled(tmp_path, fleet)
    found = told(history, fleet_of(1), incident("gpu", "n1-2", "n1"))
    assert found.courses[0].own.mean[0] == 66 and found.peers == 0


def test_what_is_older_is_said_to_be_absent_where_nobody_keeps_it(tmp_path: Path) -> None:
    fleet = fleet_of(3)
    found = told(filled(tmp_path, fleet), fleet, incident("gpu", "n0-0", "n0"), T0 - 3600)
    assert found.older == "absent" and found.begin == T0 and len(found.courses[0].own.times) == 4


def before(ids: Sequence[str], metric: str, start: float, end: float) -> Range:
    times = np.arange(start, end, 300)
    values = np.full((times.size, len(ids)), 50 if metric == "temperature_c" else np.nan, np.float32)
    return Range(times, values - 1, values, values + 1)


def test_what_is_older_comes_from_the_past_without_a_band(tmp_path: Path) -> None:
    fleet = fleet_of(3)
    history, row = filled(tmp_path, fleet), incident("gpu", "n0-0", "n0")
    found = told(history, fleet, row, T0 - 900, before)
    (course,) = found.courses
    assert found.older == "past" and course.own.mean.tolist() == [50.0] * 3 + [90.0] * 4
    assert np.isnan(course.low).tolist() == [True] * 3 + [False] * 4
    assert len(told(history, fleet, row, T0 - 900, before, ask=False).courses[0].own.times) == 4


def test_an_empty_history_is_asked_of_the_past_alone(tmp_path: Path) -> None:
    found = told(History.open(tmp_path, "main"), fleet_of(3), incident("gpu", "n0-0", "n0"), past=before)
    assert found.begin is None and found.courses[0].own.mean.tolist() == [50.0] * 4


def test_a_past_that_fails_is_told_and_costs_nothing_else(tmp_path: Path) -> None:
    def fails(ids: Sequence[str], metric: str, start: float, end: float) -> Range:
        raise PastError("http://prom: no answer")

    fleet = fleet_of(3)
    found = told(filled(tmp_path, fleet), fleet, incident("gpu", "n0-0", "n0"), T0 - 900, fails)
    assert found.older == "http://prom: no answer" and len(found.courses) == 1


def test_a_band_of_many_leaves_out_the_outermost_and_what_was_not_heard() -> None:
    means = np.arange(101, dtype=np.float32)[None, :].repeat(2, axis=0)
    means[1, 3:] = np.nan
    low, high = band(means)
    assert (low[0], high[0]) == (5, 95) and (low[1], high[1]) == (0, 2)
    low, high = band(np.full((1, 2), 5, np.float32))
    assert np.isnan(low[0]) and np.isnan(high[0])
    assert band(np.zeros((2, 0), np.float32))[0].size == 2
