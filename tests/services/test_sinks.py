"""The sinks as programs by themselves, as the end-to-end proof runs them."""

from __future__ import annotations

import json
import smtplib
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def program(name: str, file: Path) -> Iterator[int]:
    """The port of ``python -m tests.services.NAME 0 FILE``; ended by its own pid."""
    command = [sys.executable, "-m", f"tests.services.{name}", "0", str(file)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            yield int(running.stdout.readline().rpartition(":")[2])
        finally:
            running.terminate()
            running.wait(10)


def rows(file: Path, count: int) -> list[dict[str, Any]]:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        found = file.read_text().splitlines() if file.exists() else []
        if len(found) >= count:
            return [json.loads(line) for line in found]
        time.sleep(0.01)
    raise AssertionError(f"fewer than {count} rows in {file}")


def test_the_mail_sink_writes_what_it_gets_and_turns_its_mode_while_it_runs(tmp_path: Path) -> None:
    file = tmp_path / "mails.jsonl"
    with program("smtp", file) as port:
        with smtplib.SMTP("127.0.0.1", port, timeout=10) as session:
            session.sendmail("a@x.test", ["b@x.test"], "Subject: hello\r\n\r\nthere")
        (row,) = rows(file, 1)
        assert (row["from"], row["to"]) == ("a@x.test", ["b@x.test"]) and "Subject: hello" in row["raw"]
        Path(f"{file}.mode").write_text("refuse\n")
        with smtplib.SMTP("127.0.0.1", port, timeout=10) as session, pytest.raises(smtplib.SMTPRecipientsRefused):
            session.sendmail("a@x.test", ["b@x.test"], "Subject: hello\r\n\r\nthere")
    assert len(rows(file, 1)) == 1


def test_the_slack_sink_writes_what_it_gets_and_refuses_what_slack_would(tmp_path: Path) -> None:
    file = tmp_path / "slack.jsonl"
    with program("slack_sink", file) as port:
        hook = f"http://127.0.0.1:{port}/services/T/B/k"
        assert requests.post(hook, json={"text": "hello"}, timeout=10).text == "ok"
        long = {"text": "x", "blocks": [{"type": "header", "text": {"type": "plain_text", "text": "x" * 151}}]}
        assert requests.post(hook, json=long, timeout=10).text == "invalid_blocks"
        Path(f"{file}.mode").write_text("limit")
        assert requests.post(hook, json={"text": "hello"}, timeout=10).headers["Retry-After"] == "37"
    assert [row["body"] for row in rows(file, 1)] == [{"text": "hello"}]
