"""Remote write over HTTP: 50 requests of 2,000 series of 10 labels, again and again, 1 % of the series new each minute:
CPU of the service against that of Prometheus's own receiver, which takes the very same requests in the same run."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import cramjam
import numpy as np

from backend.simulate.remote_write import encode_labels, series, varint
from detectors.catalogue import load

REQUESTS, EACH = 50, 2_000
ROUNDS = 10
#: Time between two rounds as their samples tell it, in s, and what of the series is renamed from one to the next.
SCRAPE_S, RENAMED = 15.0, 0.01 * 15 / 60
#: Metrics of each GPU.
METRICS = 20


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU and wall seconds of each round, ours and Prometheus's, of the same requests."""

    ours: tuple[float, ...]
    peer: tuple[float, ...]
    our_wall: tuple[float, ...]
    peer_wall: tuple[float, ...]

    def __str__(self) -> str:
        cpu, wall = np.divide(self.peer, self.ours), np.divide(self.peer_wall, self.our_wall)
        q1, median, q3 = np.percentile(cpu, (25, 50, 75))
        samples = REQUESTS * EACH
        each = f"{1e6 * np.median(self.ours) / samples:.2f} us against {1e6 * np.median(self.peer) / samples:.2f} us"
        total = sum(self.peer) / sum(self.ours)
        return (
            f"remote write of {samples} samples a round: Prometheus's receiver takes {median:.3g} x our CPU a sample "
            f"(quartiles {q1:.3g} to {q3:.3g}, {total:.3g} over all, n = {cpu.size}; {each}), "
            f"{np.median(wall):.3g} x our time"
        )


def run() -> Iterator[Cost]:
    rounds = bodies(ROUNDS + 2)
    with (
        tempfile.TemporaryDirectory(prefix="watchkeeper-bench-") as folder,
        served(Path(folder)) as (ours, port),
        receiver(Path(folder)) as (peer, peer_port),
    ):
        mine, theirs = [], []
        for at, requests in enumerate(rounds):
            for pid, to, path, kept in (
                (ours, port, "/api/v1/ingest/remote-write", mine),
                (peer, peer_port, "/api/v1/write", theirs),
            ):
                cost = sent(pid, to, path, requests)
                if at >= 2:  # the first makes every series, the second is the first of the steady ones
                    kept.append(cost)
    yield Cost(*(tuple(cost[i] for cost in kept) for i in (0, 1) for kept in (mine, theirs)))


def bodies(rounds: int) -> list[list[bytes]]:
    """Compressed requests, shuffled as a sender's shards have them; times end now."""
    dice = np.random.default_rng(7)
    listed = (m for m in load().metrics.values() if m.axis == "gpu" and m.kind in ("gauge", "counter") and not m.join)
    names = [m.aliases[0] for m in listed][:METRICS]
    gpus = REQUESTS * EACH // METRICS
    order = dice.permutation(gpus * METRICS)
    pods = np.zeros(gpus * METRICS, np.int64)
    begin = time.time() - SCRAPE_S * rounds
    made: list[list[bytes]] = []
    for at in range(rounds):
        stamp = varint(round((begin + SCRAPE_S * at) * 1000))
        if at:
            pods[dice.random(pods.size) < RENAMED] += 1
        one = [series(_labels(names, n, int(pods[n])), float(50 + (n + at) % 20) / 20, stamp) for n in order.tolist()]
        made.append([_packed(one[k : k + EACH]) for k in range(0, len(one), EACH)])
    return made


def _labels(names: list[str], n: int, pod: int) -> bytes:
    gpu, metric = divmod(n, METRICS)
    node, index = divmod(gpu, 8)
    labels = {
        "__name__": names[metric],
        "gpu": str(index),
        "UUID": f"GPU-{node:08x}-0000-4000-8000-{index:012x}",
        "pci_bus_id": f"00000000:{16 + index:02X}:00.0",
        "device": f"nvidia{index}",
        "modelName": "NVIDIA H100 80GB HBM3",
        "Hostname": f"gpu-{node:04d}",
        "instance": f"gpu-{node:04d}:9400",
        "job": "dcgm",
        "namespace": f"train-{pod}",
    }
    return encode_labels(labels)


def _packed(parts: list[bytes]) -> bytes:
    return bytes(cramjam.snappy.compress_raw(b"".join(parts)))


def sent(pid: int, port: int, path: str, requests: list[bytes]) -> tuple[float, float]:
    """CPU seconds of the process, and ours of the wall, for these requests over one connection."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf"}
    headers["X-Prometheus-Remote-Write-Version"] = "0.1.0"
    cpu, began = cpu_s(pid), time.perf_counter()
    for body in requests:
        link.request("POST", path, body, headers)
        answer = link.getresponse()
        said = answer.read()
        assert answer.status < 300, (answer.status, said[:300])
    took = time.perf_counter() - began
    link.close()
    return cpu_s(pid) - cpu, took


def cpu_s(pid: int) -> float:
    """User and system time of a process so far; the clock of the scheduler, as ticks of 10 ms are too coarse."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def served(folder: Path) -> Iterator[tuple[int, int]]:
    port = free_port()
    conf = folder / "site.toml"
    conf.write_text(f'[store]\nfolder = "{folder}/kept"\n[[cluster]]\nname = "main"\n')
    command = [sys.executable, "-m", "backend.cli", "serve", "--config", str(conf), "--port", str(port)]
    with started(command, port, "/readyz") as pid:
        yield pid, port


@contextmanager
def receiver(folder: Path) -> Iterator[tuple[int, int]]:
    port = free_port()
    conf = folder / "prometheus.yml"
    conf.write_text("global: {}\n")
    command = ["prometheus", f"--config.file={conf}", f"--storage.tsdb.path={folder}/tsdb"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--web.enable-remote-write-receiver", "--log.level=error"]
    with started(command, port, "/-/ready") as pid:
        yield pid, port


@contextmanager
def started(command: list[str], port: int, ready: str) -> Iterator[int]:
    """A server held to one core; stopped by its pid."""
    core = {sorted(os.sched_getaffinity(0))[0]}
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"GOMAXPROCS": "1", "OPENBLAS_NUM_THREADS": "1"},
        preexec_fn=lambda: os.sched_setaffinity(0, core),
    )
    try:
        until = time.monotonic() + 60
        while not _answers(port, ready):
            assert time.monotonic() < until and process.poll() is None, f"{command[0]} did not start"
            time.sleep(0.1)
        yield process.pid
    finally:
        process.terminate()
        process.wait(30)


def _answers(port: int, path: str) -> bool:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        link.request("GET", path)
        return link.getresponse().status == 200
    except OSError:
        return False
    finally:
        link.close()
