"""Trouble of storage and of what watches: file systems, checkpoints, exporters, the scheduler, the log shipper."""

from __future__ import annotations

from functools import partial

from backend.simulate.recording.aftermath import again, crash
from backend.simulate.recording.scene import CONTROLLER, Fault, Scene, Sight


def file_error(scene: Scene, at: float, how: str) -> Fault:
    """local: the node's own disk; nfs: one client loses the server."""
    attempt, node = scene.node(at)
    until = at + min(2700.0, 0.5 * scene.left(at))
    lines = {
        "local": ["nvme nvme0: I/O 512 QID 9 timeout, aborting",
                  "blk_update_request: I/O error, dev nvme0n1, sector 1834572288 op 0x1:(WRITE) flags 0x800",
                  "EXT4-fs (nvme0n1p2): Remounting filesystem read-only"],
        "nfs": ["nfs: server store-2 not responding, still trying", "nfs: server store-2 not responding, timed out"],
    }[how]  # fmt: skip
    told = scene.kernel(at, node, lines, 2.0)
    if how == "nfs":
        scene.act("nfs_wait", (node.row,), at, until, 400.0)
        scene.kernel(until, node, ["nfs: server store-2 OK"])
    mount = "/" if how == "local" else "/scratch"
    crash(scene, attempt, at + 6.0, [
        "Traceback (most recent call last):", '  File "/home/train/loader.py", line 131, in read_block',
        "OSError: [Errno 5] Input/output error" if how == "local" else "OSError: [Errno 116] Stale file handle",
    ], scene.rank(attempt, node.row))  # fmt: skip
    if how == "local":
        scene.table.hold(node.row, until)
    again(scene, attempt, node if how == "local" else None)
    made = scene.fault(
        "filesystem_io_error", how, f"{node.name}/mount:{mount}", at, until, how == "local", attempt, True
    )
    made.sights = told[:1]
    return made


def nfs(scene: Scene, at: float, how: str) -> Fault:
    """The server is slow for all of its clients, at once or more and more; or one client's mount is."""
    attempt, node = scene.node(at)
    until = at + min(scene.dice.uniform(2400.0, 6000.0), 0.6 * scene.left(at))
    rows = [node.row] if how == "mount" else [one.row for one in scene.site.nodes]
    ramp = 0.5 * (until - at) if how == "gradual" else 0.0
    scene.act("nfs_wait", rows, at, until, scene.dice.uniform(12.0, 30.0), ramp)
    for run in scene.table.runs if how != "mount" else (attempt.run,):
        scene.table.newest[run.name].slow_saves.append((at + ramp * 0.3, until, 2.6))
    entity = f"{node.name}/mount:/scratch" if how == "mount" else "fs:scratch"
    made = scene.fault("nfs_slow", how, entity, at, until, False, attempt if how == "mount" else None)
    if how != "mount":
        made.nodes = tuple(one.name for one in scene.site.nodes)
    made.sights = [Sight("node", at + 0.05 * ramp, row) for row in rows]
    return made


def save_slow(scene: Scene, at: float, how: str) -> Fault:
    """Saves of one run take long, from one to the next or by and by."""
    attempt = scene.attempt(at)
    until = at + min(9000.0, 0.8 * scene.left(at))
    attempt.planned_end = max(attempt.planned_end, until)
    if how == "abrupt":
        attempt.slow_saves.append((at, until, 4.0))
    else:
        cut = [at + i * (until - at) / 4 for i in range(5)]
        attempt.slow_saves += [(a, b, 1.5 + i) for i, (a, b) in enumerate(zip(cut, cut[1:], strict=False))]
    scene.act(
        "nfs_wait", attempt.nodes, at, until, 3.0 if how == "abrupt" else 4.0, 0.0 if how == "abrupt" else until - at
    )
    made = scene.fault("checkpoint_slow", how, f"run:{attempt.run.name}", at, until, False, attempt)
    made.sights = [
        Sight("node", at + (0.0 if how == "abrupt" else 600.0), attempt.nodes[0]),
        Sight("saved", at, run=attempt.run.name),
    ]
    return made


