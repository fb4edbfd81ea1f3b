"""The lines on an incident's page: drawn from the history, and words where there are none."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from backend.answers.telemetry import PastError
from backend.clock import unix
from backend.history import History, Range
from backend.registry import Parts
from detectors.model import Tick
from tests.backend.web.conftest import client_of
from tests.backend.web.site import uuid

METRICS = {"temperature_c": 61.0, "power_w": 640.0, "sm_clock_mhz": 1755.0}
#: The incident of tales.lost_gpu: GPU 3 of the twelfth node, lost 22 minutes ago.
MINE = uuid(11, 3)
LOST_S = 22 * 60.0
MINUS = 60 * 60.0


def lived(parts: Parts, begin_s: float = MINUS) -> Parts:
    """Telemetry of the whole site from ``begin_s`` before now until now; the lost GPU goes silent, after one spike."""
    watch, now = parts.watches["main"], unix(parts.clock.now())
    assert watch.history is not None
    fleet = watch.inventory.fleet
    slot = fleet.slots["gpu", MINE]
    for ago in np.arange(begin_s, -1, -60.0):
        values = {}
        for name, level in METRICS.items():
            array = np.full(len(fleet.axes["gpu"]), level, np.float32)
            array[slot] = np.nan if ago <= LOST_S else level * (1.5 if ago == LOST_S + 240 else 1.1)
            values["gpu", name] = array
        watch.history.add(Tick(now - ago, values), fleet)
    return parts


def figure(parts: Parts, **query: Any) -> dict[str, Any]:
    found: dict[str, Any] = client_of(parts).get("/figures/incidents/1.json", params=query).json()
    go.Figure(found)
    return found


def titles(found: dict[str, Any]) -> list[str]:
    return [note["text"].replace("\u00a0", " ") for note in found["layout"]["annotations"]]


def page(parts: Parts) -> str:
    return client_of(parts).get("/incidents/1").text.replace("\u00a0", " ")


def sheet(parts: Parts) -> list[str]:
    rows = csv.reader(io.StringIO(client_of(parts).get("/figures/incidents/1.csv").text))
    return [row[2] for row in rows if row[1].startswith("Telemetry")]


def test_an_incident_shows_its_gpu_beside_its_peers(parts: Parts) -> None:
    found = figure(lived(parts))
    said = titles(found)
    for name in ("Temperature, °C", "Power, W", "SM clock, MHz"):
        assert f"{name} · band: 127 peers of job 41207" in said
    assert sum("no data since" in text for text in said) == 3
    lines = [t for t in found["data"] if t.get("mode") == "lines" and "hovertemplate" in t]
    assert len(lines) == 3 and len([t for t in found["data"] if t.get("fill") == "tonexty"]) == 3
    values = np.frombuffer(base64.b64decode(lines[1]["y"]["bdata"]), "f4")
    assert np.nanmax(values) == 960 and np.isnan(values).any()


@pytest.mark.parametrize("look", [{"theme": "dark", "narrow": 1}, {"theme": "light"}])
def test_no_line_leaves_its_lane(parts: Parts, look: dict[str, Any]) -> None:
    layout = figure(lived(parts), **look)["layout"]
    tops = [layout[name]["range"][1] for name in layout if name.startswith("yaxis") and layout[name]["range"][1] > 1]
    assert [top > value * 1.5 for top, value in zip(tops, METRICS.values(), strict=True)] == [True] * 3


def test_the_table_and_the_page_tell_the_same(parts: Parts) -> None:
    text = page(lived(parts))
    assert "the band holds nine in ten of the peers" in text and "nothing older" not in text
    rows = sheet(parts)
    assert any(row.startswith("temperature 72 °C (67.1 to 91.5), peers 61 to 61; power 755 W") for row in rows)
    assert rows[-1].startswith("temperature no data, peers 61 to 61")


def test_numbers_from_before_the_history_are_said_to_be_nowhere(parts: Parts) -> None:
    lived(parts, 900.0)
    assert "They begin at 11:40; nothing older is kept" in page(parts)
    assert {"not kept", "no data"} <= set(titles(figure(parts)))


def test_an_empty_history_is_said_to_be_empty(parts: Parts) -> None:
    assert "No temperature, power or clock is kept yet" in page(parts)
    assert not any("Temperature" in text for text in titles(figure(parts)))


def warm(ids: Sequence[str], metric: str, start: float, end: float) -> Range:
    times = np.arange(start // 300 * 300, end, 300)
    values = np.full((times.size, len(ids)), 55, np.float32)
    return Range(times, values, values, values)


def test_prometheus_has_what_is_older(parts: Parts) -> None:
    asked = replace(lived(parts, 900.0), past={"main": warm})
    assert "Before 11:40 they come from Prometheus" in page(asked)
    assert "not kept" not in titles(figure(asked))
    assert any("temperature 55 °C (55 to 55);" in row for row in sheet(asked))


def test_the_page_never_waits_for_prometheus_and_the_figure_says_when_it_fails(parts: Parts) -> None:
    calls: list[str] = []

    def fails(ids: Sequence[str], metric: str, start: float, end: float) -> Range:
        calls.append(metric)
        raise PastError("http://prom:9090: no whole answer within 10 s.")

    asked = replace(lived(parts, 900.0), past={"main": fails})
    assert "come from Prometheus" in page(asked) and not calls
    assert figure(asked) and calls


def test_another_process_reads_what_this_one_writes(parts: Parts) -> None:
    watch = lived(parts).watches["main"]
    watch.history = History.open(parts.settings.store.folder, "main")
    assert len(sheet(parts)) > 4
