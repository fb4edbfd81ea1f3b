"""The truth is honest: beside the same cluster without the fault, the first difference stands at first_visible."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from backend.simulate.recording.scenario import TROUBLE
from tests.backend.simulate.recording.reading import rows, truth

Made = Callable[..., Path]

#: Trouble that comes by and by: it differs before it stands out.
GRADUAL = {
    "paste",
    "gradual",
    "rack",
    "node",
    "climb",
    "waves",
    "logits",
    "router",
    "policy",
    "stale",
    "shared",
    "edac",
}


def scraped(bundle: Path, hosts: set[str]) -> set[tuple[float, str, float]]:
    """Samples of these hosts as (when, series, value)."""
    found = set()
    for path in (bundle / "telemetry").glob("*.om"):
        for line in path.read_text().splitlines():
            if not line.startswith("#") and any(f'"{host}:' in line for host in hosts):
                name, value, at = line.rsplit(" ", 2)
                found.add((float(at), name, float(value)))
    return found


def said(bundle: Path, hosts: set[str], run: str | None) -> set[tuple[float, str]]:
    """Lines and rows about these hosts and this run as (when, what)."""
    found = set()
    for name in ("kernel", "fabricmanager", "job", "slurm"):
        for row in rows(bundle / "logs" / f"{name}.jsonl"):
            if "recv_ts" not in row and (row["host"] in hosts or name in ("job", "slurm")):
                found.add((row["ts"], row["line"]))
    for row in rows(bundle / "training" / f"{run}.jsonl") if run else ():
        found.add((row["ts"], str(row)))
    for row in rows(bundle / "checkpoints.jsonl"):
        if row["run"] == run:
            found.add((row["ts"], str(row)))
    return found


@pytest.mark.parametrize("which", [f"{kind}/{variant}" for kind, variant in {key[0]: key for key in TROUBLE}.values()])
def test_nothing_differs_before_it_and_something_does_then(which: str, made: Made) -> None:
    quiet, bundle = made("quiet", 2.0, seed=5), made(f"kind:{which}", 2.0, seed=5)
    found = truth(bundle)
    assert found, "this seed's site has somebody to strike each way"
    (row,) = found
    node = row["entity"].partition("/")[0]
    hosts = set(row["nodes"]) | ({node} if node.startswith("trn-") else set())
    if row["entity"].startswith("cluster:"):
        hosts = {path["host"] for path in rows(bundle / "logs" / "kernel.jsonl")} | {"slurm-exporter", "log-shipper"}
    # A sample that is missing shows; a line that does not come shows to nobody.
    differs = sorted({at for at, *_ in scraped(quiet, hosts) ^ scraped(bundle, hosts)}
                     | {at for at, _ in said(bundle, hosts, row["run"]) - said(quiet, hosts, row["run"])})  # fmt: skip
    assert differs and differs[0] >= row["start"] - 0.001, (row, differs[:3])
    if row["variant"] in GRADUAL or which == "nvlink_error/counter":
        assert differs[0] <= row["first_visible"] + 0.001, (row, differs[:3])
    else:
        assert abs(differs[0] - row["first_visible"]) < 0.002, (row, differs[:3])
