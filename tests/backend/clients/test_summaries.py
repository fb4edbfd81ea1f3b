"""Summaries by a language model: only quoted lines leave, masked; whatever comes back is text, and decides nothing."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import SecretStr

from backend.clients.summaries import MOST_ANSWER, MOST_LINE, MOST_LINES, SummaryError, question, summary_of
from backend.settings import Settings, Summary


@dataclass
class Fake:
    """A server of a model: what it was asked, and what it answers."""

    url: str = ""
    asked: list[tuple[dict[str, str], dict[str, Any]]] = field(default_factory=list)
    status: int = 200
    body: bytes = b""

    def says(self, text: str) -> None:
        self.body = json.dumps({"choices": [{"message": {"content": text}}]}).encode()


@pytest.fixture
def fake() -> Iterator[Fake]:
    made = Fake()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            made.asked.append((dict(self.headers), json.loads(raw) | {"path": self.path}))
            self.send_response(made.status)
            self.send_header("Content-Length", str(len(made.body)))
            self.end_headers()
            self.wfile.write(made.body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield made
    server.shutdown()
    server.server_close()
    thread.join(10)


def test_it_is_off_unless_set() -> None:
    assert Settings().summary is None


def test_only_quoted_lines_leave_and_secrets_in_them_are_masked(fake: Fake) -> None:
    fake.says("The disk was full.\n\x1b[31mReally.")
    lines = ["OSError: No space left", "export HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz0123456789"]
    settings = Summary(url=fake.url, model="m", key=SecretStr("sesame"))
    assert summary_of(settings, "disk full", lines) == "The disk was full. [31mReally."
    ((headers, asked),) = fake.asked
    assert asked["path"] == "/v1/chat/completions" and headers["Authorization"] == "Bearer sesame"
    sent = asked["messages"][1]["content"]
    assert "No space left" in sent and "hf_abcdef" not in json.dumps(asked)


def test_what_is_sent_and_shown_is_bounded(fake: Fake) -> None:
    sent = question("x" * 10_000, ["y" * 10_000] * 1_000)
    assert len(sent) < (MOST_LINES + 2) * (MOST_LINE + 10)
    fake.says("z" * 100_000)
    assert len(summary_of(Summary(url=fake.url), "s", ["l"])) == MOST_ANSWER


@pytest.mark.parametrize(
    ("status", "body", "permanent"),
    [
        (500, b"", False),
        (429, b"", False),
        (401, b"", True),
        (200, b"no json", True),
        (200, b"{}", True),
        (302, b"", True),
    ],
)
def test_a_server_that_does_not_help_is_an_error_that_says_so(
    fake: Fake, status: int, body: bytes, permanent: bool
) -> None:
    fake.status, fake.body = status, body
    with pytest.raises(SummaryError, match="model") as caught:
        summary_of(Summary(url=fake.url), "s", ["l"])
    assert caught.value.permanent is permanent


def test_a_server_that_is_not_there_is_an_error_and_not_a_wait() -> None:
    with pytest.raises(SummaryError, match="no answer"):
        summary_of(Summary(url="http://127.0.0.1:9/v1", timeout_s=2), "s", ["l"])
