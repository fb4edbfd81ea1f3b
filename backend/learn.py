"""Learns from what people said: labels with the excerpts of their jobs' logs become a model, fitted anew on news."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlmodel import Session

from backend.clock import Clock
from backend.ingest.job_verdicts import Verdicts
from backend.model.events import Event
from backend.model.learning import Label, ModelArtifact
from backend.reliability.intervals import wilson
from backend.store import cluster as cluster_rows
from backend.store import events, labels, models
from backend.store.arrays import pack, unpack
from backend.store.engine import Store
from detectors.joblog.excerpt import NAMED
from detectors.joblog.fitting import fit
from detectors.joblog.learned import LEAST, MOST_LINE, Artefact, Example, Model, features
from detectors.joblog.recall import to_file
from detectors.joblog.rules import CLEAN, UNKNOWN

log = logging.getLogger("watchkeeper.learn")

#: The model of past failures in job logs.
NAME = "joblog"
#: How often news is looked for, in seconds.
EVERY_S = 300.0
#: Failures that teach at most: the newest. So many fit within a minute on one core, and take a few megabytes.
MOST_EXAMPLES = 600


@dataclass(frozen=True, slots=True)
class Lessons:
    """What labels teach. ``left_out``: why some teach nothing, in words, with how many."""

    examples: tuple[Example, ...]
    left_out: Mapping[str, int]
    labels_to: int


def step(store: Store, clock: Clock, cluster: str, verdicts: Verdicts, classes: Mapping[str, str]) -> bool:
    """One turn of the learn loop: fit anew where somebody said something new, and use the newest model.

    classes: kind of a fault to the log class that it shows as. Always False: there is never more to do at once.
    """
    with store.read() as session:
        version, known = models.last(session, cluster, NAME)
        newest = labels.newest(session, cluster)
        told = lessons(session, cluster, verdicts.rules.table.classes, classes) if newest > known else None
    if told is not None:
        made = fit(told.examples)
        row = ModelArtifact(
            cluster=cluster,
            name=NAME,
            version=version + 1,
            at=clock.now(),
            n=len(told.examples),
            labels_to=told.labels_to,
            facts={**made.facts, "left_out": dict(told.left_out)},
            arrays=pack(made.arrays),
        )
        with store.write() as session:
            models.add(session, row)
    take_up(store, cluster, verdicts)
    return False


def take_up(store: Store, cluster: str, verdicts: Verdicts) -> None:
    """Use the newest model that any process fitted; one of another release is left alone until it is fitted anew."""
    with store.read() as session:
        version, _ = models.last(session, cluster, NAME)
        if version == (verdicts.learned.version if verdicts.learned is not None else 0):
            return
        row = models.newest(session, cluster, NAME)
    try:
        verdicts.learned = Model.of(Artefact(unpack(row.arrays), row.facts), row.version) if row is not None else None
    except ValueError as error:
        log.warning("%s: version %d of what was learnt cannot be used: %s", cluster, version, error)


def lessons(
    session: Session, cluster: str, classes: Iterable[str], kinds: Mapping[str, str], most: int = MOST_EXAMPLES
) -> Lessons:
    """Examples of standing labels, newest first until ``most``, and why others teach nothing."""
    rows = labels.page(session, cluster, labels.MOST)
    about: dict[int, list[Label]] = {}
    left_out: dict[str, int] = {}
    for row in reversed(labels.standing(rows)):
        if row.event_id is None:
            left_out["no job's logs behind it"] = left_out.get("no job's logs behind it", 0) + 1
        else:
            about.setdefault(row.event_id, []).append(row)
    verdicts = {event.id or 0: event for event in events.events_by_id(session, cluster, list(about))}
    runs = {one.job: one.run for one in cluster_rows.attempts(session, cluster, {e.job for e in verdicts.values()})}
    found: list[Example] = []
    for event_id, told in about.items():
        event = verdicts.get(event_id)
        why = _unfit(event, truths := {truth(row, event, set(classes), kinds) for row in told if event is not None})
        if event is None or why:
            left_out[why] = left_out.get(why, 0) + 1
        elif len(found) < most:
            found.append(_example(event, truths.pop() or "", told[0], runs.get(event.job, "")))
    return Lessons(grouped(found), left_out, rows[0].id or 0 if rows else 0)


def _unfit(event: Event | None, truths: set[str | None]) -> str:
    """Why a verdict and what people said of it teach nothing; "" where they do."""
    if event is None or not event.attrs.get("excerpt"):
        return "no excerpt of the logs was kept"
    if not len(features(str(event.attrs["excerpt"]))):
        return "nothing but lines that rules name already"
    if len(truths) > 1:
        return "people do not agree on the cause"
    return "nobody named the cause" if None in truths else ""


def truth(row: Label, event: Event | None, classes: set[str], kinds: Mapping[str, str]) -> str | None:
    """The class that a label stands for; "" = its logs cannot tell, None = the label names none."""
    cause = row.cause or (event.code if row.right and event is not None else "")
    cause = cause if cause in classes else kinds.get(cause, "")
    if cause in (UNKNOWN, CLEAN):
        return ""
    return cause if cause in classes else None


def _example(event: Event, cause: str, row: Label, run: str) -> Example:
    excerpt = str(event.attrs["excerpt"])
    return Example(excerpt, cause, run or event.job, ref_of(row.incident_id, event.job), telling(excerpt))


def grouped(examples: Sequence[Example]) -> tuple[Example, ...]:
    """The same with runs that share a text as one group: copies of a log must not vouch for each other."""
    parent: dict[object, object] = {}

    def root(name: object) -> object:
        while (above := parent.setdefault(name, name)) != name:
            name = above
        return name

    for one in examples:
        parent[root(features(one.excerpt).tobytes())] = root(one.group)
    return tuple(replace(one, group=str(root(one.group))) for one in examples)


def ref_of(incident_id: int | None, job: str) -> str:
    """Where a past failure stands: ``incident:812`` or ``job:4711``."""
    return f"incident:{incident_id}" if incident_id is not None else f"job:{job}"


def telling(excerpt: str) -> str:
    """The first line of an excerpt that a rule names; "" where none does: then the fit chooses."""
    named = (line for line in excerpt.splitlines() if line.startswith(NAMED))
    return next(named, "")[len(NAMED) :].strip()[:MOST_LINE]


@dataclass(frozen=True, slots=True)
class Learnt:
    """The newest model in numbers. ``low``, ``high``: Wilson's 95 % interval of right among answered, None without
    answers. ``missing``: class to how many more kinds of its failures it needs; "" = how many more classes."""

    version: int
    at: datetime
    n: int
    used: bool
    held: int
    answered: int
    right: int
    low: float | None
    high: float | None
    least: int
    counts: Mapping[str, int]
    missing: Mapping[str, int]
    left_out: Mapping[str, int]


def learnt(session: Session, cluster: str) -> Learnt | None:
    """None where nobody ever said anything, or nothing was fitted since."""
    row = models.newest(session, cluster, NAME, arrays=False)
    if row is None:
        return None
    facts = row.facts
    right, answered = int(facts.get("right", 0)), int(facts.get("answered", 0))
    bounds = wilson(right, answered)
    return Learnt(
        version=row.version,
        at=row.at,
        n=row.n,
        used=bool(facts.get("used")),
        held=int(facts.get("held", 0)),
        answered=answered,
        right=right,
        low=bounds.low if bounds is not None else None,
        high=bounds.high if bounds is not None else None,
        least=int(facts.get("least", LEAST)),
        counts=facts.get("counts", {}),
        missing=facts.get("missing", {}),
        left_out=facts.get("left_out", {}),
    )


def file_of(session: Session, cluster: str) -> bytes | None:
    """The newest model as one file (detectors/joblog/recall.py); None where nothing was learnt."""
    row = models.newest(session, cluster, NAME)
    return to_file(Artefact(unpack(row.arrays), row.facts), row.version) if row is not None else None


def words(found: Learnt | None) -> str:
    """How good what was learnt is, in one sentence with its n; or what is missing."""
    if found is None:
        return "Nobody has labelled a job's failure yet, so it is silent."
    if found.used:
        assert found.low is not None and found.high is not None
        said = f"{found.right} of {found.answered} answers right on {found.held} held-out failures"
        return f"{said} (95 %: {found.low:.0%} to {found.high:.0%}); silent on the rest."
    lacking = [f"{more} more of {name.replace('_', ' ')}" for name, more in found.missing.items() if name]
    if lacking or found.missing:
        few = ", ".join(lacking[:3]) or "failures of other classes"
        return f"Silent: it needs {found.least} of each of two classes at least; missing {few}."
    return f"Silent: of {found.answered} answers on {found.held} held-out failures {found.right} were right, too few."


def similar(model: Model | None, event: Event | None, incident_id: int | None = None) -> Sequence[Mapping[str, Any]]:
    """The past failures that a verdict resembles most: incident, job, cause, cosine, line; none without history."""
    excerpt = str(event.attrs.get("excerpt", "")) if event is not None else ""
    if model is None or event is None or not excerpt:
        return ()
    own = {ref_of(None, event.job), ref_of(incident_id, event.job)}
    found = []
    for past in model.nearest(excerpt, without=own):
        kind, _, name = past.ref.partition(":")
        number = int(name) if kind == "incident" and name.isdecimal() else None
        job = name if kind == "job" else ""
        cause = past.cause or UNKNOWN
        found.append({"incident": number, "job": job, "cause": cause, "cosine": past.cosine, "line": past.line})
    return found


def kinds_of(kinds: Mapping[str, Any]) -> dict[str, str]:
    """Kind of a fault to the log class that it shows as (catalogue.Kind has it)."""
    return {name: str(kind.log_class) for name, kind in kinds.items()}
