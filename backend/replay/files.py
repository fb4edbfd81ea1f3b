"""What a replay leaves in its folder: findings.jsonl as they happen, the other files at the end."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

import orjson
from sqlmodel import Session

from backend.clock import unix
from backend.facts import Rung
from backend.incidents.record import Delta, Held
from backend.model.incidents import Incident
from backend.store import actions, findings, incidents
from backend.store.cluster import attempts
from backend.store.engine import Store
from detectors.model import Finding, Tick

FILES = ("findings.jsonl", "incidents.jsonl", "runs.json", "reliability.json", "summary.json")
#: Incidents read from the store at a time.
PAGE = 500
#: Makes documents of what the store holds and of the incidents, by file name.
Accountant = Callable[[Session, Sequence[Incident]], Mapping[str, Any]]


def line(row: Mapping[str, Any]) -> bytes:
    return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)


class Output:
    """Writes beside the run and moves everything into place once it is whole."""

    def __init__(self, work: Path) -> None:
        self._folder = work / "out"
        self._folder.mkdir()
        self._findings: BinaryIO = (self._folder / "findings.jsonl").open("wb")

    def step(self, tick: Tick, delta: Delta, ledger: Mapping[str, Held], emitted_at: datetime) -> None:
        """One row for each level that was raised, changed or cleared in this step, in this order, by key."""
        at, emitted = tick.at, unix(emitted_at)
        rows = [(state, ledger[key].finding) for state, keys in _said(delta) for key in sorted(keys)]
        rows += [("cleared", held.finding) for held in sorted(delta.cleared, key=lambda h: h.finding.key)]
        for state, finding in rows:
            self._findings.write(line(finding_row(finding, state, at, emitted)))

    def conclude(self, store: Store, cluster: str, account: Accountant) -> int:
        """Write the incidents, and what ``account`` makes of them and of the store; how many incidents there are."""
        self._findings.close()
        with store.read() as session, (self._folder / "incidents.jsonl").open("wb") as out:
            found = every_incident(session, cluster)
            runs = {a.job: a.run for a in attempts(session, cluster, {one.job for one in found if one.job})}
            for incident in found:
                out.write(line(incident_row(session, incident, runs.get(incident.job, ""))))
            for name, document in account(session, found).items():
                self._write(name, document)
        return len(found)

    def finish(self, summary: Mapping[str, Any]) -> None:
        self._write("summary.json", summary)

    def _write(self, name: str, document: Any) -> None:
        written = orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        (self._folder / name).write_bytes(written)

    def move_to(self, out: Path) -> None:
        out.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            shutil.move(self._folder / name, out / name)


def _said(delta: Delta) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return (("raised", delta.raised), ("changed", delta.changed))


def finding_row(finding: Finding, state: str, at: float, emitted_at: float) -> dict[str, Any]:
    """A row of findings.jsonl (contracts.md)."""
    return {
        "ts": at,
        "emitted_at": emitted_at,
        "state": state,
        "key": finding.key,
        "entity": str(finding.entity),
        "kind": finding.kind,
        "severity": finding.severity.word,
        "score": finding.score,
        "detector": finding.detector,
        "reason": finding.reason,
        "evidence": [asdict(piece) for piece in finding.evidence],
    }


def every_incident(session: Session, cluster: str) -> list[Incident]:
    """All of them, oldest first."""
    found: list[Incident] = []
    before: int | None = None
    while rows := incidents.page(session, cluster, (), PAGE, before):
        found += rows
        before = rows[-1].id
    return found[::-1]


def incident_row(session: Session, row: Incident, run: str = "") -> dict[str, Any]:
    """A row of incidents.jsonl (contracts.md): the final state, with what was decided about it. ``run``: of its job."""
    number = row.id or 0
    decision = actions.latest_plan(session, number)
    plan = decision.plan if decision is not None else []
    advice = decision.advice if decision is not None else []
    return {
        "id": number,
        "opened_at": unix(row.opened_at),
        "closed_at": unix(row.closed_at) if row.closed_at else None,
        "entity": row.entity_name,
        "kind": row.kind,
        "severity": row.severity,
        "state": row.state,
        "entities": row.entities,
        "victims": row.victims,
        "hypotheses": [{key: h[key] for key in ("kind", "entity", "score", "reason")} for h in row.hypotheses],
        "recommended_action": decision.recommended if decision is not None else Rung.NOTIFY.value,
        "steps": [*(str(step["text"]) for step in plan), *advice],
        "exclude": sorted({str(step["node"]) for step in plan if step["rung"] == Rung.EXCLUDE.value}),
        "dark_sources": row.dark,
        "run": row.run or run,
        "job": row.job,
        "findings": sorted({found.key for found in findings.of_incident(session, number)}),
    }
