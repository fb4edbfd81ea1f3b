"""The written side of a bundle: log files, job logs, training rows, checkpoints, and the truth."""

from __future__ import annotations

import heapq
import math
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import orjson

from backend.simulate.recording.codes import dressed
from backend.simulate.recording.lessons import SHIPPED, Lessons
from backend.simulate.recording.scene import Fault, Scene, Sight
from backend.simulate.recording.scrapes import Scrapes
from backend.simulate.recording.work import Attempt, Phase, Segments

Row = Mapping[str, object]
#: source -> file; what is not named lands in its own source's file.
FILES = {"slurmctld": "slurm", "slurmd": "slurm", "journal": "kernel"}
CHATTER_EVERY_S = 240.0


def write_training(out: Path, stage: Scene, planned: Sequence[Segments], lessons: Sequence[Lessons]) -> None:
    """``training/*.jsonl`` and ``checkpoints.jsonl``."""
    for one in lessons:
        mine = [(a, p) for a, p in zip(stage.table.attempts, planned, strict=True) if a.run.name == one.run.name]
        _write_rows(out / "training" / f"{one.run.name}.jsonl", one.rows(mine))
    saves = sorted((row for one in lessons for row in one.checkpoints), key=lambda row: (row["ts"], row["run"]))
    _write_rows(out / "checkpoints.jsonl", saves)


def write_logs(out: Path, stage: Scene, lessons: Sequence[Lessons]) -> None:
    """``logs/*.jsonl`` sorted by arrival, and ``jobs/logs/<job>/rank<N>.log``."""
    said: dict[str, list[tuple[float, int, str]]] = defaultdict(list)
    hosts: dict[str, list[Attempt]] = defaultdict(list)
    shipped: list[Row] = []
    for attempt in stage.table.attempts:
        hosts[attempt.job].append(attempt)
        said[attempt.job] += attempt.said
        shipped += [_job_row(stage, attempt.job, attempt.nodes, *line) for line in attempt.said if line[0] < stage.end]
    for one in lessons:
        for job, lines in one.logged.items():
            said[job] += lines
            shipped += [_job_row(stage, job, _nodes_at(hosts[job], line[0]), *line) for line in lines[::SHIPPED]]
    _write_job_logs(out / "jobs" / "logs", stage, said)
    gap = [(e.start, e.end) for e in stage.effects if e.channel == "shipper_away"]
    off = _off(stage)
    heard_of = [one for one in stage.lines if not any(a < (one[4] or one[0]) < b for a, b in off.get(one[1], ()))]
    spoken = sorted(heard_of, key=lambda one: (one[4] or one[0], one[0], one[1], one[3]))
    events = [(heard or ts, _row(ts, host, source, line, heard), source) for ts, host, source, line, heard in spoken]
    streams = [((at, FILES.get(source, source), row) for at, row, source in events),
               ((float(str(row["ts"])), "job", row) for row in sorted(shipped, key=_told_at)),
               ((float(str(row["ts"])), "kernel", row) for row in _chatter(stage))]  # fmt: skip
    with ExitStack() as files:
        opened = {name: files.enter_context((out / "logs" / f"{name}.jsonl").open("wb"))
                  for name in ("kernel", "fabricmanager", "slurm", "job")}  # fmt: skip
        for at, name, row in heapq.merge(*streams, key=lambda one: one[0]):
            if not any(begin <= at < end for begin, end in gap):
                opened[name].write(orjson.dumps(row) + b"\n")


def _row(ts: float, host: str, source: str, line: str, heard: float | None) -> dict[str, object]:
    row: dict[str, object] = {"ts": ts, "host": host, "source": source, "line": line}
    return {**row, "recv_ts": round(heard, 3)} if heard is not None else row


