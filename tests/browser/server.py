"""The pages on a real socket of 127.0.0.1, for a real browser."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from backend.registry import Parts
from tests.backend.web import site

STARTED_WITHIN_S = 10.0


@contextmanager
def served(parts: Parts) -> Iterator[str]:
    """Base URL of pages and API on a free port; stopped at exit."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(site.app_of(parts), log_level="error", access_log=False, timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        deadline = time.monotonic() + STARTED_WITHIN_S
        while not server.started and time.monotonic() < deadline:
            time.sleep(0.02)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join(STARTED_WITHIN_S)
