"""Pushed job records: each row is one attempt of a job, told whenever something about it changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import AliasChoices, BeforeValidator, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from backend.clients.hostlist import MAX_HOSTS, HostlistError, expand, is_host
from backend.facts import AttemptFacts, Batch
from backend.ingest.rows import (
    MAX_AHEAD_S,
    Host,
    MaybeMoment,
    Name,
    Reject,
    Row,
    clean,
    counted,
    read,
    sifted,
)

#: The words of Slurm (``man squeue``, JOB STATE CODES); other schedulers' agents translate to them.
# fmt: off
STATES = frozenset({
    "PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED",
    "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY", "LAUNCH_FAILED", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED",
    "SPECIAL_EXIT", "RESIZING", "CONFIGURING", "COMPLETING", "STOPPED", "RECONFIG_FAIL", "POWER_UP_NODE", "REVOKED",
    "SIGNALING", "STAGE_OUT", "RESV_DEL_HOLD", "EXPEDITING", "UNKNOWN",
})
# fmt: on
#: Longest text that explains a job, in characters; a path may be this long.
MAX_WORDS = 4_096
#: States in which a job has started, and in which it has ended.
RUNS = frozenset({"RUNNING", "SUSPENDED", "COMPLETING", "RESIZING", "STOPPED", "SIGNALING", "STAGE_OUT"})
ENDED = frozenset(
    {"COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "LAUNCH_FAILED", "PREEMPTED"}
)


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


def _words(value: object) -> object:
    """Text that explains and identifies nothing: what cannot be shown of it, and what is too much, is left out."""
    if value is None:
        return ""
    return "".join(c for c in clean(value) if c.isprintable()).strip()[:MAX_WORDS] if isinstance(value, str) else value


Words = Annotated[str, BeforeValidator(_words)]


class JobRow(Row):
    """One attempt. Times are unix s or RFC 3339; ``nodes`` and ``excluded`` are lists or hostlists; ``gpus`` are the
    indices held on each node; ``signal`` 0 is none. Which files it prints into is not taken from a push: whoever may
    push could have any user's files read."""

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
    asks_nodes: int = Field(0, ge=0, le=1_000_000)
    excluded: Hosts = ()
    unit: Name = ""
    array: Name = ""
    partition: Name = ""
    account: Name = ""
    gpus: dict[Host, list[Annotated[int, Field(ge=0, le=1023)]]] = Field(default_factory=dict, max_length=MAX_HOSTS)
    roles: dict[Host, Name] = Field(default_factory=dict, max_length=MAX_HOSTS)
    exit_code: int | None = Field(None, ge=-1, le=65_535)
    signal: int | None = Field(None, ge=0, le=127)
    reason: Words = ""
    dependency: Words = ""
    requeued_by: Name = ""
    limit_s: float | None = Field(None, ge=0)
    source: Name = ""

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

    def wrong(row: JobRow) -> tuple[str, str] | None:
        name = ahead(row, now + MAX_AHEAD_S)
        said = "lies in the future, though it has happened: is the scheduler's clock right?"
        return (name, said) if name else None

    good = sifted(read(body, content_type, JobRow), wrong)
    return Batch("jobs", now, now, attempts=tuple(map(attempt_of, good.rows)), dropped=counted(good)), good.rejects


def ahead(row: JobRow, limit: float) -> str:
    """The time of what has happened that lies after ``limit`` (unix s); "" where none does. The expected start of a
    waiting job and the expected end of a running one may."""
    happened = {"submit": row.submit}
    if row.state in RUNS:
        happened["start"] = row.start
    if row.state in ENDED:
        happened |= {"start": row.start, "end": row.end}
    return next((name for name, at in happened.items() if at is not None and at > limit), "")


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
        asks_nodes=row.asks_nodes,
        excluded=row.excluded,
        unit=row.unit,
        name=row.run,
        array=row.array,
        partition=row.partition,
        account=row.account,
        gpus=tuple(sorted((node, tuple(sorted(set(held)))) for node, held in row.gpus.items())),
        roles=tuple(sorted(row.roles.items())),
        exit_code=row.exit_code,
        signal=row.signal or None,
        reason=row.reason,
        dependency=row.dependency,
        requeued_by=row.requeued_by,
        limit_s=row.limit_s,
        source=row.source,
    )
