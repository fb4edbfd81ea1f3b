"""Seeded faults against the real service on a real PostgreSQL, and what must hold whatever happened."""

from __future__ import annotations

import os
import random
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import requests

from tests.trust.mortal import Database, Prometheus, database, prometheus
from tests.trust.replicas import Replica, answers, soon

LINE = "NVRM: Xid (PCI:0000:1b:00): 79, pid=77, name=python3, GPU has fallen off the bus."
#: How long the work of one seed lasts, and how long it may take to come to rest afterwards. Seconds.
WORK_S, REST_S = 4.0, 60.0


@dataclass
class World:
    """The service and what it leans on."""

    service: Replica
    database: Database
    prometheus: Prometheus
    refused: dict[int, int] = field(default_factory=dict)

    def ask(self, query: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.database.postgres.dsn) as connection:
            return connection.execute(query.encode()).fetchall()

    def push(self, body: bytes, timeout_s: float = 10.0) -> bool:
        """True for a 2xx: from then on it is the service's."""
        try:
            answer = requests.post(
                f"{self.service.url}/api/v1/ingest/logs",
                data=body,
                headers={"Content-Type": "application/x-ndjson"},
                timeout=timeout_s,
            )
        except requests.RequestException:
            return False
        self.refused[answer.status_code] = self.refused.get(answer.status_code, 0) + 1
        return answer.ok


@contextmanager
def world(folder: Path) -> Iterator[World]:
    with database() as base, prometheus() as numbers:
        config = folder / "watchkeeper.toml"
        config.write_text(
            f'[server]\nport = 0\n[store]\nurl = "{base.postgres.url()}"\nfolder = "{folder / "kept"}"\nlease_s = 3\n'
            f'[[cluster]]\nname = "main"\ninterval_s = 2.0\nlateness_s = 1.0\n'
            f'[[cluster.prometheus]]\nurl = "{numbers.url}"\ninterval_s = 2.0\ntimeout_s = 2.0\n'
        )
        service = Replica("service", config, folder / "log")
        try:
            service.start()
            yield World(service, base, numbers)
        finally:
            service.end(signal.SIGKILL)


class Agents:
    """Log agents: each line again until it is accepted; some twice, some late, some among rows nobody can read."""

    def __init__(self, world: World, seed: int) -> None:
        self._world, self._rng, self._seed = world, random.Random(seed), seed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.accepted: set[str] = set()

    def __enter__(self) -> Agents:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            hosts = [f"s{self._seed}-{number + i}" for i in range(self._rng.randint(1, 5))]
            number += len(hosts)
            body = self._body(hosts)
            while not self._world.push(body):
                if self._stop.is_set():
                    return
                time.sleep(0.1)
            self.accepted.update(hosts)
            if self._rng.random() < 0.2:
                self._world.push(body)  # the answer was lost on its way: the same once more
            time.sleep(self._rng.uniform(0.0, 0.1))

    def _body(self, hosts: list[str]) -> bytes:
        rng, now = self._rng, time.time()
        rows = [
            f'{{"ts": {now - rng.uniform(0, 30):.3f}, "host": "{h}", "source": "kernel", "line": "{LINE}"}}'
            for h in hosts
        ]
        rows += [poison for poison in POISON if rng.random() < 0.1]
        rng.shuffle(rows)
        return "\n".join(rows).encode("utf-8", "surrogatepass")


#: Rows that cost themselves and nothing else.
POISON = (
    '{"ts": "never", "host": "x", "source": "kernel", "line": "y"}',
    '{"ts": 1e400, "host": "x", "source": "kernel", "line": "y"}',
    '{"host": null}',
    '{"ts": 1, "host": "\\u0000", "source": "kernel", "line": "\\ud800"}',
    "[" * 300,
    "not json at all",
)


# --- faults -----------------------------------------------------------------------------------------------------------


def killed(world: World, rng: random.Random) -> None:
    world.service.end(signal.SIGKILL)
    time.sleep(rng.uniform(0, 1))
    world.service.start()


def asked_to_end(world: World, rng: random.Random) -> None:
    world.service.end(signal.SIGTERM)
    world.service.start()


def asleep(world: World, rng: random.Random) -> None:
    process = world.service.process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    time.sleep(rng.uniform(0.5, 5))
    process.send_signal(signal.SIGCONT)


def database_killed(world: World, rng: random.Random) -> None:
    world.database.kill()
    time.sleep(rng.uniform(0, 3))
    world.database.start()


def database_slow(world: World, rng: random.Random) -> None:
    world.database.freeze(True)
    time.sleep(rng.uniform(0.5, 4))
    world.database.freeze(False)


