"""notify test: one marked message on the channel asked for, or a line that says why not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backend.cli import main
from tests.services.http_sink import http_sink
from tests.services.sinks import Mode


def site(folder: Path, url: str) -> list[str]:
    file = folder / "site.toml"
    file.write_text(f'[webhook]\nurl = "{url}/hook"\ntimeout_s = 2.0\n')
    return ["notify", "test", "--config", str(file)]


def test_a_test_says_that_it_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with http_sink() as receiver:
        assert main([*site(tmp_path, receiver.url), "--channel", "webhook", "--json"]) == 0
        body = receiver.bodies[0]
    assert body["kind"] == "test" and "This is a test" in body["headline"] and body["incident"] is None
    assert json.loads(capsys.readouterr().out)["channel"] == "webhook"


def test_what_cannot_be_sent_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with http_sink() as receiver:
        receiver.tape.mode = Mode.REFUSE
        assert main([*site(tmp_path, receiver.url), "--channel", "webhook"]) == 1
        assert main([*site(tmp_path, receiver.url), "--channel", "slack"]) == 1
    refused, missing = capsys.readouterr().err.splitlines()
    assert "400" in refused and "no [slack]" in missing and "configured: webhook" in missing
