"""policy: the rules and limits that decide, what they would do, and the breaker."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from backend import trial, writes
from backend.api.guard import Reader, Writer, watch_of
from backend.api.nodes import json
from backend.api.problems import Problem
from backend.api.words import Asked, Host, Remark
from backend.store import system
from backend.watch import Watch

router = APIRouter(tags=["policy"])

WatchOf = Annotated[Watch, Depends(watch_of)]


class PolicyAnswer(BaseModel):
    """Limits by name (README, settings of [policy]), the site's rules in order, and the state of the breaker."""

    mode: Literal["observe", "propose", "act"]
    limits: dict[str, Any]
    rules: list[dict[str, Any]]
    mistakes: list[str] = Field(description="What is wrong with the rules; empty: nothing.")
    breaker: str = Field(description="Why it was tripped; empty: it is closed.")
    kill_switch: bool


class TrialAnswer(BaseModel):
    """What would be decided. Nothing is written, proposed or sent."""

    kind: str
    node: str
    mode: str
    known: bool = Field(description="Whether the node is in the fleet.")
    rule: str = Field(description="The site's rule that applies; empty: the kind's own ladder.")
    sentence: str
    recommended: str
    steps: list[dict[str, Any]]
    advice: list[str]
    blast: dict[str, Any]
    guards: list[dict[str, Any]]
    allowed: bool = Field(description="No guard refuses.")
    dark_sources: list[str]


class Why(BaseModel):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"reason": "the leaf switch is back; its nodes answer"}]}
    )
    reason: Remark = Field(description="What it was, and why nodes may be taken out again.")


class BreakerAnswer(BaseModel):
    breaker: str
    was: str


@router.get("/policy", operation_id="read_policy", response_model=PolicyAnswer)
def read_policy(_: Reader, watch: WatchOf) -> Response:
    """The policy as it is in force."""
    limits = asdict(watch.rules.limits)
    rules = limits.pop("rules")
    with watch.store.read() as session:
        tripped, stopped = system.breaker(session, watch.cluster), system.kill_switch(session, watch.cluster)
    body = {"mode": watch.rules.mode, "limits": limits, "rules": rules, "mistakes": trial.wrong_with(watch)}
    return json(body | {"breaker": tripped, "kill_switch": stopped})


@router.get("/policy/explain", operation_id="explain_policy", response_model=TrialAnswer)
def explain(
    _: Reader,
    watch: WatchOf,
    kind: Annotated[Asked, Query(description="Kind of fault, as in kinds.csv.")],
    node: Annotated[Host, Query(description="The node it would be on.")],
    evidence: Annotated[Literal["", "code", "state", "vote", "trend", "rate", "rule", "band"], Query()] = "",
    severity: Annotated[Literal["", "info", "warning", "high", "critical"], Query()] = "",
    seen: Annotated[int, Query(ge=0, le=20, description="How often it was acted on within a day.")] = 0,
    mode: Annotated[Literal["observe", "propose", "act"] | None, Query()] = None,
) -> Response:
    """What would happen if this fault were seen on this node now: rung, steps, every guard. Nothing happens."""
    asked = trial.Asked(kind, node, evidence, severity, seen, mode)
    try:
        with watch.store.read() as session:
            found = trial.tried(session, watch, asked)
    except LookupError as unknown:
        raise Problem(404, str(unknown.args[0])) from unknown
    return json(written(asked, found))


def written(asked: trial.Asked, found: trial.Trial) -> dict[str, Any]:
    facts = found.decision
    return {
        "kind": asked.kind,
        "node": asked.node,
        "mode": facts.mode,
        "known": found.known,
        "rule": found.rule,
        "sentence": facts.sentence,
        "recommended": facts.recommended.value,
        "steps": [asdict(step) for step in facts.plan],
        "advice": list(facts.advice),
        "blast": asdict(facts.blast),
        "guards": [asdict(guard) for guard in facts.guards],
        "allowed": facts.allowed,
        "dark_sources": list(facts.dark),
    }


class NewDrill(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"kind": "gpu_bus_loss", "node": "n1"}]})
    kind: Asked
    node: Host


class DrillAnswer(BaseModel):
    incident: int
    headline: str
    severity: str


@router.post("/drills", operation_id="begin_drill", response_model=DrillAnswer, status_code=201)
def begin_drill(new: NewDrill, person: Writer, watch: WatchOf) -> Response:
    """A fault that never was, end to end: incident, messages, plan, guards, approval, claim. Nothing reaches the
    cluster, nothing is kept from work, no report counts it; it closes by itself, or when somebody resolves it."""
    row = writes.drill(watch, new.kind, new.node, person)
    return json({"incident": row.id, "headline": row.headline, "severity": row.severity}, 201)


@router.post("/breaker/reset", operation_id="reset_breaker", response_model=BreakerAnswer)
def reset_breaker(person: Writer, watch: WatchOf, why: Why) -> Response:
    """Close the breaker again: only a person can, only an admin, and with a reason. 409 where it is closed."""
    return json({"breaker": "", "was": writes.reset_breaker(watch, person, why.reason)})
