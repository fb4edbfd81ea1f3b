"""The poster speaks to the public routes only, keeps what was not taken, and waits when asked to."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson
import pytest
import requests
from requests.adapters import BaseAdapter

from backend.clock import ManualClock
from backend.ingest.remote_write import decode
from backend.simulate.demo import Simulation, live
from backend.simulate.poster import Poster
from backend.simulate.remote_write import CARD_NAMES, NODE_NAMES, Encoder, varint
from detectors.catalogue import load
from detectors.kernel.lines import parse

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


class Server(BaseAdapter):
    """Stands where the network would be: answers what it is told, and remembers what it was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, Any]] = []
        self.answers: dict[str, tuple[int, str]] = {}
        self.away = False

    def send(self, request: requests.PreparedRequest, **_: object) -> requests.Response:  # type: ignore[override]
        if self.away:
            raise requests.ConnectionError("nobody there")
        route = urlsplit(str(request.url)).path.removeprefix("/api/v1/ingest/")
        response = requests.Response()
        response.status_code, retry = self.answers.get(route, (200, ""))
        response.headers["Retry-After"] = retry
        response._content = b"{}"
        body = request.body if isinstance(request.body, bytes) else b""
        if response.status_code < 300:
            self.seen.append((route, body if route == "remote-write" else orjson.loads(body)))
        return response

    def close(self) -> None:
        return None

    def rows(self, route: str) -> list[dict[str, Any]]:
        return [row for name, rows in self.seen if name == route for row in rows]


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON)


@pytest.fixture
def simulation(clock: ManualClock) -> Simulation:
    return Simulation(7, clock)


@pytest.fixture
def poster(server: Server, simulation: Simulation) -> Poster:
    session = requests.Session()
    session.mount("http://", server)
    return Poster("http://127.0.0.1:1/", simulation.world.site, session=session)


def turn(clock: ManualClock, simulation: Simulation, poster: Poster, times: int = 1) -> None:
    for _ in range(times):
        clock.set(clock.now() + timedelta(seconds=3))
        live(simulation, poster)


def test_topology_jobs_lines_and_telemetry_go_out_in_this_order(
    clock: ManualClock, simulation: Simulation, poster: Poster, server: Server
) -> None:
    turn(clock, simulation, poster, 5)
    routes = list(dict.fromkeys(route for route, _ in server.seen))
    told = {"topology", "jobs", "logs", "steps", "checkpoints", "remote-write"}
    assert routes[:2] == ["topology", "jobs"] and set(routes) == told
    assert Counter(route for route, _ in server.seen)["topology"] == 1
    assert len(server.seen[0][1]["nodes"]) == 48
    names = {row["run"].partition("-part")[0] for row in server.rows("jobs")}
    assert names == {run.name for run in simulation.world.site.runs}
    assert any(" 79, " in row["line"] for row in server.rows("logs"))
    assert poster.error == "" and poster.refused == 0


def test_rows_outlive_a_server_that_is_away_and_the_newcomer_hears_everything(
    clock: ManualClock, simulation: Simulation, poster: Poster, server: Server
) -> None:
    turn(clock, simulation, poster, 2)
    server.away = True
    turn(clock, simulation, poster, 15)
    assert "ConnectionError" in poster.error
    server.away, server.seen = False, []
    turn(clock, simulation, poster, 1)
    assert [route for route, _ in server.seen][:2] == ["topology", "jobs"]
    assert any(" 79, " in row["line"] for row in server.rows("logs"))
    assert {row["job"] for row in server.rows("jobs")} >= set(simulation.world.scheduler.jobs)


def test_a_busy_server_is_left_alone_for_as_long_as_it_asked(
    clock: ManualClock, simulation: Simulation, poster: Poster, server: Server
) -> None:
    server.answers["logs"] = (429, "30")
    turn(clock, simulation, poster, 6)
    before = len(server.seen)
    server.answers.clear()
    turn(clock, simulation, poster, 2)
    assert len(server.seen) == before and "429" in poster.error
    assert poster.refused == 0


def test_rows_the_server_will_never_take_are_counted_and_let_go(
    clock: ManualClock, simulation: Simulation, poster: Poster, server: Server
) -> None:
    server.answers["logs"] = (422, "")
    turn(clock, simulation, poster, 5)
    assert poster.refused > 0 and server.rows("logs") == []
    assert any(route == "remote-write" for route, _ in server.seen)


def test_the_cluster_is_named_where_the_server_has_several(clock: ManualClock, simulation: Simulation) -> None:
    asked: list[str] = []

    class Listening(Server):
        def send(self, request: requests.PreparedRequest, **more: object) -> requests.Response:  # type: ignore[override]
            asked.append(str(request.url))
            return super().send(request, **more)

    session = requests.Session()
    session.mount("http://", Listening())
    turn(clock, simulation, Poster("http://127.0.0.1:1", simulation.world.site, "demo", session))
    assert asked and all(parse_qs(urlsplit(url).query)["cluster"] == ["demo"] for url in asked)


def test_our_own_decoder_reads_every_series_of_the_body(clock: ManualClock, simulation: Simulation) -> None:
    clock.set(clock.now() + timedelta(seconds=3))
    report = simulation.step()
    encoder = Encoder(simulation.world.site)
    batch = decode(encoder.body(report.at, report.readings), load(), 50_000_000)
    gpus = {series.label.uuid for series in batch.series if series.label.axis == "gpu"}
    assert gpus == {card.uuid for card in simulation.world.site.cards}
    per_metric = Counter(series.metric for series in batch.series)
    assert sum(n == 384 for n in per_metric.values()) == len(CARD_NAMES)
    assert not [reason for reason in batch.dropped if "UTF-8" in reason]
    temperature = next(s for s in batch.series if s.metric == "temperature_c")
    assert temperature.times[0] == pytest.approx(report.at, abs=0.001)
    assert {series.label.node for series in batch.series if series.metric == "node_load1"} == {
        machine.name for machine in simulation.world.site.machines
    }


def test_every_posted_name_is_one_the_catalogue_knows() -> None:
    known = load().alias
    names = [name for pair in CARD_NAMES.values() for name in pair] + list(NODE_NAMES.values()) + ["up"]
    assert [name for name in names if name not in known] == []


def test_kernel_lines_carry_their_code_and_chatter_carries_none(clock: ManualClock, simulation: Simulation) -> None:
    codes: Counter[str] = Counter()
    for _ in range(45):
        clock.set(clock.now() + timedelta(seconds=3))
        for row in simulation.step().lines:
            found = parse(str(row["line"]))
            codes[f"{found.namespace} {found.code}" if found is not None else "none"] += 1
    xids = {f"xid {code}" for code in (79, 154, 31, 43, 48, 63, 94, 145, 149)}
    assert set(codes) == xids | {"none", "aer slot_down", "nfs answers"}  # a server that answers again is no fault


@pytest.mark.parametrize(
    ("number", "wire"), [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**35, "808080808001")]
)
def test_varints_are_those_of_the_protobuf_guide(number: int, wire: str) -> None:
    assert varint(number).hex() == wire
