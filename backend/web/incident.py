"""Incident: what happened, why do we think so, what will be done, and the forms that decide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from jinja2 import Environment
from sqlmodel import Session
from starlette.concurrency import run_in_threadpool

from backend import writes
from backend.answers.hardware import KINDS
from backend.answers.incident_story import IncidentStory, incident_story
from backend.answers.what_changed import WINDOW, Suspect
from backend.identity import limits
from backend.web import actions, alerts, decision, evidence
from backend.web import told as told_of
from backend.web.base import NoPage, Visit, carried_out, checked, form, frame, local_path, page, visit
from backend.web.cost_words import run_path
from backend.web.past import node_path
from backend.web.toll import toll
from frontend import chips, sentences
from frontend.contexts import DeedRow, Hypothesis, Incident, Line, Link, Told
from frontend.words import capital, clock, count, kind_words, listed, moment, of_device, sentence, span

Fields = dict[str, str]


def router(pages: Environment) -> APIRouter:
    found = APIRouter(prefix="/incidents/{number:int}")

    @found.get("")
    def show(number: int, seen: Annotated[Visit, Depends(visit)]) -> Response:
        return answer(seen, pages, number)

    async def write(request: Request, number: int, seen: Visit, deed: Callable[[Fields], object]) -> Response:
        """Check the form, do the deed in a thread, and go back to where the form stood."""
        fields = await form(request)
        checked(seen, fields)
        back = local_path(fields.get("back", ""), seen.link(f"/incidents/{number}"))

        def with_told(told: Told, status: int) -> Response:
            return answer(seen, pages, number, told, status)

        return await run_in_threadpool(carried_out, seen, lambda: deed(fields), back, with_told)

    @found.post("/acknowledge")
    async def acknowledge(request: Request, number: int, seen: Annotated[Visit, Depends(visit)]) -> Response:
        return await write(request, number, seen, lambda _: writes.acknowledge(seen.watch, number, seen.person))

    @found.post("/notes")
    async def note(request: Request, number: int, seen: Annotated[Visit, Depends(visit)]) -> Response:
        return await write(
            request, number, seen, lambda f: writes.add_note(seen.watch, number, seen.person, f.get("note", ""))
        )

    @found.post("/labels")
    async def label(request: Request, number: int, seen: Annotated[Visit, Depends(visit)]) -> Response:
        return await write(request, number, seen, lambda f: told_of.save(seen, number, f))

    @found.post("/resolve")
    async def resolve(request: Request, number: int, seen: Annotated[Visit, Depends(visit)]) -> Response:
        return await write(request, number, seen, lambda _: writes.resolve(seen.watch, number, seen.person))

    @found.post("/decisions/{which:int}/approve")
    async def approve(request: Request, number: int, which: int, seen: Annotated[Visit, Depends(visit)]) -> Response:
        return await write(request, number, seen, lambda f: actions.approve(seen, which, f))

    @found.post("/decisions/{which:int}/reject")
    async def reject(request: Request, number: int, which: int, seen: Annotated[Visit, Depends(visit)]) -> Response:
        return await write(
            request, number, seen, lambda f: writes.reject(seen.watch, which, seen.person, f.get("note", "").strip())
        )

    return found


def answer(seen: Visit, pages: Environment, number: int, told: Told | None = None, status: int = 200) -> Response:
    with seen.parts.store.read() as session:
        story = incident_story(session, seen.watch.cluster, number, seen.now)
        if story is None or not limits.seen(session, seen.watch.cluster, seen.person, [story.incident]):
            raise NoPage(f"There is no incident {number} in cluster {seen.watch.cluster}.")
        return page(seen, pages, context(session, seen, story, told), status)


def context(session: Session, seen: Visit, story: IncidentStory, told: Told | None) -> Incident:
    row = story.incident
    here = seen.link(f"/incidents/{row.id}")
    live = row.state != "resolved"
    crumb = (Link("Incidents", seen.link("/incidents")), Link(str(row.id), ""))
    return Incident(
        frame=frame(session, seen, f"Incident {row.id}", crumb, seen.link(f"/api/v1/incidents/{row.id}"), told, here),
        answer=sentences.incident_answer(row.headline, outcome(story)),
        severity=chips.SEVERITY[row.severity],
        facts=facts(story, seen),
        hypotheses=hypotheses(story),
        panel=decision.panel(story, seen),
        operate=seen.right("operator", "acknowledge, note, label and resolve"),
        acknowledge=seen.link(f"/incidents/{row.id}/acknowledge") if live and not row.acknowledged_by else "",
        resolve=seen.link(f"/incidents/{row.id}/resolve") if live else "",
        note_action=seen.link(f"/incidents/{row.id}/notes"),
        notes=tuple(line for line in timeline(story, seen) if line.chip.word == "note"),
        lanes=evidence.lanes_figure(story, seen),
        span=evidence.span_words(story, seen),
        evidence=evidence.rows(story),
        victims=victims(story),
        victim_names=tuple(row.victims),
        before=before(story),
        history=Link(f"History of {row.node}", seen.link(node_path(row.node))) if row.node else Link("", ""),
        alike=alike(story),
        similar=told_of.alike(session, seen, story),
        labelling=told_of.labelling(session, seen, story),
        timeline=timeline(story, seen),
        run=Link(f"Run of job {row.job}", seen.link(run_path(row.job))) if row.job else Link("", ""),
        heard=alerts.heard(session, seen, row.id or 0),
        unheard=alerts.unheard(session, seen, row.id or 0),
        cost=toll(story, seen),
        markdown=seen.link(f"/incidents/{row.id}.md"),
        packet=Link("RMA packet", seen.link(f"/incidents/{row.id}/rma.zip")) if has_packet(story) else Link("", ""),
    )


def has_packet(story: IncidentStory) -> bool:
    """Is it about a part, or a node, that may go back to its maker?"""
    return story.incident.entity_kind in KINDS and bool(story.incident.node)


def outcome(story: IncidentStory) -> str:
    """The second half of the answer: what helps, or what came of it."""
    row, decided = story.incident, story.decision
    if row.state == "resolved":
        assert row.closed_at is not None
        return f"Closed after {span((row.closed_at - row.opened_at).total_seconds())}."
    if row.state == "mitigated":
        return "Out of work since; watched until it is clear."
    if decided is None:
        return "Nothing is decided yet."
    nodes = decision.nodes(decided)
    return sentences.helps(decided.state, decision.verbs(decided), listed(nodes, 2), decision.jobs(decided), len(nodes))


def facts(story: IncidentStory, seen: Visit) -> tuple[tuple[str, str], ...]:
    row = story.incident
    end = row.closed_at or seen.now
    word = "Was open" if row.closed_at is not None else "Open"
    length = span((end - row.opened_at).total_seconds())
    found = [(word, f"{length}, since {moment(row.opened_at)} UTC"), ("State", chips.INCIDENT[row.state].word)]
    found.append(("Owner", row.acknowledged_by or "nobody yet"))
    if row.job:
        run = f" ({story.attempt.run})" if story.attempt is not None and story.attempt.run else ""
        found.append(("Job", f"{row.job}{run}"))
    found.append(("Dark", listed(row.dark) if row.dark else "no source"))
    if row.blind:
        found.append(("Blind", "its series do not arrive, so it cannot be clear"))
    return tuple(found)


def hypotheses(story: IncidentStory) -> tuple[Hypothesis, ...]:
    """Ranked causes: which fault of which thing, why, and the score."""
    return tuple(
        Hypothesis(
            name=f"{capital(kind_words(str(h['kind'])))}: {of_device(str(h['entity']))}",
            reason=sentence(str(h["reason"])),
            score=f"{float(h['score']):.2f}",
        )
        for h in story.incident.hypotheses[:5]
    )


def victims(story: IncidentStory) -> str:
    names = story.incident.victims
    if not names:
        return ""
    if len(names) == 1:
        return "1 other was hit by it, and is no suspect."
    return f"{count(len(names), 'other')} were hit by it. None of them is suspect."


def before(story: IncidentStory) -> tuple[DeedRow, ...]:
    """What changed before it opened, within the window of ``what_changed``: versions first, those likeliest to matter
    at the top; then the start of its job and the boot of its node, latest first."""
    row, found = story.incident, []
    if story.attempt is not None and story.attempt.start is not None:
        found.append((story.attempt.start, f"Job {row.job} attempt {story.attempt.restart + 1} started"))
    told = {one.change.node for one in story.changed if one.change.item == "boot"}
    if story.node is not None and story.node.boot_at is not None and row.node not in told:
        found.append((story.node.boot_at, f"{row.node} booted"))
    recent = [(at, text) for at, text in found if row.opened_at - WINDOW <= at <= row.opened_at]
    versions = [(one.before_s, *change_words(one)) for one in story.changed]
    plain = [((row.opened_at - at).total_seconds(), text, "") for at, text in sorted(recent, reverse=True)]
    return tuple(
        DeedRow(text, chips.ORDER["done"], "", f"{span(before_s)} before", note)
        for before_s, text, note in (*versions, *plain)
    )


def change_words(one: Suspect) -> tuple[str, str]:
    """What became another, and why that is shown."""
    change = one.change
    where = change.device or change.node or (f"job {change.job}" if change.job else "the whole cluster")
    if change.item == "boot":
        return f"{where} booted", ""
    was = f"{change.before} before" if change.before else "before: not known"
    why = [was]
    if one.odd is not None:
        why.append(f"{one.odd.common} of {one.odd.size} of its kind run {one.odd.custom}")
    elif one.alike > 1:
        why.append(f"{count(one.alike, 'node')} got it within 6 h")
    why += [word for word in (f"by {change.by}" if change.by else "", change.text) if word]
    return f"{capital(change.item)} of {where}: {change.value}", "; ".join(why)


def alike(story: IncidentStory) -> str:
    """How often this was seen, with its n."""
    found, kind = story.alike, kind_words(story.incident.kind)
    if not found.total:
        return f"No other incident of kind {kind} in 90 days (n = 0)."
    median = f"; the middle one was open {span(found.median_s)}" if found.median_s is not None else ""
    where = f", {found.here} of them on this node" if story.incident.node else ""
    return f"{count(found.total, 'other incident')} of kind {kind} in 90 days{where}. {found.closed} closed{median}."


def timeline(story: IncidentStory, seen: Visit) -> tuple[Line, ...]:
    return tuple(
        Line(
            when=moment(e.at) if (seen.now - e.at).total_seconds() < 86_400 else clock(e.at, seen.now),
            who=e.actor,
            text=e.text,
            chip=chips.entry(e.what),
        )
        for e in sorted(story.timeline, key=lambda e: (e.at, e.id or 0))
    )
