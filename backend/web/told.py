"""What people said of an incident, the form in which they say it, and past failures that its job resembles."""

from __future__ import annotations

from collections.abc import Iterable

from sqlmodel import Session

from backend import learn, writes
from backend.answers.incident_story import IncidentStory
from backend.store import labels
from backend.web.base import Visit
from backend.writes import Invalid
from frontend.contexts import Alike, Labelling, Option
from frontend.words import capital, kind_words, moment

#: Labels that are looked at for the last word of each person.
MOST = 500


def save(seen: Visit, number: int, fields: dict[str, str]) -> None:
    """Keep a person's word. Raises Invalid where neither right nor wrong was chosen."""
    if fields.get("right") not in ("yes", "no"):
        raise Invalid("Say whether this was right or wrong; then the cause and the note can follow.")
    right = fields["right"] == "yes"
    writes.label(seen.watch, seen.person, right, fields.get("cause", ""), fields.get("label_note", ""), incident=number)


def labelling(session: Session, seen: Visit, story: IncidentStory) -> Labelling:
    """The form, and the last word of each person."""
    number = story.incident.id or 0
    rows = labels.standing(labels.page(session, seen.watch.cluster, MOST, incident_id=number))
    said = tuple(
        (f"{capital(writes.said_of(row.right, row.cause))} {row.note}".strip(), f"{row.by}, {moment(row.at)} UTC")
        for row in rows
    )
    return Labelling(
        action=seen.link(f"/incidents/{number}/labels"),
        said=said,
        kinds=options(seen.watch.catalogue.kinds),
        classes=options(name for name in writes.causes(seen.watch) if name not in seen.watch.catalogue.kinds),
    )


def options(names: Iterable[str]) -> tuple[Option, ...]:
    """Choices by name, in the order of their words."""
    return tuple(sorted((Option(name, kind_words(name)) for name in names), key=lambda one: one.text.lower()))


def alike(session: Session, seen: Visit, story: IncidentStory) -> tuple[Alike, ...]:
    """The past failures that the logs of its job resemble most; none where no log was judged, or nobody labelled."""
    model = seen.watch.verdicts.learned if seen.watch.verdicts is not None else None
    verdict = labels.verdict_of_incident(session, story.incident) if model is not None else None
    return tuple(
        Alike(
            cause=capital(kind_words(str(one["cause"]))),
            where=f"incident {one['incident']}" if one["incident"] else f"job {one['job']}",
            href=seen.link(f"/incidents/{one['incident']}") if one["incident"] else "",
            line=str(one["line"]),
            cosine=f"{one['cosine']:.2f}",
        )
        for one in learn.similar(model, verdict, story.incident.id)
    )
