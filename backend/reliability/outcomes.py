"""How an attempt ended: which states are over, which count as failed, who asked for a requeue."""

from __future__ import annotations

import re

from backend.facts import AttemptFacts

#: contracts.md, accounting: these count as failed; REQUEUED does where no person asked for it.
FAILED = frozenset({"FAILED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "LAUNCH_FAILED"})
#: Over, without having failed.
UNFAILED = frozenset({"COMPLETED", "TIMEOUT", "DEADLINE", "PREEMPTED", "CANCELLED", "REVOKED"})
#: The scheduler put the job back into the queue: the attempt is over, the job is not.
REQUEUED = frozenset({"REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"})
OVER = FAILED | UNFAILED
#: What most records say, ready as it is.
KNOWN = FAILED | UNFAILED | REQUEUED | {"PENDING", "RUNNING", "COMPLETING"}
#: The node is the cause by the state alone.
NODE_STATES = frozenset({"NODE_FAIL", "BOOT_FAIL"})
#: Names under which a scheduler, an agent of the cluster or we ask for a requeue; another name is a person's.
SYSTEMS = frozenset({"", "root", "slurm", "slurmctld", "system", "scheduler", "kubernetes", "kubelet", "watchkeeper"})

#: How a record names the node that took a job down (sacct's FailedNode, kept in the reason).
_FAILED_NODE = re.compile(r"\bfailed node ([^\s;]+)")
_WORD = re.compile(r"[A-Z_]+")


def state_of(text: str) -> str:
    """The bare word of a state as schedulers print it: ``CANCELLED by 1001``, ``NODE_FAIL+``, ``node_fail``."""
    if text in KNOWN:
        return text
    word = _WORD.match(text.strip().upper())
    return word.group() if word else "UNKNOWN"


def asked_by_person(requeued_by: str) -> bool:
    """Whether the one who asked for a requeue is a person; one who is not known is none."""
    name = requeued_by.strip().lower()
    return name not in SYSTEMS and not name.startswith("system:")


def ended(attempt: AttemptFacts) -> bool:
    """It is over. A running or waiting attempt may carry the end it will have at the latest: that is none."""
    state = state_of(attempt.state)
    return state in OVER or (state in REQUEUED and attempt.start is not None and attempt.end is not None)


def failed(attempt: AttemptFacts, following: AttemptFacts | None) -> bool:
    """By contracts.md. ``following``: the next attempt of the same job, which knows who asked for it."""
    state = state_of(attempt.state)
    if state in REQUEUED and ended(attempt):
        return following is None or not asked_by_person(following.requeued_by)
    return state in FAILED


def failed_nodes(attempt: AttemptFacts) -> tuple[str, ...]:
    """The nodes that its own record blames; only such as it ran on."""
    found = _FAILED_NODE.search(attempt.reason)
    return tuple(node for node in found[1].split(",") if node in attempt.nodes) if found else ()
