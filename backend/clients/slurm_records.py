"""What Slurm's commands and its REST say of nodes and jobs, read into facts: 22.05 to 25.11."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from backend.clients.slurm_gres import held_indices
from backend.clients.slurm_gres import parse_gpus as parse_gpus
from backend.clients.slurm_outputs import Writer, outputs_of
from backend.clients.slurm_states import HOLDING as HOLDING
from backend.clients.slurm_states import SUFFIXES as SUFFIXES
from backend.clients.slurm_states import WAITING as WAITING
from backend.clients.slurm_states import job_state, node_state
from backend.clients.slurm_states import parse_state as parse_state
from backend.clients.slurm_values import RecordError as RecordError
from backend.clients.slurm_values import exit_of, names_of, text_of, time_of, words_of
from backend.clients.slurm_values import number as number
from backend.facts import AttemptFacts, NodeFacts, owner_of

_RECORD = re.compile(r"^(?=NodeName=)", re.MULTILINE)
_PAIR = re.compile(r"(?:^|\s)(?P<key>[A-Za-z][A-Za-z0-9_/:]*)=(?P<value>\S*)")
_REASON = re.compile(r"\sReason=(?P<reason>.*?)(?:\s*\[(?P<user>[^\s@\[\]]+)@(?P<at>[^\]\s]+)\]|$)", re.DOTALL)
#: OS=Linux 6.1.0-31-amd64 #1 SMP ...: the third word of uname is what runs.
_KERNEL = re.compile(r"(?:^|[\s=])Linux (\S+)")
#: What a node record says beside its state, by the name of the label it becomes: JSON key, text key.
LABELS = {
    "features": ("features", "AvailableFeatures"),
    "features_active": ("active_features", "ActiveFeatures"),
    "gres": ("gres", "Gres"),
    "slurm": ("version", "Version"),
    "reservation": ("reservation", "ReservationName"),
    "instance_id": ("instance_id", "InstanceId"),
    "instance_type": ("instance_type", "InstanceType"),
    "address": ("address", "NodeAddr"),
}


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


# --- nodes ----------------------------------------------------------------------------------------------------------


def parse_nodes(text: str, read_at: float) -> list[NodeFacts]:
    """Node records of ``scontrol -a -o show node``. Raises RecordError for output that holds a broken record.

    Only Reason, Comment and Extra hold free text, and they stand last: the first occurrence of any other key counts.
    """
    return [_node(record.strip(), read_at) for record in _RECORD.split(text) if record.startswith("NodeName=")]


def _node(record: str, read_at: float) -> NodeFacts:
    reason = _REASON.search(record)
    plain = record[: reason.start()] if reason else record
    fields: dict[str, str] = {}
    for pair in _PAIR.finditer(plain):
        fields.setdefault(pair["key"], pair["value"])
    if "State" not in fields:
        raise RecordError(f"node record without State: {record[:80]!r}")
    state, flags = parse_state(fields["State"])
    said = text_of(reason["reason"]) if reason else ""
    count, model = parse_gpus(fields.get("Gres", ""))
    labels = {name: text_of(fields.get(key)) for name, (_, key) in LABELS.items()}
    return NodeFacts(
        name=fields["NodeName"],
        state=state,
        flags=flags,
        reason=said,
        reason_owner=owner_of(said, (reason["user"] or "") if reason else ""),
        model=model,
        expected_gpus=count,
        boot_at=time_of(fields.get("BootTime")),
        read_at=read_at,
        partitions=words_of(fields.get("Partitions")),
        labels=_labels(labels, plain, time_of(reason["at"]) if reason else None),
    )


def _labels(said: Mapping[str, str], system: str, reason_at: float | None) -> dict[str, str]:
    """Labels that say something; ``reason_at`` (unix s) as digits."""
    kernel = _KERNEL.search(system)
    found = {**said, "kernel": kernel[1] if kernel else "", "reason_at": f"{reason_at:.0f}" if reason_at else ""}
    if found.get("features_active") == found.get("features"):
        found["features_active"] = ""
    return {name: value for name, value in found.items() if value}


def read_nodes(document: Any, read_at: float) -> list[NodeFacts]:
    """Nodes of ``GET /slurm/v0.0.NN/nodes/`` or ``sinfo --json`` with node records. Raises RecordError."""
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), list):
        raise RecordError("no list of nodes in the answer")
    return [_read_node(record, read_at) for record in document["nodes"]]


def _read_node(record: Any, read_at: float) -> NodeFacts:
    if not isinstance(record, dict) or not text_of(record.get("name")):
        raise RecordError(f"node record without name: {str(record)[:80]}")
    state, flags = node_state(record)
    said = text_of(record.get("reason"))
    count, model = parse_gpus(str(record.get("gres") or ""))
    labels = {name: ",".join(words_of(record.get(key))) for name, (key, _) in LABELS.items()}
    labels["slurm"] = labels["slurm"] or text_of(record.get("slurmd_version"))
    return NodeFacts(
        name=str(record["name"]),
        state=state,
        flags=flags,
        reason=said,
        reason_owner=owner_of(said, text_of(record.get("reason_set_by_user"))),
        model=model,
        expected_gpus=count,
        boot_at=time_of(record.get("boot_time")),
        read_at=read_at,
        partitions=words_of(record.get("partitions")),
        labels=_labels(labels, text_of(record.get("operating_system")), time_of(record.get("reason_changed_at"))),
    )


# --- jobs -----------------------------------------------------------------------------------------------------------


def parse_jobs(document: Any) -> list[Job]:
    """Jobs of ``squeue --json`` or ``GET /slurm/v0.0.NN/jobs/``, v0.0.38 (22.05) and later. Raises RecordError.

    JSON, because in text a job's name could forge any field, even another job's whole record.
    """
    if not isinstance(document, dict) or not isinstance(document.get("jobs"), list):
        raise RecordError("no list of jobs in squeue's JSON")
    return [_job(record) for record in document["jobs"]]


def _job(record: Any) -> Job:
    if not isinstance(record, dict) or number(record.get("job_id")) is None:
        raise RecordError(f"job record without job_id: {str(record)[:80]}")
    attempt = _attempt(record, str(number(record["job_id"])), job_state(record.get("job_state")))
    return Job(
        attempt,
        batch=bool(record.get("batch_flag")),
        may_requeue=bool(record.get("requeue", True)),
        required=names_of(record.get("required_nodes")),
    )


def _attempt(record: Mapping[str, Any], job: str, state: str) -> AttemptFacts:
    ended = state not in HOLDING | WAITING
    nodes = names_of(record.get("nodes")) if state not in WAITING else ()
    details = record.get("gres_detail")
    limit = number(record.get("time_limit"))
    code, signal = exit_of(record.get("exit_code")) if ended else (None, None)
    return AttemptFacts(
        job=job,
        restart=number(record.get("restart_cnt")) or 0,
        run=str(record.get("name") or ""),
        user=text_of(record.get("user_name")),
        state=state,
        submit=time_of(record.get("submit_time")),
        eligible=time_of(record.get("eligible_time")),
        start=None if state in WAITING else time_of(record.get("start_time")),
        end=time_of(record.get("end_time")) if ended else None,
        nodes=nodes,
        gpus_per_node=_gpus_per_node(record, len(nodes)),
        excluded=names_of(record.get("excluded_nodes")),
        name=str(record.get("name") or ""),
        array=_display(record),
        partition=text_of(record.get("partition")),
        account=text_of(record.get("account")),
        gpus=held_indices(nodes, map(str, details)) if isinstance(details, list) else (),
        exit_code=code,
        signal=signal,
        reason=text_of(record.get("state_reason")),
        dependency=text_of(record.get("dependency")),
        limit_s=limit * 60.0 if limit else None,
        outputs=_outputs(record, job) if record.get("batch_flag") and nodes else (),
        source="slurm",
        asks_nodes=0 if nodes else number(record.get("node_count")) or 0,
    )


def _display(record: Mapping[str, Any]) -> str:
    """``1200_7`` for a task of an array, ``1200+1`` for a part of a heterogeneous job, else ""."""
    array, task = number(record.get("array_job_id")), number(record.get("array_task_id"))
    if array and task is not None:
        return f"{array}_{task}"
    leader, offset = number(record.get("het_job_id")), number(record.get("het_job_offset"))
    return f"{leader}+{offset}" if leader and offset is not None else ""


def _outputs(record: Mapping[str, Any], job: str) -> tuple[str, ...]:
    """Its log files; newer versions expand the patterns themselves."""
    told = [text_of(record.get(key)) for key in ("stdout_expanded", "stderr_expanded")]
    array, task = number(record.get("array_job_id")), number(record.get("array_task_id"))
    writer = Writer(
        job,
        user=text_of(record.get("user_name")),
        name=str(record.get("name") or ""),
        array=str(array) if array else "",
        task_id=str(task) if array and task is not None else "",
        node=text_of(record.get("batch_host")),
    )
    out = told[0] or text_of(record.get("standard_output"))
    error = told[1] or text_of(record.get("standard_error"))
    return outputs_of(writer, out, error, text_of(record.get("current_working_directory")))


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
        return max(parse_gpus(text)[0] for text in set(map(str, detail)))
    asked = parse_gpus(str(record.get("tres_per_node") or ""))[0]
    if asked or not nodes:
        return asked
    return parse_gpus(str(record.get("tres_alloc_str") or ""))[0] // nodes