def sessions_cut(world: World, rng: random.Random) -> None:
    """As a fail-over behind a proxy looks: every connection of now is gone."""
    world.ask("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")


def disk_full(world: World, rng: random.Random) -> None:
    """No file of the service may grow; its database, elsewhere, still takes what it is told."""
    pid = world.service.pid
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    time.sleep(rng.uniform(1, 4))
    resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


def no_more_files(world: World, rng: random.Random) -> None:
    pid = world.service.pid
    held = len(os.listdir(f"/proc/{pid}/fd"))
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (held + 1, before[1]))
    time.sleep(rng.uniform(0.5, 2))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def numbers_gone(world: World, rng: random.Random) -> None:
    for mood in rng.sample(["gone", "slow", "lying"], 2):
        world.prometheus.mood = mood  # type: ignore[assignment]
        time.sleep(rng.uniform(0.5, 2))
    world.prometheus.mood = "well"


def half_open(world: World, rng: random.Random) -> None:
    """Peers that begin a request and say no more."""
    host, port = world.service.url.removeprefix("http://").split(":")
    held = [socket.create_connection((host, int(port)), 2) for _ in range(60)]
    for one in held:
        one.sendall(b"POST /api/v1/ingest/logs HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n{")
    time.sleep(rng.uniform(0.5, 2))
    for one in held:
        one.close()


def burst(world: World, rng: random.Random) -> None:
    """Ten times what comes otherwise, at once; 429 is an answer."""
    body = b'{"ts": 1, "host": "noise", "source": "kernel", "line": "eth0: link up"}\n' * 20_000
    threads = [threading.Thread(target=world.push, args=(body,)) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)


FAULTS: Mapping[str, Callable[[World, random.Random], None]] = {
    "kill -9": killed,
    "SIGTERM": asked_to_end,
    "asleep": asleep,
    "database killed": database_killed,
    "database slow": database_slow,
    "sessions cut": sessions_cut,
    "disk full": disk_full,
    "no more files": no_more_files,
    "Prometheus gone, slow, lying": numbers_gone,
    "half-open sockets": half_open,
    "burst": burst,
}


# --- one seed ---------------------------------------------------------------------------------------------------------


def run(world: World, seed: int) -> list[str]:
    """One to three faults while agents push. Returns what was done; fails where an invariant is broken."""
    rng = random.Random(seed)
    chosen = rng.sample(sorted(FAULTS), rng.randint(1, 3))
    with Agents(world, seed) as agents:
        for name in chosen:
            time.sleep(rng.uniform(0, WORK_S / 4))
            FAULTS[name](world, rng)
        time.sleep(WORK_S / 4)
        soon(lambda: answers(world.service.url), REST_S, f"it answers again after {chosen}")
        before = len(agents.accepted)
        soon(lambda: len(agents.accepted) > before, REST_S, f"it accepts again after {chosen}")
    hold(world, seed, agents.accepted, chosen)
    return chosen


def hold(world: World, seed: int, accepted: set[str], chosen: list[str]) -> None:
    """Every accepted line is one event, one finding and one incident; none is resolved, for all of them still hold;
    the service is as well as before."""
    told = f"seed {seed}, {', '.join(chosen)}"
    mine = f"node LIKE 's{seed}-%'"
    judged = (
        f"SELECT node, count(DISTINCT incident_id) FROM finding WHERE kind = 'gpu_bus_loss' AND {mine} GROUP BY node"
    )
    soon(lambda: {str(row[0]) for row in world.ask(judged)} >= accepted, REST_S, f"all judged ({told})")
    assert {row[1] for row in world.ask(judged)} == {1}, f"a fault in two incidents ({told})"
    again = f"SELECT key FROM finding WHERE kind = 'gpu_bus_loss' AND {mine} GROUP BY key HAVING count(*) > 1"
    assert world.ask(again) == [], f"a fault found twice ({told})"
    twice = f"SELECT node FROM event WHERE namespace = 'xid' AND {mine} GROUP BY node HAVING count(*) > 1"
    assert world.ask(twice) == [], f"a line counted twice ({told})"
    resolved = (
        "SELECT DISTINCT i.id FROM incident i JOIN finding f ON f.incident_id = i.id "
        f"WHERE f.kind = 'gpu_bus_loss' AND f.{mine} AND i.state = 'resolved'"
    )
    assert world.ask(resolved) == [], f"resolved while it holds ({told})"
    try:
        soon(lambda: requests.get(f"{world.service.url}/readyz", timeout=5).ok, REST_S, "ready")
    except AssertionError:
        late = requests.get(f"{world.service.url}/readyz", timeout=5).text
        raise AssertionError(f"not ready within {REST_S:.0f} s: {late} ({told})") from None
