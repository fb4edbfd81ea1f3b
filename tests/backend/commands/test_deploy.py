"""What `watchkeeper deploy` hands out is whole, and speaks of things that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from backend import cli
from backend.api.system import FAMILIES
from backend.commands.deploy import FILES, files_of
from backend.settings import load
from tests.services.need import need

CHART = FILES / "helm" / "watchkeeper"
NAMES = frozenset(family.name for family in FAMILIES)


def named(text: str) -> set[str]:
    return set(re.findall(r"\bwatchkeeper_[a-z_]+", text))


def objects(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def test_without_a_name_it_lists_every_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["deploy"]) == 0
    listed = {line.split(":")[0] for line in capsys.readouterr().out.splitlines()}
    assert {"systemd", "kubernetes", "helm", "prometheus", "grafana"} <= listed


def test_a_set_of_one_file_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["deploy", "systemd"]) == 0
    assert "[Service]" in capsys.readouterr().out


def test_a_set_is_written_whole_and_never_over_what_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["deploy", "helm", "--out", str(tmp_path)]) == 0
    assert sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*") if p.is_file()) == files_of("helm")
    (tmp_path / "watchkeeper" / "values.yaml").write_text("mine")
    assert cli.main(["deploy", "helm", "--out", str(tmp_path)]) == 1
    assert (tmp_path / "watchkeeper" / "values.yaml").read_text() == "mine"
    assert "nothing was written" in capsys.readouterr().err


def test_an_unknown_set_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["deploy", "hlem"]) == 1
    assert "helm" in capsys.readouterr().err


def test_rules_and_board_ask_only_for_metrics_that_are_served() -> None:
    board = json.loads((FILES / "grafana" / "watchkeeper.json").read_text(encoding="utf-8"))
    asked = {name for panel in board["panels"] for target in panel["targets"] for name in named(target["expr"])}
    rules = objects(FILES / "prometheus" / "watchkeeper.rules.yml")[0]
    asked |= {name for group in rules["groups"] for rule in group["rules"] for name in named(rule["expr"])}
    assert asked and asked <= NAMES, asked - NAMES


@pytest.mark.services
def test_promtool_holds_the_rules_true() -> None:
    tool = need("promtool", "prometheus")
    folder = FILES / "prometheus"
    done = subprocess.run(
        [tool, "test", "rules", "watchkeeper.rules.test.yml"], cwd=folder, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("where", ["kubernetes", "helm"])
def test_the_configuration_that_is_mounted_starts_the_service(where: str, tmp_path: Path) -> None:
    if where == "helm":
        text = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))["config"]
    else:
        text = objects(FILES / where / "watchkeeper.yaml")[0]["data"]["watchkeeper.toml"]
    (tmp_path / "watchkeeper.toml").write_text(text, encoding="utf-8")
    settings = load(tmp_path / "watchkeeper.toml", {})
    assert settings.mode == "observe" and settings.cluster[0].kubernetes is not None


def test_in_kubernetes_every_mount_has_its_volume_and_nothing_runs_as_root() -> None:
    whole = {o["kind"]: o for o in objects(FILES / "kubernetes" / "watchkeeper.yaml")}
    pod = whole["StatefulSet"]["spec"]["template"]["spec"]
    box = pod["containers"][0]
    assert {m["name"] for m in box["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
    assert pod["securityContext"]["runAsNonRoot"] and box["securityContext"]["readOnlyRootFilesystem"]
    labels = whole["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    assert whole["Service"]["spec"]["selector"].items() <= labels.items()


def test_templates_of_the_chart_ask_only_for_values_that_it_has() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    for path in (CHART / "templates").iterdir():
        for asked in re.findall(r"\.Values\.([A-Za-z.]+)", path.read_text(encoding="utf-8")):
            found: Any = values
            for part in asked.split("."):
                assert part in found, f"{path.name} asks for {asked}"
                found = found[part]


@pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not here: the chart is rendered where it is")
def test_helm_renders_the_chart() -> None:
    done = subprocess.run(["helm", "template", "w", str(CHART)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert {"ConfigMap", "Service", "StatefulSet"} == {o["kind"] for o in yaml.safe_load_all(done.stdout)}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here to read the unit")
def test_systemd_understands_every_line_of_the_unit() -> None:
    unit = FILES / "systemd" / "watchkeeper.service"
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=30)
    assert not re.search(r"Unknown (key|section|lvalue)|Failed to parse|Invalid", done.stderr), done.stderr