def _off(stage: Scene) -> Mapping[str, list[tuple[float, float]]]:
    """When each host was off, until it booted; an exporter comes back somewhat later than the first line does."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for effect in stage.effects:
        for row in effect.rows if effect.channel == "off" else ():
            booted = [at for node, at in stage.boots if node == row and effect.start < at <= effect.end]
            found[stage.site.nodes[row].name].append((effect.start, min([*booted, effect.end])))
    return found


def _nodes_at(attempts: Sequence[Attempt], at: float) -> tuple[int, ...]:
    return next(one.nodes for one in reversed(attempts) if one.nodes and one.start <= at)


def _told_at(row: Row) -> tuple[float, str, int]:
    return float(str(row["ts"])), str(row["job"]), int(str(row["rank"]))


def _job_row(stage: Scene, job: str, nodes: tuple[int, ...], ts: float, rank: int, line: str) -> Row:
    host = stage.site.nodes[nodes[min(rank // stage.site.cards_a_node, len(nodes) - 1)]].name if nodes else ""
    return {"ts": ts, "host": host, "source": "job", "line": line, "job": job, "rank": rank}


def _write_job_logs(folder: Path, stage: Scene, said: Mapping[str, Iterable[tuple[float, int, str]]]) -> None:
    for job, lines in said.items():
        ranks: dict[int, list[str]] = defaultdict(list)
        for at, rank, line in sorted(lines):
            if stage.start <= at < stage.end:
                stamp = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
                ranks[rank].append(f"[{stamp}] {line}\n")
        for rank, text in ranks.items():
            (folder / job).mkdir(parents=True, exist_ok=True)
            (folder / job / f"rank{rank}.log").write_text("".join(text))


def _chatter(stage: Scene) -> Iterator[Row]:
    """Lines that mean nothing, as nearly all do; a host that is off says nothing."""
    dice = random.Random(f"chatter/{stage.site.seed}")
    off = _off(stage)
    at = stage.start
    while True:
        at += dice.expovariate(len(stage.site.nodes) / CHATTER_EVERY_S)
        if at >= stage.end:
            return
        node = dice.choice(stage.site.nodes)
        line = dice.choice((
            f"systemd[1]: Started Session {dice.randrange(100, 9999)} of User slurm.",
            f"audit: type=1400 audit(0.0:{dice.randrange(10, 99)}): apparmor=\"STATUS\" operation=\"profile_replace\"",
            f"perf: interrupt took too long ({dice.randrange(2500, 3900)} > 2500), lowering the sample rate",
            f"docker0: port {dice.randrange(1, 9)}(veth{dice.getrandbits(20):05x}) entered forwarding state",
            f"nvidia-peermem: registered {dice.randrange(1, 9)} regions",
        ))  # fmt: skip
        if not any(begin <= at < end for begin, end in off[node.name]):
            yield {"ts": round(at, 3), "host": node.name, "source": "kernel", "line": dressed(node, at, line)}


# --- the truth -----------------------------------------------------------------------------------------------------


def write_truth(
    out: Path, stage: Scene, times: Scrapes, planned: Sequence[Segments], lessons: Sequence[Lessons]
) -> int:
    """``truth.jsonl``: faults that something in the bundle shows, by start; how many."""
    by_run = {one.run.name: one for one in lessons}
    rows: list[Row] = []
    for fault in sorted(stage.faults, key=lambda one: (one.start, one.entity)):
        seen = [at for sight in fault.sights if (at := _seen(sight, stage, times, planned, by_run)) is not None]
        first = min((at for at in seen if at <= stage.end), default=None)
        if first is not None:
            rows.append(_truth_row(len(rows) + 1, fault, first))
    _write_rows(out / "truth.jsonl", rows)
    return len(rows)


def _truth_row(number: int, fault: Fault, first: float) -> Row:
    return {
        "id": f"F{number:03d}",
        "entity": fault.entity,
        "kind": fault.kind,
        "variant": fault.variant,
        "start": fault.start,
        "end": round(max(fault.end, first), 3),
        "first_visible": round(first, 3),
        "exclude": fault.exclude,
        "exclude_ok": fault.exclude_ok,
        "first_xid": fault.first_xid,
        "job": fault.job,
        "run": fault.run,
        "nodes": list(fault.nodes),
    }


def _seen(
    sight: Sight, stage: Scene, times: Scrapes, planned: Sequence[Segments], lessons: Mapping[str, Lessons]
) -> float | None:
    """When a sight is first to be seen in what was written; None for never."""
    if sight.how == "at":
        return sight.after
    if sight.how == "line":
        return sight.after if _unhidden(stage, ("shipper_away",), 0, sight.after) == sight.after else None
    if sight.how == "row":
        return next((at for at, _ in lessons[sight.run].row_times if at >= sight.after), None)
    if sight.how == "step":
        begins = times.tick_after(sight.after)
        return next((at for at, length in lessons[sight.run].row_times if at - length >= begins), None)
    if sight.how == "saved":
        return next((at for at, length in lessons[sight.run].save_times if at - length >= sight.after), None)
    exporter, node = ("node", 0) if sight.how == "site" else ("node" if sight.how == "node" else "gpu", sight.node)
    hides = ("unseen", "frozen", "gpu_dark", "off") if exporter == "gpu" else ("unseen", "node_dark", "off")
    after = times.tick_after(sight.after) if sight.how == "coupled" else sight.after
    if sight.how in ("busy", "coupled"):
        after = _stepping(stage, planned, node, after)
    return times.first(exporter, node, _unhidden(stage, hides, node, after, sight.after))


def _unhidden(stage: Scene, channels: tuple[str, ...], row: int, at: float, since: float | None = None) -> float:
    """``at``, or the end of what hid it; only what began before the sight itself (``since``) hides it."""
    began = at if since is None else since
    for effect in sorted(stage.effects, key=lambda one: one.start):
        if (
            effect.channel in channels
            and row in effect.rows
            and effect.start < began
            and effect.start <= at < effect.end
        ):
            at = effect.end
    return at


def _stepping(stage: Scene, planned: Sequence[Segments], node: int, after: float) -> float:
    """When a job next steps on the node."""
    found = math.inf
    for attempt, phases in zip(stage.table.attempts, planned, strict=True):
        if node in attempt.nodes:
            found = min(
                [found, *(max(a, after) for a, b, phase in phases.each() if phase == Phase.STEPS and b > after)]
            )
    return found


def _write_rows(path: Path, rows: Iterable[Row]) -> None:
    with path.open("wb") as file:
        for row in rows:
            file.write(orjson.dumps(row) + b"\n")
