"""What people may change: each write checks the right, changes the rows, leaves a timeline line and an audit row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta

from sqlmodel import Session

from backend import breaker, proposals, returns, sweeps
from backend.auth import Person, allows
from backend.clients import hostlist
from backend.identity import limits
from backend.model.actions import Decision, Exclusion, Order
from backend.model.base import LARGEST_ID
from backend.model.cluster import Node
from backend.model.events import Event, Finding
from backend.model.incidents import Incident
from backend.model.learning import Label
from backend.proposals import Conflict
from backend.store import actions, events, findings, incidents, labels, people, system
from backend.store.claims import claim
from backend.watch import Watch

#: Longest note that is kept; a longer one is refused, never cut.
NOTE_MAX = 4000
#: Longest exclusion by a person; it can be made again.
EXCLUDE_MOST = timedelta(days=366)
#: Whose work an exclusion may keep away, where it is not everybody's.
SCOPES = ("job", "run", "account", "partition")


class Missing(Exception):
    """No such row in this cluster."""


class Forbidden(Exception):
    """The person's role does not carry this right; says which one does."""


class Invalid(Exception):
    """The request makes no sense as it stands; says what and how to mend it."""


@contextmanager
def writing(
    watch: Watch, person: Person, role: str, action: str, target: str, *, shared: bool = True, why: str = ""
) -> Iterator[Session]:
    """One transaction by one person: right checked first, audited with the change, pages told after the commit.

    ``shared``: it changes what all projects share, so nobody who is limited to some may do it. ``why``: their reason.
    """
    if not allows(person, role):
        raise Forbidden(f"Your role is {person.role}; {action} needs {role}.")
    if not person.sees_cluster(watch.cluster):
        raise Missing(f"No cluster {watch.cluster}.")
    if shared and person.projects:
        raise Forbidden(f"All projects share this; you are limited to {', '.join(person.projects)}.")
    with watch.turn() as session:
        yield session
        details = {"cluster": watch.cluster} | ({"reason": why} if why else {})
        people.audit(session, watch.clock.now(), person.name, action, target, details)
    watch.changes.nudge()


def _incident(session: Session, watch: Watch, incident_id: int, person: Person) -> Incident:
    row = incidents.by_id(session, watch.cluster, incident_id)
    if row is None or not limits.seen(session, watch.cluster, person, [row]):
        raise Missing(f"No incident {incident_id} in cluster {watch.cluster}.")
    if not limits.may_change(session, watch.cluster, person, row.job):
        raise Forbidden(f"Incident {incident_id} is about no job of {', '.join(person.projects)}.")
    return row


def acknowledge(watch: Watch, incident_id: int, person: Person) -> Incident:
    """Somebody has it. Acknowledging twice is no error and changes nothing."""
    with writing(watch, person, "operator", "acknowledge", f"incident {incident_id}", shared=False) as session:
        row = _incident(session, watch, incident_id, person)
        if row.state == "resolved":
            raise Conflict(f"Incident {incident_id} is already resolved.")
        if not row.acknowledged_by:
            now = watch.clock.now()
            row.acknowledged_by, row.acknowledged_at, row.changed_at = person.name, now, now
            row.state = "acknowledged" if row.state == "open" else row.state
            session.add(row)
            incidents.tell(session, row, now, "acknowledged", f"{person.name} has it.", person.name)
        return row


def add_note(watch: Watch, incident_id: int, person: Person, text: str) -> None:
    """A person's words on the timeline."""
    said = text.strip()
    if not said or len(said) > NOTE_MAX:
        raise Invalid(f"A note has 1 to {NOTE_MAX:,} characters; this one has {len(said):,}.")
    with writing(watch, person, "operator", "note", f"incident {incident_id}", shared=False) as session:
        row = _incident(session, watch, incident_id, person)
        incidents.tell(session, row, watch.clock.now(), "note", said, person.name)


