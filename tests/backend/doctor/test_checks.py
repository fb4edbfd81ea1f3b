"""The whole examination: every table of the configuration has its lines, exit codes, and no secret in sight."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from backend.cli import main
from backend.commands.doctor import report
from backend.doctor.checks import diagnose, mode
from backend.doctor.line import Line, State
from backend.settings import Cluster, Settings, Slurm

SECRETS = ("sesame-smtp", "kEyOfTheHook", "sesame-header", "sesame-url", "sesame-db")
SITE = """\
mode = "propose"
[server]
port = 0
[store]
url = "postgresql+psycopg://ada:sesame-db@127.0.0.1:1/nothing"
folder = "{folder}"
[[cluster]]
name = "main"
  [[cluster.prometheus]]
  url = "http://ada:sesame-url@127.0.0.1:1"
  headers = {{ Authorization = "Bearer sesame-header" }}
  [cluster.slurm]
  conf = "{folder}/no-slurm.conf"
[[cluster]]
name = "other"
[email]
host = "127.0.0.1"
port = 1
starttls = false
user = "watchkeeper"
password = "sesame-smtp"
from = "watchkeeper@example.com"
to = ["oncall@example.com"]
[slack]
webhook_url = "https://hooks.slack.com/services/T0AB/B0CD/kEyOfTheHook"
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    file = tmp_path / "site.toml"
    file.write_text(SITE.format(folder=tmp_path / "state"))
    return file


def test_every_part_of_the_configuration_has_its_line_and_what_failed_has_a_fix(site: Path) -> None:
    began = time.monotonic()
    lines = diagnose(site, {})
    assert time.monotonic() - began < 30
    state = {line.check: line.state for line in lines}
    failed = {name for name, found in state.items() if found is State.FAILED}
    assert failed >= {"database", "main prometheus", "main slurm nodes", "email"}
    assert state["slack"] is state["port"] is state["configuration"] is State.OK
    assert state["other prometheus"] is state["other slurm"] is State.OFF
    assert {"account", "open files", "data folder", "clock", "links", "main slurm right to drain"} <= set(state)
    assert [line for line in lines if line.state in (State.FAILED, State.WARNING) and not line.fix] == []
    assert not (site.parent / "state").exists()


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_no_secret_is_shown_and_a_failure_ends_with_1(
    site: Path, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--config", str(site), *more]) == 1
    shown = "".join(capsys.readouterr())
    assert "failed" in shown and not [secret for secret in SECRETS if secret in shown]


def test_json_is_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "site.toml"
    file.write_text(f'[server]\nport = 0\n[store]\nfolder = "{tmp_path / "state"}"\n')
    assert main(["doctor", "--config", str(file), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["ok"] is True
    assert {frozenset(row) for row in said["checks"]} == {frozenset({"check", "state", "what", "fix"})}
    assert {row["state"] for row in said["checks"]} <= {"ok", "warning", "failed", "not set up"}


def test_a_configuration_with_mistakes_is_all_there_is_to_say(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text('mod = "act"\n[server]\nport = 99999\n[slack]\nwebhook_url = ""\n')
    lines = diagnose(file, {})
    assert len(lines) >= 2 and {line.check for line in lines} == {"configuration"}
    assert {line.state for line in lines} == {State.FAILED}
    assert any("Did you mean mode?" in line.fix and f"{file}:1" in line.what for line in lines)


def test_a_threshold_that_does_not_exist_is_a_mistake_too(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text("[[cluster]]\nthresholds = { nonsense_z = 7 }\n")
    (line,) = diagnose(file, {})
    assert line.state is State.FAILED and "nonsense_z" in line.what


def test_the_mode_says_what_it_may_touch() -> None:
    slurm = Cluster(name="main", slurm=Slurm())
    (observe,) = mode(Settings(cluster=(slurm,)))
    assert "nothing is written" in observe.what
    lines = list(mode(Settings(mode="act", cluster=(slurm, Cluster(name="bare")))))
    assert "drains, requeues and resumes" in lines[0].what and "by itself" in lines[0].what
    assert lines[1].state is State.WARNING and "bare" in lines[1].what
    (dry,) = mode(Settings(mode="propose", cluster=(slurm.model_copy(update={"backend": "dry_run"}),)))
    assert "touches nothing" in dry.what


def test_a_report_has_a_line_for_each_check_and_shows_on_any_terminal() -> None:
    lines = [Line("database", State.FAILED, "it is away", "Start it."), Line("port", State.OK, "8000 is free")]
    rows = report(lines, "utf-8").splitlines()
    assert rows[0] == "✗ failed      database  it is away. Start it."
    assert rows[-1] == "1 ok, 0 warning, 1 failed, 0 not set up"
    assert report(lines, "ascii").startswith("x failed")
