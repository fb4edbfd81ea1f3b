"""orders: what is asked of the cluster, and what would be if somebody approved it.

A plan that waits for a person has no orders yet; its rows are made by the approval, in one transaction. It is listed
here all the same, under the id ``d12`` (decision 12), so that an approver finds one list and no id can mean two things:
``d12`` is approved or rejected, ``45`` is an order that can be cancelled.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field
from sqlmodel import Session

from backend import writes
from backend.api.guard import Reader, Writer, watch_of
from backend.api.nodes import json
from backend.api.problems import Problem
from backend.api.snapshots import snapshots_of
from backend.api.words import Remark
from backend.identity import limits
from backend.model.actions import Decision, Order
from backend.store import actions
from backend.watch import Watch
from backend.writes import Missing

router = APIRouter(prefix="/orders", tags=["orders"])

WatchOf = Annotated[Watch, Depends(watch_of)]
OrderId = Annotated[str, Path(pattern=r"^d?[1-9][0-9]{0,17}$", description="45: an order; d12: a plan.")]
State = Literal[
    "proposed", "rejected", "waiting", "claimed", "sent", "done", "refused", "failed", "uncertain", "cancelled"
]


class OrderRow(BaseModel):
    """``type`` order: one write to the cluster. ``type`` plan: what would be ordered, as a whole."""

    id: str = Field(examples=["d12", "45"])
    type: Literal["plan", "order"]
    state: str
    incident: int
    verb: str = Field(description="drain, resume or requeue; empty for a plan.")
    node: str
    job: str
    kind: str
    reason: str = Field(description="A plan's sentence, or the reason that stands in the scheduler.")
    steps: list[dict[str, Any]] = Field(description="A plan's steps, in order.")
    advice: list[str]
    blast: dict[str, Any] = Field(description="What a plan would touch: nodes, jobs, other_jobs, gpus.")
    guards: list[dict[str, Any]] = Field(description="Every guard's verdict, those that passed as well.")
    dark_sources: list[str]
    decided_by: str
    created_at: datetime
    sent_at: datetime | None
    ended_at: datetime | None
    outcome: str
    error: str


class OrderList(BaseModel):
    items: list[OrderRow]


class Why(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"note": "spare nodes are free"}]})
    note: Remark = ""


def of_order(row: Order) -> dict[str, Any]:
    return {
        "id": str(row.id),
        "type": "order",
        "state": row.state,
        "incident": row.incident_id,
        "verb": row.verb,
        "node": row.node,
        "job": row.job,
        "kind": row.kind,
        "reason": row.reason,
        "steps": [],
        "advice": [],
        "blast": {},
        "guards": row.guards,
        "dark_sources": [],
        "decided_by": row.claimed_by,
        "created_at": row.created_at,
        "sent_at": row.sent_at,
        "ended_at": row.ended_at,
        "outcome": row.outcome,
        "error": row.error,
    }


def of_decision(row: Decision) -> dict[str, Any]:
    nodes = list(dict.fromkeys(str(step["node"]) for step in row.plan if step["node"]))
    jobs = list(dict.fromkeys(str(step["job"]) for step in row.plan if step["job"]))
    return {
        "id": f"d{row.id}",
        "type": "plan",
        "state": row.state,
        "incident": row.incident_id,
        "verb": "",
        "node": ",".join(nodes),
        "job": ",".join(jobs),
        "kind": row.recommended,
        "reason": row.sentence,
        "steps": row.plan,
        "advice": row.advice,
        "blast": row.blast,
        "guards": row.guards,
        "dark_sources": row.dark,
        "decided_by": row.decided_by,
        "created_at": row.at,
        "sent_at": None,
        "ended_at": row.decided_at,
        "outcome": row.note,
        "error": "",
    }


def number(order_id: str) -> tuple[str, int]:
    """("plan", 12) of ``d12``, ("order", 45) of ``45``."""
    assert re.fullmatch(r"d?\d+", order_id)
    return ("plan", int(order_id[1:])) if order_id.startswith("d") else ("order", int(order_id))


def _decision(session: Session, watch: Watch, order_id: str) -> Decision:
    row = session.get(Decision, number(order_id)[1])
    if row is None or row.cluster != watch.cluster:
        raise Missing(f"No plan {order_id} in cluster {watch.cluster}; GET /api/v1/orders lists what waits.")
    return row


def _plan_number(order_id: str) -> int:
    kind, found = number(order_id)
    if kind != "plan":
        raise Problem(
            409,
            f"Order {order_id} was approved with its plan already. Approve or reject a plan by its id, like d12; an "
            f"order that still waits can be cancelled.",
        )
    return found


@router.get("", operation_id="list_orders", response_model=OrderList)
def list_orders(
    person: Reader,
    watch: WatchOf,
    states: Annotated[list[State] | None, Query(alias="state")] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Response:
    """Plans that wait for an approver, then orders, each newest first. ``state`` keeps only these."""
    wanted = list(states or ())
    of_plans = [s for s in wanted or ("proposed",) if s in ("proposed", "rejected")]
    of_orders = [str(s) for s in wanted if s not in ("proposed", "rejected")]
    with watch.store.read() as session:
        plans = actions.decisions(session, watch.cluster, of_plans, limit) if of_plans else ()
        rows = actions.orders(session, watch.cluster, of_orders, limit) if of_orders or not wanted else ()
        plans = limits.seen(session, watch.cluster, person, plans)
        rows = limits.seen(session, watch.cluster, person, rows)
    items = [*(of_decision(row) for row in plans), *(of_order(row) for row in rows)]
    return json({"items": items[:limit]})


@router.get("/{order_id}", operation_id="read_order", response_model=OrderRow)
def read_order(order_id: OrderId, person: Reader, watch: WatchOf) -> Response:
    """One order, or one plan with its steps, its blast radius and every guard's verdict."""
    kind, found = number(order_id)
    with watch.store.read() as session:
        row = _decision(session, watch, order_id) if kind == "plan" else session.get(Order, found)
        theirs = row is not None and bool(limits.seen(session, watch.cluster, person, [row]))
    if row is None or row.cluster != watch.cluster or not theirs:
        raise Missing(f"No order {order_id} in cluster {watch.cluster}; GET /api/v1/orders lists them.")
    return json(of_decision(row) if isinstance(row, Decision) else of_order(row))