def label(watch: Watch, person: Person, right: bool, cause: str = "", note: str = "", **about: int | str) -> Label:
    """Say whether we were right about an incident (``incident=812``) or a job (``job="4711"``), and what it really
    was: a class of job logs or a kind of fault. The last word of a person counts; what they said before stays. Of a job
    of which we said nothing a person says what it was: there is nothing to be right about."""
    cause, note, target = cause.strip(), note.strip(), " ".join(f"{kind} {name}" for kind, name in about.items())
    if cause and cause not in causes(watch):
        raise Invalid(f"{cause!r} is no cause that is known here; there are {', '.join(causes(watch))}.")
    if len(note) > NOTE_MAX:
        raise Invalid(f"A note has at most {NOTE_MAX:,} characters; this one has {len(note):,}.")
    with writing(watch, person, "operator", "label", target, shared=False) as session:
        now = watch.clock.now()
        row = Label(cluster=watch.cluster, at=now, by=person.name, right=right, cause=cause, note=note)
        if "incident" in about:
            incident = _incident(session, watch, int(about["incident"]), person)
            verdict = labels.verdict_of_incident(session, incident)
            row.incident_id, row.job, row.said = incident.id, incident.job, incident.kind
            told = f"{person.name}: {said_of(right, cause)}" + (f" {note}" if note else "")
            incidents.tell(session, incident, now, "label", told, person.name)
        else:
            row.job = str(about["job"])
            if not limits.may_change(session, watch.cluster, person, row.job):
                raise Missing(f"No job {row.job} is known in cluster {watch.cluster}.")
            verdict = labels.verdict_of_job(session, watch.cluster, row.job)
            if verdict is None and not labels.ran(session, watch.cluster, row.job):
                raise Missing(f"No job {row.job} is known in cluster {watch.cluster}.")
            if verdict is None and (right or not cause):
                raise Invalid(f"Nothing was said of job {row.job} that could be right: name the real cause.")
            row.said = verdict.code if verdict is not None else ""
        row.event_id = verdict.id if verdict is not None else None
        session.add(row)
        session.flush()
        return row


def causes(watch: Watch) -> tuple[str, ...]:
    """What a person may name as the real cause: classes of job logs, then kinds of faults."""
    classes = watch.verdicts.rules.table.classes if watch.verdicts is not None else {}
    return tuple(dict.fromkeys([*classes, *watch.catalogue.kinds]))


def said_of(right: bool, cause: str) -> str:
    """A label in words."""
    named = cause.replace("_", " ")
    if right:
        return f"this was right, it was {named}." if named else "this was right."
    return f"this was wrong, it was {named}." if named else "this was wrong."


def resolve(watch: Watch, incident_id: int, person: Person) -> Incident:
    """A person says it is mended: what we drained is given back, then the incident closes.

    Giving a node back undoes an approved drain, so it needs an approver where a drain stands.
    """
    with writing(watch, person, "operator", "resolve", f"incident {incident_id}", shared=False) as session:
        row = _incident(session, watch, incident_id, person)
        if row.state == "resolved":
            raise Conflict(f"Incident {incident_id} is already resolved.")
        drained = bool(row.node and actions.standing_drains(session, watch.cluster, row.node))
        if drained and not allows(person, "approver"):
            raise Forbidden(f"{row.node} is drained for this incident; giving it back needs an approver.")
        row.clear_s, row.blind, row.resolving_by = max(row.clear_s, watch.rules.hold_s), False, person.name
        session.add(row)
        own = () if row.drill else findings.of_incident(session, incident_id)
        events.append_events(session, watch.cluster, mended(row, own, person.name, watch.clock.now()))
        returns.give_back(session, watch, row, person.name)
        if row.state != "resolved":
            text = f"{person.name} resolved it; it closes once its node is back."
            incidents.tell(session, row, watch.clock.now(), "resolving", text, person.name)
    watch.wake.set()
    return row


def mended(incident: Incident, own: Iterable[Finding], by: str, now: datetime) -> list[Event]:
    """A person's word that what was found is mended: codes that would hold until a boot or a reset let go of it, each
    device's of the kinds in ``own``. Nothing was found for a drill or a failed check: their end mends nothing."""
    kinds: dict[tuple[str, str, str, str], set[str]] = {}
    for row in own:
        kinds.setdefault((row.node, row.entity_kind, row.entity_id, row.entity_name), set()).add(row.kind)
    return [
        Event(
            cluster=incident.cluster,
            at=now,
            received_at=now,
            namespace="mended",
            code="person",
            node=node,
            entity_kind=kind,
            entity_id=number,
            entity_name=name,
            job=incident.job,
            text=f"{by} resolved incident {incident.id}.",
            source="person",
            dedupe=f"mended:{incident.id}:{incident.revision}:{kind}:{number}:{node}",
            attrs={"kinds": " ".join(sorted(found))},
        )
        for (node, kind, number, name), found in sorted(kinds.items())
    ]


def _decision(session: Session, watch: Watch, decision_id: int, person: Person) -> Decision:
    row = session.get(Decision, decision_id) if decision_id <= LARGEST_ID else None
    if row is None or row.cluster != watch.cluster:
        raise Missing(f"No decision {decision_id} in cluster {watch.cluster}.")
    _incident(session, watch, row.incident_id, person)
    return row


