"""Now: is the fleet fine, and what needs a person?"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Response
from jinja2 import Environment
from sqlmodel import Session

from backend.answers.pages import NowAnswer, Standing, now_answer
from backend.answers.pulse import Pulses, pulses
from backend.facts import AttemptFacts
from backend.web import cells, decision, shown
from backend.web.base import Visit, frame, page, visit
from backend.web.cost_words import run_path
from frontend import chips, sentences
from frontend.contexts import Ask, Chip, Dark, Link, Now, RunRow, Seen
from frontend.words import age, ago, bare, clock, count, first, number, of_device, span

#: Rows of each list; what is more has its own page.
MOST_ASKS, MOST_ROWS, MOST_RUNS, MOST_DEEDS = 2, 5, 6, 8


def router(pages: Environment) -> APIRouter:
    found = APIRouter()

    @found.get("/")
    def now(seen: Annotated[Visit, Depends(visit)]) -> Response:
        with seen.parts.store.read() as session:
            return page(seen, pages, context(session, seen))

    return found


def context(session: Session, seen: Visit) -> Now:
    name = seen.watch.cluster
    answer = now_answer(session, name, seen.now, shown.sight(seen))
    fleet, standing = answer.fleet, answer.standing
    waiting = [s for s in standing if s.waits]
    others = [s for s in standing if not s.waits]
    mine = seen.right("approver", "decide").allowed
    heads = [s.incident.headline for s in waiting]
    return Now(
        frame=frame(session, seen, "Now", (Link("Now", ""),), seen.link("/api/v1/nodes")),
        answer=sentences.now_answer(
            heads,
            len(standing),
            fleet.total,
            fleet.healthy,
            fleet.counts.get("unknown", 0),
            mine,
            others[0].incident.headline if others and seen.watch.rules.mode == "observe" else "",
        ),
        healthy=f"{number(fleet.healthy)} of {number(fleet.total)}" if fleet.total else "",
        lede=sentences.now_lede(len(standing), len(waiting), fleet.total),
        dark=darks(pulses(session, name, seen.now), seen),
        asks=tuple(ask(s, seen) for s in waiting[:MOST_ASKS]),
        more_asks=max(0, len(waiting) - MOST_ASKS),
        rows=tuple(cells.incident_row(s, seen) for s in [*waiting[MOST_ASKS:], *others][:MOST_ROWS]),
        open_count=len(standing),
        last_closed=f"The last incident closed {ago(answer.last_closed, seen.now)}." if answer.last_closed else "",
        counts=cells.counts(fleet, seen),
        map=cells.map_figure(fleet, seen),
        rings=cells.rings(fleet, seen),
        day=shown.day_figure(answer.day, seen),
        runs=runs(answer, seen)[:MOST_RUNS],
        more_runs=max(0, len(answer.running) - MOST_RUNS),
        deeds=cells.deciders_name(answer.deciders, answer.orders[:MOST_DEEDS], seen),
    )


def darks(pulse: Pulses, seen: Visit) -> tuple[Dark, ...]:
    """Silent sources, each with what nobody can see meanwhile."""
    return tuple(
        Dark(
            name=f"{p.name} is silent{f' since {clock(p.since, seen.now)}' if p.since else ''}.",
            blind="What it alone can tell is unknown until it returns; nothing counts as healthy for lack of it.",
            href=seen.link("/system"),
        )
        for p in pulse.dark
    )


def ask(standing: Standing, seen: Visit) -> Ask:
    row, decided = standing.incident, standing.decision
    assert decided is not None
    length = age((seen.now - row.opened_at).total_seconds())
    owner = f"{row.acknowledged_by} has it" if row.acknowledged_by else "nobody has it yet"
    return Ask(
        incident=row.id or 0,
        href=seen.link(f"/incidents/{row.id}"),
        severity=chips.SEVERITY[row.severity],
        note=f"Incident {row.id} · open {length} · {owner}",
        headline=first(row.headline),
        why=why(standing),
        seen=evidence(standing),
        pairs=(
            ("Proposed", decided.sentence),
            ("Will touch", decision.touch_words(decided)),
            ("Guards", decision.guard_words(decided)),
        ),
        acknowledge="" if row.acknowledged_by else seen.link(f"/incidents/{row.id}/acknowledge"),
        approve=seen.right("approver", "approve"),
        operate=seen.right("operator", "acknowledge"),
    )


def why(standing: Standing) -> str:
    """What was seen beside the headline itself, in up to two sentences, and who folded under it."""
    row = standing.incident
    others = [f.reason for f in standing.findings if bare(f.reason) != bare(row.headline)]
    said = [bare(reason) + "." for reason in dict.fromkeys(others)][:2]
    if row.victims:
        said.append(f"{count(len(row.victims), 'other')} {'is' if len(row.victims) == 1 else 'are'} its victims.")
    if row.job:
        said.append(f"Job {row.job} ran on it.")
    return " ".join(said) or f"{of_device(row.entity_name)} is the most likely cause."


def evidence(standing: Standing) -> tuple[Seen, ...]:
    pieces = [piece for finding in standing.findings for piece in finding.evidence]
    short = [(str(p.get("grade", "observed")), shown.evidence_words(p)) for p in pieces]
    return tuple(Seen(grade, text) for grade, text in dict.fromkeys(short) if len(text) < 60)[:4]


def runs(answer: NowAnswer, seen: Visit) -> tuple[RunRow, ...]:
    """Running jobs, largest first, and whether an open incident hits them."""
    hit = {s.incident.job: s.incident for s in reversed(answer.standing) if s.incident.job}

    def state(attempt: AttemptFacts) -> Chip:
        incident = hit.get(attempt.job)
        if incident is None:
            return Chip("ok", "running")
        return Chip("failed" if incident.severity == "critical" else "suspect", f"incident {incident.id}")

    def since(attempt: AttemptFacts) -> str:
        return span(seen.now.timestamp() - attempt.start) if attempt.start is not None else "unknown"

    rows = sorted(answer.running, key=lambda a: -len(a.nodes) * max(1, a.gpus_per_node))
    return tuple(
        RunRow(
            run=a.run or f"job {a.job}",
            job=a.job,
            gpus=number(len(a.nodes) * a.gpus_per_node) if a.gpus_per_node else "unknown",
            nodes=number(len(a.nodes)),
            state=state(a),
            since=since(a),
            href=seen.link(run_path(a.job)),
        )
        for a in rows
    )
