"""The decision panel: plan, blast radius, guards, buttons, what came of it, and how it is undone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from backend.answers.incident_story import IncidentStory
from backend.model.actions import Decision
from backend.model.work import Attempt
from backend.web import cells
from backend.web.base import Visit
from frontend import chips, sentences
from frontend.contexts import Approval, Chip, DecisionPanel, GuardRow
from frontend.words import bare, clock, count, listed, sentence, span

TITLES = {
    "observed": "Would propose",
    "proposed": "Proposed",
    "approved": "Approved",
    "automatic": "Done by itself",
    "rejected": "Rejected",
    "superseded": "Withdrawn",
    "nothing": "No action",
}


def verbs(decision: Decision) -> list[str]:
    """Verbs of the plan in order; ``exclude`` alone where nothing is sent to the cluster."""
    return [str(step["verb"]) for step in decision.plan if step.get("verb")]


def nodes(decision: Decision) -> list[str]:
    return [str(name) for name in decision.blast.get("nodes", [])]


def jobs(decision: Decision) -> list[str]:
    return [str(job) for job in decision.blast.get("jobs", [])]


def panel(story: IncidentStory, seen: Visit) -> DecisionPanel | None:
    decision = story.decision
    if decision is None:
        return None
    waits = decision.state == "proposed"
    right = seen.right("approver", "approve")
    return DecisionPanel(
        title=TITLES.get(decision.state, decision.state),
        chip=chip(decision, right.allowed),
        sentence=sentence(decision.sentence),
        steps=tuple(bare(str(step["text"])) for step in decision.plan),
        blast=blast(decision) if decision.plan else (),
        note=note(decision, seen),
        approval=approval(story, decision, seen) if waits else None,
        right=right,
        deeds=tuple(cells.deed(o, decision.decided_by or "watchkeeper", seen.now) for o in story.orders),
        guards_head=guards_head(judged(decision)),
        guards=guards(judged(decision)),
        advice=tuple(str(text) for text in decision.advice),
        undo=undo(decision, seen),
    )


def chip(decision: Decision, mine: bool) -> Chip | None:
    if decision.state == "proposed":
        return chips.WAITS if mine else chips.WAITS_ELSE
    return chips.DECISION.get(decision.state)


def blast(decision: Decision) -> tuple[tuple[str, str], ...]:
    """Three counts, zero included, with their words."""
    drained, requeued = len(nodes(decision)), len(jobs(decision))
    others = len(decision.blast.get("other_jobs", []))
    verb = "drained" if "drain" in verbs(decision) else "excluded"
    return (
        (str(drained), f"node{'' if drained == 1 else 's'} {verb}"),
        (str(requeued), f"job{'' if requeued == 1 else 's'} requeued"),
        (str(others), f"other job{'' if others == 1 else 's'}"),
    )


def touch_words(decision: Decision) -> str:
    others = decision.blast.get("other_jobs", [])
    rest = count(len(others), "other job") if others else "no other job"
    return f"{count(len(nodes(decision)), 'node')}, {count(len(jobs(decision)), 'job')}, {rest}"


def note(decision: Decision, seen: Visit) -> str:
    said = []
    gpus = int(decision.blast.get("gpus", 0) or 0)
    if gpus and jobs(decision):
        said.append(f"{count(gpus, 'GPU')} restart with job {listed(jobs(decision), 2)}, from its last checkpoint.")
    if decision.state == "observed":
        said.append("Observe mode binds nobody: nothing is sent, and no scheduler is told.")
    if decision.decided_by and decision.decided_at is not None:
        word = {"approved": "Approved", "rejected": "Rejected"}.get(decision.state, "Decided")
        said.append(f"{word} by {decision.decided_by} at {clock(decision.decided_at, seen.now)} UTC.")
    if decision.note:
        said.append(f"Note: {decision.note}")
    if decision.dark:
        said.append(f"Dark meanwhile: {listed(decision.dark)}.")
    return " ".join(said)


# --- buttons --------------------------------------------------------------------------------------------------------


def approval(story: IncidentStory, decision: Decision, seen: Visit) -> Approval:
    base = f"/incidents/{story.incident.id}/decisions/{decision.id}"
    does = sentences.verbs(verbs(decision))
    touched = nodes(decision)
    return Approval(
        action=seen.link(f"{base}/approve"),
        reject=seen.link(f"{base}/reject"),
        button=f"Approve {does}",
        title=f"{title(decision)}?",
        confirm=does.capitalize(),
        touches=touches(story.attempt, decision, seen),
        type_this=str(len(touched)) + " nodes" if len(touched) > 1 else "",
    )


def title(decision: Decision) -> str:
    """``Drain gpu-0412 and requeue job 48213``: the verb and the object, again."""
    node, job = listed(nodes(decision), 2), listed(jobs(decision), 2)
    said = {"drain": f"drain {node}", "requeue": f"requeue job {job}", "resume": f"return {node}"}
    parts = list(dict.fromkeys(said.get(verb, verb) for verb in verbs(decision))) or [f"exclude {node}"]
    whole = " and ".join(parts)
    return whole[:1].upper() + whole[1:]


def touches(attempt: Attempt | None, decision: Decision, seen: Visit) -> tuple[Chip, ...]:
    """One line for each thing the plan touches, and one for what it does not."""
    until = seen.now + timedelta(seconds=seen.watch.rules.limits.exclude_s)
    leaves = "leaves service now and stays" if "drain" in verbs(decision) else "stays in service, but is"
    lines = [Chip("draining", f"{node} {leaves} excluded until {until.day} {until:%B}.") for node in nodes(decision)]
    run = f" ({attempt.run})" if attempt is not None and attempt.run else ""
    lines += [Chip("you", f"Job {job}{run} is requeued and restarts without it.") for job in jobs(decision)]
    others = [str(job) for job in decision.blast.get("other_jobs", [])]
    if others:
        lines.append(Chip("suspect", f"{count(len(others), 'other job')} runs there too: {listed(others)}."))
    share = next((g for g in decision.guards if g.get("guard") == "nodes out of the fleet"), None)
    limit = f" {bare(str(share['reason']))}." if share is not None else ""
    return (*lines, Chip("pass", f"{'' if others else 'No other job runs on it.'}{limit}".strip() or "Nothing else."))


# --- guards ---------------------------------------------------------------------------------------------------------


def judged(decision: Decision) -> list[dict[str, Any]]:
    """Its guards, where there is a plan to judge; what asks for a person only does so while the plan waits."""
    answered = {"verdict": "holds", "measured": decision.decided_by or "not asked"}
    waits = decision.state == "proposed"
    rows = decision.guards if decision.plan else []
    return [g | answered if g["verdict"] == "asks" and not waits else g for g in rows]


def guards_head(rows: Sequence[Mapping[str, Any]]) -> str:
    """``Guards: 7 hold, 1 asks for you``."""
    kinds = [str(g.get("verdict")) for g in rows]
    parts = [(kinds.count("holds"), "hold", "holds"), (kinds.count("refuses"), "refuse", "refuses")]
    said = [f"{n} {one if n == 1 else many}" for n, many, one in parts if n]
    asks = kinds.count("asks")
    return "Guards: " + ", ".join(said + ([f"{asks} {'asks' if asks == 1 else 'ask'} for a person"] if asks else []))


def guards(rows: Sequence[Mapping[str, Any]]) -> tuple[GuardRow, ...]:
    """Every guard; the one that stops or asks stands first."""
    order = {"refuses": 0, "asks": 1, "holds": 2}
    return tuple(guard_row(g) for g in sorted(rows, key=lambda g: order.get(str(g["verdict"]), 0)))


def guard_row(guard: Mapping[str, Any]) -> GuardRow:
    """One that holds says its name and what it measured; one that does not says why in words."""
    glyph = {"refuses": "failed", "asks": "you", "holds": "pass"}.get(str(guard["verdict"]), "unknown")
    loud = guard["verdict"] != "holds"
    name = str(guard["guard"])
    text = bare(str(guard["reason"])) if loud else name[:1].upper() + name[1:]
    return GuardRow(glyph, text, str(guard.get("measured") or guard.get("limit") or ""), loud)


def guard_words(decision: Decision) -> str:
    against = [bare(str(g["reason"])) for g in decision.guards if g.get("verdict") == "refuses"]
    return (
        f"{against[0]}: approving would be refused"
        if against
        else guards_head(decision.guards).removeprefix("Guards: ")
    )


def undo(decision: Decision, seen: Visit) -> str:
    if decision.state not in ("proposed", "approved", "automatic") or "drain" not in verbs(decision):
        return ""
    hold = span(seen.watch.rules.hold_s)
    again = "Guards run again when you press, and once more before the drain. " if decision.state == "proposed" else ""
    return f"{again}Undo comes with it: the node returns when its series are back and {hold} bring no new code."
