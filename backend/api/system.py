"""/healthz, /readyz and /metrics: is this process alive, may it be sent work, and what does it cost and miss."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.responses import PlainTextResponse, Response
from pydantic import BaseModel, Field

from backend.api.guard import Reader, parts_of
from backend.api.ingest import intake_of
from backend.api.intake import Intake
from backend.api.nodes import json
from backend.api.problems import answer
from backend.model.system import Beat
from backend.registry import Parts
from backend.store import actions, incidents, leases, system

router = APIRouter(tags=["system"])

PartsOf = Annotated[Parts, Depends(parts_of)]
#: A loop is late when it has not beaten for three times its interval, and at least this long.
LATE_S = 30.0
#: What the open orders and incidents are counted by, so that a series exists from the start.
SEVERITIES = ("info", "warning", "high", "critical")


@dataclass(frozen=True, slots=True)
class Family:
    """One documented metric: its samples come as (labels, value)."""

    name: str
    kind: str
    help: str


FAMILIES = (
    Family("watchkeeper_up", "gauge", "1 while this process answers."),
    Family("watchkeeper_mode", "gauge", "1 for the mode that rules: observe, propose or act."),
    Family("watchkeeper_ingest_events_total", "counter", "Events committed by this process."),
    Family("watchkeeper_ingest_duplicates_total", "counter", "Events that had been committed before."),
    Family("watchkeeper_ingest_records_total", "counter", "Node and attempt records taken."),
    Family("watchkeeper_ingest_samples_total", "counter", "Telemetry samples taken into the ring."),
    Family("watchkeeper_ingest_dropped_total", "counter", "Lines, rows and samples not kept, by reason."),
    Family("watchkeeper_ingest_busy_total", "counter", "Bodies answered 429, by route."),
    Family("watchkeeper_late_samples_total", "counter", "Samples that came after their tick had closed."),
    Family("watchkeeper_tick_age_seconds", "gauge", "Age of the newest tick that was judged."),
    Family("watchkeeper_event_backlog", "gauge", "Committed events that no detector has seen yet."),
    Family("watchkeeper_open_findings", "gauge", "Levels that hold now."),
    Family("watchkeeper_open_incidents", "gauge", "Incidents that are not resolved, by severity."),
    Family("watchkeeper_binding_exclusions", "gauge", "Nodes under a binding exclusion."),
    Family("watchkeeper_waiting_plans", "gauge", "Plans that wait for an approver."),
    Family("watchkeeper_kill_switch", "gauge", "1 while nothing may be sent to the cluster."),
    Family("watchkeeper_leads", "gauge", "1 where this process watches the cluster, 0 where it stands by."),
    Family("watchkeeper_beat_age_seconds", "gauge", "Time since a loop, source or detector last succeeded."),
    Family("watchkeeper_beat_errors_total", "counter", "Failures of a loop, source or detector."),
)

Samples = dict[str, list[tuple[dict[str, str], float]]]


class Health(BaseModel):
    status: str = Field(examples=["ok"])


class Readiness(BaseModel):
    status: str = Field(examples=["ready"])
    late: list[str] = Field(description="Loops that have not beaten in time.", examples=[["main/loop/observe"]])


@router.get("/healthz", operation_id="healthz", response_model=Health)
async def healthz() -> Response:
    """The process answers. It says nothing about the database: restart on this, not on readyz."""
    return json({"status": "ok"})


@router.get("/readyz", operation_id="readyz", response_model=Readiness)
def readyz(parts: PartsOf) -> Response:
    """The database answers and every loop of this process beats; else 503 with what is late."""
    now = parts.clock.now()
    with parts.store.read() as session:
        beats = system.beats(session)
    late = [f"{b.cluster or 'all'}/{b.kind}/{b.name}" for b in beats if b.kind == "loop" and is_late(b, now)]
    if late:
        return answer(503, f"Late: {', '.join(late)}. The System page and the log say why.", late=late)
    return json({"status": "ready", "late": []})


def is_late(beat: Beat, now: datetime) -> bool:
    return (now - (beat.ok_at or beat.at)).total_seconds() > max(3 * beat.every_s, LATE_S)


@router.get("/metrics", operation_id="metrics", response_class=PlainTextResponse)
def metrics(_: Reader, parts: PartsOf, intake: Annotated[Intake, Depends(intake_of)]) -> PlainTextResponse:
    """Prometheus text format 0.0.4."""
    text = rendered(collected(parts, intake))
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")


def collected(parts: Parts, intake: Intake) -> Samples:
    """Every sample by family name."""
    found: Samples = {family.name: [] for family in FAMILIES}
    found["watchkeeper_up"].append(({}, 1.0))
    found["watchkeeper_mode"].append(({"mode": parts.settings.mode}, 1.0))
    _intake(found, intake, parts.watches)
    now = parts.clock.now()
    for name in parts.watches:
        _cluster(found, parts, name, now)
    with parts.store.read() as session:
        beats = system.beats(session)
    for beat in beats:
        labels = {"cluster": beat.cluster, "kind": beat.kind, "name": beat.name}
        age = (now - (beat.ok_at or beat.failing_since or beat.at)).total_seconds()
        found["watchkeeper_beat_age_seconds"].append((labels, max(age, 0.0)))
        found["watchkeeper_beat_errors_total"].append((labels, float(beat.errors)))
        if beat.kind == "loop" and beat.name == "observe":
            _observed(found, beat, now)
    return found


def _intake(found: Samples, intake: Intake, clusters: Iterable[str]) -> None:
    taken, dropped, refused = intake.counted()
    for cluster in clusters:
        for what in ("events", "duplicates", "records", "samples"):
            count = float(taken.get((cluster, what), 0))
            found[f"watchkeeper_ingest_{what}_total"].append(({"cluster": cluster}, count))
    for (cluster, reason), lines in sorted(dropped.items()):
        found["watchkeeper_ingest_dropped_total"].append(({"cluster": cluster, "reason": reason}, float(lines)))
    for route, times in sorted(refused.items()):
        found["watchkeeper_ingest_busy_total"].append(({"route": route}, float(times)))


def _cluster(found: Samples, parts: Parts, cluster: str, now: datetime) -> None:
    labels = {"cluster": cluster}
    with parts.store.read() as session:
        lease = leases.lease(session, cluster)
        live = incidents.live_real(session, cluster)
        held = {row.node for row in actions.live_exclusions(session, cluster, now)}
        waiting = len(actions.proposed(session, cluster))
        stopped = system.kill_switch(session, cluster)
    for severity in SEVERITIES:
        count = sum(row.severity == severity for row in live)
        found["watchkeeper_open_incidents"].append(({**labels, "severity": severity}, float(count)))
    found["watchkeeper_binding_exclusions"].append((labels, float(len(held))))
    found["watchkeeper_waiting_plans"].append((labels, float(waiting)))
    found["watchkeeper_leads"].append((labels, float(lease is not None and lease.who == parts.who)))
    found["watchkeeper_kill_switch"].append((labels, float(stopped)))


def _observed(found: Samples, beat: Beat, now: datetime) -> None:
    """What the observe loop, perhaps of another process, last said of itself."""
    labels = {"cluster": beat.cluster}
    counts = beat.counts
    tick_at = float(counts.get("tick_at") or 0.0)
    if tick_at:
        found["watchkeeper_tick_age_seconds"].append((labels, max(now.timestamp() - tick_at, 0.0)))
    for key, name in (
        ("late", "watchkeeper_late_samples_total"),
        ("findings", "watchkeeper_open_findings"),
        ("backlog", "watchkeeper_event_backlog"),
    ):
        if key in counts:
            found[name].append((labels, float(counts[key])))


def rendered(samples: Mapping[str, list[tuple[dict[str, str], float]]]) -> str:
    return "\n".join(_lines(samples)) + "\n"


def _lines(samples: Mapping[str, list[tuple[dict[str, str], float]]]) -> Iterator[str]:
    for family in FAMILIES:
        yield f"# HELP {family.name} {family.help}"
        yield f"# TYPE {family.name} {family.kind}"
        for labels, value in samples[family.name]:
            inside = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            yield f"{family.name}{{{inside}}} {value:.10g}" if inside else f"{family.name} {value:.10g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
