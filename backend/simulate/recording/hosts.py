"""Trouble of hosts: gone, rebooted, out of memory or disk, failing parts, wrong clocks, drivers that do not match."""

from __future__ import annotations

from functools import partial

from backend.simulate.recording import codes
from backend.simulate.recording.aftermath import BOOT_S, again, boot_lines, broken, crash, die, node_lost, stopped
from backend.simulate.recording.scene import Fault, Scene, Sight


def unreachable(scene: Scene, at: float, how: str) -> Fault:
    """Exporters, scheduler daemon and logs fall silent together; the scheduler says so sooner, later or hardly."""
    attempt, node = scene.node(at)
    wait = {"soon": scene.dice.uniform(60.0, 130.0), "late": scene.dice.uniform(300.0, 620.0)}[how]
    ended = node_lost(scene, attempt, node, at, wait)
    noticed = ended + scene.dice.uniform(300.0, 900.0)
    back = noticed + scene.dice.uniform(900.0, 2400.0)
    scene.table.hold(node.row, back + BOOT_S + 60.0)
    again(scene, attempt, node)
    scene.act("off", (node.row,), at, back + BOOT_S)
    scene.boots.append((node.row, back))
    scene.kernel(back, node, boot_lines(scene, node), 0.4)
    made = scene.fault("node_unreachable", how, node.name, at, back + BOOT_S, True, attempt)
    made.sights = stopped(attempt, at)
    return made


def reboot(scene: Scene, at: float, how: str) -> Fault:
    """Nobody asked for it: a panic with its last words, or none at all."""
    attempt, node = scene.node(at)
    told = scene.kernel(at - 0.4, node, [
        "Kernel panic - not syncing: Fatal exception in interrupt", "Rebooting in 10 seconds..",
    ]) if how == "panic" else []  # fmt: skip
    back = at + scene.dice.uniform(90.0, 150.0)
    scene.act("off", (node.row,), at, back + 60.0)
    scene.boots.append((node.row, back))
    booted = scene.kernel(back, node, boot_lines(scene, node), 0.4)
    attempt.stalled_at = at
    attempt.failed_node = node.name
    scene.slurm(back + 40.0, f"Node {node.name} unexpectedly rebooted boot_time={int(back)} last response={int(at)}")
    die(scene, attempt, back + 41.0, "NODE_FAIL", "1:0", "NodeDown")
    scene.table.hold(node.row, back + 120.0)
    again(scene, attempt)
    made = scene.fault("node_reboot", how, node.name, at - 0.4, back + 300.0, False, attempt, True)
    made.sights = [*told, *booted[:1], *stopped(attempt, at)]
    return made


def out_of_memory(scene: Scene, at: float, how: str) -> Fault:
    """Memory runs out slowly or in one gulp; the kernel kills a worker; with its lines, or the counter alone."""
    attempt, node = scene.node(at)
    ramp = 60.0 if how != "gradual" else min(3600.0, 0.3 * scene.left(at))
    attempt.planned_end = max(attempt.planned_end, at + ramp + 300.0)
    scene.act("memory_share", (node.row,), at, at + ramp + 4.0, 0.78, ramp)
    kill, pid = at + ramp, scene.dice.randrange(10_000, 900_000)
    told = scene.kernel(kill, node, [
        "python3 invoked oom-killer: gfp_mask=0x140dca(GFP_HIGHUSER_MOVABLE|__GFP_COMP|__GFP_ZERO), order=0",
        f"Out of memory: Killed process {pid} (python3) total-vm:{scene.dice.randrange(10**8, 10**9)}kB, "
        f"anon-rss:{scene.dice.randrange(10**8, 10**9)}kB, file-rss:104kB, shmem-rss:0kB, UID:1000 pgtables:9000kB",
    ]) if how != "counter" else []  # fmt: skip
    scene.act("killed", (node.row,), kill, scene.end + 1.0)
    crash(scene, attempt, kill, ["slurmstepd: error: Detected 1 oom_kill event in StepId="
                                 f"{attempt.job}.0. Some of the step tasks have been OOM Killed."],
          scene.rank(attempt, node.row), "0:125")  # fmt: skip
    attempt.state = "OUT_OF_MEMORY"
    scene.table.resubmit(attempt)
    made = scene.fault("host_oom", how, node.name, at, kill + 600.0, False, attempt)
    made.sights = [
        *told[:1],
        Sight("node", at + 0.1 * ramp if how == "gradual" else at + 1.0, node.row),
        Sight("at", kill + 0.4),
    ]
    return made


def disk(scene: Scene, at: float, how: str) -> Fault:
    """gradual and abrupt: the node's own disk; shared: the store that everybody writes to."""
    attempt, node = scene.node(at)
    ramp = 30.0 if how == "abrupt" else min(5400.0, 0.4 * scene.left(at))
    full, until = at + ramp, at + ramp + min(2400.0, 0.4 * scene.left(at + ramp))
    attempt.planned_end = max(attempt.planned_end, full + 300.0)
    mount = "/scratch" if how == "shared" else "/"
    if how == "shared":
        scene.act("store_share", [one.row for one in scene.site.nodes], at, until, 0.7, ramp)
    else:
        scene.act("root_share", (node.row,), at, until, 0.9, ramp)
    crash(scene, attempt, full + 2.0, [
        "Traceback (most recent call last):", '  File "/home/train/save.py", line 88, in write_shard',
        f"OSError: [Errno 28] No space left on device: '{mount.rstrip('/')}/ckpt/shard-003.tmp'",
    ], scene.rank(attempt, node.row))  # fmt: skip
    again(scene, attempt)
    entity = f"{node.name}/mount:{mount}" if how != "shared" else "fs:scratch"
    made = scene.fault("disk_full", how, entity, at, until, how != "shared", attempt, how != "shared")
    if how == "shared":
        made.nodes = tuple(one.name for one in scene.site.nodes)
    made.sights = [Sight("node", at + 0.15 * ramp, node.row), Sight("at", full + 2.4)]
    return made


