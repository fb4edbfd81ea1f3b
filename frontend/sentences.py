"""The one-sentence answers: what the h1 of each page says, from plain numbers and names."""

from __future__ import annotations

from collections.abc import Sequence

from frontend.words import brief, count, listed, sentence

#: An answer has at most this many characters of a headline: two lines at 1280.
HEADLINE = 64


def lower_first(text: str) -> str:
    """``The GPU`` inside a sentence; names and abbreviations keep their capitals."""
    return text[:1].lower() + text[1:] if text[:1].isupper() and text[1:2].islower() else text


def now_answer(
    waiting: Sequence[str], open_: int, total: int, healthy: int, unknown: int, mine: bool, watched: str = ""
) -> str:
    """``waiting`` are headlines that wait for a decision, worst first; ``mine``: this reader may decide. ``watched``:
    the worst headline of a site in observe mode, where nothing ever waits."""
    who = "you" if mine else "an approver"
    if waiting:
        first_ = brief(waiting[0], HEADLINE)
        if len(waiting) == 1:
            return sentence(f"One thing waits for {who}: {first_}")
        return sentence(f"{len(waiting)} things wait for {who}. Worst first: {first_}")
    if not total:
        return "Nothing is watched yet: no GPU has been heard of."
    if watched:
        return f"{sentence(brief(watched, HEADLINE))} Observe mode: nothing is done."
    if open_:
        verb = "is" if open_ == 1 else "are"
        return f"Nothing waits for you. {count(open_, 'incident')} {verb} open, handled or watched."
    if unknown:
        return f"Nothing waits for you, but {unknown:,} of {total:,} GPUs send no data."
    if healthy < total:
        return f"Nothing waits for you. {total - healthy:,} of {total:,} GPUs are out on purpose."
    return f"All is well: {total:,} of {total:,} GPUs are healthy."


def now_lede(open_: int, waiting: int, total: int) -> str:
    if not total:
        return "Post a topology or kernel lines to api/v1/ingest, or name a Prometheus or Slurm in the settings."
    if not open_:
        return "No incident is open."
    rest = open_ - waiting
    verb = "is" if open_ == 1 else "are"
    said = f"{count(open_, 'incident')} {verb} open"
    if not waiting or not rest:
        return said + "."
    return f"{said}; the other {rest} {'is' if rest == 1 else 'are'} handled or watched."


def fleet_answer(total: int, healthy: int, nodes: int, waiting: Sequence[str]) -> str:
    """``nodes``: how many hold a GPU that is not healthy; ``waiting``: names of what needs a decision."""
    if not total:
        return "No GPU has been heard of yet."
    if healthy == total:
        return f"All {total:,} GPUs are healthy."
    verb = "is" if total - healthy == 1 else "are"
    said = f"{total - healthy:,} of {total:,} GPUs {verb} not healthy, on {count(nodes, 'node')}."
    if not waiting:
        return f"{said} None needs a decision."
    return f"{said} {'One needs' if len(waiting) == 1 else f'{len(waiting)} need'} a decision: {listed(waiting, 2)}."


def fleet_lede(excluded: int, draining: int, unknown: int, sick: int) -> str:
    parts = [
        f"{excluded:,} {'is' if excluded == 1 else 'are'} excluded on purpose" if excluded else "",
        f"{draining:,} {'is' if draining == 1 else 'are'} draining" if draining else "",
        f"{unknown:,} {'sends' if unknown == 1 else 'send'} no data" if unknown else "",
        f"{sick:,} {'belongs' if sick == 1 else 'belong'} to open incidents or {'is' if sick == 1 else 'are'} watched"
        if sick
        else "",
    ]
    said = [part for part in parts if part]
    return sentence(", ".join(said)) if said else "A GPU that sends no data is never counted as healthy."


def incidents_answer(open_: int, waiting: int, mine: bool) -> str:
    if not open_:
        return "No incident is open."
    verb = "is" if open_ == 1 else "are"
    if not waiting:
        return f"{count(open_, 'incident')} {verb} open; none waits for a decision."
    who = "you" if mine else "an approver"
    return f"{count(open_, 'incident')} {verb} open; {waiting} {'waits' if waiting == 1 else 'wait'} for {who}."


def incident_answer(headline: str, then: str) -> str:
    """What broke, then what helps or what came of it."""
    return f"{sentence(brief(headline, 90))} {then}".strip()


def verbs(plan: Sequence[str]) -> str:
    """``drain and requeue`` of the verbs of a plan; ``exclude`` where nothing is sent."""
    return " and ".join(dict.fromkeys(plan)) or "exclude"


def helps(state: str, plan: Sequence[str], node: str, jobs: Sequence[str], nodes: int) -> str:
    """What the decision means, after the headline. ``plan``: verbs in order; ``jobs``: what it frees."""
    frees = f" frees job {listed(jobs, 2)}" if jobs else ""
    where = f"this one node{frees}" if nodes == 1 and frees else (node or "it")
    act = {"drain": "Draining", "requeue": "Requeueing", "resume": "Returning"}.get(
        plan[0] if plan else "", "Excluding"
    )
    said = {
        "proposed": f"{act} {where}{'' if frees and nodes == 1 else ' waits for approval'}.",
        "observed": f"In observe mode nothing is done; {act.lower()} {node or 'it'} would help.",
        "approved": f"{act} {node or 'it'} is approved.",
        "automatic": f"{act} {node or 'it'} goes by itself.",
        "rejected": "The plan was rejected.",
        "nothing": "No action is called for.",
    }
    return said.get(state, "")


def system_answer(late: Sequence[str], dark: Sequence[tuple[str, str]], failing: Sequence[str], beats: int) -> str:
    """``late`` loops, ``dark`` sources with since when, ``failing`` detectors."""
    if not beats:
        return "Watchkeeper has not beaten yet: nothing is judged."
    if late:
        return f"Do not trust Watchkeeper now: {listed(late, 2)} {'is' if len(late) == 1 else 'are'} late or failing."
    blind = [f"{name} is silent{' since ' + since if since else ''}" for name, since in dark]
    if blind or failing:
        spots = [*blind, *(f"{name} fails" for name in failing)]
        number = "one blind spot" if len(spots) == 1 else f"{len(spots)} blind spots"
        return f"You can trust Watchkeeper now, with {number}: {listed(spots, 1 if len(spots) > 2 else 2)}."
    return "You can trust Watchkeeper now: every loop beats and every source speaks."
