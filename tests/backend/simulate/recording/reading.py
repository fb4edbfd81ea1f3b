"""The tests' own readers of a bundle: nothing of what wrote it is used to read it."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

SAMPLE = re.compile(r"^(\w+)\{(.*)\} (\S+) (\d+\.\d{3})$")
LABEL = re.compile(r'(\w+)="([^"]*)"')

Series = dict[tuple[tuple[str, str], ...], list[tuple[float, float]]]


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def truth(bundle: Path) -> list[dict[str, Any]]:
    return rows(bundle / "truth.jsonl")


def samples(bundle: Path, *names: str, files: str = "*.om") -> Iterator[tuple[str, dict[str, str], float, float]]:
    """(name, labels, value, time) of every line of the telemetry files, or of these names only."""
    starts = tuple(f"{name}{{" for name in names)
    for path in sorted((bundle / "telemetry").glob(files)):
        for line in path.read_text().splitlines():
            if not line.startswith("#") and (not starts or line.startswith(starts)):
                found = SAMPLE.match(line)
                assert found, f"{path.name}: {line}"
                name, labels, value, at = found.groups()
                yield name, dict(LABEL.findall(labels)), float(value), float(at)


def series(bundle: Path, *names: str) -> Series:
    """Samples by labels of all series with one of these names."""
    found: Series = defaultdict(list)
    for _, labels, value, at in samples(bundle, *names):
        found[tuple(sorted(labels.items()))].append((at, value))
    return found


def of_card(bundle: Path, entity: str, *names: str) -> list[tuple[float, float]]:
    """Samples of one ``node/gpuN`` in order of time, whatever their other labels."""
    node, _, index = entity.partition("/gpu")
    return sorted(
        sample
        for labels, found in series(bundle, *names).items()
        if index in (dict(labels).get("gpu"), dict(labels).get("gpu_id"))
        and node in (dict(labels).get("Hostname"), dict(labels).get("hostname"))
        for sample in found
    )


def of_instance(bundle: Path, instance: str, name: str, **more: str) -> list[tuple[float, float]]:
    wanted = {"instance": instance, **more}.items()
    return sorted(s for labels, found in series(bundle, name).items() if wanted <= dict(labels).items() for s in found)


def sacct(bundle: Path) -> list[dict[str, str]]:
    head, *lines = (bundle / "jobs" / "sacct.txt").read_text().splitlines()
    fields = head.split("|")
    found = [dict(zip(fields, line.split("|"), strict=True)) for line in lines]
    return found


def unix(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def expand(text: str) -> list[str]:
    """Hosts of a hostlist with one bracket at most a word."""
    found: list[str] = []
    for word in re.findall(r"[^,\[]+(?:\[[^\]]*\])?", text):
        prefix, _, inside = word.partition("[")
        for piece in inside.rstrip("]").split(",") if inside else [""]:
            first, _, last = piece.partition("-")
            found += (
                [f"{prefix}{n:0{len(first)}d}" for n in range(int(first), int(last or first) + 1)]
                if piece
                else [prefix]
            )
    return found


def written_at(bundle: Path) -> set[float]:
    """Every moment at which anything in the bundle stands."""
    found = {at for _, _, _, at in samples(bundle, "up", files="up.om")}
    for path in [
        *(bundle / "logs").glob("*.jsonl"),
        *(bundle / "training").glob("*.jsonl"),
        bundle / "checkpoints.jsonl",
    ]:
        found |= {float(row["ts"]) for row in rows(path)}
    return found
