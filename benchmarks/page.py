"""From the commit of a page's incident to its message at the receiver, beside the bare sending of that message."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from backend import pipeline
from backend.clock import SystemClock, unix
from backend.loops import Loops
from backend.notify.email import EmailNotifier
from backend.notify.outbox import facts_of
from backend.registry import Parts, build
from backend.settings import Email, Policy, Settings, Store
from backend.store import incidents, messages
from benchmarks.line import push
from benchmarks.ratio import timed
from benchmarks.verdict import inventory_of

NODES, PAGES, EVERY_S, LONGEST_S = 400, 60, 0.4, 30.0
#: The promise: 95 of 100 pages are with their receiver so long after the commit, in seconds.
PROMISE_S = 1.0


@dataclass(frozen=True, slots=True)
class Delays:
    """Seconds from commit to arrival of each page, and of sending the same mail by itself."""

    ours: tuple[float, ...]
    bare: tuple[float, ...]

    def __str__(self) -> str:
        p50, p95, most = np.percentile(self.ours, (50, 95, 100))
        kept = "kept" if p95 <= PROMISE_S else "NOT KEPT"
        low = 1000 * float(np.median(self.bare))
        return (
            f"page committed to page received by SMTP: p95 {p95:.3g} s (promise {PROMISE_S:g} s {kept}; "
            f"p50 {p50:.3g} s, longest {most:.3g} s, n = {len(self.ours)}; the sending alone {low:.3g} ms)"
        )


def run() -> Iterator[Delays]:
    with tempfile.TemporaryDirectory() as folder, post_office(Path(folder)) as (port, tape):
        yield measured(Path(folder) / "store", port, tape)


def measured(folder: Path, port: int, tape: Path) -> Delays:
    """Kernel lines of nodes that each lose a GPU, with all loops on."""
    mail = Email.model_validate(
        {"host": "127.0.0.1", "port": port, "starttls": False, "from": "watch@example.test", "to": ["on@example.test"]}
    )
    settings = Settings(store=Store(folder=folder), email=mail, policy=Policy(shift_min=NODES))
    parts = build(settings, SystemClock())
    committed: dict[int, float] = {}
    watch = parts.watches["main"]

    def reached(point: str) -> None:
        now = time.time()
        if point == "incident committed":
            with parts.store.read() as session:
                committed.update(
                    {row.id or 0: now for row in incidents.live(session, "main") if row.id not in committed}
                )

    watch.reached = reached
    pipeline.accept(watch, inventory_of([f"gpu-{n:04}" for n in range(NODES)], unix(parts.clock.now())))
    loops = Loops(parts)
    loops.start()
    try:
        for number in range(PAGES):
            push(parts, f"gpu-{number:04}")
            time.sleep(EVERY_S)
        arrived = arrivals(tape, PAGES)
        bare = tuple(sent_alone(parts, mail) for _ in range(10))
    finally:
        loops.stop()
        parts.store.close()
        assert not [t for t in threading.enumerate() if t.name.startswith("main:")], "a loop did not stop"
    return Delays(tuple(at - committed[number] for number, at in arrived.items()), bare)


def arrivals(tape: Path, count: int) -> Mapping[int, float]:
    """Unix s at which the first mail of each incident came. Raises RuntimeError where too few come."""
    deadline = time.monotonic() + LONGEST_S
    while True:
        found: dict[int, float] = {}
        for line in tape.read_text().splitlines() if tape.exists() else ():
            row = json.loads(line)
            if match := re.search(r"Message-ID: <main-inc-(\d+)-opened", row["raw"], re.IGNORECASE):
                found.setdefault(int(match[1]), row["at"])
        if len(found) >= count:
            return found
        if time.monotonic() > deadline:
            raise RuntimeError(f"{len(found)} of {count} pages came")
        time.sleep(0.2)


def sent_alone(parts: Parts, mail: Email) -> float:
    with parts.store.read() as session:
        row = messages.of_incident(session, "main", 1)[0]
    notifier, message = EmailNotifier(mail, ""), facts_of(row.body)
    return timed(lambda: notifier.send(message))


@contextmanager
def post_office(folder: Path) -> Iterator[tuple[int, Path]]:
    """A mail sink in a process of its own; its port, and the file in which it keeps what came and when."""
    tape = folder / "tape.jsonl"
    words = [sys.executable, "-m", "tests.services.smtp", "0", str(tape)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        try:
            yield int(program.stdout.readline().rpartition(":")[2]), tape
        finally:
            program.terminate()
