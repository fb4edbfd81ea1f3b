"""The owner of a dead job gets one message: hardware or their code, what was seen, whether to submit it again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from sqlmodel import Session

from backend.cases import saved_by
from backend.clients.slurm import SlurmError
from backend.clock import unix
from backend.facts import AttemptFacts, CheckpointFacts
from backend.incidents.message import span_words
from backend.model.events import Event
from backend.model.incidents import Incident
from backend.notify import outbox
from backend.notify.outgoing import fit
from backend.settings import Owners
from backend.store import actions, attempts, events, marks, owning, system
from backend.tidings import MessageFacts
from backend.watch import Watch
from detectors.joblog.outcome import NAMESPACE, RESEMBLANCE
from detectors.model import Severity

log = logging.getLogger("watchkeeper.owners")

#: What else is known of a death comes within this: the kernel's word, the silence of a node, an incident (s).
WAIT_S = 60.0
#: Verdicts on jobs that ended longer ago are history, not news (s).
NEWS_S = 86_400.0
#: An incident belongs to a death from so long before it to so long after it (s): the window of the accounting.
BEFORE_S, AFTER_S = 600.0, 300.0
#: Name of the mark, events that one step looks at, characters of a note at a job.
MARK, LOOK, NOTE = "owners", 500, 250
#: Writes a note at a job; raises SlurmError.
Note = Callable[[str, str], object]


def tell(watch: Watch, settings: Owners, channels: Sequence[str], note: Note | None = None) -> bool:
    """One step of the owners' loop: verdicts that are old enough become one message each, with the mark that says how
    far it came. True = there may be more. ``note``: writes at the job; only given where that is allowed."""
    noted: list[tuple[str, str]] = []
    with watch.store.read() as session:
        known = marks.marks(session, watch.cluster, MARK).get("event")
        if known is not None and not _ripe(session, watch, int(known)):
            return False
    with watch.turn() as session:
        watch.fence(session)
        waiting = _waiting(session, watch)
        for event in waiting:
            if event.namespace == NAMESPACE and event.job and not event.late:
                noted += _one(session, watch, settings, channels, event)
        quiet = system.kill_switch(session, watch.cluster)
    if note is not None and not quiet:
        for job, text in noted:
            try:
                note(job, text)
            except SlurmError as error:
                log.warning("no note was written at job %s: %s", job, error)
    return len(waiting) == LOOK


def _waiting(session: Session, watch: Watch) -> list[Event]:
    """Events that nobody looked at yet and that came WAIT_S ago; the first look begins with what comes from now on."""
    known = marks.marks(session, watch.cluster, MARK).get("event")
    if known is None:
        last = events.last_seq(session, watch.cluster)
        marks.keep_marks(session, watch.cluster, MARK, {"event": str(last)}, watch.clock.now())
        return []
    found = _ripe(session, watch, int(known))
    if found:
        marks.keep_marks(session, watch.cluster, MARK, {"event": str(found[-1].id)}, watch.clock.now())
    return found


def _ripe(session: Session, watch: Watch, known: int) -> list[Event]:
    """Events behind ``known`` that came WAIT_S ago or longer, up to the first that did not."""
    before = watch.clock.now() - timedelta(seconds=WAIT_S)
    found = []
    for event in events.events_after(session, watch.cluster, known, LOOK):
        if event.received_at > before:
            break
        found.append(event)
    return found


def _one(
    session: Session, watch: Watch, settings: Owners, channels: Sequence[str], event: Event
) -> list[tuple[str, str]]:
    """Put the message of one verdict into the outbox; returns the note that belongs to its job."""
    now = watch.clock.now()
    row = attempts.latest(session, watch.cluster, event.job)
    if row is None or (now - event.at).total_seconds() > NEWS_S:
        return []
    attempt = owning.with_nodes(session, watch.cluster, row)
    message = message_of(session, watch, event, attempt, now)
    to = address_of(settings, attempt.user)
    told = {"email": (to,)} if settings.mail and to and "email" in channels else {}
    outbox.put(session, message, event.id or 0, told, now, route="owners")
    return [(event.job, fit(f"Watchkeeper: {message.headline} {message.advice}")[:NOTE])]


def address_of(settings: Owners, user: str) -> str:
    """The mail address of a job's user; "" where none is known. A name that could make another address gives none."""
    if user in settings.addresses:
        return settings.addresses[user]
    plain = user and all(c.isascii() and (c.isalnum() or c in "._-+") for c in user)
    return settings.address.replace("{user}", user) if plain and settings.address else ""


