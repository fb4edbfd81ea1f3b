"""What Slurm's commands print, read into facts: node records as text, job records as JSON, from 22.05 to 25.11."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from backend.clients.hostlist import HostlistError, expand
from backend.facts import AttemptFacts, NodeFacts, owner_of

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
    "inval": ("down", ("INVALID_REG",)),
}
#: A job in one of these holds its nodes.
HOLDING = frozenset({"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING"})
WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD", "REQUEUE_FED"})
#: What stands for "nothing" in Slurm's text.
_NOTHING = frozenset({"", "(null)", "None", "N/A", "n/a", "n/s", "Unknown", "none", "NONE"})
#: Times beyond this (unix s, year 2100) are Slurm's "never".
_NEVER = 4_102_444_800

_RECORD = re.compile(r"^(?=NodeName=)", re.MULTILINE)
_PAIR = re.compile(r"(?:^|\s)(?P<key>[A-Za-z][A-Za-z0-9_/:]*)=(?P<value>\S*)")
_REASON = re.compile(r"\sReason=(?P<reason>.*?)(?:\s*\[(?P<user>[^\s@\[\]]+)@(?P<at>[^\]\s]+)\]|$)", re.DOTALL)
_GPUS = re.compile(
    r"(?:^|,|gres[:/])gpu(?:[:=](?P<model>[A-Za-z0-9_.-]*[A-Za-z_][A-Za-z0-9_.-]*))?(?:[:=](?P<count>[0-9]+))?"
    r"(?=[,(\s]|$)"
)
_TOTAL = re.compile(r"(?:^|,)gres/gpu=([0-9]+)")
_TAIL = re.compile(r"[^A-Za-z_]+$")


class RecordError(ValueError):
    """Slurm printed something that cannot be read; says what and where."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job as the controller holds it now.

    batch: sbatch made it. may_requeue: its Requeue flag. required: nodes it insists on (--nodelist).
    """

    attempt: AttemptFacts
    batch: bool
    may_requeue: bool
    required: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """It runs, or its last processes are being ended."""
        return self.attempt.state in HOLDING

    @property
    def waits(self) -> bool:
        return self.attempt.state in WAITING


def parse_state(text: str) -> tuple[str, frozenset[str]]:
    """Base state in lower case and flags, of scontrol's ``IDLE+DRAIN`` or ``DOWN*+DRAIN``, or sinfo's ``drained*``.

    A word that no version of Slurm is known to print gives base "unknown" and stays visible as a flag.
    """
    base, flags = "unknown", set[str]()
    for i, word in enumerate(text.strip().split("+")):
        tail = _TAIL.search(word)
        flags.update(SUFFIXES.get(c, "") for c in (tail.group() if tail else ""))
        bare = word[: tail.start()] if tail else word
        if i == 0 and bare.lower() in BASES:
            base = bare.lower()
        elif i == 0 and bare.lower() in WORDS:
            base, more = WORDS[bare.lower()]
            flags.update(more)
        else:
            flags.add(bare.upper())
    return base, frozenset(flags - {""})


def parse_nodes(text: str, read_at: float) -> list[NodeFacts]:
    """Node records of ``scontrol -a -o show node``. Raises RecordError for output that holds a broken record.

    Only Reason, Comment and Extra hold free text, and they stand last: the first occurrence of any other key counts.
    """
    return [_node(record.strip(), read_at) for record in _RECORD.split(text) if record.startswith("NodeName=")]


def _node(record: str, read_at: float) -> NodeFacts:
    reason = _REASON.search(record)
    fields: dict[str, str] = {}
    for pair in _PAIR.finditer(record[: reason.start()] if reason else record):
        fields.setdefault(pair["key"], pair["value"])
    if "State" not in fields:
        raise RecordError(f"node record without State: {record[:80]!r}")
    state, flags = parse_state(fields["State"])
    said = reason["reason"].strip() if reason else ""
    said = "" if said in _NOTHING else said
    count, model = parse_gpus(fields.get("Gres", ""))
    return NodeFacts(
        name=fields["NodeName"],
        state=state,
        flags=flags,
        reason=said,
        reason_owner=owner_of(said, (reason["user"] or "") if reason else ""),
        model=model,
        expected_gpus=count,
        boot_at=_time(fields.get("BootTime")),
        read_at=read_at,
    )


def parse_gpus(text: str) -> tuple[int, str]:
    """(GPUs, model) of a Gres or TRES text: ``gpu:h100:8(S:0-1)``, ``gres:gpu:8``, ``cpu=2,gres/gpu=16``."""
    found = [(int(m["count"] or 1), m["model"] or "") for m in _GPUS.finditer(text)]
    total = _TOTAL.search(text)  # a TRES text repeats the total by type
    count = int(total[1]) if total else sum(count for count, _ in found)
    return count, next((model for _, model in found if model), "")


def parse_jobs(document: Any) -> list[Job]:
    """Jobs of ``squeue --json``, openapi v0.0.38 (22.05) and later. Raises RecordError.

    JSON, because in text a job's name could forge any field, even another job's whole record.
    """
    if not isinstance(document, dict) or not isinstance(document.get("jobs"), list):
        raise RecordError("no list of jobs in squeue's JSON")
    return [_job(record) for record in document["jobs"]]


def _job(record: Any) -> Job:
    if not isinstance(record, dict) or number(record.get("job_id")) is None:
        raise RecordError(f"job record without job_id: {str(record)[:80]}")
    states = record.get("job_state")
    words = [str(s) for s in states] if isinstance(states, list) else [str(states or "UNKNOWN")]
    state = "COMPLETING" if "COMPLETING" in words and words[0] not in WAITING else words[0]
    ended = state not in HOLDING | WAITING
    nodes = _names(record.get("nodes")) if state not in WAITING else ()
    attempt = AttemptFacts(
        job=str(number(record["job_id"])),
        restart=number(record.get("restart_cnt")) or 0,
        run=str(record.get("name") or ""),
        user=str(record.get("user_name") or ""),
        state=state,
        submit=_time(record.get("submit_time")),
        eligible=_time(record.get("eligible_time")),
        start=None if state in WAITING else _time(record.get("start_time")),
        end=_time(record.get("end_time")) if ended else None,
        nodes=nodes,
        gpus_per_node=_gpus_per_node(record, len(nodes)),
        excluded=_names(record.get("excluded_nodes")),
    )
    return Job(
        attempt,
        batch=bool(record.get("batch_flag")),
        may_requeue=bool(record.get("requeue", True)),
        required=_names(record.get("required_nodes")),
    )


def number(value: Any) -> int | None:
    """A number of Slurm's JSON: plain (to 23.02) or {"set","infinite","number"} (from 23.11); unset gives None."""
    if isinstance(value, Mapping):
        if not value.get("set") or value.get("infinite"):
            return None
        value = value.get("number")
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def holders(jobs: Iterable[AttemptFacts]) -> dict[str, tuple[str, ...]]:
    """Node name to the ids of the jobs that hold it now."""
    held: dict[str, list[str]] = {}
    for job in jobs:
        if job.state in HOLDING:
            for node in job.nodes:
                held.setdefault(node, []).append(job.job)
    return {node: tuple(ids) for node, ids in held.items()}


def _gpus_per_node(record: Mapping[str, Any], nodes: int) -> int:
    detail = record.get("gres_detail")
    if isinstance(detail, list) and detail:
        return max(parse_gpus(str(d))[0] for d in detail)
    asked = parse_gpus(str(record.get("tres_per_node") or ""))[0]
    if asked or not nodes:
        return asked
    return parse_gpus(str(record.get("tres_alloc_str") or ""))[0] // nodes


def _names(value: Any) -> tuple[str, ...]:
    text = str(value or "")
    if text in _NOTHING:
        return ()
    try:
        return tuple(expand(text))
    except HostlistError as bad:
        raise RecordError(f"node list {text[:80]!r}: {bad}") from bad


def _time(value: Any) -> float | None:
    """Unix seconds, or None for 0, "Unknown", "None" and Slurm's never."""
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdigit() else None
    seconds = number(value)
    return float(seconds) if seconds and seconds < _NEVER else None