@router.post("/{order_id}/approve", operation_id="approve_order", response_model=OrderRow)
def approve(request: Request, order_id: OrderId, person: Writer, watch: WatchOf, why: Why | None = None) -> Response:
    """Approve a plan: guards run again on what is known now; then it excludes, and its orders wait to be carried out.

    409 with every guard's verdict where one refuses, or where the plan no longer waits; then nothing was done.
    """
    row = writes.approve(watch, _plan_number(order_id), person, why.note if why else "")
    snapshots_of(request).forget(watch.cluster)
    return json(of_decision(row))


@router.post("/{order_id}/reject", operation_id="reject_order", response_model=OrderRow)
def reject(request: Request, order_id: OrderId, person: Writer, watch: WatchOf, why: Why | None = None) -> Response:
    """Reject a plan: it will not be carried out. News about the incident may propose another."""
    row = writes.reject(watch, _plan_number(order_id), person, why.note if why else "")
    snapshots_of(request).forget(watch.cluster)
    return json(of_decision(row))


@router.post("/{order_id}/undo", operation_id="undo_order", response_model=OrderRow)
def undo(request: Request, order_id: OrderId, person: Writer, watch: WatchOf, why: Why | None = None) -> Response:
    """Give the node back that an order drained, before its incident is clear. Answers the new order; 409 where that
    drain no longer stands. Another owner's drain is never lifted."""
    kind, found = number(order_id)
    if kind == "plan":
        raise Problem(409, f"{order_id} is a plan: undo the drain that it ordered, by the number of that order.")
    row = writes.undo(watch, found, person, why.note if why else "")
    snapshots_of(request).forget(watch.cluster)
    return json(of_order(row))


@router.post("/{order_id}/cancel", operation_id="cancel_order", response_model=OrderRow)
def cancel(order_id: OrderId, person: Writer, watch: WatchOf) -> Response:
    """Withdraw an order that nobody has claimed yet. A plan is rejected instead."""
    kind, found = number(order_id)
    if kind == "plan":
        raise Problem(409, f"{order_id} is a plan: reject it, or cancel its orders one by one once it is approved.")
    return json(of_order(writes.cancel(watch, found, person)))
