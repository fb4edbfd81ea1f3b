"""Two processes on one PostgreSQL: one watches; when it dies the other does within 10 s; nothing is lost or twice."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Iterator

import pytest
import requests

from tests.services.postgres import Postgres
from tests.trust.replicas import Pair, Replica, pair, soon

pytestmark = pytest.mark.services
LINE = "NVRM: Xid (PCI:0000:1b:00): 79, pid=77, name=python3, GPU has fallen off the bus."
WITHIN_S = 10.0


@pytest.fixture(scope="module")
def two(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with pair(postgres, tmp_path_factory.mktemp("pair")) as found:
        yield found


class Stream:
    """One kernel line of a new node after another to whoever answers; ``accepted`` got a 2xx."""

    def __init__(self, pair: Pair, every_s: float, name: str) -> None:
        self._pair, self._every_s, self._name = pair, every_s, name
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.accepted: list[str] = []

    def __enter__(self) -> Stream:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(20)

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(self._every_s):
            number += 1
            self._until_taken(f"{self._name}-{number:05d}")

    def _until_taken(self, host: str) -> None:
        """As a log agent does: the same line again, to another one if need be, until somebody says 2xx."""
        row = {"ts": time.time(), "host": host, "source": "kernel", "line": LINE}
        while not self._stop.is_set():
            for replica in self._pair.alive():
                if push(replica, row):
                    self.accepted.append(host)
                    return
            self._stop.wait(0.05)


def push(replica: Replica, row: dict[str, object]) -> bool:
    try:
        return requests.post(f"{replica.url}/api/v1/ingest/logs", json=[row], timeout=3).ok
    except requests.RequestException:
        return False


def fail_over(two: Pair, how: signal.Signals, rng: random.Random) -> float:
    """End the leader at a moment nobody chose; seconds until the other one watches."""
    time.sleep(rng.uniform(0.0, 1.5))
    first = two.leader()
    assert first is not None
    first.end(how)
    took = soon(lambda: (now := two.leader()) is not None and now is not first, WITHIN_S, "the other one watches")
    if how is not signal.SIGSTOP:
        first.start()
    return took


def judged(two: Pair) -> dict[str, int]:
    """How many incidents tell of each node's lost GPU."""
    rows = two.ask("SELECT node, count(DISTINCT incident_id) FROM finding WHERE kind = 'gpu_bus_loss' GROUP BY node")
    return {str(node): int(str(count)) for node, count in rows}


def nothing_lost_nothing_twice(two: Pair, accepted: list[str]) -> None:
    """Every accepted line is one event and one finding of one incident."""
    soon(lambda: judged(two).keys() >= set(accepted), 30, "all accepted lines judged")
    assert set(judged(two).values()) == {1}
    keys = two.ask("SELECT key, count(*) FROM finding WHERE kind = 'gpu_bus_loss' GROUP BY key HAVING count(*) > 1")
    assert keys == []
    events = two.ask("SELECT node, count(*) FROM event WHERE namespace = 'xid' GROUP BY node HAVING count(*) > 1")
    assert events == []


def test_when_the_leader_is_killed_the_other_watches_within_10_s(two: Pair) -> None:
    with Stream(two, 0.1, "killed") as stream:
        fail_over(two, signal.SIGKILL, random.Random(1))
        time.sleep(1)
    assert len(stream.accepted) > 10
    nothing_lost_nothing_twice(two, stream.accepted)


def test_a_leader_that_ends_in_order_hands_over_at_once(two: Pair) -> None:
    first = two.leader()
    assert first is not None
    first.end(signal.SIGTERM)
    took = soon(lambda: two.leader() not in (None, first), WITHIN_S, "the other one watches")
    first.start()
    assert took < 3.0


def test_a_leader_that_was_asleep_commits_nothing_when_it_wakes(two: Pair) -> None:
    with Stream(two, 0.2, "asleep") as stream:
        first = two.leader()
        assert first is not None
        sleeper = first.process
        assert sleeper is not None
        url, first.url = first.url, ""  # nobody sends to it while it sleeps
        sleeper.send_signal(signal.SIGSTOP)
        try:
            soon(lambda: (now := two.leader()) is not None and now is not first, 3 * WITHIN_S, "the other one watches")
            time.sleep(1)
        finally:
            sleeper.send_signal(signal.SIGCONT)
        first.url = url
        time.sleep(2)
    leader = two.leader()
    assert leader is not None and leader is not first
    nothing_lost_nothing_twice(two, stream.accepted)


@pytest.mark.slow
def test_twenty_of_twenty(two: Pair) -> None:
    rng, took = random.Random(20), []
    with Stream(two, 0.05, "twenty") as stream:
        for _ in range(20):
            took.append(fail_over(two, rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]), rng))
    print(f"fail-over: n 20, longest {max(took):.1f} s, median {sorted(took)[10]:.1f} s, {len(stream.accepted)} lines")
    nothing_lost_nothing_twice(two, stream.accepted)