def parts(scene: Scene, at: float, how: str) -> Fault:
    """mce: an uncorrected error that resets the host; edac: a DIMM whose corrected errors pile up."""
    attempt, node = scene.node(at)
    if how == "edac":
        until = at + min(7200.0, 0.7 * scene.left(at))
        attempt.planned_end = max(attempt.planned_end, until + 300.0)
        made = scene.fault("host_hardware", how, node.name, at, until, True, attempt)
        scene.act("edac_ce", (node.row,), at, scene.end + 1.0, 4000.0, until - at)
        made.sights = [Sight("node", at + 30.0, node.row)]
        return made
    bank = scene.dice.randrange(5, 20)
    told = scene.kernel(at, node, [
        f"mce: [Hardware Error]: CPU {scene.dice.randrange(96)}: Machine Check Exception: 5 Bank {bank}: "
        "be00000000a00151",
        "EDAC skx MC3: 1 UE memory read error on CPU_SrcID#1_MC#1_Chan#0_DIMM#0 (channel:0 slot:0 page:0x7e3a1)",
    ])  # fmt: skip
    scene.act("edac_ue", (node.row,), at, scene.end + 1.0)
    ended = node_lost(scene, attempt, node, at + 1.0, 90.0)
    scene.act("off", (node.row,), at + 1.0, ended + 240.0)
    back = broken(scene, attempt, node, ended, "memory error, host")
    made = scene.fault("host_hardware", how, node.name, at, back, True, attempt)
    made.sights = [*told, Sight("node", at, node.row)]
    return made


def clock(scene: Scene, at: float, how: str) -> Fault:
    attempt, node = scene.node(at)
    until = at + min(5400.0, 0.6 * scene.left(at))
    attempt.planned_end = max(attempt.planned_end, until + 300.0)
    ramp = 0.0 if how == "abrupt" else 0.7 * (until - at)
    made = scene.fault("clock_skew", how, node.name, at, until, False, attempt)
    scene.act("skew_s", (node.row,), at, until, scene.dice.choice((-1.0, 1.0)) * scene.dice.uniform(4.0, 60.0), ramp)
    told = [scene.say(at + 5.0, node.name, "journal", "chronyd[1187]: Can't synchronise: no selectable sources")]
    made.sights = [*told, Sight("node", at + 0.02 * ramp, node.row)]
    return made


def driver(scene: Scene, at: float, how: str) -> Fault:
    """A library was updated under a running driver: the exporter goes blind and the next start fails."""
    attempt, card = scene.card(at)
    node = scene.site.nodes[card.node]
    versions = ("550.127.05", "550.144.03")
    told = scene.kernel(at, node, [
        f"NVRM: API mismatch: the client has the version {versions[1]}, but NVRM: this kernel module has the version "
        f"{versions[0]}.  Please make sure that this kernel module and all NVIDIA driver components have the same "
        "version.",
    ]) if how == "line" else []  # fmt: skip
    ended = crash(scene, attempt, at + 1.0, [
        "Failed to initialize NVML: Driver/library version mismatch",
        f"NVML library version: {versions[1][:7]}",
    ], scene.rank(attempt, node.row))  # fmt: skip
    back = broken(scene, attempt, node, ended, "driver does not match")
    made = scene.fault("driver_mismatch", how, node.name, at, back, True, attempt)
    scene.act("gpu_dark", (node.row,), at, back)
    made.sights = [*told, Sight("at", at + 1.4), Sight("gpu", at, node.row)]
    return made


def fabric_manager(scene: Scene, at: float, how: str) -> Fault:
    attempt, card = scene.card(at, full=how == "state")
    node = scene.site.nodes[card.node]
    told = [scene.say(at, node.name, "fabricmanager", f"[{int(at)}] [ERROR] [tid 2817] {text}") for text in (
        "failed to find the GPU handle in the multicast team request", "fabric manager is exiting on a fatal error",
    )] if how == "line" else []  # fmt: skip
    ended = crash(scene, attempt, at + 20.0, codes.cuda_error(card.index, "system not yet initialized (error 802)"),
                  scene.rank(attempt, node.row))  # fmt: skip
    back = broken(scene, attempt, node, ended, "fabric manager down")
    made = scene.fault("fabric_manager_not_ready", how, node.name, at, back, True, attempt)
    scene.act("fabric", [one.row for one in node.cards], at, back)
    made.sights = [*told[:1], Sight("at", at + 20.4), *([Sight("gpu", at, node.row)] if node.full else [])]
    return made


HOSTS = {
    ("node_unreachable", how): partial(unreachable, how=how) for how in ("soon", "late")
} | {
    ("node_reboot", how): partial(reboot, how=how) for how in ("panic", "silent")
} | {
    ("host_oom", how): partial(out_of_memory, how=how) for how in ("abrupt", "gradual", "counter")
} | {
    ("disk_full", how): partial(disk, how=how) for how in ("gradual", "abrupt", "shared")
} | {
    ("host_hardware", how): partial(parts, how=how) for how in ("mce", "edac")
} | {
    ("clock_skew", how): partial(clock, how=how) for how in ("abrupt", "gradual")
} | {
    ("driver_mismatch", how): partial(driver, how=how) for how in ("line", "quiet")
} | {
    ("fabric_manager_not_ready", how): partial(fabric_manager, how=how) for how in ("line", "state")
}  # fmt: skip
