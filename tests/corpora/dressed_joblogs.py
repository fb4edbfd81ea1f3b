"""Hold-outs whose author had not read the rules: failing and healthy logs in the forms of launchers, jobs of ranks."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from tests.corpora.joblogs import HERE

BEGIN = datetime(2025, 9, 14, 2, 0, tzinfo=UTC)
HEADER = re.compile(r"^=== (\w+) \| (yes|no|-) \| ([^|\n]*) \| (.*)\n", re.MULTILINE)
FILE = re.compile(r"^@@ (\S+)\n", re.MULTILINE)


@dataclass(frozen=True)
class Dressed:
    """The logs of one job by path. ``end``: state, exit code and signal, "" where nobody told. ``rank`` and ``node``:
    who is to be named, None and "" where one log cannot say."""

    log_class: str
    exclude: str
    source: str
    logs: Mapping[str, str]
    end: str = ""
    rank: int | None = None
    node: str = ""


def stamp(n: int) -> str:
    return f"{BEGIN + timedelta(seconds=n):%Y-%m-%dT%H:%M:%S}.{n * 7919 % 1_000_000:06d}"


def _level(line: str) -> str:
    return "ERROR" if re.search(r"\b(?:error|ERROR|failed)\b|Error\b|Traceback", line) else "INFO"


def as_json(n: int, line: str) -> str:
    return json.dumps({"time": stamp(n) + "Z", "level": _level(line), "logger": "trainer", "message": line})


def as_docker(n: int, line: str) -> str:
    return json.dumps({"log": line + "\n", "stream": "stderr", "time": stamp(n) + "000Z"})


def as_loguru(n: int, line: str) -> str:
    return f"{stamp(n)[:23].replace('T', ' ')} | {_level(line):8s} | trainer.loop:run:88 - {line}"


#: How a line stands in the log of a launcher or a container; n counts its seconds. Where a prefix names a rank or an
#: address it is 3, or 10.3.0.4, until ``prefixed`` says whose it is.
FORMS: dict[str, Callable[[int, str], str]] = {
    "plain": lambda n, line: line,
    "crlf": lambda n, line: line + "\r",
    "json": as_json,
    "docker": as_docker,
    "loguru": as_loguru,
    "ray": lambda n, line: f"\x1b[36m(RayTrainWorker pid=811, ip=10.3.0.4)\x1b[0m {line}",
    "mpi": lambda n, line: f"[1,3]<stderr>:{line}",
    "srun": lambda n, line: f"3: {line}",
    "torchrun": lambda n, line: f"[default3]:{line}",
    "k8s": lambda n, line: f"{stamp(n)}000Z stderr F {line}",
    "ansi": lambda n, line: f"\x1b[31;1m{line}\x1b[0m",
    "tqdm": lambda n, line: f" {n + 20:3d}%|###       | {n + 20}/100 [00:{n % 60:02d}<01:11,  1.02it/s]\r{line}",
}


def cases(name: str) -> list[Dressed]:
    """The logs of ``<name>_joblogs*.txt`` in order, but those that are healthy and the jobs."""
    return [one for path in sorted(HERE.glob(f"{name}_joblogs_[1-9].txt")) for one in _read(path.name)]


def healthy(name: str) -> list[Dressed]:
    return _read(f"{name}_joblogs_healthy.txt")


def _read(name: str) -> list[Dressed]:
    parts = HEADER.split((HERE / name).read_text(encoding="utf-8"))
    return [_dressed(*parts[n : n + 5]) for n in range(1, len(parts), 5)]


def _dressed(log_class: str, exclude: str, source: str, form: str, text: str) -> Dressed:
    dress, _, end = form.partition(" end=")
    files = FILE.split(text)
    named = dict(zip(files[1::2], files[2::2], strict=True)) or {"train.log": text}
    logs = {path: dressed(dress.strip(), said.splitlines()) for path, said in named.items()}
    return Dressed(log_class, exclude, source, logs, end.strip())


def dressed(form: str, lines: Sequence[str], start: int = 0) -> str:
    return "".join(FORMS[form](start + n, line) + "\n" for n, line in enumerate(lines))


#: How the others tell that one broke, by style, and how many s after it.
FOLLOWED = (
    (
        600.0,
        "[rank{rank}]:[E914 {clock} ProcessGroupNCCL.cpp:683] [Rank {rank}] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=77, OpType=REDUCE_SCATTER, NumelIn=8, NumelOut=1, Timeout(ms)=600000) ran for "
        "600020 milliseconds before timing out.",
    ),
    (1.5, "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.1.0.9]:41"),
    (
        2.5,
        "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, "
        "remote process exited or there was a network error, NCCL version 2.26.2",
    ),
    (
        4.0,
        "W0914 {clock} 8 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 7 closing signal "
        "SIGTERM",
    ),
    (3.0, "*** Process received signal 15 (SIGTERM); exiting"),
)
NAMES = (
    "{node}/rank{rank}.log",
    "logs/{node}.{rank}.err",
    "attempt_0/{rank}/stderr.log",
    "job-77.{rank}.{node}.out",
    "pods/trainer-worker-{rank}.log",
)


@dataclass
class Guilty:
    """Which of the ranks it was, and on which node."""

    rank: int
    nodes: list[str] = field(default_factory=list)
    per_node: int = 4

    @property
    def node(self) -> str:
        return self.nodes[self.rank // self.per_node]


def jobs(name: str, skew_s: float = 5.0) -> list[Dressed]:
    """One job a line of ``<name>_joblogs_jobs.txt``: 16 ranks on 4 nodes whose clocks are apart by up to ``skew_s``."""
    text = (HERE / f"{name}_joblogs_jobs.txt").read_text(encoding="utf-8")
    rows = [re.split(r" \| ?", line, maxsplit=3) for line in text.splitlines() if not line.startswith("#")]
    return [_job(name, n, *row, skew_s=skew_s) for n, row in enumerate(rows)]


def _job(name: str, n: int, log_class: str, exclude: str, form: str, words: str, *, skew_s: float) -> Dressed:
    r = random.Random(f"{name} {n}")
    who = Guilty(r.randrange(16), r.sample([f"gn{k:03d}" for k in range(1, 400)], 4))
    off = {node: r.uniform(-skew_s, skew_s) for node in who.nodes}
    path, logs, order = NAMES[n % len(NAMES)], {}, list(range(16))
    followed = FOLLOWED[0] if not words else FOLLOWED[n % len(FOLLOWED)]
    r.shuffle(order)
    for rank in order:
        node = who.nodes[rank // 4]
        at = BEGIN + timedelta(seconds=off[node])
        told = [(at, f"{node} rank {rank}/16 local_rank {rank % 4} start")]
        last = 9 if not words and rank == who.rank else 25
        told += [
            (at + timedelta(seconds=10 * k + r.random() * 0.1), f"step {k} loss {4 - k / 50:.3f}")
            for k in range(1, last)
        ]
        broke = at + timedelta(seconds=251)
        if rank == who.rank and not words.startswith("kernel:"):
            told += [(broke, line) for line in _raised(words.replace("{node}", node))]
        elif rank != who.rank:
            then = broke + timedelta(seconds=followed[0] + r.random())
            told.append((then, followed[1].format(rank=rank, clock=f"{then:%H:%M:%S}.{then.microsecond:06d}")))
        written = _written(form, told)
        logs[path.format(rank=rank, node=node)] = prefixed(written, rank, who.nodes.index(node), rank % 4)
    if words.startswith("kernel:"):
        at = BEGIN + timedelta(seconds=off[who.node] + 250)
        logs[f"{who.node}/kern.log"] = f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond:06d}+00:00 {who.node} {words}\n"
    whole = words.startswith("kernel:")
    return Dressed(log_class, exclude, form, logs, rank=None if whole else who.rank, node=who.node)


def prefixed(text: str, rank: int, node: int, local: int) -> str:
    """The rank, the address and the local rank that prefixes name."""
    text = text.replace("[1,3]<", f"[1,{rank}]<").replace("[default3]", f"[default{local}]")
    text = re.sub(r"^3: ", f"{rank}: ", text, flags=re.MULTILINE)
    return text.replace("ip=10.3.0.4", f"ip=10.3.0.{node + 1}")


def _raised(words: str) -> list[str]:
    if not words:
        return []
    return ["Traceback (most recent call last):", '  File "/w/loop.py", line 9, in run', "    step()", words]


def _written(form: str, told: Sequence[tuple[datetime, str]]) -> str:
    lines = []
    for n, (at, line) in enumerate(told):
        clock = f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03d}"
        if form in ("json", "docker", "k8s", "loguru"):
            wrapped = FORMS[form](n, line).replace(stamp(n)[:23].replace("T", " "), clock.replace(",", "."))
            lines.append(wrapped.replace(stamp(n), f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond:06d}"))
        else:
            lines.append(FORMS[form](n, f"{clock} {line}" if not line.startswith((" ", "[rank", "W0914")) else line))
    return "\n".join(lines) + "\n"
