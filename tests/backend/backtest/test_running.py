"""A backtest runs in a process of its own: it is told, cancelled within seconds, and what it tried can be adopted."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from backend import backtests, pipeline
from backend.auth import Person
from backend.backtest.running import Job, Runner, source_of, take_up, tried
from backend.backtest.span import SpanError
from backend.clock import utc
from backend.model.tasks import Task
from backend.proposals import Conflict
from backend.registry import build
from backend.settings import Cluster, Prometheus
from backend.store import people, tasks
from backend.writes import Forbidden, Invalid, Missing
from tests.backend.api.conftest import Site, make
from tests.backend.backtest.test_span import Store
from tests.backend.replay.test_run import LOST_AT, scrapes
from tests.bundles import TEMP, T, gpu
from tests.services.need import need
from tests.services.prometheus import prometheus

ADMIN, OPERATOR, VIEWER = (Person(role, role) for role in ("admin", "operator", "viewer"))
SPAN = utc(T - 10), utc(T + 960)
CALM = {"silence_ticks": 40.0}


@pytest.fixture
def site(tmp_path: Path, migrated_sqlite: Path) -> Iterator[Site]:
    yield from make(tmp_path, migrated_sqlite)


def runner_of(site: Site, url: str = "") -> Runner:
    """The runner of a site whose cluster reads from ``url``."""
    read = (Prometheus(url=url),) if url else ()
    settings = site.parts.settings.model_copy(update={"cluster": (Cluster(name=site.watch.cluster, prometheus=read),)})
    return Runner(site.watch, settings, site.parts.catalogue)


def row_of(site: Site, number: int) -> Task:
    with site.parts.store.read() as session:
        row = tasks.by_id(session, site.watch.cluster, number)
    assert row is not None
    return row


def begun(site: Site, thresholds: Mapping[str, float] = CALM) -> int:
    return backtests.begin(site.watch, OPERATOR, *SPAN, thresholds).id or 0


def stepped(runner: Runner, until: Callable[[], Any], within_s: float = 60.0) -> None:
    deadline = time.monotonic() + within_s
    while not until():
        assert time.monotonic() < deadline
        runner.step()
        time.sleep(0.05)


def audited(site: Site) -> list[tuple[str, str]]:
    with site.parts.store.read() as session:
        return [(row.actor, row.action) for row in people.audits(session, 10)]


@pytest.mark.parametrize(
    ("span", "thresholds", "why"),
    [
        ((SPAN[1], SPAN[0]), CALM, "ends before it begins"),
        ((SPAN[0], SPAN[0] + timedelta(days=32)), CALM, "future|at most 31 days"),
        ((SPAN[0], SPAN[1] + timedelta(days=1000)), CALM, "future"),
        (SPAN, {}, "nothing to compare"),
        (SPAN, {"no_such": 1.0}, "no_such"),
        (SPAN, {"silence_ticks": float("nan")}, "no threshold"),
        (SPAN, {"silence_ticks": -1.0}, "no threshold"),
        (SPAN, {"silence_ticks": 2.0}, "in force already"),
    ],
)
def test_what_makes_no_sense_is_refused_and_leaves_nothing(
    site: Site, span: Any, thresholds: Mapping[str, float], why: str
) -> None:
    with pytest.raises(Invalid, match=why):
        backtests.begin(site.watch, OPERATOR, span[0], span[1], thresholds)
    assert not audited(site)


def test_who_may_what(site: Site) -> None:
    with pytest.raises(Forbidden):
        backtests.begin(site.watch, VIEWER, *SPAN, CALM)
    number = begun(site)
    for deed in (backtests.adopt, backtests.withdraw):
        with pytest.raises(Forbidden):
            deed(site.watch, OPERATOR, number)
    with pytest.raises(Conflict, match="waiting"):
        backtests.adopt(site.watch, ADMIN, number)
    with pytest.raises(Missing):
        backtests.cancel(site.watch, OPERATOR, 77)
    for _ in range(backtests.MOST_OPEN - 1):
        begun(site)
    with pytest.raises(Conflict, match="wait or run"):
        begun(site)


def test_one_that_waits_is_cancelled_at_once(site: Site) -> None:
    number = begun(site)
    backtests.cancel(site.watch, OPERATOR, number)
    assert row_of(site, number).state == "cancelled"
    with pytest.raises(Conflict):
        backtests.cancel(site.watch, OPERATOR, number)
    assert audited(site)[0] == ("operator", "cancel backtest")


def test_without_a_prometheus_it_fails_and_says_what_to_do(site: Site) -> None:
    with pytest.raises(SpanError, match="serve --record"):
        source_of(site.parts.settings, site.watch.cluster, site.parts.catalogue)


def test_what_ran_when_the_server_ended_is_told_as_failed(site: Site) -> None:
    number = begun(site)
    with site.parts.store.write() as session:
        row = tasks.by_id(session, site.watch.cluster, number)
        assert row is not None
        row.state = "running"
        session.add(row)
    runner_of(site).step()
    assert row_of(site, number).state == "failed" and "begin it again" in row_of(site, number).said


def test_one_that_runs_ends_within_seconds_of_the_click(site: Site) -> None:
    """Its Prometheus takes the question and never answers."""
    with closing(socket.create_server(("127.0.0.1", 0))) as mute:
        runner = runner_of(site, f"http://127.0.0.1:{mute.getsockname()[1]}")
        number = begun(site)
        mute.settimeout(60)
        runner.step()
        assert row_of(site, number).state == "running"
        asked, _ = mute.accept()
        backtests.cancel(site.watch, OPERATOR, number)
        stepped(runner, lambda: row_of(site, number).state == "cancelled", 10)
        asked.close()
    assert not list((site.parts.settings.store.folder / "backtests").rglob("*.om"))


class _Told:
    def __init__(self) -> None:
        self.shares: list[float] = []

    def __call__(self, share: float, words: str) -> None:
        self.shares.append(share)


def test_what_is_told_of_progress_never_goes_back(site: Site, tmp_path: Path) -> None:
    told = _Told()
    job = Job(site.parts.settings, site.watch.cluster, T, T + 300, {}, CALM, tmp_path / "work")
    job.folder.mkdir()
    found = tried(job, told, Store())
    assert told.shares == sorted(told.shares) and told.shares[-1] <= 1.0 and found["samples"] == 20
    assert found["sentence"].startswith("No difference")


@pytest.mark.services
def test_a_rule_set_is_tried_on_a_real_prometheus_adopted_and_withdrawn(site: Site, tmp_path: Path) -> None:
    lost = "".join(gpu(TEMP, scrapes(LOST_AT if i == 3 else T + 1e6), index=i) for i in range(8))
    (tmp_path / "past.om").write_text(f"# TYPE {TEMP} gauge\n{lost}# EOF\n")
    made = ["tsdb", "create-blocks-from", "openmetrics", str(tmp_path / "past.om"), str(tmp_path / "tsdb")]
    subprocess.run([need("promtool", "prometheus"), *made], check=True, capture_output=True, timeout=60)
    with prometheus(tmp_path, []) as server:
        runner = runner_of(site, server.url)
        number = begun(site)
        stepped(runner, lambda: row_of(site, number).state not in tasks.OPEN)
    row = row_of(site, number)
    assert (row.state, row.said, row.share) == ("done", "", 1.0)
    assert [one["kind"] for one in row.result["differences"]] == ["gpu_bus_loss"]
    assert not (site.parts.settings.store.folder / "backtests" / site.watch.cluster / str(number)).exists()
    watch, before = site.watch, site.watch.detectors
    pipeline.observe(watch)
    backtests.adopt(watch, ADMIN, number, "calmer")
    runner.step()
    pipeline.observe(watch)
    assert watch.catalogue.thresholds["silence_ticks"].value == 40.0 and watch.detectors is not before
    again = build(site.parts.settings, site.clock)
    assert again.watches[watch.cluster].catalogue.thresholds["silence_ticks"].value == 40.0
    again.store.close()
    backtests.withdraw(watch, ADMIN, number)
    assert take_up(watch, site.parts.catalogue, {}) and not take_up(watch, site.parts.catalogue, {})
    assert watch.catalogue.thresholds["silence_ticks"].value == 2.0
    assert [action for _, action in audited(site)] == ["withdraw backtest", "adopt backtest", "backtest"]


def test_the_last_that_was_adopted_is_in_force_over_the_site(site: Site) -> None:
    now = site.clock.now()
    with site.parts.store.write() as session:
        for n, value in ((1, 5.0), (2, 7.0)):
            asked = {"start": T, "end": T + 1, "thresholds": {"silence_ticks": value, "gone_in_this_release": 1.0}}
            adopted_at = now + timedelta(seconds=n)
            session.add(Task(cluster=site.watch.cluster, kind="backtest", at=now, by="a", state="done", asked=asked,
                             adopted_at=adopted_at))  # fmt: skip
    assert take_up(site.watch, site.parts.catalogue, {"silence_ticks": 3.0, "peers_min_group": 8.0})
    found = site.watch.catalogue.thresholds
    assert (found["silence_ticks"].value, found["peers_min_group"].value) == (7.0, 8.0)
