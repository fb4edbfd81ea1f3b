"""Slurm's accounting by slurmrestd: attempts of ``GET /slurmdb/v0.0.NN/jobs/``, or of ``sacct --json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from backend.clients.sacct import excluded_by
from backend.clients.slurm_accounting import Told, both, joined
from backend.clients.slurm_outputs import Writer, outputs_of
from backend.clients.slurm_rest import SlurmRest
from backend.clients.slurm_states import HOLDING, WAITING, job_state
from backend.clients.slurm_values import RecordError, exit_of, names_of, number, text_of, time_of
from backend.clients.submit_line import options_of
from backend.facts import AttemptFacts, OutageFacts

#: Jobs asked for by number in one read: each is a request of its own.
MANY_JOBS = 50


class KeptByRest:
    """The accounting of a cluster whose commands may not be used here. It has no outages: slurmrestd tells none."""

    def __init__(self, rest: SlurmRest) -> None:
        self._rest = rest

    def kept(self) -> bool:
        """slurmrestd without slurmdbd answers 404."""
        return self._rest.has_accounting()

    def attempts(self, start: float, end: float) -> Told:
        flags = "show_duplicates=true&skip_steps=true&disable_truncate_usage_time=true"  # else times end at the window
        asked = f"jobs/?start_time={int(start)}&end_time={int(end)}&{flags}"
        return both(read_kept(self._rest.kept(asked)), read_kept(self._rest.kept(f"{asked}&state=CANCELLED")))

    def of_jobs(self, jobs: Sequence[str]) -> Told:
        found = [read_kept(self._rest.kept(f"job/{quote(job)}")) for job in jobs[:MANY_JOBS]]
        return Told(tuple(a for one in found for a in one.attempts), tuple(u for one in found for u in one.unread))

    def outages(self, start: float, end: float) -> list[OutageFacts]:
        return []


def read_kept(document: Any) -> Told:
    """Attempts of the accounting's JSON, v0.0.38 and later; records that make no sense are told and left out."""
    records = document.get("jobs") if isinstance(document, Mapping) else None
    attempts: list[AttemptFacts] = []
    unread: list[str] = []
    for record in records if isinstance(records, list) else []:
        try:
            attempts.append(_attempt(record))
        except RecordError as error:
            unread.append(str(error))
    return Told(tuple(joined(attempts)), tuple(unread))


def _attempt(record: Any) -> AttemptFacts:
    job = number(record.get("job_id")) if isinstance(record, Mapping) else None
    if job is None:
        raise RecordError(f"job record without job_id: {str(record)[:80]}")
    times, said = _under(record, "time"), _under(record, "state")
    state = job_state(said.get("current"))
    start, end = time_of(times.get("start")), time_of(times.get("end"))
    end = None if state in HOLDING - {"RESIZING"} else end
    waits = state in WAITING and end is None
    state = "REQUEUED" if state == "PENDING" and end is not None else state  # its words are PENDING and REQUEUED
    nodes = () if waits else names_of(record.get("nodes"))
    options = options_of(text_of(record.get("submit_line")))
    code, signal = exit_of(record.get("exit_code")) if end is not None else (None, None)
    limit, restarts = number(times.get("limit")), number(record.get("restart_cnt"))
    writer = _writer(record, str(job), nodes)
    return AttemptFacts(
        job=str(job),
        restart=-1 if restarts is None else restarts,
        run=str(record.get("name") or ""),
        user=text_of(record.get("user")) or text_of(_under(record, "association").get("user")),
        state=state,
        submit=time_of(times.get("submission")),
        eligible=time_of(times.get("eligible")),
        start=None if waits else start,
        end=end,
        nodes=nodes,
        gpus_per_node=_gpus(record) // max(1, len(nodes)),
        excluded=excluded_by(options),
        unit=text_of(record.get("sluid")),
        name=str(record.get("name") or ""),
        array=f"{writer.array}_{writer.task_id}" if writer.task_id else _part(record),
        partition=text_of(record.get("partition")),
        account=text_of(record.get("account")),
        exit_code=code,
        signal=signal,
        reason=text_of(said.get("reason")),
        dependency=text_of(options.get("dependency")),
        limit_s=limit * 60.0 if limit else None,
        outputs=_outputs(record, writer, options) if start is not None and not waits else (),
        source="sacct",
    )


def _writer(record: Mapping[str, Any], job: str, nodes: Sequence[str]) -> Writer:
    array = _under(record, "array")
    whole, task = number(array.get("job_id")), number(array.get("task_id"))
    told = bool(whole) and task is not None
    return Writer(
        job,
        user=text_of(record.get("user")),
        name=str(record.get("name") or ""),
        array=str(whole) if told else "",
        task_id=str(task) if told else "",
        node=nodes[0] if nodes else "",
    )


def _part(record: Mapping[str, Any]) -> str:
    """``1200+1`` of a heterogeneous job."""
    het = _under(record, "het")
    leader, offset = number(het.get("job_id")), number(het.get("job_offset"))
    return f"{leader}+{offset}" if leader and offset is not None else ""


def _outputs(record: Mapping[str, Any], writer: Writer, options: Mapping[str, str]) -> tuple[str, ...]:
    out = text_of(record.get("stdout_expanded")) or text_of(record.get("stdout"))
    error = text_of(record.get("stderr_expanded")) or text_of(record.get("stderr"))
    if not out and not text_of(record.get("submit_line")).startswith("sbatch"):
        return ()
    folder = text_of(record.get("working_directory"))
    return outputs_of(writer, out or options.get("output", ""), error or options.get("error", ""), folder)


def _gpus(record: Mapping[str, Any]) -> int:
    """GPUs of the whole job: the TRES gres/gpu, which is told once beside its types."""
    for name in ("allocated", "requested"):
        rows = _under(record, "tres").get(name)
        counts = {
            text_of(row.get("name")): number(row.get("count")) or 0
            for row in (rows if isinstance(rows, list) else [])
            if isinstance(row, Mapping) and row.get("type") == "gres"
        }
        whole = counts.get("gpu") or sum(count for kind, count in counts.items() if kind.startswith("gpu:"))
        if whole:
            return whole
    return 0


def _under(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    inner = record.get(name)
    return inner if isinstance(inner, Mapping) else {}
