"""The states of nodes and jobs as Slurm writes them: words with suffixes, base+flags, lists, strings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

#: sinfo's suffixes of a state word, as flags (man sinfo, NODE STATE CODES).
SUFFIXES = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "%": "POWERING_DOWN",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "$": "MAINTENANCE",
    "-": "PLANNED",
    "!": "POWER_DOWN",
    "+": "",
}
BASES = frozenset({"unknown", "down", "idle", "allocated", "error", "mixed", "future"})
#: Words that sinfo prints instead of base and flags: (base, flags).
WORDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "alloc": ("allocated", ()),
    "unk": ("unknown", ()),
    "mix": ("mixed", ()),
    "futr": ("future", ()),
    "err": ("error", ()),
    "drain": ("unknown", ("DRAIN",)),
    "drained": ("idle", ("DRAIN",)),
    "draining": ("mixed", ("DRAIN",)),
    "drng": ("mixed", ("DRAIN",)),
    "fail": ("idle", ("FAIL",)),
    "failing": ("mixed", ("FAIL",)),
    "failg": ("mixed", ("FAIL",)),
    "comp": ("allocated", ("COMPLETING",)),
    "completing": ("allocated", ("COMPLETING",)),
    "maint": ("idle", ("MAINTENANCE",)),
    "resv": ("idle", ("RESERVED",)),
    "reserved": ("idle", ("RESERVED",)),
    "plnd": ("idle", ("PLANNED",)),
    "planned": ("idle", ("PLANNED",)),
    "block": ("idle", ("BLOCKED",)),
    "blocked": ("idle", ("BLOCKED",)),
    "boot": ("idle", ("REBOOT_ISSUED",)),
    "reboot": ("idle", ("REBOOT_ISSUED",)),
    "rboot": ("idle", ("REBOOT_ISSUED",)),
    "inval": ("down", ("INVALID_REG",)),
    "npc": ("idle", ("PERFCTRS",)),
    "perfctrs": ("idle", ("PERFCTRS",)),
    "pow_dn": ("idle", ("POWERED_DOWN",)),
    "pow_up": ("idle", ("POWERING_UP",)),
    "powdn": ("idle", ("POWERED_DOWN",)),
    "powup": ("idle", ("POWERING_UP",)),
    "powering_down": ("idle", ("POWERING_DOWN",)),
    "powered_down": ("idle", ("POWERED_DOWN",)),
    "powering_up": ("idle", ("POWERING_UP",)),
    "no_respond": ("unknown", ("NOT_RESPONDING",)),
}
#: A job in one of these holds its nodes.
HOLDING = frozenset({"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING"})
WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD", "REQUEUE_FED"})
#: What a job is, whatever flags it has beside it (man squeue, JOB STATE CODES).
JOB_BASES = frozenset(
    ("PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED")
    + ("BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY")
)
_TAIL = re.compile(r"[^A-Za-z_]+$")


def parse_state(text: str) -> tuple[str, frozenset[str]]:
    """Base state in lower case and flags, of scontrol's ``IDLE+DRAIN`` or ``DOWN*+DRAIN``, or sinfo's ``drained*``.

    A word that no version of Slurm is known to print gives base "unknown" and stays visible as a flag.
    """
    return states_of(text.strip().split("+"))


def states_of(words: Sequence[str]) -> tuple[str, frozenset[str]]:
    """Base and flags of a node's state words, the base at any place among them."""
    base, flags, unknown = "unknown", set[str](), True
    for word in words:
        tail = _TAIL.search(word)
        flags.update(SUFFIXES.get(c, "") for c in (tail.group() if tail else ""))
        bare = word[: tail.start()] if tail else word
        if unknown and bare.lower() in BASES:
            base, unknown = bare.lower(), False
        elif unknown and bare.lower() in WORDS and len(words) == 1:
            base, more = WORDS[bare.lower()]
            flags.update(more)
        elif bare.upper() != "INVALID":
            flags.add(bare.upper())
    return base, frozenset(flags - {""})


def node_state(record: Mapping[str, Any]) -> tuple[str, frozenset[str]]:
    """Base and flags of a node's JSON: a list of words (from 23.02), or a word and ``state_flags`` (before)."""
    said = record.get("state")
    words = [str(word) for word in said] if isinstance(said, list) else str(said or "unknown").split("+")
    more = record.get("state_flags")
    return states_of([*words, *(str(word) for word in more)] if isinstance(more, list) else words)


def job_state(said: Any) -> str:
    """One word for a job's state: what it is, or what it is doing about it where that matters more.

    A list (from 23.02) has a base and flags; a string (before) is one word already, or ``CANCELLED by 1000``.
    """
    words = [str(word).upper() for word in said] if isinstance(said, list) else (str(said or "").upper().split()[:1])
    base = next((word for word in words if word in JOB_BASES), "")
    if "COMPLETING" in words and base != "PENDING":
        return "COMPLETING"
    if base == "PENDING":
        return next((word for word in words if word in WAITING - {"PENDING", "REQUEUED"}), base)
    if base in ("RUNNING", "SUSPENDED"):
        return next((word for word in words if word in HOLDING - {"RUNNING"}), base)
    return base or (words[0] if words else "UNKNOWN")
