"""k8s: an extender of kube-scheduler (k8s.io/kube-scheduler/extender/v1): filter leaves out, prioritize prefers.

Its Go types carry no JSON names, so theirs are the names of the fields; Go reads them in any case, and so do we.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field
from sqlalchemy.exc import SQLAlchemyError

from backend.answers import verdicts
from backend.answers.ready import Ready
from backend.answers.verdicts import Verdict, Word
from backend.api.guard import Reader, watch_of
from backend.api.nodes import json
from backend.api.problems import Problem
from backend.api.snapshots import ready_of
from backend.store.engine import StoreError
from backend.watch import Watch

router = APIRouter(prefix="/k8s", tags=["k8s"])

#: From MinExtenderPriority to MaxExtenderPriority (0 to 10): what is not known is better than what is suspect.
SCORES: Mapping[Word, int] = {"ok": 10, "unknown": 5, "suspect": 2, "exclude": 0}
#: Labels by which a pod says of which job it is, newest first.
JOB_LABELS = (
    "jobset.sigs.k8s.io/jobset-name",
    "training.kubeflow.org/job-name",
    "batch.kubernetes.io/job-name",
    "job-name",
)
EXAMPLE = {"Pod": {"metadata": {"name": "llama-0", "namespace": "nlp"}}, "Nodes": None, "NodeNames": ["gpu-0007"]}
BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"type": "object", "title": "ExtenderArgs"}, "example": EXAMPLE}},
    }
}


class FilterResult(BaseModel):
    """ExtenderFilterResult: nodes as they came, by name or whole; those left out, each with why."""

    Nodes: dict[str, Any] | None = Field(description="A NodeList, where nodes came whole.")
    NodeNames: list[str] | None = Field(description="Where names came (nodeCacheCapable).")
    FailedNodes: dict[str, str] = Field(examples=[{"gpu-0007": "Excluded by dana: GPU 3 fell off the bus"}])
    FailedAndUnresolvableNodes: dict[str, str] = Field(description="The same: no preemption would make them fit.")
    Error: str


class HostPriority(BaseModel):
    Host: str = Field(examples=["gpu-0007"])
    Score: int = Field(description="0 (proposed for exclusion) to 10 (ok).")


WatchOf = Annotated[Watch, Depends(watch_of)]
Advisory = Annotated[bool, Query(description="Also leave out what is only proposed for exclusion.")]


@router.post("/filter", operation_id="filter_nodes", response_model=FilterResult, openapi_extra=BODY)
async def filter_nodes(request: Request, _: Reader, watch: WatchOf, advisory: Advisory = False) -> Response:
    """Leaves out nodes under a binding exclusion, and no others. Fails open: with no verdicts at hand every node
    stays, and a Warning header says so."""
    asked = await args_of(request)
    found = await judged(request, watch, asked)
    failed = {v.node: v.reasons[0] if v.reasons else "excluded" for v in found if _is_out(v, advisory)}
    nodes = asked.get("nodes")
    if nodes is not None:
        nodes = nodes | {"items": [item for item in nodes.get("items") or () if name_of(item) not in failed]}
    names = asked.get("nodenames")
    return answered(
        {
            "Nodes": nodes,
            "NodeNames": None if names is None else [name for name in names if name not in failed],
            "FailedNodes": failed,
            "FailedAndUnresolvableNodes": failed,
            "Error": "",
        },
        found,
    )


@router.post("/prioritize", operation_id="prioritize_nodes", response_model=list[HostPriority], openapi_extra=BODY)
async def prioritize(request: Request, _: Reader, watch: WatchOf) -> Response:
    """Prefers nodes of which nothing but good is known, before those that are not known, before suspect ones."""
    asked = await args_of(request)
    found = await judged(request, watch, asked)
    words = {v.node: v.verdict for v in found}
    scores = [{"Host": name, "Score": SCORES[words.get(name, "unknown")]} for name in names_of(asked)]
    return answered(scores, found)


def _is_out(verdict: Verdict, advisory: bool) -> bool:
    return verdict.binding or (advisory and verdict.verdict == "exclude")


def answered(body: object, found: Sequence[Verdict]) -> Response:
    answer = json(body)
    if not found:
        answer.headers["Warning"] = '199 - "no verdicts at hand: nothing was left out"'
    return answer


async def args_of(request: Request) -> dict[str, Any]:
    """ExtenderArgs with its own names in lower case. Raises Problem."""
    try:
        given = orjson.loads(await request.body())
    except orjson.JSONDecodeError as error:
        raise Problem(400, f"The body is not JSON: {error}. kube-scheduler sends ExtenderArgs.") from error
    if not isinstance(given, dict):
        raise Problem(422, "The body is no ExtenderArgs: an object with Pod, and Nodes or NodeNames.")
    asked = {str(key).lower(): value for key, value in given.items()}
    names, nodes, pod = asked.get("nodenames"), asked.get("nodes"), asked.get("pod")
    whole = isinstance(nodes, dict) and isinstance(nodes.get("items"), list | None)
    named = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if (nodes is not None and not whole) or (names is not None and not named) or (nodes is None and names is None):
        raise Problem(
            422, "ExtenderArgs holds Nodes, a NodeList, or NodeNames, a list of names; this body has neither."
        )
    if not isinstance(pod, dict | None):
        raise Problem(422, "ExtenderArgs.Pod is an object; this one is none.")
    return asked


async def judged(request: Request, watch: Watch, asked: Mapping[str, Any]) -> list[Verdict]:
    """The verdict of each asked node; of none where nothing was ever read and the database is away."""
    try:
        ready: Ready = await ready_of(request, watch)
    except (SQLAlchemyError, StoreError):
        return []
    scopes = scopes_of_pod(asked.get("pod") or {}) if ready.seen.scoped else verdicts.NOBODY
    return [verdicts.verdict(ready.seen, name, scopes) for name in dict.fromkeys(names_of(asked))]


def names_of(asked: Mapping[str, Any]) -> list[str]:
    if asked.get("nodenames") is not None:
        return list(asked["nodenames"])
    return [name for item in asked["nodes"].get("items") or () if (name := name_of(item))]


def name_of(item: Any) -> str:
    """metadata.name of an object, as far as it has one."""
    about = item.get("metadata") if isinstance(item, dict) else None
    return str(about.get("name") or "") if isinstance(about, dict) else ""


def scopes_of_pod(pod: Mapping[str, Any]) -> frozenset[str]:
    """Whose work a pod is: its namespace as account, its job by name and as namespace/name."""
    about = pod.get("metadata")
    about = about if isinstance(about, dict) else {}
    space, labels = str(about.get("namespace") or "default"), about.get("labels")
    named = [str(labels[one]) for one in JOB_LABELS if labels.get(one)] if isinstance(labels, dict) else []
    jobs = [f"{kind}:{name}" for one in named for name in (one, f"{space}/{one}") for kind in ("job", "run")]
    return frozenset((f"account:{space}", *jobs))
