"""One verdict, and a question about 1,000 nodes, against Prometheus answering ``up{node=...}`` in the same run.

Both servers hold to one core, the client to another; both are sent fresh telemetry all the time. Ours checks a token,
gives an ETag and runs its ticks in the same process.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlencode

import cramjam
import numpy as np

from backend import pipeline
from backend.clock import SystemClock, unix
from backend.facts import Batch, GpuFacts, NodeFacts
from backend.model.actions import Exclusion
from backend.registry import build
from backend.security import tokens
from backend.settings import Settings, Store
from backend.simulate.remote_write import encode_labels, series, varint
from backend.store import people
from benchmarks.remote_write import cpu_s, receiver, served

NODES, EXCLUDED = 1000, 50
#: Metrics of each GPU that are pushed, and how often, in s.
METRICS, PUSH_S = 4, 5.0
CONNECTIONS, ROUNDS, SLICE_S = 32, 9, 1.0
NAMES = [f"gpu-{n:04}" for n in range(NODES)]


@dataclass(frozen=True, slots=True)
class Rates:
    """Requests a second of each round, ours and Prometheus's; and what one cost either server, in CPU seconds."""

    promise: str
    ours: tuple[float, ...]
    peer: tuple[float, ...]
    p99_ms: float
    peer_p99_ms: float
    cpu_s: float
    peer_cpu_s: float

    def __str__(self) -> str:
        q1, median, q3 = np.percentile(np.divide(self.ours, self.peer), (25, 50, 75))
        each = f"{np.median(self.ours):,.0f} against {np.median(self.peer):,.0f} a second"
        late = f"p99 {self.p99_ms:.3g} ms against {self.peer_p99_ms:.3g} ms"
        spread = f"quartiles {q1:.3g} to {q3:.3g}, n = {len(self.ours)}"
        cost = f"its CPU a request is {self.peer_cpu_s / self.cpu_s:.3g} x ours, ticks and all"
        return f"{self.promise}: {median:.3g} x the requests of Prometheus ({spread}; {each}; {late}; {cost})"


def run() -> Iterator[Rates]:
    with tempfile.TemporaryDirectory(prefix="watchkeeper-bench-") as path:
        folder = Path(path)
        token = filled(folder / "kept")
        with served(folder) as (pid, port), receiver(folder) as (peer_pid, peer_port), pushing(port, peer_port):
            aside()
            for promise, ours, peer, connections in questions(token):
                yield raced(promise, (pid, port, ours), (peer_pid, peer_port, peer), connections)


def questions(token: str) -> Iterator[tuple[str, list[bytes], list[bytes], int]]:
    """Each promise, with the requests of either side that are sent in turn."""
    who = f"Authorization: Bearer {token}\r\n"
    one = [get(f"/api/v1/nodes/{name}", who) for name in NAMES]
    up = [get("/api/v1/query?" + urlencode({"query": f'up{{node="{name}"}}'})) for name in NAMES]
    yield f"the verdict of one of {NODES:,} nodes", one, up, CONNECTIONS
    known = [get(f"/api/v1/nodes/{name}", who + 'If-None-Match: W/"ok"\r\n') for name in NAMES]
    yield "the same, where it is known already (304)", known, up, CONNECTIONS
    body = json.dumps({"nodes": NAMES}).encode()
    head = f"POST /api/v1/exclusions/query HTTP/1.1\r\nHost: 127.0.0.1\r\n{who}Content-Type: application/json\r\n"
    many = [f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body]
    form = urlencode({"query": f'up{{node=~"{"|".join(NAMES)}"}} == 0'}).encode()
    head = "POST /api/v1/query HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    asked = [f"{head}Content-Length: {len(form)}\r\n\r\n".encode() + form]
    yield f"which of {NODES:,} named nodes to avoid", many, asked, 16


