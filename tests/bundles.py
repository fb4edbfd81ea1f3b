"""Builds tiny replay bundles for tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

T = 1_770_000_000.0
HEADER = "JobIDRaw JobID JobName User State Restarts Submit Eligible Start End NNodes NodeList AllocTRES SubmitLine"
TEMP = "DCGM_FI_DEV_GPU_TEMP"


def series(name: str, samples: Iterable[tuple[float, object]], **labels: object) -> str:
    """All lines of one series: (unix s, value) each."""
    said = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return "".join(f"{name}{'{' + said + '}' if said else ''} {value} {at:.3f}\n" for at, value in samples)


def gpu(name: str, samples: Iterable[tuple[float, object]], node: str = "gpu-0001", index: int = 0, **more: str) -> str:
    """A series of one GPU as the DCGM exporter labels it."""
    labels = {"gpu": index, "UUID": f"GPU-{node}-{index}", "Hostname": node, "instance": f"{node}:9400"}
    return series(name, samples, **(labels | more))


def up(samples: Iterable[tuple[float, object]], node: str = "gpu-0001", port: int = 9400) -> str:
    return series("up", samples, instance=f"{node}:{port}", job="dcgm")


def row(**cells: object) -> str:
    """One line of sacct; columns that are not given hold what it prints for a finished job of one node."""
    usual: dict[str, object] = {
        "JobIDRaw": 7,
        "JobName": "train",
        "User": "ada",
        "State": "COMPLETED",
        "Restarts": 0,
        "Submit": "2026-02-02T02:40:00",
        "Start": "2026-02-02T02:41:00",
        "End": "2026-02-02T02:50:00",
        "NNodes": 1,
        "NodeList": "gpu-0001",
        "AllocTRES": "cpu=8,gres/gpu=8,node=1",
        "SubmitLine": "sbatch train.sh",
    }
    all_ = usual | cells
    all_.setdefault("JobID", all_["JobIDRaw"])
    all_.setdefault("Eligible", all_["Submit"])
    return "|".join(str(all_[name]) for name in HEADER.split())


def sacct(*rows: str) -> str:
    return "\n".join([HEADER.replace(" ", "|"), *rows, ""])


def node(name: str, gpus: int = 1) -> dict[str, object]:
    cards = [{"index": i, "uuid": f"GPU-{name}-{i}", "pci_bus_id": f"00000000:{i + 16:02X}:00.0"} for i in range(gpus)]
    return {"name": name, "rack": "r1", "switch": "s1", "gpus": cards}


def bundle(
    folder: Path,
    *,
    described: Mapping[str, object] | None = None,
    telemetry: Mapping[str, str | bytes] | None = None,
    logs: Mapping[str, Sequence[Mapping[str, object] | bytes]] | None = None,
    jobs: str | bytes | None = None,
    nodes: Sequence[Mapping[str, object]] | None = None,
    files: Mapping[str, str | bytes] | None = None,
) -> Path:
    """Write a bundle: telemetry and logs by file name without its ending, other files by their path. Rows of logs are
    objects, or lines as they are."""
    every: dict[str, str | bytes] = dict(files or {})
    if described is not None:
        every["bundle.json"] = json.dumps(described)
    if nodes is not None:
        every["topology.json"] = json.dumps({"nodes": list(nodes)})
    if jobs is not None:
        every["jobs/sacct.txt"] = jobs
    every |= {f"telemetry/{name}.om": text for name, text in (telemetry or {}).items()}
    for name, rows in (logs or {}).items():
        lines = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in rows]
        every[f"logs/{name}.jsonl"] = b"".join(line + b"\n" for line in lines)
    for name, content in every.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder
