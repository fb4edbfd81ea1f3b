"""serve --record: what a real server took in over its routes is replayed to the same incidents and findings."""

from __future__ import annotations

import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cramjam
import orjson
import pytest
import requests

from backend.cli import main

SETTLED_S = 30.0
CONFIG = """
[server]
port = 0
[store]
folder = "{folder}"
[[cluster]]
name = "main"
interval_s = 1.0
[incidents]
hold_s = 600
"""


@contextmanager
def serving(folder: Path, *more: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    config = folder / "site.toml"
    config.write_text(CONFIG.format(folder=folder / "data"))
    command = [sys.executable, "-m", "backend.cli", "serve", "--config", str(config), *more]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        url = line.strip().rpartition(" ")[2].rstrip("/")
        until(lambda: answers(f"{url}/healthz"))
        yield url, process
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate(timeout=20)


def answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=5).ok
    except requests.ConnectionError:
        return False


def until(told: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + SETTLED_S
    while time.monotonic() < deadline:
        if found := told():
            return found
        time.sleep(0.1)
    raise AssertionError(f"did not come within {SETTLED_S} s")


def post(url: str, what: str, body: Any) -> None:
    answer = requests.post(f"{url}/api/v1/ingest/{what}", json=body, timeout=10)
    assert answer.status_code == 200, answer.text


def levels(url: str, heard: range, at: float) -> None:
    """One remote write: the temperature of each GPU that is heard."""
    out = b""
    for gpu in heard:
        labels = {"__name__": "DCGM_FI_DEV_GPU_TEMP", "Hostname": "gpu-0001", "gpu": str(gpu)}
        labels |= {"UUID": f"GPU-0001-{gpu}", "instance": "gpu-0001:9400"}
        out += written(labels, 60.0 + gpu, at)
    headers = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf"}
    headers["X-Prometheus-Remote-Write-Version"] = "0.1.0"
    body = bytes(cramjam.snappy.compress_raw(out))
    answer = requests.post(f"{url}/api/v1/ingest/remote-write", data=body, headers=headers, timeout=10)
    assert answer.status_code in (200, 204), answer.text


def written(labels: dict[str, str], value: float, at: float) -> bytes:
    """One TimeSeries of a WriteRequest."""

    def field(number: int, body: bytes) -> bytes:
        return bytes([number << 3 | 2]) + varint(len(body)) + body

    said = b"".join(
        field(1, field(1, name.encode()) + field(2, value_.encode())) for name, value_ in sorted(labels.items())
    )
    sample = b"\x09" + struct.pack("<d", value) + b"\x10" + varint(int(at * 1000))
    return field(1, said + field(2, sample))


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def incidents(url: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = requests.get(f"{url}/api/v1/incidents", timeout=10).json()["items"]
    return found


def test_a_real_server_is_recorded_and_its_replay_opens_the_same_incidents(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    with serving(tmp_path, "--record", str(bundle)) as (url, process):
        cards = [{"index": g, "uuid": f"GPU-0001-{g}", "pci_bus_id": f"00000000:{g + 16:02X}:00.0"} for g in range(4)]
        post(url, "topology", [{"name": "gpu-0001", "rack": "r1", "gpus": cards}])
        began = time.time()
        post(url, "jobs", [{"job": "7", "state": "RUNNING", "start": began - 60, "nodes": ["gpu-0001"], "run": "r"}])
        for _ in range(5):
            levels(url, range(4), time.time())
            time.sleep(1.0)
        lines = [
            {"ts": time.time(), "host": "gpu-0001", "source": "kernel",
             "line": "NVRM: Xid (PCI:0000:12:00): 79, pid=77, name=python3, GPU has fallen off the bus."},
        ]  # fmt: skip
        post(url, "logs", lines)
        until(lambda: incidents(url))
        for _ in range(4):
            levels(url, range(3), time.time())
            time.sleep(1.0)
        live = [requests.get(f"{url}/api/v1/incidents/{one['id']}", timeout=10).json() for one in incidents(url)]
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=20)[1]
    assert process.returncode == 0 and f"in {bundle}: it was closed" in said
    assert main(["replay", str(bundle), "--out", str(tmp_path / "again"), "--json"]) == 0
    again = [orjson.loads(row) for row in (tmp_path / "again" / "incidents.jsonl").read_bytes().splitlines()]
    assert again and [one["kind"] for one in again] == [one["kind"] for one in live]
    assert [one["entity"] for one in again] == [one["entity"] for one in live]
    findings = (tmp_path / "again" / "findings.jsonl").read_bytes().splitlines()
    assert {orjson.loads(row)["kind"] for row in findings if b'"raised"' in row} >= {one["kind"] for one in live}


def test_a_folder_that_holds_a_recording_is_not_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "arrivals.jsonl").write_bytes(b"")
    config = tmp_path / "site.toml"
    config.write_text(CONFIG.format(folder=tmp_path / "data"))
    assert main(["serve", "--config", str(config), "--record", str(tmp_path / "bundle")]) == 1
    assert "holds a recording already: name a new folder" in capsys.readouterr().err
    assert main(["serve", "--config", str(config), "--role", "observe", "--record", str(tmp_path / "new")]) == 1
    assert "--record needs --role all" in capsys.readouterr().err


@pytest.mark.parametrize("size", ["0", "-1", "many", "1.5"])
def test_a_limit_that_is_none_is_told_by_the_command_line(size: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--record-mib", size])
    assert "no whole number of MiB" in capsys.readouterr().err
