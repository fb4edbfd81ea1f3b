"""The reader against servers that are honest, slow, lying and gone."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import numpy as np
import orjson
import pytest

from backend.clients.promql import Answer, PromError, PrometheusReader, without_password

END = 1_770_000_000.0
Reply = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def served(reply: Reply) -> Iterator[str]:
    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *words: object) -> None:
            """Silent."""

        def do_GET(self) -> None:
            reply(self)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def says(body: bytes, status: int = 200, **headers: str) -> Reply:
    def reply(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)

    return reply


def matrix(*series: object, **more: object) -> bytes:
    return orjson.dumps({"status": "success", "data": {"resultType": "matrix", "result": series}, **more})


def one(*pairs: object, **labels: str) -> dict[str, object]:
    return {"metric": {"__name__": "up", **labels}, "values": pairs}


def ask(reply: Reply, timeout_s: float = 5.0, max_bytes: int = 10_000_000) -> Answer:
    with served(reply) as url:
        return PrometheusReader(url, timeout_s=timeout_s, max_bytes=max_bytes).query_range_raw("up", END - 30, END)


def refused(reply: Reply, timeout_s: float = 5.0, max_bytes: int = 10_000_000) -> PromError:
    with pytest.raises(PromError) as caught:
        ask(reply, timeout_s, max_bytes)
    return caught.value


# --- honest ----------------------------------------------------------------------------------------------------------


def test_samples_come_with_their_own_times() -> None:
    """traps.md 19: values are text, and become numbers before anything is done with them."""
    answer = ask(says(matrix(one([END - 15.211, "26.82068965517243"], [END, "26.82068965517243"], instance="a"))))
    (series,) = answer.series
    assert series.labels == {"__name__": "up", "instance": "a"}
    assert series.times.tolist() == [END - 15.211, END]
    assert series.values.mean() == 26.82068965517243
    assert not answer.rejected


def test_nan_and_infinity_come_through_as_such() -> None:
    (series,) = ask(says(matrix(one([END - 3, "NaN"], [END - 2, "+Inf"], [END - 1, "-Inf"])))).series
    assert np.isnan(series.values[0]) and series.values[1:].tolist() == [np.inf, -np.inf]


def test_what_cannot_be_read_costs_itself_and_is_counted() -> None:
    answer = ask(
        says(
            matrix(
                one([END - 4, "1"], ["2021-07-29T11:47:08ZZ", "2"], [END - 3, 3], [END - 2, "four"], [END], [END, "5"]),
                {"metric": {"__name__": 5}, "values": [[END, "1"]]},
                {"metric": {}},
                "series",
            )
        )
    )
    (series,) = answer.series
    assert series.values.tolist() == [1.0, 5.0]
    assert answer.rejected == {
        "unreadable time": 1,
        "unreadable value": 2,
        "malformed sample": 1,
        "malformed series": 3,
    }


def test_the_left_end_of_the_span_is_left_out() -> None:
    (series,) = ask(says(matrix(one([END - 30, "1"], [END - 29.999, "2"])))).series
    assert series.values.tolist() == [2.0]


def test_the_query_is_a_range_at_one_instant_and_asks_for_no_gzip() -> None:
    seen: list[tuple[dict[str, list[str]], dict[str, str]]] = []

    def reply(request: BaseHTTPRequestHandler) -> None:
        seen.append((parse_qs(urlsplit(request.path).query), dict(request.headers)))
        says(matrix())(request)

    with served(reply) as url:
        PrometheusReader(url + "/", {"X-Scope-OrgID": "team"}).query_range_raw("up", END - 30, END)
    ((query, headers),) = seen
    assert query["query"] == ["up[30000ms]"] and query["time"] == [f"{END:.3f}"]
    assert headers["Accept-Encoding"] == "identity" and headers["X-Scope-OrgID"] == "team"


def test_a_server_that_reached_only_some_of_its_stores_is_noticed() -> None:
    answer = ask(says(matrix(one([END, "1"]), warnings=["store gateway 2: unavailable"])))
    assert answer.partial == ("store gateway 2: unavailable",)


def test_an_empty_answer_is_an_answer() -> None:
    assert ask(says(matrix())).series == ()


# --- lying -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status", "permanent", "said"),
    [
        (b"<html><title>Sign in</title></html>", 200, True, "no JSON"),
        (b'{"status":"success","data":{"result":[', 200, False, "truncated JSON"),
        (b"[]", 200, False, "JSON"),
        (b"", 200, True, "no JSON"),
        (b'{"status":"success"}', 200, True, "no query result"),
        (b'{"status":"success","data":null}', 200, True, "no query result"),
        (b'{"status":"success","data":{"result":{"a":1}}}', 200, True, "no list of series"),
        (b'{"status":"success","data":{"result":[{"metric":{},"value":[1,"2"]}]}}', 200, True, "no range vector"),
        (b'{"status":"error","errorType":"bad_data","error":"parse error"}', 400, True, "bad_data: parse error"),
        (b'{"status":"error","errorType":"execution","error":"too many samples"}', 422, True, "too many samples"),
        (b'{"status":"error","errorType":"unavailable","error":"starting"}', 503, False, "starting"),
        (b"upstream gone", 502, False, "status 502"),
        (b"no", 401, True, "token"),
        (b"404 page not found", 404, True, "/api/v1"),
        (b'{"status":"error"}', 429, False, "interval_s"),
    ],
)
def test_a_wrong_answer_is_told_with_place_words_and_fix(body: bytes, status: int, permanent: bool, said: str) -> None:
    error = refused(says(body, status))
    assert said in str(error) and "http://127.0.0.1" in str(error)
    assert error.permanent is permanent


def test_a_redirect_is_told_and_not_followed() -> None:
    error = refused(says(b"", 302, Location="https://login.example/?token=secret"))
    assert "https://login.example" in str(error) and "secret" not in str(error) and error.permanent


def test_an_endless_answer_is_cut_off() -> None:
    error = refused(says(matrix(*[one([END, "1"])] * 100_000)), max_bytes=100_000)
    assert "over 100000 bytes" in str(error)


# --- slow ------------------------------------------------------------------------------------------------------------


def dripping(head: bytes, drop: bytes, every_s: float = 0.05, for_s: float = 6.0) -> Reply:
    def reply(request: BaseHTTPRequestHandler) -> None:
        try:
            request.wfile.write(head)
            until = time.monotonic() + for_s
            while time.monotonic() < until:
                request.wfile.write(drop)
                request.wfile.flush()
                time.sleep(every_s)
        except OSError:
            pass

    return reply


def silent(request: BaseHTTPRequestHandler) -> None:
    time.sleep(3)


@pytest.mark.parametrize(
    "reply",
    [
        silent,
        dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b" "),
        dripping(b"HTTP/1.1 200 OK\r\n", b"X"),
        dripping(b"", b"H"),
    ],
    ids=["silent", "dripping body", "dripping header", "dripping status"],
)
def test_a_slow_server_is_given_up_in_time(reply: Reply) -> None:
    began = time.monotonic()
    error = refused(reply, timeout_s=0.5)
    assert time.monotonic() - began < 2.5
    assert "within 0.5 s" in str(error) and not error.permanent


def test_a_query_that_hangs_is_not_joined_by_others() -> None:
    with served(dripping(b"HTTP/1.1 200 OK\r\n", b"X")) as url:
        reader = PrometheusReader(url, timeout_s=0.3)
        for said in ("within 0.3 s", "still hangs", "still hangs"):
            with pytest.raises(PromError, match=said):
                reader.query_range_raw("up", END - 30, END)


# --- gone ------------------------------------------------------------------------------------------------------------


def test_a_server_that_is_not_there_is_told_without_credentials() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    reader = PrometheusReader(f"http://admin:hunter2@127.0.0.1:{port}/prom", timeout_s=2)
    with pytest.raises(PromError) as caught:
        reader.query_range_raw("up", END - 30, END)
    words = str(caught.value)
    assert f"http://127.0.0.1:{port}/prom" in words and "refused" in words
    assert "hunter2" not in words and "admin" not in words and not caught.value.permanent


def test_a_server_that_hangs_up_is_told() -> None:
    def reply(request: BaseHTTPRequestHandler) -> None:
        request.connection.shutdown(socket.SHUT_RDWR)
        request.close_connection = True

    assert not refused(reply).permanent


def test_a_url_that_is_none_is_permanent() -> None:
    with pytest.raises(PromError) as caught:
        PrometheusReader("prometheus:9090").query_range_raw("up", END - 30, END)
    assert caught.value.permanent


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://user:p%40ss@prom:9090/path/?token=x#y", "http://prom:9090/path"),
        ("https://prom", "https://prom"),
    ],
)
def test_urls_are_shown_without_secrets(url: str, shown: str) -> None:
    assert without_password(url) == shown


# --- instants and clocks --------------------------------------------------------------------------------------------


def vector(*series: object) -> bytes:
    return orjson.dumps({"status": "success", "data": {"resultType": "vector", "result": series}})


def test_an_instant_query_gives_labels_and_values() -> None:
    with served(says(vector({"metric": {"job": "dcgm"}, "value": [END, "12"]}))) as url:
        assert PrometheusReader(url, timeout_s=5).query("count(up)") == (({"job": "dcgm"}, 12.0),)


@pytest.mark.parametrize(
    "one", [{"metric": {}, "values": [[END, "1"]]}, {"value": [END, "1"]}, "x", {"metric": {"a": 1}}]
)
def test_an_answer_that_is_no_instant_vector_is_refused(one: object) -> None:
    with served(says(vector(one))) as url, pytest.raises(PromError, match="no instant vector"):
        PrometheusReader(url, timeout_s=5).query("up")


@pytest.mark.parametrize(("off_s", "seen"), [(0, 0), (120, 120), (-3600, -3600)])
def test_the_clock_of_the_server_is_told_from_its_date(off_s: int, seen: int) -> None:
    def reply(request: BaseHTTPRequestHandler) -> None:
        request.send_response_only(200)
        request.send_header("Date", request.date_time_string(time.time() + off_s))
        request.send_header("Content-Length", str(len(vector())))
        request.end_headers()
        request.wfile.write(vector())

    with served(reply) as url:
        reader = PrometheusReader(url, timeout_s=5)
        reader.query("up")
    ahead_s = reader.ahead_s
    assert ahead_s is not None and abs(ahead_s - seen) < 5
