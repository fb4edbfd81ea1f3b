"""Figures as JSON and tables as CSV at their own addresses."""

from __future__ import annotations

import csv
import io

import plotly.graph_objects as go
import pytest

from backend.registry import Parts
from tests.backend.web.conftest import Reader, client_of

FIGURES = ("/figures/fleet.json", "/figures/healthy.json", "/figures/sources.json", "/figures/incidents/1.json")
TABLES = ("/figures/fleet.csv", "/figures/healthy.csv", "/figures/sources.csv", "/figures/incidents/1.csv")


@pytest.mark.parametrize("path", FIGURES)
@pytest.mark.parametrize("look", ["theme=light", "theme=dark&narrow=1", ""])
def test_every_figure_is_one_that_plotly_knows(reader: Reader, path: str, look: str) -> None:
    body = reader("").get(f"{path}?{look}").json()
    go.Figure(body)
    assert body["layout"]["uirevision"] == "keep"


@pytest.mark.parametrize("path", FIGURES)
def test_a_figure_that_did_not_change_costs_no_bytes(reader: Reader, path: str) -> None:
    client = reader("")
    tag = client.get(path).headers["etag"]
    again = client.get(path, headers={"If-None-Match": tag})
    assert again.status_code == 304 and not again.content


@pytest.mark.parametrize("path", [*TABLES, "/figures/devices.csv"])
def test_every_table_is_a_sheet_with_heads(reader: Reader, path: str) -> None:
    got = reader("").get(path)
    rows = list(csv.reader(io.StringIO(got.text)))
    assert got.headers["content-type"].startswith("text/csv") and "attachment" in got.headers["content-disposition"]
    assert len(rows) > 1 and len({len(row) for row in rows}) == 1


def test_names_come_once_and_follow_the_map(reader: Reader) -> None:
    client = reader("")
    version = client.get("/figures/fleet.json").json()["layout"]["meta"]["map"]["names"]
    got = client.get(f"/figures/names.json?v={version}")
    assert "immutable" in got.headers["cache-control"]
    assert got.json()["blocks"][1][1][3] == "gpu-012"


def test_one_rack_can_be_seen_alone(reader: Reader) -> None:
    meta = reader("").get("/figures/fleet.json?rack=rack-2").json()["layout"]["meta"]["map"]
    assert meta["columns"] == 8


def test_an_empty_fleet_has_figures_or_a_clear_no(bare: Parts) -> None:
    client = client_of(bare)
    assert client.get("/figures/fleet.json").status_code == 200
    assert client.get("/figures/sources.json").status_code == 200
    assert client.get("/figures/healthy.json").status_code == 404
    assert client.get("/figures/incidents/7.json").status_code == 404
