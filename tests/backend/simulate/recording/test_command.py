"""``watchkeeper simulate`` says what it did, and what was wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backend.cli import main
from backend.commands.simulate import Progress


def test_it_writes_a_bundle_and_tells_how_many_faults_it_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new"
    assert main(["simulate", "--out", str(out), "--nodes", "4", "--gpus", "1", "--hours", "1", "--scenario",
                 "kind:host_oom/abrupt", "--interval", "60", "--json"]) == 0  # fmt: skip
    said = capsys.readouterr()
    assert json.loads(said.out)["faults"] == 1 and "telemetry" in said.err
    assert main(["simulate", "--out", str(out)]) == 1
    assert "not empty" in capsys.readouterr().err


def test_it_lists_its_scenarios_and_refuses_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--list"]) == 0
    listed = capsys.readouterr().out.split()
    assert {"quiet", "mixed", "cards", "kind:gpu_bus_loss"} <= set(listed)
    assert main(["simulate", "--out", str(tmp_path / "new"), "--scenario", "doom"]) == 1
    assert "doom" in capsys.readouterr().err and not (tmp_path / "new").exists()
    assert main(["simulate"]) == 2


def test_progress_is_rewritten_on_a_terminal_and_one_line_a_stage_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    for terminal in (False, True):
        tell = Progress(terminal)
        for share in (0.0, 0.001, 0.5):
            tell("world", share)
    assert capsys.readouterr().err.count("simulate: world") == 3
