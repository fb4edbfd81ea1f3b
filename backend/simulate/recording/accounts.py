"""Accounting of a recording as ``sacct -P -D`` prints it, and the scheduler's own lines about each job."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby

from backend.simulate.recording.plant import Plant
from backend.simulate.recording.scene import Scene
from backend.simulate.recording.work import Attempt

FIELDS = (
    "JobIDRaw", "JobID", "JobName", "Cluster", "User", "Account", "Partition", "State", "ExitCode", "Reason",
    "FailedNode", "Restarts", "Submit", "Eligible", "Start", "End", "ElapsedRaw", "TimelimitRaw", "NNodes", "NodeList",
    "AllocTRES", "SubmitLine",
)  # fmt: skip
LIMIT_MIN = 10_080


def sacct(site: Plant, attempts: Sequence[Attempt], end: float) -> Iterator[str]:
    """The header, then a row an attempt that was submitted before ``end`` (unix s), by job and restart."""
    yield "|".join(FIELDS)
    shown = [one for one in attempts if one.submit < end]
    for attempt in sorted(shown, key=lambda one: (int(one.job), one.restart)):
        yield "|".join(_row(site, attempt, end))


def _row(site: Plant, attempt: Attempt, end: float) -> list[str]:
    began = attempt.start < end and bool(attempt.nodes)
    over = attempt.end is not None and attempt.end <= end and began
    stop = attempt.end if over and attempt.end is not None else end
    names = [site.nodes[row].name for row in attempt.nodes]
    run, n, cards = attempt.run, len(names), site.cards_a_node
    exclude = f" --exclude={hostlist(sorted(attempt.excluded))}" if attempt.excluded else ""
    submitted = (
        f"sbatch --job-name={run.name} --nodes={run.need} --gpus-per-node={cards}{exclude} --requeue train.sbatch"
    )
    return [
        attempt.job, attempt.job, run.name, site.cluster, run.user, f"acct-{run.user}", "train",
        attempt.state if over else "RUNNING" if began else "PENDING",
        attempt.exit if over else "0:0", attempt.reason if over else "None", attempt.failed_node if over else "",
        str(attempt.restart), stamp(attempt.submit), stamp(attempt.eligible),
        stamp(attempt.start) if began else "Unknown", stamp(stop) if over else "Unknown",
        str(int(stop) - int(attempt.start)) if began else "0", str(LIMIT_MIN), str(n if began else run.need),
        hostlist(names) if began else "None assigned",
        f"billing={96 * n},cpu={96 * n},gres/gpu={cards * n},mem={1440 * n}G,node={n}" if began else "", submitted,
    ]  # fmt: skip


def stamp(at: float) -> str:
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%S")


def hostlist(names: Sequence[str]) -> str:
    """``a-[01-03,07],b-02`` of sorted names that end in numbers."""
    found = []
    for prefix, group in groupby(names, key=lambda name: re.sub(r"\d+$", "", name)):
        tails = [name[len(prefix) :] for name in group]
        found.append(f"{prefix}{tails[0]}" if len(tails) == 1 else f"{prefix}[{','.join(_ranges(tails))}]")
    return ",".join(found)


def _ranges(tails: list[str]) -> list[str]:
    runs: list[list[str]] = []
    for tail in tails:
        if runs and int(tail) == int(runs[-1][-1]) + 1:
            runs[-1].append(tail)
        else:
            runs.append([tail])
    return [run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]


def scheduler_lines(scene: Scene) -> None:
    """What the controller logs of every start and of every good end."""
    for attempt in scene.table.attempts:
        if not attempt.nodes or attempt.start >= scene.end:
            continue
        names = hostlist([scene.site.nodes[row].name for row in attempt.nodes])
        scene.slurm(attempt.submit, f"_slurm_rpc_submit_batch_job: JobId={attempt.job} InitPrio=4294 usec=512")
        cpus = 96 * len(attempt.nodes)
        allocated = f"sched: Allocate JobId={attempt.job} NodeList={names} #CPUs={cpus} Partition=train"
        scene.slurm(attempt.start, allocated)
        if attempt.state == "COMPLETED" and attempt.end is not None:
            scene.slurm(attempt.end, f"_job_complete: JobId={attempt.job} WEXITSTATUS 0")
            scene.slurm(attempt.end + 0.01, f"_job_complete: JobId={attempt.job} done")
