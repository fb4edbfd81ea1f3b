"""Training logs made up by seed: healthy ones of many frameworks, failures amid their noise, jobs of many ranks."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).resolve().parent
START = datetime(2025, 3, 2, 11, 20, tzinfo=UTC).timestamp()


@dataclass(frozen=True)
class Case:
    """One hand-written log: ``exclude`` is yes, no or - (either is right)."""

    log_class: str
    exclude: str
    source: str
    text: str


def holdout() -> list[Case]:
    """The logs of joblogs_holdout_*.txt, in order."""
    cases: list[Case] = []
    for path in sorted(HERE.glob("joblogs_holdout_*.txt")):
        parts = re.split(r"^=== (\w+) \| (yes|no|-) \| (.*)\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        cases += [Case(*parts[n : n + 4]) for n in range(1, len(parts), 4)]
    return cases


def clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S,") + f"{int(at * 1000) % 1000:03d}"


def iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{int(at * 1000) % 1000:03d}Z"


Step = Callable[[random.Random, int, float], str]
#: How frameworks tell of a step.
STEPS: dict[str, Step] = {
    "megatron": lambda r, n, at: (
        f" [{clock(at)[:19]}] iteration {n:8d}/  500000 | consumed samples: {n * 1024:12d} | elapsed time per "
        f"iteration (ms): {r.uniform(900, 1400):.1f} | learning rate: 1.2E-04 | global batch size: 1024 | "
        f"lm loss: {loss(r, n):.6E} | loss scale: 1.0 | grad norm: {r.uniform(0.2, 0.9):.3f} | "
        "number of skipped iterations: 0 | number of nan iterations: 0 |"
    ),
    "transformers": lambda r, n, at: str(
        {
            "loss": round(loss(r, n), 4),
            "grad_norm": round(r.random(), 3),
            "learning_rate": 1e-5,
            "epoch": round(n / 900, 2),
        }
    ),
    "nanogpt": lambda r, n, at: f"step:{n}/6200 train_loss:{loss(r, n):.4f} train_time:{n * 97}ms step_avg:97.2ms",
    "titan": lambda r, n, at: (
        f"[titan] {clock(at)} - root - INFO - step: {n:2d}  loss: {loss(r, n):.4f}  memory: 41.1GiB(51.9%)  tps: "
        f"{r.randint(5000, 9000):,}  mfu: 41.20%"
    ),
    "lightning": lambda r, n, at: (
        f"Epoch 0: {n % 100:3d}%|{'#' * (n % 10):10s}| {n}/9000 [0{n % 9}:11<1:02:11,  1.31it/s, v_num=7, "
        f"train_loss={loss(r, n):.3f}]"
    ),
    "deepspeed": lambda r, n, at: (
        f"[{clock(at)}] [INFO] [logging.py:96:log_dist] [Rank 0] step={n}, skipped=0, lr=[1e-05], mom=[(0.9, 0.95)]"
    ),
    "jsonl": lambda r, n, at: json.dumps(
        {"ts": at, "level": "info", "message": f"step {n} loss {loss(r, n):.3f}", "rank": 0}
    ),
    "jax": lambda r, n, at: (
        f"I{datetime.fromtimestamp(at, UTC):%m%d %H:%M:%S}.000001 811 metrics.py:89] completed step: {n}, "
        f"seconds: 1.201, TFLOP/s/device: 410.1, loss: {loss(r, n):.3f}"
    ),
}
#: Words of healthy logs that look bad to a careless reader.
HARMLESS = tuple(
    line
    for line in (HERE / "joblogs_harmless.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
)
FINISHES = (
    "Training completed successfully in 3:01:22",
    "***** train metrics *****",
    "[after training is done] datetime: 2025-03-02 14:00:00",
    "`Trainer.fit` stopped: `max_steps=900` reached.",
    "peak memory consumption: 31 GiB",
    "wandb: Run summary: train_loss 2.01\nFinished training",
)
#: What the other ranks and the launcher say once one has failed.
CASCADE = (
    "[rank{rank}]:[E{glog} ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000) ran for 600013 "
    "milliseconds before timing out.",
    "[rank{rank}]:[E{glog} ProcessGroupNCCL.cpp:1664] [PG 0 Rank {rank}] Exception (either an error or timeout) "
    "detected by watchdog at work: {seq}, last enqueued NCCL work: {seq}, last completed NCCL work: {before}.",
    "terminate called after throwing an instance of 'c10::DistBackendError'",
)
LAUNCHER = (
    "W{glog} 811 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 8830 closing signal SIGTERM",
    "E{glog} 811 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 1 (pid: 8831)",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
    "srun: error: gpu-0001: task 1: Exited with exit code 1",
)


def loss(r: random.Random, n: int) -> float:
    return 2.0 + 9.0 / (1 + n / 50) + r.uniform(-0.05, 0.05)


def glog(at: float) -> str:
    when = datetime.fromtimestamp(at, UTC)
    return f"{when.month}{when.day:02d} {when:%H:%M:%S}.{int(at * 1e6) % 1_000_000:06d}"


def noise(r: random.Random, step: int = 100) -> str:
    return r.choice(HARMLESS).format(
        node=f"{r.randint(1, 99):04d}", pid=r.randint(100, 99_999), gpu=r.randint(0, 7), step=step
    )


def healthy(seed: int, steps: int = 60) -> str:
    """A run that goes well; one in three is only the beginning of one, without a word at the end."""
    r = random.Random(seed)
    framework = STEPS[r.choice(sorted(STEPS))]
    lines = [noise(r) for _ in range(r.randint(4, 20))]
    for n in range(steps):
        lines.append(framework(r, n * 10, START + n * 12))
        lines += [noise(r, n * 10)] * (r.random() < 0.15)
    if r.random() < 0.3:
        at = len(lines) // 2
        lines[at:at] = r.choice(RETRIED).splitlines()
    return "\n".join(lines + ([r.choice(FINISHES)] if r.random() < 0.67 else [])) + "\n"


#: Troubles that somebody caught.
RETRIED = (
    "requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='huggingface.co', port=443): Read timed out.\n"
    "Retrying in 2s [Retry 2/5].",
    "WARNING: ran out of memory with exception: CUDA out of memory. Tried to allocate 2.00 GiB; skipping batch",
    "WARNING checkpoint upload failed, will retry: An error occurred (SlowDown) when calling the PutObject operation",
    "| WARNING: overflow detected, setting loss scale to: 64.0",
    "wandb: WARNING Network error (ConnectionError), entering retry loop.",
    "Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f>\n"
    "AssertionError: can only test a child process",
)


def failing(seed: int, message: str) -> str:
    """One rank's log, or a launcher's: noise, steps, the message among them, and what follows."""
    r = random.Random(seed)
    framework = STEPS[r.choice(sorted(STEPS))]
    lines = [noise(r) for _ in range(r.randint(0, 12))]
    count = r.choice((0, 3, 40, 400))
    lines += [framework(r, n * 10, START + n * 12) for n in range(count)]
    lines += message.splitlines()
    at = START + count * 12 + 30
    if r.random() < 0.6:
        lines += [line.format(rank=0, seq=88, before=87, glog=glog(at + 600)) for line in CASCADE[: r.randint(0, 3)]]
        lines += [line.format(glog=glog(at + 601)) for line in LAUNCHER[: r.randint(0, 4)]]
    return "\n".join(prefixed(r, lines)) + "\n"


def prefixed(r: random.Random, lines: Sequence[str]) -> Iterator[str]:
    """As some launcher would print them."""
    way = r.choice(("plain", "plain", "srun", "mpirun", "ray", "default", "kubectl", "time"))
    for n, line in enumerate(lines):
        yield {
            "plain": line,
            "srun": f"1: {line}",
            "mpirun": f"[1,1]<stderr>:{line}",
            "ray": f"(RayTrainWorker pid=811, ip=10.0.0.4) {line}",
            "default": f"[default1]:{line}",
            "kubectl": f"[pod/trainer-1/pytorch] {line}",
            "time": f"{iso(START + n)} {line}",
        }[way]


@dataclass
class Job:
    """Logs by file name; who is at fault."""

    logs: dict[str, str] = field(default_factory=dict)
    rank: int = 0
    node: str = ""


def job(seed: int, message: str, ranks: int = 16, skew_s: float = 0.0, gpus: int = 8) -> Job:
    """One rank fails with ``message``; a little later the others time out. Clocks are off by up to ``skew_s``."""
    r = random.Random(seed)
    made = Job(rank=r.randrange(ranks))
    nodes = [f"gpu-{n:04d}" for n in sorted(r.sample(range(1, 9999), -(-ranks // gpus)))]
    off = {node: r.uniform(-skew_s, skew_s) for node in nodes}
    made.node = nodes[made.rank // gpus]
    steps, broke = r.randint(8, 20), START + 400
    for rank in range(ranks):
        node = nodes[rank // gpus]
        at = START + off[node]
        pid = 4000 + rank
        lines = [
            f"{node}:{pid}:{pid} [{rank % gpus}] NCCL INFO comm 0x5a rank {rank} nranks {ranks} cudaDev "
            f"{rank % gpus} nvmlDev {rank % gpus} busId 1b000 commId 0xabc{seed} - Init COMPLETE"
        ]
        lines += [
            f"{clock(at + n * 10 + r.uniform(0, 0.2))} INFO step {n * 10} loss {loss(r, n):.3f}" for n in range(steps)
        ]
        if rank == made.rank:
            lines += [f"{clock(broke + off[node])} ERROR worker failed", *message.splitlines()]
        else:
            late = broke + off[node] + r.uniform(1.0, 3.0)
            lines += [line.format(rank=rank, seq=88, before=87, glog=glog(late)) for line in CASCADE]
        made.logs[f"rank_{rank}.log"] = "\n".join(lines) + "\n"
    return made
