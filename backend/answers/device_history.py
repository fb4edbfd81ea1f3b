"""A GPU as it was: where it sat, who ran on it there, what broke, what changed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlmodel import Session

from backend.answers.node_history import (
    MOST_ROWS,
    Held,
    clipped,
    exclusions_of,
    incidents_of,
    told_once,
    with_attempt,
    within,
)
from backend.clock import unix
from backend.facts import OutageFacts
from backend.model.actions import Exclusion
from backend.model.cluster import Device
from backend.model.incidents import Incident
from backend.model.past import Change, DeviceSpan
from backend.store import allocations, ledger, outages, spans


@dataclass(frozen=True, slots=True)
class DeviceHistory:
    """Everything within [start, end], each lane oldest first; what belongs to a node only while the device sat there.
    Attempts that do not say which GPUs they held are among ``jobs``: they may have held this one."""

    id: str
    device: Device | None
    start: datetime
    end: datetime
    places: tuple[DeviceSpan, ...]
    jobs: tuple[Held, ...]
    incidents: tuple[Incident, ...]
    exclusions: tuple[Exclusion, ...]
    outages: tuple[OutageFacts, ...]
    changes: tuple[Change, ...]

    @property
    def known(self) -> bool:
        return self.device is not None or bool(self.places)


def device_history(session: Session, name: str, device: str, start: datetime, end: datetime) -> DeviceHistory:
    sat = tuple(one for one in spans.device_spans(session, name, device) if within(one, start, end))
    jobs: list[Held] = []
    excluded: dict[int, Exclusion] = {}
    out: list[OutageFacts] = []
    changes: dict[int, Change] = {}
    for place in sat:
        begin, last = max(place.start, start), min(place.end or end, end)
        gpu = int(place.index) if place.index.isdecimal() else None
        on = allocations.allocations_between(session, name, begin, last, place.node)
        jobs += [clipped(one, begin, place.end) for one in with_attempt(session, name, on, gpu)]
        excluded |= {one.id or 0: one for one in exclusions_of(session, name, begin, last, place.node)}
        out += _meanwhile(outages.outages(session, name, begin, last, [place.node]), begin, last)
        told = ledger.changes(session, name, node=place.node, since=begin, until=last, limit=MOST_ROWS)
        changes |= {one.id or 0: one for one in told if one.device in ("", device)}
    return DeviceHistory(
        id=device,
        device=session.get(Device, (name, device)),
        start=start,
        end=end,
        places=sat,
        jobs=tuple(jobs[-MOST_ROWS:]),
        incidents=tuple(incidents_of(session, name, start, end, "", device)),
        exclusions=tuple(excluded.values()),
        outages=told_once(out),
        changes=tuple(sorted(changes.values(), key=lambda one: (one.at, one.id or 0))),
    )


def _meanwhile(found: list[OutageFacts], begin: datetime, last: datetime) -> list[OutageFacts]:
    return [one for one in found if one.start < unix(last) and (one.end is None or one.end > unix(begin))]
