"""What one incident costs so far: GPU-hours of the job that it hit, and of the node that was taken out for it."""

from __future__ import annotations

from datetime import datetime

from backend.answers.incident_story import IncidentStory
from backend.web.base import Visit
from frontend.words import clock, count, number, span


def toll(story: IncidentStory, seen: Visit) -> tuple[str, ...]:
    """One sentence each, GPU-hours and what they rest on; an upper bound says so. Empty where neither is known."""
    found = (job_toll(story, seen.now), node_toll(story, seen.now))
    return tuple(one for one in found if one)


def job_toll(story: IncidentStory, now: datetime) -> str:
    """The job's GPUs from the first sign until it ended, the incident closed, or now: the most that can be lost."""
    row, attempt = story.incident, story.attempt
    gpus = len(story.beside) * attempt.gpus_per_node if attempt is not None else 0
    if attempt is None or not gpus:
        return ""
    end = min(one for one in (attempt.end, row.closed_at, now) if one is not None)
    spent_s = (end - row.opened_at).total_seconds()
    if spent_s <= 0:
        return f"Job {row.job} held {count(gpus, 'GPU')} and had ended before: nothing more is lost to it."
    still = "" if attempt.end is not None or row.closed_at is not None else " so far"
    return (
        f"Job {row.job}: at most {hours(gpus * spent_s)} GPU-h{still} "
        f"({count(gpus, 'GPU')} for {span(spent_s)} since the first sign, as if it stood still)."
    )


def node_toll(story: IncidentStory, now: datetime) -> str:
    """GPUs of the node since it was drained for this, until the incident closed or now."""
    row, node = story.incident, story.node
    out = [o.ended_at or o.sent_at for o in story.orders if o.verb == "drain" and o.state == "done"]
    since = min((at for at in out if at is not None), default=None)
    if node is None or since is None or not node.expected_gpus:
        return ""
    spent_s = max(0.0, ((row.closed_at or now) - since).total_seconds())
    lost = hours(node.expected_gpus * spent_s)
    return (
        f"Drained {clock(since, now)} UTC: {lost} GPU-h ({count(node.expected_gpus, 'GPU')} out for {span(spent_s)})."
    )


def hours(gpu_seconds: float) -> str:
    value = gpu_seconds / 3600.0
    return number(round(value)) if value >= 10 else f"{value:.1f}"
