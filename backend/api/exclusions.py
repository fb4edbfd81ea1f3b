"""exclusions: which nodes are kept from new work, and which of these nodes should a job leave out."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Literal, Self

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, model_validator
from starlette.concurrency import run_in_threadpool

from backend import writes
from backend.answers import exclusions
from backend.answers.ready import Page, Ready, mark_of
from backend.api.guard import Reader, Writer, watch_of
from backend.api.nodes import CONDITIONAL, json
from backend.api.problems import Problem
from backend.api.scopes import scopes_of
from backend.api.snapshots import ready_of, snapshots_of
from backend.api.waiting import Wait, answered
from backend.api.words import Asked, Host, Reason, Remark, RowId
from backend.clients import hostlist
from backend.store import cluster as cluster_rows
from backend.watch import Watch

router = APIRouter(prefix="/exclusions", tags=["exclusions"])

WatchOf = Annotated[Watch, Depends(watch_of)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=255)]
#: Names or characters of a question that is answered at once; a longer one, in a thread, holds up nobody else.
FEW = 200
#: Most nodes of one question by name.
MOST_NODES = 100_000
#: How long a person's exclusion lasts where they did not say: as long as an approved one by default.
DEFAULT_HOURS = 168


class Question(BaseModel):
    """Which of these nodes should a job avoid? Without ``nodes``: those of the job's last attempt, else all known."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"nodes": "gpu-[0001-0064]", "job": "41207"}]}
    )
    nodes: Annotated[list[Name], Field(max_length=MOST_NODES)] | str | None = Field(
        None, description="Names, or one hostlist."
    )
    hostlist: str | None = Field(None, description="The same as a hostlist in ``nodes``; give one of the two.")
    job: Name | None = None

    @model_validator(mode="after")
    def one_of_two(self) -> Self:
        if self.hostlist is not None:
            if self.nodes is not None:
                raise ValueError("give nodes or hostlist, not both")
            self.nodes, self.hostlist = self.hostlist, None
        return self


class Reply(BaseModel):
    exclude: list[str] = Field(description="Under a binding exclusion.", examples=[["gpu-0007"]])
    avoid: list[str] = Field(description="Advice only: proposed, or suspect.", examples=[["gpu-0012"]])
    unknown: list[str] = Field(description="Never seen, dark or blind: not vouched for.", examples=[[]])
    hostlist: str = Field(
        description="exclude as a hostlist; with advisory=1 also avoid. What sbatch --exclude takes.",
        examples=["gpu-0007"],
    )
    binding: bool = Field(description="True where hostlist names binding nodes only, and at least one.")
    reasons: dict[str, list[str]] = Field(examples=[{"gpu-0007": ["Excluded by dana: GPU 3 fell off the bus"]}])
    as_of: datetime


class EarlierEnd(BaseModel):
    """One change: by whom, why, and what its end was until then."""

    at: datetime
    by: str
    until: datetime
    reason: str


class ExclusionRow(BaseModel):
    id: int | None = Field(description="null: a plan nobody has approved; it binds nobody.")
    node: str
    origin: Literal["person", "approved", "act", "proposed"]
    binding: bool
    owner: str
    reason: str
    kind: str
    incident: int | None
    created_at: datetime
    until: datetime | None
    lifted_at: datetime | None = None
    lifted_by: str = ""
    lift_reason: str = ""
    scope: str = Field("", description="Whose work alone, as in account:nlp; empty: everybody's.")
    confidence: float | None = Field(None, description="How sure its incident is of the node, 0 to 1.")
    evidence: list[str] = Field([], description="What its incident says about the node.")
    history: list[EarlierEnd] = Field([], description="What was changed since it was made, oldest first.")


class EndedRow(ExclusionRow):
    ended_at: datetime
    how: str = Field(examples=["lifted by dana"])
    proof: Literal["right", "wrong", "open"] = Field(description="Whether it proved right; open: nobody can tell.")
    why: str = Field(examples=["it broke again 3 days later: incident 812"])


class EndedList(BaseModel):
    items: list[EndedRow]
    as_of: datetime


class ExclusionList(BaseModel):
    items: list[ExclusionRow]
    hostlist: str
    as_of: datetime


class NewExclusion(BaseModel):
    """Keep new work from a node. Give ``until`` or ``hours``; without either it lasts 7 days."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"node": "gpu-0412", "reason": "riser is being swapped", "hours": 8}]},
    )
    node: Host
    reason: Reason
    until: AwareDatetime | None = None
    hours: float | None = Field(None, gt=0, le=24 * 365)
    scope: Annotated[str, StringConstraints(max_length=300)] = Field(
        "", description="Whose work alone: job:ID, run:NAME, account:NAME or partition:NAME."
    )


class NewEnd(BaseModel):
    """When an exclusion ends instead, and why."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"until": "2026-03-08T12:00:00Z"}]})
    until: AwareDatetime
    reason: Remark = ""


Advisory = Annotated[bool, Query(description="Also what is only proposed or suspected; it binds nobody.")]
Scopes = Annotated[
    list[Annotated[str, StringConstraints(max_length=300)]] | None, Query(description="Whose work, as in account:nlp.")
]
Format = Annotated[Literal["json", "hostlist", "lines"], Query(alias="format")]


@router.post("/query", operation_id="query_exclusions", response_model=Reply)
async def query(
    request: Request, question: Question, _: Reader, watch: WatchOf, advisory: Advisory = False
) -> Response:
    """Which of these nodes to leave out, as lists and as a hostlist; with ``job`` also what holds for its work only."""
    ready = await ready_of(request, watch)
    scopes = await scopes_of(request, watch, question.job or "")
    if question.nodes is not None and len(question.nodes) <= FEW:
        return body(_replied(watch, question, ready, advisory, scopes))
    return body(await run_in_threadpool(_replied, watch, question, ready, advisory, scopes))