def get(path: str, more: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{more}\r\n".encode()


Side = tuple[int, int, list[bytes]]


def raced(promise: str, ours: Side, peer: Side, connections: int) -> Rates:
    """Slices of either in turn; the first of each is not counted. A side is its pid, its port, and what it is sent."""
    rates: tuple[list[float], list[float]] = ([], [])
    waits: tuple[list[float], list[float]] = ([], [])
    spent = [0.0, 0.0]
    for turn in range(ROUNDS + 1):
        for side, (pid, port, requests) in enumerate((ours, peer)):
            before = cpu_s(pid)
            rate, times = asked_for(port, requests, connections, SLICE_S)
            if turn:
                spent[side] += cpu_s(pid) - before
                rates[side].append(rate)
                waits[side].extend(times)
    late = [1000 * float(np.percentile(times, 99)) for times in waits]
    each = [cpu / max(1, len(times)) for cpu, times in zip(spent, waits, strict=True)]
    return Rates(promise, tuple(rates[0]), tuple(rates[1]), late[0], late[1], each[0], each[1])


def asked_for(port: int, requests: list[bytes], connections: int, for_s: float) -> tuple[float, list[float]]:
    """Requests a second over so many connections that each ask again as soon as they are answered, and each wait."""
    ready = select.epoll()
    links: dict[int, socket.socket] = {}
    began: dict[int, float] = {}
    heard: dict[int, bytes] = {}
    waits: list[float] = []
    number = 0
    try:
        for _ in range(connections):
            link = socket.create_connection(("127.0.0.1", port))
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            links[link.fileno()] = link
            ready.register(link.fileno(), select.EPOLLIN)
        start = time.perf_counter()
        for fd, link in links.items():
            began[fd] = time.perf_counter()
            link.sendall(requests[number % len(requests)])
            number += 1
        while (now := time.perf_counter()) < start + for_s:
            for fd, _ in ready.poll(1.0):
                got = heard.pop(fd, b"") + links[fd].recv(1 << 18)
                if not is_whole(got):
                    heard[fd] = got
                    continue
                now = time.perf_counter()
                waits.append(now - began[fd])
                began[fd] = now
                links[fd].sendall(requests[number % len(requests)])
                number += 1
        return len(waits) / (now - start), waits
    finally:
        ready.close()
        for link in links.values():
            link.close()


def is_whole(got: bytes) -> bool:
    """Whether this is all of one answer. Raises RuntimeError for one that is no success."""
    end = got.find(b"\r\n\r\n")
    if end < 0:
        return False
    status = got[9:12]
    if status == b"304":
        return True
    if status != b"200":
        raise RuntimeError(f"answered {got[:300]!r}")
    head = got[:end].lower()
    at = head.find(b"content-length:")
    if at < 0:
        return got.endswith(b"0\r\n\r\n")  # chunked
    return len(got) >= end + 4 + int(head[at + 15 :].split(b"\r\n", 1)[0])


def aside() -> None:
    """The client leaves the servers' core, where there is another."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, set(cores[1:]) or set(cores))


# --- what is there to ask -------------------------------------------------------------------------------------------


def filled(folder: Path) -> str:
    """A store with every node known, some excluded by a person; returns a token that reads."""
    clock = SystemClock()
    parts = build(Settings(store=Store(folder=folder)), clock)
    now = clock.now()
    pipeline.accept(parts.watches["main"], inventory_of(NAMES, unix(now)))
    token = tokens.new_token()
    with closing(parts.store), parts.store.write() as session:
        people.add_token(session, "scheduler", "read", tokens.hash_token(token, parts.secret), now)
        for name in NAMES[:: NODES // EXCLUDED]:
            row = Exclusion(cluster="main", node=name, owner="dana", origin="person", reason="loose riser")
            row.created_at, row.until = now, now + timedelta(days=7)
            session.add(row)
    return token


def inventory_of(nodes: list[str], now: float) -> Batch:
    """Idle nodes with eight GPUs each; GPU n stands at PCI address 0000:1n:00."""
    rows = [
        NodeFacts(
            name,
            "idle",
            gpus=tuple(GpuFacts(n, f"GPU-{name}-{n}", f"0000:1{n}:00") for n in range(8)),
            expected_gpus=8,
            read_at=now,
        )
        for name in nodes
    ]
    return Batch("benchmark", now - 15, now, nodes=tuple(rows))


@contextmanager
def pushing(port: int, peer_port: int) -> Iterator[None]:
    """Telemetry to ours and ``up`` to Prometheus, every few seconds, until the race is over."""
    stop = threading.Event()
    gpus = [telemetry_labels(name, n, m) for name in NAMES for n in range(8) for m in range(METRICS)]
    ups = [encode_labels({"__name__": "up", "node": name, "job": "dcgm", "instance": f"{name}:9400"}) for name in NAMES]

    def push() -> None:
        for labels, to, path, value in (
            (gpus, port, "/api/v1/ingest/remote-write", lambda k: 50.0),
            (ups, peer_port, "/api/v1/write", lambda k: float(k % (NODES // EXCLUDED) != 0)),
        ):
            posted(to, path, labels, value)

    def keep_on() -> None:
        while not stop.wait(PUSH_S):
            push()

    push()
    thread = threading.Thread(target=keep_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)


def telemetry_labels(node: str, gpu: int, metric: int) -> bytes:
    names = ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED")
    told = {"gpu": str(gpu), "UUID": f"GPU-{node}-{gpu}", "pci_bus_id": f"0000:1{gpu}:00", "Hostname": node}
    return encode_labels({"__name__": names[metric], **told, "job": "dcgm"})


def posted(port: int, path: str, labels: list[bytes], value: Callable[[int], float]) -> None:
    stamp = varint(round(time.time() * 1000))
    for first in range(0, len(labels), 2000):
        some = labels[first : first + 2000]
        body = b"".join(series(one, value(first + k), stamp) for k, one in enumerate(some))
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        headers = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf"}
        headers["X-Prometheus-Remote-Write-Version"] = "0.1.0"
        link.request("POST", path, bytes(cramjam.snappy.compress_raw(body)), headers)
        answer = link.getresponse()
        said = answer.read()
        link.close()
        if answer.status >= 300:
            raise RuntimeError(f"{path}: {answer.status} {said[:300]!r}")
