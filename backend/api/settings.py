"""settings and me: the configuration in force, and who asks."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.responses import Response
from pydantic import BaseModel, Field

from backend.api.guard import Anybody, Reader, parts_of, watch_of
from backend.api.nodes import json
from backend.auth import Person
from backend.clients import hostlist
from backend.registry import Parts
from backend.settings_shown import shown
from backend.store import findings, people
from backend.watch import Watch

router = APIRouter(tags=["system"])

PartsOf = Annotated[Parts, Depends(parts_of)]
WatchOf = Annotated[Watch, Depends(watch_of)]


class Setting(BaseModel):
    key: str = Field(examples=["cluster[0].slurm.cli"])
    value: str = Field(description="As text; of a secret only whether it is set.")
    origin: str = Field(description="File and line, environment variable, command line, or default.")
    meaning: str
    secret: bool


class ThresholdRow(BaseModel):
    name: str
    unit: str
    value: float
    default: float | None
    source: str = Field(description="Where the default comes from.")


class ShadowRow(BaseModel):
    name: str = Field(description="A detector, a kind, or detector:kind.")
    findings: int = Field(description="Of the last 7 days.")
    newest: str = Field(description="What it said last; empty where it said nothing.")


class SettingsAnswer(BaseModel):
    items: list[Setting]
    thresholds: list[ThresholdRow]
    shadow: list[ShadowRow] = Field(description="What is only shown: it opens no incident and excludes nothing.")


class OpenSession(BaseModel):
    agent: str
    address: str
    created_at: datetime
    last_used_at: datetime
    expires_at: datetime


class Me(BaseModel):
    name: str
    role: str
    clusters: list[str]
    projects: list[str]
    nodes: str
    sessions: list[OpenSession]


@router.get("/settings", operation_id="read_settings", response_model=SettingsAnswer)
def read_settings(person: Reader, parts: PartsOf, watch: WatchOf) -> Response:
    """Every key of the configuration with its value and where it was set, and every threshold with its source."""
    rows = [asdict(row) for row in shown(parts.settings) if sees(person, parts, row.key)]
    base = parts.catalogue.thresholds
    thresholds = [
        {
            "name": name,
            "unit": one.unit,
            "value": one.value,
            "default": base[name].value if name in base else None,
            "source": base[name].source if name in base else one.source,
        }
        for name, one in watch.catalogue.thresholds.items()
    ]
    return json({"items": rows, "thresholds": thresholds, "shadow": _in_shadow(parts, watch)})


def _in_shadow(parts: Parts, watch: Watch) -> list[dict[str, object]]:
    since = parts.clock.now() - timedelta(days=7)
    found = []
    with parts.store.read() as session:
        for name in watch.rules.shadow:
            number, newest = findings.shadowed(session, watch.cluster, name, since)
            found.append({"name": name, "findings": number, "newest": newest.reason if newest is not None else ""})
    return found


def sees(person: Person, parts: Parts, key: str) -> bool:
    """Who is limited to clusters does not see how others are reached."""
    if not key.startswith("cluster["):
        return True
    place = int(key[len("cluster[") :].partition("]")[0])
    return person.sees_cluster(parts.settings.cluster[place].name)


@router.get("/me", operation_id="read_me", response_model=Me)
def read_me(person: Anybody, parts: PartsOf) -> Response:
    """Who asks, what they are limited to, and where they are signed in."""
    with parts.store.read() as session:
        row = people.user(session, person.name)
        now = parts.clock.now()
        held = people.sessions_of(session, row.id, now) if row is not None and row.id is not None else ()
    names = ("agent", "address", "created_at", "last_used_at", "expires_at")
    return json(
        {
            "name": person.name,
            "role": person.role,
            "clusters": list(person.clusters),
            "projects": list(person.projects),
            "nodes": hostlist.render(person.nodes),
            "sessions": [{name: getattr(one, name) for name in names} for one in held],
        }
    )
