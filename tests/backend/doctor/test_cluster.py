"""What a cluster is read from: real Prometheus and real Slurm, and the ways in which they are of no use."""

from __future__ import annotations

import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

import orjson
import pytest

from backend.clients.promql import PrometheusReader
from backend.clients.slurm import Ran, SlurmCli
from backend.doctor import cluster as checks
from backend.doctor import host
from backend.doctor.line import Line, State
from backend.settings import Mode
from detectors.catalogue import load
from tests.backend.clients.test_promql import Reply, served
from tests.backend.clients.test_slurm import NODE, Recorded
from tests.backend.clients.test_slurm_rights import ALONE, CONFIG
from tests.services.exporter import exporter
from tests.services.prometheus import RunningPrometheus, prometheus, until
from tests.services.slurm import SlurmCluster

CATALOGUE = load()
SILENT = Ran(1, "", "Unable to contact slurm controller (connect failure)")


def look(url: str, matchers: str = "", lateness_s: float = 15.0, timeout_s: float = 5.0) -> dict[str, Line]:
    reader = PrometheusReader(url, timeout_s=timeout_s)
    lines = checks.prometheus("prometheus", reader, CATALOGUE, matchers, 15.0, lateness_s)
    return {line.check.removeprefix("prometheus").strip() or "answers": line for line in lines}


# --- Prometheus -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPrometheus]:
    """Two nodes, one of them with the new names of DCGM."""
    with exporter(2) as (port, _), prometheus(tmp_path_factory.mktemp("prom"), [f"127.0.0.1:{port}"]) as running:
        until(lambda: "metrics" in (seen := look(running.url)) and "metrics;" in seen["metrics"].what, 20)
        yield running


@pytest.mark.services
def test_a_real_prometheus_says_its_names_spellings_age_and_clock(scraped: RunningPrometheus) -> None:
    lines = look(scraped.url)
    assert lines["answers"].state is State.OK and lines["clock"].state is State.OK
    metrics = lines["metrics"]
    assert metrics.state is State.WARNING and "node_exporter" in metrics.fix  # this one scrapes none
    assert "_TEMP (8)" in metrics.what or "_CELSIUS (8)" in metrics.what or "(16)" in metrics.what
    assert "not there: " in metrics.what
    assert lines["newest sample"].state is State.OK and "s old" in lines["newest sample"].what


@pytest.mark.services
def test_matchers_that_match_nothing_are_named(scraped: RunningPrometheus) -> None:
    line = look(scraped.url, 'cluster="another"')["metrics"]
    assert line.state is State.FAILED and "matchers" in line.fix


@pytest.mark.services
def test_matchers_that_prometheus_cannot_read_are_failed(scraped: RunningPrometheus) -> None:
    assert look(scraped.url, "cluster=")["answers"].state is State.FAILED


def holding(counts: dict[str, int], age_s: float = 3.0, off_s: float = 0.0) -> Reply:
    """A Prometheus with so many series of each name."""

    def reply(request: BaseHTTPRequestHandler) -> None:
        query = parse_qs(urlsplit(request.path).query)["query"][0]
        rows = (
            [{"metric": {"__name__": name}, "value": [1.0, str(n)]} for name, n in counts.items()]
            if query.startswith("count")
            else [{"metric": {}, "value": [1.0, str(age_s)]}]
        )
        body = orjson.dumps({"status": "success", "data": {"resultType": "vector", "result": rows}})
        request.send_response_only(200)
        if off_s != NO_CLOCK:
            request.send_header("Date", request.date_time_string(time.time() + off_s))
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    return reply


NO_CLOCK = 1e9
WHOLE = {raw: 8 for raw in CATALOGUE.alias}


def test_mixed_spellings_are_told_with_their_numbers() -> None:
    old, new = "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS"
    with served(holding({old: 900, new: 124, "up": 128, "node_load1": 128})) as url:
        line = look(url)["metrics"]
    assert f"temperature_c is spelt {old} (900), {new} (124)" in line.what


def test_everything_there_is_ok() -> None:
    with served(holding(WHOLE)) as url:
        assert {line.state for line in look(url).values()} == {State.OK}


def test_targets_without_gpus_are_failed() -> None:
    with served(holding({"up": 40, "node_load1": 40})) as url:
        lines = look(url)
    assert lines["metrics"].state is State.FAILED and "40 targets" in lines["metrics"].what


def test_an_old_newest_sample_is_a_warning() -> None:
    with served(holding(WHOLE, age_s=200.0)) as url:
        line = look(url)["newest sample"]
    assert line.state is State.WARNING and "200 s old" in line.what