def save_failed(scene: Scene, at: float, how: str) -> Fault:
    """write: a save breaks off; load: the next start finds a file that cannot be read."""
    attempt = scene.attempt(at)
    text = {
        "write": "RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 4832 vs 4726",
        "load": "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
    }[how]
    attempt.failed_save = at
    crash(
        scene,
        attempt,
        at,
        ["Traceback (most recent call last):", '  File "/home/train/save.py", line 61, in checkpoint', text],
    )
    follower = scene.table.resubmit(attempt, wait_s=300.0)
    made = scene.fault(
        "checkpoint_failed", how, f"run:{attempt.run.name}", at, (follower.start or at) + 600.0, False, attempt
    )
    made.sights = [Sight("at", at + 0.4)]
    return made


def dark(scene: Scene, at: float, how: str) -> Fault:
    """An exporter is gone, all exporters of a node are while its job runs on, or Prometheus itself made no scrapes."""
    until = at + min(scene.dice.uniform(1200.0, 3000.0), 0.5 * scene.left(at))
    if how == "cluster":
        rows = [one.row for one in scene.site.nodes]
        made = scene.fault("telemetry_dark", how, f"cluster:{scene.site.cluster}", at, until, False)
        scene.act("unseen", rows, at, until)
        scene.tense.update({row: max(scene.tense.get(row, 0.0), until + 600.0) for row in rows})
    else:
        attempt, node = scene.node(at)
        attempt.planned_end = max(attempt.planned_end, until + 60.0)
        rows = [node.row]
        made = scene.fault("telemetry_dark", how, node.name, at, until, False, attempt)
        scene.act("gpu_dark", rows, at, until)
        if how == "node":
            scene.act("node_dark", rows, at, until)
    made.sights = [Sight("gpu", at, row) for row in rows]
    return made


def frozen(scene: Scene, at: float, how: str) -> Fault:
    """The exporter answers with what it last knew."""
    attempt, node = scene.node(at)
    until = at + min(scene.dice.uniform(1500.0, 3600.0), 0.6 * scene.left(at))
    rows = [node.row] if how == "node" else [one.row for one in scene.site.nodes]
    entity = node.name if how == "node" else f"cluster:{scene.site.cluster}"
    attempt.planned_end = max(attempt.planned_end, until + 60.0)
    made = scene.fault("telemetry_frozen", how, entity, at, until, False, attempt if how == "node" else None)
    if how != "node":
        scene.tense.update({row: max(scene.tense.get(row, 0.0), until + 600.0) for row in rows})
    scene.act("frozen", rows, at, until)
    made.sights = [Sight("gpu", at, row) for row in rows]
    return made


def scheduler(scene: Scene, at: float) -> Fault:
    """The controller is away: its exporter's ``up`` falls and the daemons of the nodes complain."""
    until = at + min(scene.dice.uniform(900.0, 1800.0), 0.5 * scene.left(at))
    made = scene.fault("scheduler_down", "abrupt", f"cluster:{scene.site.cluster}", at, until, False)
    scene.act("scheduler_away", (0,), at, until)
    moment, told = at + 20.0, []
    while moment < until:
        node = scene.dice.choice(scene.site.nodes)
        text = f"slurmd: error: Unable to contact slurm controller {CONTROLLER} (connect failure)"
        told.append(scene.say(moment, node.name, "slurmd", text))
        moment += scene.dice.uniform(20.0, 70.0)
    made.sights = [*told[:1], Sight("site", at)]
    return made


def shipper(scene: Scene, at: float) -> Fault:
    """No log line of any node arrives any more; the shipper's own ``up`` falls."""
    until = at + min(scene.dice.uniform(1200.0, 2400.0), 0.5 * scene.left(at))
    made = scene.fault("source_down", "logs", f"cluster:{scene.site.cluster}", at, until, False)
    scene.act("shipper_away", (0,), at, until)
    scene.tense.update({row: until for row in range(len(scene.site.nodes))})
    made.sights = [Sight("site", at)]
    return made


STORES = {
    ("filesystem_io_error", how): partial(file_error, how=how) for how in ("local", "nfs")
} | {
    ("nfs_slow", how): partial(nfs, how=how) for how in ("abrupt", "gradual", "mount")
} | {
    ("checkpoint_slow", how): partial(save_slow, how=how) for how in ("abrupt", "gradual")
} | {
    ("checkpoint_failed", how): partial(save_failed, how=how) for how in ("write", "load")
}  # fmt: skip
WATCHING = {
    ("telemetry_dark", how): partial(dark, how=how) for how in ("exporter", "node", "cluster")
} | {
    ("telemetry_frozen", how): partial(frozen, how=how) for how in ("node", "cluster")
} | {("scheduler_down", "abrupt"): scheduler, ("source_down", "logs"): shipper}  # fmt: skip
