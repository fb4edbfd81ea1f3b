"""Trouble of jobs and of what they learn: hangs, slowness, user errors, loops of crashes, losses that go wrong."""

from __future__ import annotations

from functools import partial

from backend.simulate.recording.aftermath import again, crash, stall, stopped
from backend.simulate.recording.codes import cuda_error
from backend.simulate.recording.scene import Dip, Fault, Scene, Sight

USER_ERRORS = {
    "exception": ["Traceback (most recent call last):", '  File "/home/train/loader.py", line 77, in collate',
                  "KeyError: 'attention_mask'"],
    "oom": ["Traceback (most recent call last):", '  File "/home/train/model.py", line 212, in forward',
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 3 has a total capacity of "
            "79.11 GiB"],
    "segfault": ["Fatal Python error: Segmentation fault", "srun: error: task 0: Segmentation fault (core dumped)"],
}  # fmt: skip
CODES = {"exception": "1:0", "oom": "1:0", "segfault": "139:0"}


def hang(scene: Scene, at: float, how: str) -> Fault:
    """job: every rank waits in a collective; rank: one rank sleeps outside of it, and its host falls quiet."""
    attempt, node = scene.node(at)
    ended = stall(scene, attempt, at, silent=node.row if how == "rank" else -1)
    rank = scene.rank(attempt, node.row)
    if how == "rank":
        scene.act("drowsy", (node.row,), at, ended, 0.12)
    again(scene, attempt)
    entity = f"job:{attempt.job}" if how == "job" else f"run:{attempt.run.name}/rank:{rank}"
    made = scene.fault("job_hang", how, entity, at, ended + 120.0, False, attempt, how == "rank")
    made.sights = stopped(attempt, at)
    return made


def slow(scene: Scene, at: float, how: str) -> Fault:
    """The loader starves the whole job, at once or more and more; every card of it is fine."""
    attempt = scene.attempt(at)
    until = at + min(6000.0, 0.6 * scene.left(at))
    attempt.planned_end = max(attempt.planned_end, until + 300.0)
    ramp = 0.0 if how == "abrupt" else 0.6 * (until - at)
    scene.act("feed", (attempt.run.row,), at, until, scene.dice.uniform(0.5, 0.68), ramp)
    made = scene.fault("job_slow", how, f"job:{attempt.job}", at, until, False, attempt)
    made.sights = [
        Sight("step", at + 0.1 * ramp, run=attempt.run.name),
        *(Sight("coupled", at + 0.1 * ramp, row) for row in attempt.nodes),
    ]
    return made


def user_error(scene: Scene, at: float, how: str) -> Fault:
    attempt = scene.attempt(at)
    ended = crash(scene, attempt, at, USER_ERRORS[how], 0, CODES[how])
    scene.table.resubmit(attempt)
    made = scene.fault("job_failed", how, f"job:{attempt.job}", at, ended + 600.0, False, attempt)
    made.sights = [Sight("at", at + 0.4), Sight("at", ended)]
    return made


def loop(scene: Scene, at: float, how: str) -> Fault:
    """Start, crash in the first minutes, start again: five times or more; requeued or resubmitted by a script."""
    attempt = scene.attempt(at)
    first, moment, times = attempt, at, scene.dice.randrange(5, 8)
    for _ in range(times):
        crash(scene, attempt, moment, USER_ERRORS["exception"], 0)
        if how == "requeue":
            attempt.state = "REQUEUED"
            attempt = scene.table.requeue(attempt)
        else:
            attempt = scene.table.resubmit(attempt, wait_s=scene.dice.uniform(30.0, 90.0))
        moment = attempt.start + scene.dice.uniform(50.0, 140.0)
        if moment > scene.end:
            break
    made = scene.fault("crash_loop", how, f"run:{attempt.run.name}", at, min(moment, scene.end) + 300.0, False, first)
    made.sights = [Sight("at", at + 0.4)]
    return made


def lemon(scene: Scene, at: float) -> Fault:
    """One node ends every job it is given, each time with another vague word and never with a code."""
    attempt, node = scene.node(at)
    first, moment, words = attempt, at, ("unspecified launch failure", "an illegal instruction was encountered",
                                         "misaligned address", "unknown error")  # fmt: skip
    for turn in range(scene.dice.randrange(4, 7)):
        if node.row not in attempt.nodes or moment > scene.end - 120.0:
            break
        rank = scene.rank(attempt, node.row, scene.dice.randrange(scene.site.cards_a_node))
        ended = crash(scene, attempt, moment, cuda_error(rank, words[turn % len(words)]), rank)
        attempt.state = "REQUEUED"
        attempt = scene.table.requeue(attempt)
        moment = attempt.start + scene.dice.uniform(400.0, max(500.0, 0.12 * scene.left(ended)))
    made = scene.fault("lemon_node", "codeless", node.name, at, scene.end, True, first)
    made.sights = [Sight("at", at + 0.4)]
    return made


def loss(scene: Scene, at: float, kind: str, what: str, lasts_s: float) -> Fault:
    attempt = scene.attempt(at)
    until = at + min(lasts_s, 0.6 * scene.left(at))
    attempt.planned_end = max(attempt.planned_end, until + 120.0)
    rank = scene.dice.randrange(len(attempt.nodes) * scene.site.cards_a_node) if what == "replica" else -1
    scene.dips.append(Dip(attempt.run.name, what, at, until, scene.dice.uniform(0.8, 1.3), rank))
    entity = f"run:{attempt.run.name}"
    if rank >= 0:
        node = scene.site.nodes[attempt.nodes[rank // scene.site.cards_a_node]]
        entity = f"{node.name}/gpu{rank % scene.site.cards_a_node}"
    if what == "nan":
        scene.cry(attempt, until, ["WARNING: NaN or Inf found in the loss; stopping"])
        crash(scene, attempt, until + 1.0, ["RuntimeError: loss is NaN for 20 steps in a row"])
        scene.table.resubmit(attempt)
    made = scene.fault(kind, what, entity, at, until + 60.0, what == "replica", attempt)
    wait = 0.08 * (until - at) if what in ("climb", "waves", "logits", "router", "policy", "stale") else 0.0
    made.sights = [Sight("row", at + wait, run=attempt.run.name)]
    return made


JOBS = {
    ("job_hang", how): partial(hang, how=how) for how in ("job", "rank")
} | {
    ("job_slow", how): partial(slow, how=how) for how in ("abrupt", "gradual")
} | {
    ("job_failed", how): partial(user_error, how=how) for how in USER_ERRORS
} | {
    ("crash_loop", how): partial(loop, how=how) for how in ("requeue", "resubmit")
} | {("lemon_node", "codeless"): lemon}  # fmt: skip
LEARNING = {
    (kind, what): partial(loss, kind=kind, what=what, lasts_s=lasts_s)
    for kind, what, lasts_s in (
        ("loss_spike", "spike", 90.0),
        ("loss_divergence", "climb", 3600.0),
        ("nan_loss", "nan", 150.0),
        ("grad_norm_precursor", "waves", 5400.0),
        ("attention_instability", "logits", 5400.0),
        ("router_collapse", "router", 5400.0),
        ("async_rl_mismatch", "policy", 4500.0),
        ("async_rl_stale", "stale", 4500.0),
        ("silent_data_corruption", "replica", 3600.0),
    )
}
