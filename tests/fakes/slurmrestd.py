"""A slurmrestd in memory, at the HTTP transport: any data parser, tokens that end, errors in Slurm's words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from backend.clients.slurm_http import Answer

#: How a version refuses a token: (status, body).
REFUSALS = {
    38: (500, '{"errors": [{"error": "Unspecified error", "errno": -1}], "nodes": []}'),
    42: (511, '{"errors": [{"error_number": 1007, "error": "Protocol authentication error"}]}'),
    43: (200, '{"jobs": [], "errors": [{"error_number": 1007, "error": "Protocol authentication error"}]}'),
}


def number(value: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": value}


@dataclass
class Slurmrestd:
    """One node and one job; what was asked stands in ``asked``. ``refusal`` is a key of REFUSALS; ``kept`` are records
    of the accounting, None where there is no slurmdbd."""

    versions: tuple[int, ...] = (40, 41, 42)
    tokens: set[str] = field(default_factory=lambda: {"good"})
    refusal: int = 42
    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    failing: dict[str, Answer] = field(default_factory=dict)
    node: dict[str, Any] = field(default_factory=dict)
    kept: list[dict[str, Any]] | None = None

    def __post_init__(self) -> None:
        self.node = {
            "name": "gpu-0001",
            "state": ["IDLE"],
            "gres": "gpu:h100:8",
            "partitions": ["train"],
            "features": ["h100", "ib"],
            "boot_time": number(1_796_053_814),
            "reason": "",
            "reason_set_by_user": "",
            "topology": "",
        }

    def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes, timeout_s: float) -> Answer:
        base, _, path = url.removeprefix("http://").partition("/")[2].partition("/")
        said = json.loads(body) if body else None
        self.asked.append((method, path, said))
        version, _, place = path.removeprefix("v0.0.").partition("/")
        if not version.isdigit() or int(version) not in self.versions:
            return Answer(404, b"Unable find requested URL. Please view /openapi/v3 for API reference.")
        if headers.get("X-SLURM-USER-TOKEN", "") not in self.tokens:
            status, words = REFUSALS[self.refusal]
            return Answer(status, words.encode())
        if base == "slurmdb":
            found = json.dumps({"jobs": self.kept, "errors": []}).encode()
            return Answer(404, b"Unable find requested URL.") if self.kept is None else Answer(200, found)
        if place.rstrip("/") in self.failing:
            return self.failing[place.rstrip("/")]
        return Answer(200, json.dumps(self._answer(method, place.rstrip("/"), said)).encode())

    def _answer(self, method: str, place: str, said: Any) -> dict[str, Any]:
        meta = {"meta": {"slurm": {"release": f"24.11.{len(self.versions)}"}}, "errors": [], "warnings": []}
        if method == "POST" and place == "node/gpu-0001":
            self.node |= {"state": ["IDLE", *(word for word in said["state"] if word == "DRAIN")]}
            self.node |= {"reason": said.get("reason", self.node["reason"]), "reason_set_by_user": "root"}
        if place in ("nodes", "node/gpu-0001"):
            return meta | {"nodes": [self.node]}
        if place == "jobs":
            job = {"job_id": 7, "job_state": ["RUNNING"], "nodes": "gpu-0001", "batch_flag": True, "name": "llm"}
            return meta | {"jobs": [job]}
        if place.startswith("node/"):
            return meta | {"nodes": [], "errors": [{"error_number": 2009, "error": "Invalid node name specified"}]}
        return meta | {place: []}
