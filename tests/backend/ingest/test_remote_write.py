"""Remote write: what a correct sender means, and what a broken or hostile one gets told."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import cramjam
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.facts import Batch
from backend.ingest.base import SourceError
from backend.ingest.labels import Targets
from backend.ingest.remote_write import decode, unpacked
from detectors.catalogue import load
from tests.services.exporter import GPUS, exporter, uuid
from tests.services.prometheus import prometheus, until

CATALOGUE = load()
T = 1_770_000_000
MAX = 1_000_000
STALE = struct.unpack("<d", (0x7FF0000000000002).to_bytes(8, "little"))[0]


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def chunk(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def series(labels: dict[str, str], samples: list[tuple[float, float]], more: bytes = b"") -> bytes:
    said = b"".join(chunk(1, chunk(1, k.encode()) + chunk(2, v.encode())) for k, v in labels.items())
    given = b"".join(
        chunk(2, (b"\x09" + struct.pack("<d", v) if v else b"") + b"\x10" + varint(round(t * 1000))) for t, v in samples
    )
    return chunk(1, said + given + more)


def packed(*parts: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(b"".join(parts)))


def read(*parts: bytes) -> Batch:
    return decode(packed(*parts), CATALOGUE, MAX)


GPU = {"__name__": "DCGM_FI_DEV_GPU_TEMP", "UUID": "GPU-a", "gpu": "3", "Hostname": "gpu-0001", "instance": "x:9400"}


def test_a_push_becomes_series_under_canonical_names() -> None:
    new = GPU | {"__name__": "DCGM_FI_DEV_BOARD_POWER_WATTS"}
    batch = read(series(GPU, [(T, 51.5), (T + 15.25, 52.0)]), series(new, [(T, 600.0)]))
    temp, power = batch.series
    assert (temp.metric, power.metric) == ("temperature_c", "power_w")
    assert temp.times.tolist() == [T, T + 15.25] and temp.values.tolist() == [51.5, 52.0]
    assert temp.label.uuid == "GPU-a" and temp.label.node == "gpu-0001"


def test_a_push_covers_no_time() -> None:
    batch = read(series(GPU, [(T, 51.5), (T + 15, 52.0)]))
    assert batch.start == batch.end == T + 15


def test_a_series_that_ended_is_missing_from_there_on() -> None:
    batch = read(series(GPU, [(T, 51.5), (T + 15, STALE)]))
    assert np.isnan(batch.series[0].values[1]) and not batch.dropped


def test_zero_is_a_value_though_it_is_left_out_on_the_wire() -> None:
    assert read(series(GPU, [(T, 0.0)])).series[0].values.tolist() == [0.0]


def test_samples_out_of_order_are_put_in_order() -> None:
    batch = read(series(GPU, [(T + 30, 3.0), (T, 1.0), (T + 15, 2.0), (T + 15, 9.0)]))
    assert batch.series[0].values.tolist() == [1.0, 2.0, 3.0]


def test_metadata_exemplars_and_histograms_are_passed_over() -> None:
    metadata = chunk(3, b"\x08\x02" + chunk(2, b"DCGM_FI_DEV_GPU_TEMP"))
    others = chunk(3, b"\x11" + bytes(8)) + chunk(4, b"\x0d" + bytes(4))
    assert read(metadata, series(GPU, [(T, 1.0)], others)).series[0].values.tolist() == [1.0]


def test_unknown_metrics_are_counted() -> None:
    batch = read(series({"__name__": "go_goroutines"}, [(T, 1.0), (T + 1, 1.0)]))
    assert not batch.series and batch.dropped == {"metric not in the catalogue": 2}


def test_a_label_that_is_no_text_costs_its_series() -> None:
    bad = chunk(1, chunk(1, chunk(1, b"__name__") + chunk(2, b"\xff\xfe")) + chunk(2, b"\x10" + varint(T)))
    batch = read(bad, series(GPU, [(T, 1.0)]))
    assert len(batch.series) == 1 and batch.dropped == {"label that is not UTF-8": 1}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "the snappy length is cut off"),
        (b"\xff" * 11, "the snappy length is no varint"),
        (b"\x0a\x00\x00", "no snappy block"),
        (b'{"streams": []}', "snappy"),
        (packed(series(GPU, [(T, 1.0)])[:-3]), "are left"),
        (packed(b"\x0f"), "wire type 7"),
        (packed(b"\x02\x00"), "field number 0"),
        (packed(b"\x0a"), "the length of field 1 is cut off"),
        (packed(chunk(4, b"symbol") + chunk(5, b"")), "remote write 2.0"),
    ],
)
def test_bad_bytes_are_refused_with_what_and_where(body: bytes, said: str) -> None:
    with pytest.raises(SourceError, match=said) as caught:
        decode(body, CATALOGUE, MAX)
    assert caught.value.permanent and "byte" in str(caught.value)


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    bomb = bytes(cramjam.snappy.compress_raw(bytes(50_000_000)))
    assert len(bomb) < 3_000_000
    with pytest.raises(SourceError, match="would unpack to 50000000 bytes, the limit is 1000000"):
        decode(bomb, CATALOGUE, MAX)
    with pytest.raises(SourceError, match="would unpack"):
        unpacked(varint(2**60) + b"\x00", MAX)


def test_an_empty_request_is_fine() -> None:
    assert read(b"").series == ()


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_but_a_source_error(body: bytes) -> None:
    for tried in (body, packed(body)):
        try:
            decode(tried, CATALOGUE, MAX)
        except SourceError as error:
            assert error.permanent


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(-(2**40), 2**42), st.floats(-40, 150, allow_nan=False, width=32)),
        min_size=1,
        max_size=20,
        unique_by=lambda pair: pair[0],
    ),
    st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,19}", fullmatch=True),
)
def test_what_was_sent_is_what_is_read(samples: list[tuple[int, float]], host: str) -> None:
    batch = read(series(GPU | {"Hostname": host}, [(ms / 1000, v) for ms, v in samples]))
    want = sorted((ms / 1000, v) for ms, v in samples)
    assert [tuple(pair) for pair in zip(batch.series[0].times, batch.series[0].values, strict=True)] == want
    assert batch.series[0].label.node == host


# --- a real sender ---------------------------------------------------------------------------------------------------


@contextmanager
def sink(bodies: list[bytes]) -> Iterator[str]:
    """Takes every push; its URL."""

    class Takes(BaseHTTPRequestHandler):
        def log_message(self, *words: object) -> None:
            """Silent."""

        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Takes)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/api/v1/ingest/remote-write"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


@pytest.mark.services
def test_what_a_real_prometheus_pushes_is_read_whole(tmp_path: Path) -> None:
    bodies: list[bytes] = []
    targets = Targets()
    seen: dict[tuple[str, str], float] = {}
    missing: set[str] = set()

    def taken() -> bool:
        while bodies:
            for one in decode(bodies.pop(0), CATALOGUE, MAX * 20, targets).series:
                seen[(one.metric, one.label.uuid or one.label.node)] = float(one.values[-1])
                missing.update({one.label.uuid} if np.isnan(one.values[-1]) else ())
        return True

    with (
        sink(bodies) as url,
        exporter(2) as (port, switches),
        prometheus(tmp_path, [f"127.0.0.1:{port}"], remote_write=url),
    ):
        want = {("temperature_c", uuid(n, g)) for n in switches.nodes for g in range(GPUS)}
        want |= {("node_up", n) for n in switches.nodes} | {("xid_last", uuid("gpu-0001", 0))}
        until(lambda: taken() and want <= set(seen), 20, lambda: f"missing {sorted(want - set(seen))[:5]}")
        assert seen[("node_up", "gpu-0001")] == 1.0 and 50 < seen[("temperature_c", uuid("gpu-0002", 7))] < 65
        switches.drop_gpu("gpu-0001", 3)  # Prometheus marks its series stale
        until(lambda: taken() and uuid("gpu-0001", 3) in missing, 20)
        assert missing == {uuid("gpu-0001", 3)}


@pytest.mark.parametrize(
    "block",
    [b"\x0a\x02\x12\x00" * 300_000, chunk(1, b"\x12\x00" * 600_000), chunk(1, b"\x0a\x00" * 1_000 + b"\x12\x00")],
    ids=["series", "samples", "labels"],
)
def test_a_small_block_cannot_fill_the_memory_with_empty_parts(block: bytes) -> None:
    """Repeats compress to a twentieth, and each costs hundreds of bytes here."""
    with pytest.raises(SourceError, match="max_samples_per_send") as raised:
        decode(bytes(cramjam.snappy.compress_raw(block)), CATALOGUE, 10_000_000)
    assert raised.value.permanent