def approve(watch: Watch, decision_id: int, person: Person, note: str = "") -> Decision:
    """Raises Refused with every guard's verdict where one says no; nothing has happened then."""
    with writing(watch, person, "approver", "approve", f"decision {decision_id}", shared=False) as session:
        decision = proposals.approve(session, watch, _decision(session, watch, decision_id, person), person.name, note)
    watch.reached("approval committed")
    return decision


def reject(watch: Watch, decision_id: int, person: Person, note: str = "") -> Decision:
    """The plan will not be carried out; a later revision of the incident may propose anew."""
    with writing(watch, person, "approver", "reject", f"decision {decision_id}", shared=False) as session:
        row = _decision(session, watch, decision_id, person)
        now = watch.clock.now()
        change = {"state": "rejected", "decided_by": person.name, "decided_at": now, "note": note}
        if not claim(session, Decision, decision_id, {"state": "proposed"}, change):
            raise Conflict(f"Decision {decision_id} is {row.state}; it no longer waits for anybody.")
        incident = session.get_one(Incident, row.incident_id)
        said = f"{person.name} rejected: {row.sentence}" + (f" {note}" if note else "")
        incidents.tell(session, incident, now, "rejected", said, person.name)
        return row


def cancel(watch: Watch, order_id: int, person: Person) -> Order:
    """Withdraw an order that nobody has claimed yet."""
    with writing(watch, person, "approver", "cancel", f"order {order_id}", shared=False) as session:
        row = session.get(Order, order_id)
        if row is None or row.cluster != watch.cluster:
            raise Missing(f"No order {order_id} in cluster {watch.cluster}.")
        _incident(session, watch, row.incident_id, person)
        change = {"state": "cancelled", "ended_at": watch.clock.now(), "error": f"{person.name} cancelled it."}
        if not claim(session, Order, order_id, {"state": "waiting"}, change):
            raise Conflict(f"Order {order_id} is {row.state}; only a waiting one can be cancelled.")
        incident = session.get_one(Incident, row.incident_id)
        said = f"{person.name} cancelled order {order_id}."
        incidents.tell(session, incident, watch.clock.now(), "order_cancelled", said, person.name)
        return row


def drill(watch: Watch, kind: str, node: str, person: Person) -> Incident:
    """A fault that never was, from its incident to its messages: decided, judged, approved and claimed as any other.
    Its orders end before they are sent, nothing is kept from work, and no report counts it."""
    if kind not in watch.catalogue.kinds or kind == breaker.KIND:
        raise Invalid(f"{kind!r} is no kind of fault of a node; kinds stand in detectors/tables/kinds.csv.")
    with writing(watch, person, "approver", "drill", f"node {node}", why=kind) as session:
        row = session.get(Node, (watch.cluster, node))
        if row is None or row.retired_at is not None:
            raise Missing(f"No node {node} in cluster {watch.cluster}.")
        if any(one.drill for one in incidents.live(session, watch.cluster)):
            raise Conflict("A drill is under way; resolve its incident first.")
        found = sweeps.raised(session, watch, kind, node, f"Drill by {person.name}: {kind} on {node}.", person.name)
    watch.wake.set()
    return found


def undo(watch: Watch, order_id: int, person: Person, reason: str = "") -> Order:
    """Give a node back that an order drained, now: the resume goes through the same claim, and lifts our drain only.
    Conflict where nothing of that order stands any more."""
    with writing(watch, person, "approver", "undo", f"order {order_id}", shared=False, why=reason.strip()) as session:
        row = session.get(Order, order_id) if order_id <= LARGEST_ID else None
        if row is None or row.cluster != watch.cluster:
            raise Missing(f"No order {order_id} in cluster {watch.cluster}.")
        _incident(session, watch, row.incident_id, person)
        return returns.take_back(session, watch, row, person.name, reason.strip()[:NOTE_MAX])


def exclude(watch: Watch, node: str, person: Person, reason: str, until: datetime, scope: str = "") -> Exclusion:
    """Keep new work from a node, by a person: binding at once. The cluster itself is not touched. ``scope``: whose work
    alone, as in account:nlp; empty = everybody's."""
    return exclude_all(watch, [node], person, reason, until, scope)[0]


def exclude_all(
    watch: Watch, nodes: Sequence[str], person: Person, reason: str, until: datetime, scope: str = ""
) -> list[Exclusion]:
    """The same of several nodes, in one transaction: all of them or none."""
    now, named = watch.clock.now(), nodes[0] if len(nodes) == 1 else hostlist.render(nodes)
    _may_end(until, now)
    if not reason.strip():
        raise Invalid("An exclusion needs a reason; the next person on duty will ask for it.")
    with writing(watch, person, "operator", "exclude", f"node {named}") as session:
        theirs = _scope(scope)
        rows = [
            Exclusion(
                cluster=watch.cluster,
                node=node,
                owner=person.name,
                origin="person",
                reason=reason.strip(),
                scope=theirs,
                created_at=now,
                until=until,
            )
            for node in nodes
        ]
        session.add_all(rows)
        session.flush()
    return [_told(watch, row) for row in rows]


