"""The verdict routes of REST against a bare Starlette JSON route with an answer of the same size, on one uvicorn."""

from __future__ import annotations

import http.client
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from backend import pipeline
from backend.app import create_app
from backend.clock import SystemClock, unix
from backend.commands.server import listen
from backend.facts import Batch, GpuFacts, NodeFacts
from backend.model.actions import Exclusion
from backend.registry import Parts, build
from backend.settings import Server as ServerSettings
from backend.settings import Settings, Store
from benchmarks.ratio import Ratio, measure

NODES, ASKED, PAIRS = 1250, 64, 1500


def run() -> Iterator[Ratio]:
    nodes = [f"gpu-{n:04}" for n in range(NODES)]
    body = json.dumps({"nodes": nodes[:ASKED]}).encode()
    with tempfile.TemporaryDirectory() as folder, filled(Path(folder), nodes) as parts, served(parts) as port:
        for words, method, path, sent in (
            (f"the verdict of one of {NODES:,} nodes", "GET", f"/api/v1/nodes/{nodes[7]}", b""),
            (f"an exclusion query for {ASKED} of {NODES:,} nodes", "POST", "/api/v1/exclusions/query", body),
        ):
            with asking(port) as ours, asking(port) as peer:
                answer = json.loads(ours(method, path, sent))
                wanted = len(json.dumps(answer))
                bare = partial(peer, method, f"/bare/{wanted}", sent)
                against = "a bare Starlette JSON route"
                found = measure(words, against, partial(ours, method, path, sent), bare, n=PAIRS, warm=200)
                tail = np.percentile(found.ours, 99) / np.percentile(found.peer, 99)
                yield replace(found, promise=f"{words} (p99 {tail:.3g} x)")


@contextmanager
def filled(folder: Path, nodes: list[str]) -> Iterator[Parts]:
    """A server's parts on SQLite: every node known with eight GPUs, one in fifty excluded by a person."""
    clock = SystemClock()
    parts = build(Settings(store=Store(folder=folder)), clock)
    now = clock.now()
    pipeline.accept(parts.watches["main"], inventory_of(nodes, unix(now)))
    with parts.store.write() as session:
        for name in nodes[::50]:
            until = now + timedelta(days=7)
            row = Exclusion(cluster="main", node=name, owner="dana", origin="person", reason="loose riser")
            row.created_at, row.until = now, until
            session.add(row)
    try:
        yield parts
    finally:
        parts.store.close()


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
def served(parts: Parts) -> Iterator[int]:
    """The product and the bare route behind one uvicorn in a thread; the loops rest, as in an API process."""
    config = uvicorn.Config(side_by_side(create_app(parts, run_loops=False)), log_level="error", access_log=False)
    server = uvicorn.Server(config)
    with listen(ServerSettings(port=0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        deadline = time.monotonic() + 30
        while not server.started:
            if time.monotonic() > deadline or not thread.is_alive():
                raise RuntimeError("the server did not start within 30 s")
            time.sleep(0.01)
        try:
            yield int(listener.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(30)


def side_by_side(product: ASGIApp) -> ASGIApp:
    async def bare(request: Request) -> JSONResponse:
        """Reads what was sent, and answers with as many bytes as the product did."""
        asked = await request.json() if request.method == "POST" else {}
        fill = max(0, request.path_params["size"] - 40)
        return JSONResponse({"nodes": len(asked.get("nodes", ())), "fill": "x" * fill})

    peer = Starlette(routes=[Route("/bare/{size:int}", bare, methods=["GET", "POST"])])

    async def both(scope: Scope, receive: Receive, send: Send) -> None:
        chosen: Any = peer if scope["type"] == "http" and scope["path"].startswith("/bare/") else product
        await chosen(scope, receive, send)

    return both


@contextmanager
def asking(port: int) -> Iterator[Callable[[str, str, bytes], bytes]]:
    """A client that keeps its connection, as a scheduler's does."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)

    def ask(method: str, path: str, sent: bytes) -> bytes:
        connection.request(method, path, sent or None, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        read = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path} answers {answer.status}: {read[:200]!r}")
        return read

    try:
        yield ask
    finally:
        connection.close()