def message_of(session: Session, watch: Watch, event: Event, attempt: AttemptFacts, now: datetime) -> MessageFacts:
    """The verdict as its reader needs it: whose fault, safe to submit again, what was lost, from where it goes on."""
    incident = owning.incident_of(session, watch.cluster, event.job, attempt.nodes, event.at, BEFORE_S, AFTER_S)
    whose = whose_of(event, incident, watch)
    saves = saved_by(watch, {event.job}).get(event.job, [])
    held = {row.node for row in actions.live_exclusions(session, watch.cluster, now)}
    node = event.node or (incident.node if incident is not None and whose == "hardware" else "")
    safe, advice = resubmit(whose, node, node in held)
    facts = [("Whose fault", WHOSE[whose]), ("Safe to resubmit", safe), *lost_of(attempt, saves, event.at)]
    thread = f"{watch.cluster}-job-{event.job}-{attempt.life}-{attempt.restart}"
    name = attempt.run or attempt.name or event.job
    return MessageFacts(
        id=f"{thread}-owner",
        thread=thread,
        kind="owner",
        cluster=watch.cluster,
        incident=0,
        severity=Severity.INFO,
        headline=HEADLINES[whose].format(job=event.job),
        why=event.text,
        facts=tuple(facts),
        evidence=tuple(evidence_of(event, incident)),
        advice=advice,
        url=f"{watch.rules.url.rstrip('/')}/runs/{name}" if watch.rules.url and name.replace("-", "").isalnum() else "",
        at=unix(now),
        simulated=watch.rules.simulated,
        node=node,
        job=event.job,
        moments=((unix(event.at), event.text[:80]),),
    )


HEADLINES: Mapping[str, str] = {
    "hardware": "Hardware stopped job {job}, not your code.",
    "platform": "The platform stopped job {job}, not your code.",
    "yours": "Job {job} stopped in its own code.",
    "unknown": "Job {job} died; what of is not known.",
}
WHOSE: Mapping[str, str] = {
    "hardware": "the hardware's",
    "platform": "the platform's (scheduler, storage, network)",
    "yours": "the job's own",
    "unknown": "not known: nothing that was seen names it",
}


def whose_of(event: Event, incident: Incident | None, watch: Watch) -> str:
    """By the logs; where they do not know, by an incident of hardware on its nodes."""
    told = "unknown" if event.attrs.get("by") == RESEMBLANCE else str(event.attrs.get("whose", "unknown"))
    if told in ("hardware", "platform", "yours"):
        return told
    kind = watch.catalogue.kinds.get(incident.kind) if incident is not None else None
    return "hardware" if kind is not None and kind.exclude != "never" else "unknown"


def resubmit(whose: str, node: str, held: bool) -> tuple[str, str]:
    """(is it safe, what to do)."""
    if whose == "yours":
        return "no: it would stop there again", "Mend what the first line below says, then submit it again."
    if whose == "platform":
        return "yes, once the platform is well", "Submit it again when the platform answers; it may stop there again."
    if whose == "unknown":
        return "not known", "Look at the last lines of its log. If nothing there is yours, submit it again once."
    if not node:
        return "yes", "Submit it again."
    if held:
        return f"yes; {node} is kept from new work", "Submit it again."
    return f"yes, without {node}: nothing keeps it from new work yet", f"Submit it again with --exclude={node}."


def lost_of(attempt: AttemptFacts, saves: Sequence[CheckpointFacts], end: datetime) -> list[tuple[str, str]]:
    """What died with it: the time since its last finished save, on all its GPUs."""
    gpus = len(attempt.nodes) * attempt.gpus_per_node
    mine = [save for save in saves if save.at <= unix(end) and (attempt.start is None or save.at >= attempt.start)]
    if mine:
        last = mine[-1]
        lost_s = unix(end) - last.at
        share = f"; {lost_s * gpus / 3600:,.1f} GPU-hours" if gpus else ""
        rows = [("Lost", f"{span_words(lost_s)} since its last save{share}"), ("Restart from", f"step {last.step:,}")]
        return rows
    if attempt.start is None:
        return [("Lost", "not known: nobody told when it began")]
    ran_s = max(0.0, unix(end) - attempt.start)
    share = f", {ran_s * gpus / 3600:,.1f} GPU-hours" if gpus else ""
    return [("Lost", f"at most {span_words(ran_s)}{share}: no save of it was seen")]


def evidence_of(event: Event, incident: Incident | None) -> list[str]:
    first = str(event.attrs.get("first", ""))
    place = ":".join(part for part in (str(event.attrs.get("file", "")), str(event.attrs.get("line", ""))) if part)
    rows = [f"{first} ({place})" if place else first] if first else []
    if event.attrs.get("rank"):
        rows.append(f"First on rank {event.attrs['rank']}{f', on {event.node}' if event.node else ''}")
    if event.attrs.get("state"):
        rows.append(f"End state: {event.attrs['state']}")
    if incident is not None:
        rows.append(f"Incident {incident.id}: {incident.headline}")
    return rows
