"""Numbers older than the history: which question Prometheus is asked, and how its samples come into cells."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import orjson
import pytest
import requests
from requests.adapters import BaseAdapter
from urllib3 import HTTPResponse

from backend.answers.past import LONGEST_S, past_of
from backend.answers.telemetry import Past, PastError
from backend.clients.promql import PrometheusReader
from detectors.catalogue import load

T0 = 1_800_000_000.0


class Server(BaseAdapter):
    """Answers each query with what ``says`` makes of it; keeps the queries."""

    def __init__(self, says: Callable[[str], tuple[int, Any]]) -> None:
        super().__init__()
        self._says = says
        self.asked: list[str] = []

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        query = parse_qs(urlsplit(request.url or "").query)["query"][0]
        self.asked.append(query)
        status, result = self._says(query)
        body = orjson.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})
        response = requests.Response()
        response.status_code = status
        response.raw = HTTPResponse(io.BytesIO(body), preload_content=False)
        return response

    def close(self) -> None:
        pass


def past_from(server: Server, matchers: str = "") -> Past:
    def reader() -> PrometheusReader:
        session = requests.Session()
        session.mount("http://", server)
        return PrometheusReader("http://prom:9090", session=session)

    return past_of(reader, load(), matchers)


def series(uuid: str, label: str, values: dict[float, float]) -> dict[str, Any]:
    labels = {"__name__": "DCGM_FI_DEV_POWER_USAGE", label: uuid, "Hostname": "n1", "gpu": "0"}
    return {"metric": labels, "values": [[at, str(value)] for at, value in values.items()]}


def test_samples_come_into_cells_with_their_extremes() -> None:
    values = {T0 + 60: 600.0, T0 + 120: 90.0, T0 + 300: 600.0, T0 + 900: 610.0}
    server = Server(lambda query: (200, [series("GPU-a", "UUID", values)]))
    found = past_from(server, 'cluster="main",')(("GPU-a", "GPU-b"), "power_w", T0, T0 + 900)
    assert found.times.tolist() == [T0, T0 + 300, T0 + 600]
    assert found.least[0, 0] == 90 and found.most[0, 0] == 600 and found.mean[0, 0] == 430
    assert np.isnan(found.mean[1, 0]) and found.mean[2, 0] == 610
    assert np.isnan(found.mean[:, 1]).all()
    (query,) = server.asked
    assert 'UUID=~"GPU-a|GPU-b",cluster="main"}' in query and "DCGM_FI_DEV_POWER_USAGE" in query


def test_other_spellings_of_the_label_are_tried() -> None:
    told = [series("S/N.1", "serial_number", {T0 + 60: 1.0})]
    server = Server(lambda query: (200, told if "serial_number" in query else []))
    assert past_from(server)(("S/N.1",), "power_w", T0, T0 + 300).mean.tolist() == [[1.0]]
    assert 'S/N\\\\.1"' in server.asked[-1]


def test_a_rate_and_a_gpu_without_a_uuid_are_not_asked_for() -> None:
    server = Server(lambda query: (200, []))
    assert np.isnan(past_from(server)(("GPU-a",), "pcie_replay", T0, T0 + 300).mean).all()
    assert np.isnan(past_from(server)(("pci:n1:9b",), "power_w", T0, T0 + 300).mean).all()
    assert server.asked == []


def test_a_month_is_asked_for_a_week_at_most() -> None:
    server = Server(lambda query: (200, []))
    found = past_from(server)(("GPU-a",), "power_w", T0 - 30 * 86_400, T0)
    assert found.times[0] == T0 - LONGEST_S
    assert f"[{round(LONGEST_S * 1000)}ms]" in server.asked[0]


def test_a_server_that_fails_is_told_in_its_words() -> None:
    with pytest.raises(PastError, match="status 503"):
        past_from(Server(lambda query: (503, [])))(("GPU-a",), "power_w", T0, T0 + 300)