@pytest.mark.parametrize(
    ("off_s", "state"), [(0, State.OK), (-10, State.WARNING), (600, State.FAILED), (NO_CLOCK, State.WARNING)]
)
def test_a_clock_that_is_off_by_more_than_ticks_wait_is_failed(off_s: float, state: State) -> None:
    with served(holding(WHOLE, off_s=off_s)) as url:
        assert look(url)["clock"].state is state


def test_nobody_there_is_one_failed_line_with_a_fix_and_no_password() -> None:
    lines = look("http://ada:sesame-open@127.0.0.1:1", timeout_s=1.0)
    assert list(lines) == ["answers"] and lines["answers"].state is State.FAILED and lines["answers"].fix
    assert "sesame-open" not in str(lines)


# --- Slurm ----------------------------------------------------------------------------------------------------------


def only(lines: Iterator[Line]) -> Line:
    (line,) = lines
    return line


@pytest.mark.services
def test_a_real_slurm_shows_version_nodes_jobs_and_our_right(cluster: SlurmCluster) -> None:
    cli = SlurmCli(str(cluster.conf))
    user, uid = host.account()
    before = cluster.run("scontrol", "-o", "show", "node")
    lines = [
        *checks.slurm_version("version", cli),
        *checks.slurm_nodes("nodes", cli),
        *checks.slurm_jobs("jobs", cli, user, uid),
        *checks.slurm_right("right", cli, user, uid, "act"),
    ]
    assert {line.state for line in lines} == {State.OK}, lines
    assert lines[1].what.startswith("4 ")
    assert [
        row.split("State=")[1].split()[0] for row in cluster.run("scontrol", "-o", "show", "node").splitlines()
    ] == [row.split("State=")[1].split()[0] for row in before.splitlines()]


@pytest.mark.services
def test_a_real_slurm_lets_no_ordinary_account_drain(cluster: SlurmCluster) -> None:
    right = only(checks.slurm_right("right", SlurmCli(str(cluster.conf)), "nobody", 65534, "propose"))
    assert right.state is State.FAILED and right.fix


def slurm(**answers: Ran | Exception) -> SlurmCli:
    return SlurmCli(run=Recorded(**answers))


def test_commands_that_are_not_installed_are_named() -> None:
    line = only(checks.slurm_version("slurm", slurm(sinfo=FileNotFoundError())))
    assert line.state is State.FAILED and "slurm-client" in line.what


@pytest.mark.parametrize(("said", "state"), [("slurm 21.08.8", State.FAILED), ("slurm-wlm 22.05.8", State.OK)])
def test_a_slurm_that_prints_no_json_is_failed(said: str, state: State) -> None:
    assert only(checks.slurm_version("slurm", slurm(sinfo=Ran(0, said, "")))).state is state


def test_a_silent_controller_is_failed_everywhere_and_changes_nothing() -> None:
    run = Recorded(scontrol=SILENT, squeue=SILENT)
    cli = SlurmCli(run=run)
    lines = [
        *checks.slurm_nodes("nodes", cli),
        *checks.slurm_jobs("jobs", cli, "ada", 1000),
        *checks.slurm_right("right", cli, "ada", 1000, "propose"),
    ]
    assert {line.state for line in lines} == {State.FAILED} and all(line.fix for line in lines)
    assert not [words for words in run.asked if "update" in words or "requeue" in words]


def test_no_nodes_are_a_warning() -> None:
    assert only(checks.slurm_nodes("nodes", slurm(scontrol=Ran(0, "", "")))).state is State.WARNING
    assert only(checks.slurm_nodes("nodes", slurm(scontrol=Ran(0, NODE, "")))).state is State.OK


def test_jobs_of_others_that_are_hidden_from_us_are_a_warning() -> None:
    answers = {"scontrol": Ran(0, CONFIG, ""), "squeue": Ran(0, '{"jobs": []}', ""), "sacctmgr": Ran(0, "None\n", "")}
    assert only(checks.slurm_jobs("jobs", slurm(**answers), "ada", 1000)).state is State.WARNING
    assert only(checks.slurm_jobs("jobs", slurm(**answers), "root", 0)).state is State.OK


@pytest.mark.parametrize(("mode", "state"), [("observe", State.OFF), ("propose", State.FAILED), ("act", State.FAILED)])
def test_the_right_to_drain_is_needed_where_something_may_be_drained(mode: Mode, state: State) -> None:
    asked = slurm(scontrol=Ran(0, ALONE, ""))
    assert only(checks.slurm_right("right", asked, "ada", 1000, mode)).state is state