def body(page: Page) -> Response:
    return Response(page.body, media_type="application/json")


def _replied(watch: Watch, question: Question, ready: Ready, advisory: bool, scopes: frozenset[str]) -> Page:
    names = _asked(watch, question)
    asked = sorted(ready.seen.nodes) if names is None else names
    return ready.reply(asked, advisory=advisory, scopes=scopes)


def _asked(watch: Watch, question: Question) -> list[str] | None:
    """The names a question is about; None: all known. Raises Problem for a hostlist that cannot be read."""
    if question.nodes is None and question.job is not None:
        return _held_by(watch, question.job)
    if question.nodes is None:
        return None
    try:
        if isinstance(question.nodes, str):
            return hostlist.expand(question.nodes)
        hostlist.render(question.nodes)
        return question.nodes
    except hostlist.HostlistError as error:
        raise Problem(422, str(error), errors=[{"where": "body.nodes", "what": str(error)}]) from error


def _held_by(watch: Watch, job: str) -> list[str]:
    """Nodes of the job's last attempt that had any. Raises Problem for a job that never ran here."""
    with watch.store.read() as session:
        spans = cluster_rows.allocations(session, watch.cluster, [job])
    last = max((span.restart for span in spans), default=None)
    if last is None:
        raise Problem(404, f"Job {job} never held a node in cluster {watch.cluster}; name the nodes instead.")
    return list(dict.fromkeys(span.node for span in spans if span.restart == last))


@router.get(
    "",
    operation_id="list_exclusions",
    response_model=ExclusionList,
    responses=CONDITIONAL | {200: {"content": {"text/plain": {"example": "gpu-[0007,0012]"}}}},
)
async def list_exclusions(
    request: Request,
    _: Reader,
    watch: WatchOf,
    shape: Format = "json",
    advisory: Advisory = False,
    scope: Scopes = None,
    job: Annotated[Asked, Query(description="Also what is kept from the work of this job only.")] = "",
    wait_s: Wait = 0.0,
) -> Response:
    """Nodes that are kept from new work now: the binding ones; with ``advisory=1`` also what is only proposed.

    ``format=hostlist`` is one line for ``sbatch --exclude``, ``format=lines`` one node a line; both are empty for none,
    and name what is kept from the work of some only where ``scope`` or ``job`` says that it is theirs.
    """
    theirs = frozenset(scope or ()) | await scopes_of(request, watch, job)
    media = "application/json" if shape == "json" else "text/plain; charset=utf-8"
    return await answered(request, watch, lambda ready: listing(ready, shape, advisory, theirs), wait_s, media)


def listing(ready: Ready, shape: str, advisory: bool, scopes: frozenset[str]) -> Page:
    rows = [row for row in ready.seen.listed if row["binding"] or advisory]
    names = {str(row["node"]) for row in rows if not row["scope"] or row["scope"] in scopes}
    if shape == "json":
        return ready.listed({"items": rows, "hostlist": hostlist.render(names)})
    folded = shape == "hostlist"
    said = [hostlist.render(names)] if folded and names else [] if folded else sorted(names, key=hostlist.natural)
    text = "".join(f"{line}\n" for line in said).encode()
    return Page(text, mark_of((shape.encode(), text)))


@router.get("/ended", operation_id="list_ended_exclusions", response_model=EndedList)
def list_ended(
    _: Reader,
    watch: WatchOf,
    node: Asked = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Response:
    """Exclusions that ended, newest first: how, and whether they proved right as far as anybody can tell."""
    now = watch.clock.now()
    with watch.store.read() as session:
        found = exclusions.ended(session, watch.cluster, now, limit, node=node)
    items = [one.row | {"ended_at": one.at, "how": one.how, "proof": one.proof, "why": one.why} for one in found]
    return json({"items": items, "as_of": now})


@router.post("", operation_id="create_exclusion", response_model=ExclusionRow, status_code=201)
def create(request: Request, new: NewExclusion, person: Writer, watch: WatchOf) -> Response:
    """Keep new work from a node, in your name: binding at once. The cluster itself is not touched."""
    if new.until is not None and new.hours is not None:
        raise Problem(
            422, "Give either until or hours, not both.", errors=[{"where": "body.hours", "what": "both given"}]
        )
    until = new.until or watch.clock.now() + timedelta(hours=new.hours or DEFAULT_HOURS)
    row = writes.exclude(watch, new.node, person, new.reason, until, new.scope)
    snapshots_of(request).forget(watch.cluster)
    return json(exclusions.row_of(row), 201)


@router.patch("/{exclusion_id}", operation_id="extend_exclusion", response_model=ExclusionRow)
def extend(request: Request, exclusion_id: RowId, end: NewEnd, person: Writer, watch: WatchOf) -> Response:
    """Let an exclusion end at another time. Your own needs an operator; another's, or an approved one, an approver."""
    row = writes.extend(watch, exclusion_id, person, end.until, end.reason)
    snapshots_of(request).forget(watch.cluster)
    return json(exclusions.row_of(row))


@router.delete("/{exclusion_id:int}", operation_id="lift_exclusion", response_model=ExclusionRow)
def lift(
    request: Request,
    exclusion_id: RowId,
    person: Writer,
    watch: WatchOf,
    reason: Annotated[Remark, Query()] = "",
) -> Response:
    """End an exclusion. Your own needs an operator; another's, or an approved one, an approver."""
    row = writes.lift(watch, exclusion_id, person, reason)
    snapshots_of(request).forget(watch.cluster)
    return json(exclusions.row_of(row))
