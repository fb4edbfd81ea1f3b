"""What follows a fault in the cluster's own life: jobs that stall, die or are requeued, nodes drained and mended."""

from __future__ import annotations

from backend.simulate.recording.plant import Node
from backend.simulate.recording.scene import Scene, Sight
from backend.simulate.recording.work import Attempt

#: How long ranks wait in a collective before their own watchdog ends them.
WATCHDOG_S = (600.0, 1800.0)
NOTICE_S = (240.0, 900.0)
REPAIR_S = (1500.0, 4200.0)
BOOT_S = 170.0


def stopped(attempt: Attempt, at: float) -> list[Sight]:
    """That a job stands still shows on all of its nodes."""
    return [Sight(how, at, row) for row in attempt.nodes for how in ("gpu", "node")]


def stall(scene: Scene, attempt: Attempt, at: float, silent: int = -1) -> float:
    """Ranks wait for one that is gone until the watchdog fires; when the job ended."""
    attempt.stalled_at = at
    wait = min(scene.dice.uniform(*WATCHDOG_S), 0.5 * scene.left(at))
    end = at + wait
    for place, row in enumerate(attempt.nodes[:4]):
        if row != silent:
            rank = place * scene.site.cards_a_node
            scene.cry(attempt, end - 6.0 - 0.2 * place, timeout_lines(scene, rank, wait), rank)
    die(scene, attempt, end, "FAILED", "6:0")
    return end


def timeout_lines(scene: Scene, rank: int, wait_s: float) -> list[str]:
    seq = scene.dice.randrange(10_000, 900_000)
    limit = int(wait_s * 1000)
    return [
        f"[rank{rank}]:[E ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=4194304, NumelOut=4194304, Timeout(ms)={limit}) ran for "
        f"{limit + scene.dice.randrange(10, 900)} milliseconds before timing out.",
        f"[rank{rank}]:[E ProcessGroupNCCL.cpp:681] [Rank {rank}] Some NCCL operations have failed or timed out; "
        "to avoid inconsistent data, the process is taken down.",
    ]


def die(scene: Scene, attempt: Attempt, end: float, state: str, code: str, reason: str = "None") -> None:
    """An attempt ends badly."""
    scene.table.finish(attempt, end, state, code, reason)
    attempt.why = state
    scene.slurm(end + 0.02, f"_job_complete: JobId={attempt.job} WEXITSTATUS {code.partition(':')[0]}")


def crash(scene: Scene, attempt: Attempt, at: float, lines: list[str], rank: int = 0, code: str = "1:0") -> float:
    """One rank dies with ``lines``, the launcher ends the others; when the job ended."""
    attempt.stalled_at = at
    scene.cry(attempt, at + 0.4, lines, rank)
    end = at + scene.dice.uniform(6.0, 20.0)
    others = [p * scene.site.cards_a_node for p in range(len(attempt.nodes))]
    for other in [r for r in others if r // scene.site.cards_a_node != rank // scene.site.cards_a_node][:3]:
        scene.cry(attempt, end - 2.0, [f"[rank{other}]: NCCL WARN Net : Connection closed by remote peer"], other)
    die(scene, attempt, end, "FAILED", code)
    return end


def node_lost(scene: Scene, attempt: Attempt, node: Node, at: float, wait_s: float) -> float:
    """The scheduler gives a silent node up and the job with it; when the job ended."""
    attempt.stalled_at = at
    end = at + wait_s
    scene.slurm(end - 1.0, f"error: Nodes {node.name} not responding, setting DOWN")
    scene.slurm(end - 0.5, f"requeue job JobId={attempt.job} due to failure of node {node.name}")
    attempt.failed_node = node.name
    die(scene, attempt, end, "NODE_FAIL", "1:0", "NodeDown")
    return end


def again(scene: Scene, attempt: Attempt, without: Node | None = None) -> None:
    """The run goes on: by the scheduler half the time, else by a person."""
    out = (without.name,) if without is not None else ()
    if attempt.state == "NODE_FAIL" or scene.dice.random() < 0.6:
        if attempt.state == "FAILED":
            attempt.state = "REQUEUED"
        scene.table.requeue(attempt, out)
    else:
        scene.table.resubmit(attempt, out)


def mend(scene: Scene, node: Node, noticed: float, why: str) -> float:
    """An administrator drains the node, switches it off and brings it back; when it is back, maybe after the end."""
    scene.slurm(noticed, f"update_node: node {node.name} reason set to: {why}")
    scene.slurm(noticed + 0.003, f"update_node: node {node.name} state set to DRAINED")
    off = noticed + scene.dice.uniform(120.0, 600.0)
    back = off + scene.dice.uniform(*REPAIR_S)
    power_cycle(scene, node, off, back)
    scene.table.hold(node.row, back + 60.0)
    scene.slurm(back + 55.0, f"update_node: node {node.name} state set to RESUME")
    return back


def power_cycle(scene: Scene, node: Node, off: float, back: float) -> None:
    """Off and on again: silence, then the first lines of a boot; what was broken on its cards is mended."""
    scene.act("off", (node.row,), off, back + BOOT_S)
    scene.boots.append((node.row, back))
    scene.kernel(back, node, boot_lines(scene, node), 0.4)
    scene.slurm(back + BOOT_S * 0.8, f"Node {node.name} now responding")


def boot_lines(scene: Scene, node: Node) -> list[str]:
    driver = "amdgpu: initialised for the simulated board" if node.vendor == "amd" else (
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.127.05")  # fmt: skip
    return [
        f"Linux version 5.15.0-{scene.dice.randrange(100, 140)}-generic (buildd@sim) (gcc 11.4.0) #1 SMP",
        "Command line: BOOT_IMAGE=/vmlinuz root=/dev/nvme0n1p2 ro iommu=pt",
        driver,
    ]


def broken(scene: Scene, attempt: Attempt, node: Node, ended: float, why: str) -> float:
    """The usual end of a hardware fault: the run goes on without the node, which is mended; when it is back."""
    noticed = ended + scene.dice.uniform(*NOTICE_S)
    back = mend(scene, node, noticed, why)
    again(scene, attempt, node)
    return back