def _told(watch: Watch, row: Exclusion) -> Exclusion:
    """Whoever waits for another verdict hears of it at once."""
    watch.changes.publish("exclusion", str(row.id), watch.cluster)
    return row


def _may_end(until: datetime, now: datetime) -> None:
    if until <= now:
        raise Invalid("The end of an exclusion lies in the past; give a later `until`.")
    if until > now + EXCLUDE_MOST:
        raise Invalid(f"An exclusion lasts {EXCLUDE_MOST.days} days at most; give an earlier `until`.")


def _scope(given: str) -> str:
    kind, _, name = given.strip().partition(":")
    if given.strip() and (kind not in SCOPES or not name.strip() or not name.isprintable() or len(name) > 255):
        raise Invalid(f"{given[:80]!r} is no scope; write {', '.join(f'{one}:NAME' for one in SCOPES)}, or nothing.")
    return f"{kind}:{name.strip()}" if kind else ""


def extend(watch: Watch, exclusion_id: int, person: Person, until: datetime, reason: str = "") -> Exclusion:
    """Let an exclusion end at another time, later or earlier; who did it and what stood before is kept with it. An
    operator changes their own; what others or an approval made needs an approver."""
    now = watch.clock.now()
    _may_end(until, now)
    with writing(watch, person, "operator", "extend", f"exclusion {exclusion_id}") as session:
        row = _exclusion(session, watch, exclusion_id, person)
        if row.lifted_at is not None or row.until <= now:
            raise Conflict(f"Exclusion {exclusion_id} has ended; make a new one.")
        before = {"at": now.isoformat(), "by": person.name, "until": row.until.isoformat(), "reason": reason.strip()}
        change = {"until": until, "past": [*row.past, before]}
        if not claim(session, Exclusion, exclusion_id, {"lifted_at": None}, change):
            raise Conflict(f"Exclusion {exclusion_id} was just lifted.")
        session.refresh(row)
    return _told(watch, row)


def _exclusion(session: Session, watch: Watch, exclusion_id: int, person: Person) -> Exclusion:
    row = session.get(Exclusion, exclusion_id) if exclusion_id <= LARGEST_ID else None
    if row is None or row.cluster != watch.cluster:
        raise Missing(f"No exclusion {exclusion_id} in cluster {watch.cluster}.")
    if (row.origin != "person" or row.owner != person.name) and not allows(person, "approver"):
        whose = f"is {row.owner}'s" if row.origin == "person" else "was approved"
        raise Forbidden(f"Exclusion {exclusion_id} {whose}; changing it needs an approver.")
    return row


def lift(watch: Watch, exclusion_id: int, person: Person, reason: str = "") -> Exclusion:
    """End an exclusion. An operator lifts their own; what others or an approval made needs an approver."""
    with writing(watch, person, "operator", "lift", f"exclusion {exclusion_id}") as session:
        row = _exclusion(session, watch, exclusion_id, person)
        change = {"lifted_at": watch.clock.now(), "lifted_by": person.name, "lift_reason": reason}
        if not claim(session, Exclusion, exclusion_id, {"lifted_at": None}, change):
            raise Conflict(f"Exclusion {exclusion_id} was already lifted by {row.lifted_by}.")
        session.refresh(row)
    return _told(watch, row)


def set_kill_switch(watch: Watch, on: bool, person: Person) -> None:
    """Stop every action at once, or let them go on. Only an admin."""
    with writing(watch, person, "admin", "kill switch on" if on else "kill switch off", watch.cluster) as session:
        system.set_kill_switch(session, watch.cluster, on, person.name, watch.clock.now())


def reset_breaker(watch: Watch, person: Person, reason: str) -> str:
    """Close the breaker again. Only an admin, who says why it is safe. Returns why it had been tripped; Conflict where
    it is closed."""
    reason = reason.strip()
    if not reason or len(reason) > NOTE_MAX:
        raise Invalid("A reset needs a reason: what was it, and why may nodes be taken out again?")
    with writing(watch, person, "admin", "reset breaker", watch.cluster, why=reason) as session:
        was = breaker.reset(session, watch, person.name, reason)
        if not was:
            raise Conflict("The breaker is closed; there is nothing to reset.")
    watch.wake.set()
    return was
