"""Logs by a reviewer who had not seen the rules: single ones, healthy ones, jobs of many ranks with clocks apart."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from tests.corpora.joblogs import HERE, Case

BEGIN = datetime(2025, 8, 11, 9, 0, tzinfo=UTC)


def singles() -> list[Case]:
    """Failing logs, and those that tell nothing, in order."""
    return [case for part in ("1", "2") for case in _cases(f"fresh_joblogs_{part}.txt")]


def healthy() -> list[Case]:
    return _cases("fresh_joblogs_healthy.txt")


def _cases(name: str) -> list[Case]:
    text = (HERE / name).read_text(encoding="utf-8")
    parts = re.split(r"^=== (\w+) \| (yes|no|-) \| (.*)\n", text, flags=re.MULTILINE)
    return [Case(*parts[n : n + 4]) for n in range(1, len(parts), 4)]


@dataclass
class Cascade:
    """One job: its logs by path, whose fault it is, and whether a node may be left out for it."""

    log_class: str
    exclude: str
    rank: int
    node: str
    logs: dict[str, str] = field(default_factory=dict)


#: How the others tell of it, by style, and how many s after it.
FOLLOWED = (
    (
        601.0,
        "[rank{rank}]:[E811 {clock} ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=40{last}, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
        "Timeout(ms)=600000) ran for 600011 milliseconds before timing out.",
    ),
    (
        2.0,
        "{node}:44:91 [{gpu}] include/socket.h:541 NCCL WARN socketProgress: Connection closed by remote"
        " peer {who}<41000>",
    ),
    (
        3.0,
        "[rank{rank}]: torch.distributed.DistBackendError: NCCL error in: "
        "../torch/csrc/distributed/c10d/NCCLUtils.hpp:268, remote process exited or there was a network "
        "error, NCCL version 2.20.5",
    ),
    (4.0, "torch.distributed.elastic.multiprocessing.api.SignalException: Process 77 got signal: 15"),
)
NAMES = ("logs/rank_{rank}.out", "attempt_0/{rank}/stderr.log", "{node}-rank{rank}.err", "worker-{rank:05d}.log")


def cascades(skew_s: float = 5.0) -> list[Cascade]:
    """One job for each beginning: 16 ranks on 4 nodes; clocks off by up to ``skew_s``; the guilty file anywhere."""
    lines = (HERE / "fresh_joblogs_jobs.txt").read_text(encoding="utf-8").splitlines()
    began = [line.split(" |", 2) for line in lines if not line.startswith("#")]
    return [_cascade(number, *(word.strip() for word in words), skew_s=skew_s) for number, words in enumerate(began)]


def _cascade(number: int, log_class: str, exclude: str, words: str, *, skew_s: float) -> Cascade:
    r = random.Random(9000 + number)
    nodes = [f"hgx-{r.randint(100, 999)}" for _ in range(4)]
    off = [r.uniform(-skew_s, skew_s) for _ in nodes]
    rank = r.randrange(16)
    job = Cascade(log_class, exclude, rank, nodes[rank // 4])
    name, (delay, said) = NAMES[number % len(NAMES)], FOLLOWED[0 if not words else number % len(FOLLOWED)]
    order = list(range(16))
    r.shuffle(order)
    for one in order:
        node, at = nodes[one // 4], BEGIN + timedelta(seconds=off[one // 4])
        lines = [f"{at:%Y-%m-%d %H:%M:%S},001 INFO rank {one}/16 on {node} pid {4000 + one}"]
        lines += _steps(at, 5 if not words and one == rank else 30, r)
        broke = at + timedelta(seconds=305)
        if one != rank:
            then = broke + timedelta(seconds=delay + r.random())
            lines.append(f"{then:%Y-%m-%d %H:%M:%S},{then.microsecond // 1000:03d} ERROR stopped")
            last = f"{then:%H:%M:%S}.{then.microsecond:06d}"
            lines.append(said.format(rank=one, gpu=one % 4, node=node, who=job.node, clock=last, last=1))
        elif words:
            lines.append(f"{broke:%Y-%m-%d %H:%M:%S},100 ERROR exception in rank {one}")
            lines += ["Traceback (most recent call last):", '  File "/w/t.py", line 9, in run'] * (": [E" not in words)
            lines.append(words)
        job.logs[name.format(rank=one, node=node)] = "\n".join(lines) + "\n"
    return job


def _steps(at: datetime, count: int, r: random.Random) -> list[str]:
    return [
        f"{at + timedelta(seconds=10 * n + r.random() * 0.2):%Y-%m-%d %H:%M:%S},{r.randrange(1000):03d} INFO step "
        f"{n * 10} | loss {3 - n / 50:.3f} | tgs 4{r.randrange(100):02d}"
        for n in range(1, count)
    ]
