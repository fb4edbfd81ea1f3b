"""Pushed job records: each row is one attempt of a job, told whenever something about it changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import AliasChoices, BeforeValidator, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from backend.clients.hostlist import MAX_HOSTS, HostlistError, expand, is_host
from backend.facts import AttemptFacts, Batch
from backend.ingest.rows import MaybeMoment, Name, Reject, Row, counted, read

#: The words of Slurm (``man squeue``, JOB STATE CODES); other schedulers' agents translate to them.
# fmt: off
STATES = frozenset({
    "PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED",
    "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY", "LAUNCH_FAILED", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED",
    "SPECIAL_EXIT", "RESIZING", "CONFIGURING", "COMPLETING", "STOPPED", "RECONFIG_FAIL", "POWER_UP_NODE", "REVOKED",
    "SIGNALING", "STAGE_OUT", "RESV_DEL_HOLD", "EXPEDITING", "UNKNOWN",
})
# fmt: on


def _hosts(value: object) -> object:
    """A list of names, or a hostlist; repeated names count once."""
    if value is None:
        return ()
    if isinstance(value, str):
        try:
            value = expand(value) if value.strip() else []
        except HostlistError as error:
            raise PydanticCustomError("hosts", "{said}", {"said": str(error)}) from error
    if not isinstance(value, Sequence) or not all(isinstance(name, str) for name in value):
        raise PydanticCustomError("hosts", "must be a list of host names, or a hostlist")
    if len(value) > MAX_HOSTS:
        raise PydanticCustomError("hosts", "names more than {most} hosts", {"most": MAX_HOSTS})
    bad = next((name for name in value if not is_host(name)), None)
    if bad is not None:
        raise PydanticCustomError("hosts", "holds {name}, which is no host name", {"name": repr(bad[:60])})
    return tuple(dict.fromkeys(value))


Hosts = Annotated[tuple[str, ...], BeforeValidator(_hosts)]


class JobRow(Row):
    """One attempt. Times are unix s or RFC 3339; ``nodes`` and ``excluded`` are lists or hostlists."""

    job: Name = Field(min_length=1)
    restart: int = Field(0, ge=0, le=2_147_483_647)
    run: Name = Field("", validation_alias=AliasChoices("run", "name"))
    user: Name = ""
    state: str
    submit: MaybeMoment = None
    eligible: MaybeMoment = None
    start: MaybeMoment = None
    end: MaybeMoment = None
    nodes: Hosts = ()
    gpus_per_node: int = Field(0, ge=0, le=1024)
    excluded: Hosts = ()

    @field_validator("state")
    @classmethod
    def _known(cls, value: str) -> str:
        """``CANCELLED by 1000`` is CANCELLED; ``COMPLETED+`` is COMPLETED."""
        word = (value.split() or [""])[0].rstrip("+").upper()
        if word not in STATES:
            raise PydanticCustomError("state", "{word} is no job state of Slurm", {"word": repr(value[:40])})
        return word

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.start is not None and self.end is not None and self.end < self.start:
            raise PydanticCustomError("order", "it ends before it starts")
        return self


def jobs_batch(body: bytes, content_type: str, now: float) -> tuple[Batch, tuple[Reject, ...]]:
    """Attempts of one push and the rows that were not taken. ``now`` in unix s.

    Raises SourceError(permanent=True) where the body as a whole cannot be read.
    """
    found = read(body, content_type, JobRow)
    attempts = tuple(attempt_of(row) for row in found.rows)
    return Batch("jobs", now, now, attempts=attempts, dropped=counted(found)), found.rejects


def attempt_of(row: JobRow) -> AttemptFacts:
    return AttemptFacts(
        job=row.job,
        restart=row.restart,
        run=row.run,
        user=row.user,
        state=row.state,
        submit=row.submit,
        eligible=row.eligible,
        start=row.start,
        end=row.end,
        nodes=row.nodes,
        gpus_per_node=row.gpus_per_node,
        excluded=row.excluded,
    )
