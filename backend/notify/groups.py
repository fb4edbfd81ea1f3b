"""Incidents told as one: who joins which group, and what a group says when its moment has come. Timers are columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from sqlmodel import Session

from backend.model.alerts import AlertGroup, AlertMember
from backend.model.incidents import Incident
from backend.notify import gather, outbox
from backend.notify.digest import digest_of
from backend.notify.escalation import due_step, next_step_at
from backend.notify.routing import DEFAULT, Choice, Plan, Route, Routing, heard_by, plan
from backend.notify.silences import Around, Flaps, Held, comes_and_goes, held
from backend.store import alerts
from backend.tidings import MessageFacts, MessageKind
from detectors.model import Severity

#: A message names this many of the incidents that it speaks for beside its own.
NAMED = 12
#: What is held back without a known end is looked at again this often.
LOOK_AGAIN = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Desk:
    """What telling needs to know of one cluster. ``compose``: an incident as a message of a kind, with a reason;
    ``muted``: why something else speaks for an incident (empty: nothing does)."""

    cluster: str
    routing: Routing
    fallback: Route
    compose: Callable[[Session, Incident, MessageKind, str], MessageFacts]
    muted: Callable[[Session, Incident], str]

    def route(self, name: str) -> Route:
        """A route by name; one that the settings no longer have ends as the fallback does."""
        return next((route for route in self.routing.routes if route.name == name), self.fallback)


@dataclass
class Standing:
    """A group with its incidents as they stand at one moment. live: (member, incident) that are not resolved and not
    held back; held: those that are held back, with what holds them; hushed: what holds back
    from now on what was told before; plan: the newest that waits for an approver."""

    group: AlertGroup
    route: Route
    live: list[tuple[AlertMember, Incident]] = field(default_factory=list)
    held: list[tuple[AlertMember, Incident, Held]] = field(default_factory=list)
    closed: list[Incident] = field(default_factory=list)
    hushed: str = ""
    plan: int = 0

    @property
    def loudest(self) -> Severity:
        return max((Severity.of(incident.severity) for _, incident in self.live), default=Severity.INFO)

    @property
    def fresh(self) -> list[tuple[AlertMember, Incident]]:
        """Those of the live that no message has told of."""
        return [(member, incident) for member, incident in self.live if member.state != "told"]

    @property
    def unheard(self) -> bool:
        """Whether one of them waits for somebody to have it."""
        return any(not incident.acknowledged_by and incident.state == "open" for _, incident in self.live)


def judge(
    session: Session,
    desk: Desk,
    incident: Incident,
    now: datetime,
    near: Around | None = None,
    ahead: gather.Ahead | None = None,
) -> Plan:
    """Who is told of an incident now, and what holds it back: what sending does, and what a preview shows."""
    near = near if near is not None else gather.around(session, desk.cluster, desk.routing, now)
    alert = gather.alert_of(session, incident, desk.routing, now, ahead)
    found = plan(alert, desk.routing.routes, desk.fallback, near)
    muted = desk.muted(session, incident)
    return replace(found, held=Held("inhibited", muted)) if muted else found


def stir(session: Session, desk: Desk, incident: Incident, now: datetime) -> tuple[AlertGroup, ...]:
    """An incident opened or has news: it joins the groups of the routes that take it, and those it is in look at it.
    Returns its open groups."""
    known = {group.route: (group, member) for group, member in alerts.groups_of(session, incident.id or 0)}
    return _stir(session, desk, incident, now, 0.0, None, known)


def expect(session: Session, desk: Desk, fresh: Sequence[Incident], now: datetime, settle_s: float) -> None:
    """Incidents that have just opened join the groups of the routes that take them. settle_s: how long a new group
    waits at least, for the plans that are being made."""
    near = gather.around(session, desk.cluster, desk.routing, now)
    for incident in fresh:
        _stir(session, desk, incident, now, settle_s, near, {})


def _stir(
    session: Session,
    desk: Desk,
    incident: Incident,
    now: datetime,
    settle_s: float,
    near: Around | None,
    known: dict[str, tuple[AlertGroup, AlertMember]],
) -> tuple[AlertGroup, ...]:
    if incident.state != "resolved":
        for choice in judge(session, desk, incident, now, near).taken:
            if choice.route.channels and choice.route.name not in known:
                known[choice.route.name] = _join(session, desk, choice, incident, now, settle_s)
    found = tuple(group for group, _ in known.values() if group.state == "open")
    for group in found:
        _hasten(session, desk, group, incident, now, settle_s)
    return found


def _join(
    session: Session, desk: Desk, choice: Choice, incident: Incident, now: datetime, settle_s: float
) -> tuple[AlertGroup, AlertMember]:
    """Into the group of its key that is still gathering, else into a new one."""
    gathers = now - timedelta(seconds=choice.route.interval_s)
    group = alerts.open_group(session, desk.cluster, choice.route.name, choice.key, gathers)
    due = now + timedelta(seconds=max(choice.wait_s, settle_s))
    if group is None:
        group = AlertGroup(
            cluster=desk.cluster,
            route=choice.route.name,
            key=choice.key,
            lead=incident.id or 0,
            opened_at=now,
            joined_at=now,
            due_at=due,
        )
        session.add(group)
        session.flush()
    elif group.told_at is None:
        group.due_at = min(group.due_at or due, due)
    group.joined_at = now
    member = AlertMember(group_id=group.id or 0, incident_id=incident.id or 0, cluster=desk.cluster, joined_at=now)
    session.add_all([group, member])
    session.flush()
    return group, member


def _hasten(
    session: Session, desk: Desk, group: AlertGroup, incident: Incident, now: datetime, settle_s: float
) -> None:
    """A group that was told looks at its news after its interval; at once where a page is due, or the end."""
    route = desk.route(group.route)
    if group.told_at is None:
        ready = settle_s == 0 and route.digest is None and Severity.of(incident.severity) >= route.page_from
        due = now if ready else group.due_at
    else:
        louder = group.told_severity and Severity.of(incident.severity) > Severity.of(group.told_severity)
        waits = alerts.waiting_plans(session, [incident.id or 0]).get(incident.id or 0, 0)
        urgent = louder or incident.state == "resolved" or waits > group.told_decision
        alone = group.told_count <= 1 and group.lead == incident.id
        calm = max(now, group.told_at + timedelta(seconds=route.interval_s))
        due = now if urgent or alone else min(group.due_at or calm, calm)
    group.due_at = min(due, group.due_at) if due is not None and group.due_at is not None else due or group.due_at
    session.add(group)


def flush(session: Session, desk: Desk, group: AlertGroup, now: datetime) -> MessageFacts | None:
    """A group's moment has come: say what there is to say, and set its next moment. The message, None: nothing said."""
    standing = look(session, desk, group, now)
    said: MessageFacts | None
    if group.told_at is None:
        said = _begin(session, desk, standing, now)
    elif not standing.live and not standing.held:
        said = _end(session, desk, standing, now)
    else:
        said = _go_on(session, desk, standing, now)
    if group.state == "open":
        group.due_at = _next_moment(standing, now)
    session.add(group)
    return said


def look(session: Session, desk: Desk, group: AlertGroup, now: datetime) -> Standing:
    """The incidents of a group as they stand; members that are over or held back are marked as such."""
    near = gather.around(session, desk.cluster, desk.routing, now)
    standing = Standing(group, desk.route(group.route))
    members = alerts.members_of(session, group.id or 0)
    ahead = gather.ahead_of(session, [row for _, row in members if row.state != "resolved"], desk.routing)
    for member, incident in members:
        if incident.state == "resolved":
            if member.state == "told":
                standing.closed.append(incident)
            elif member.state != "closed":
                member.why = "it closed before it was told"
            member.state, member.held_until = ("told" if member.state == "told" else "closed"), None
        elif (holds := _held(session, desk, member, incident, now, near, ahead)) is not None:
            standing.held.append((member, incident, holds))
            if member.state != "told":
                member.state = "held"
            elif member.why != holds.why:
                standing.hushed = holds.why
            member.why, member.held_until = holds.why, holds.until
        else:
            standing.live.append((member, incident))
            if member.state == "held":
                member.state = "waiting"
            member.why, member.held_until = "", None
        session.add(member)
    live = [incident.id or 0 for _, incident in standing.live]
    standing.plan = max(alerts.waiting_plans(session, live).values(), default=0)
    return standing


def _held(
    session: Session,
    desk: Desk,
    member: AlertMember,
    incident: Incident,
    now: datetime,
    near: Around,
    ahead: gather.Ahead,
) -> Held | None:
    """What holds an incident back. One that was told already is held back by a silence only: it is nobody's victim."""
    if member.state != "told":
        return judge(session, desk, incident, now, near, ahead).held
    if not near.windows:
        return None
    alert = gather.alert_of(session, incident, desk.routing, now, ahead)
    return held(alert, Around(windows=near.windows, flaps=Flaps(0)))


def _begin(session: Session, desk: Desk, standing: Standing, now: datetime) -> MessageFacts | None:
    group, route = standing.group, standing.route
    if not standing.live:
        group.state = "open" if standing.held else "closed"
        return None
    if route.digest is not None:
        return _tell_digest(session, desk, standing, now)
    alert = gather.alert_of(session, standing.live[0][1], desk.routing, now)
    why = group.why or comes_and_goes(alert, desk.routing.flaps)
    group.repeat_at = now + timedelta(seconds=route.repeat_s) if route.repeat_s else None
    said = _tell(session, desk, standing, "opened", why, now)
    group.escalate_at = next_step_at(route.escalate, 0, now)
    return said


def _tell_digest(session: Session, desk: Desk, standing: Standing, now: datetime) -> MessageFacts:
    """All that gathered since the last digest in one message, which ends the group."""
    group, route = standing.group, standing.route
    first = desk.compose(session, standing.live[0][1], "digest", "")
    said = digest_of(group.id or 0, route.name, first, [incident for _, incident in standing.live])
    for member, _ in standing.live:
        member.state = "told"
        session.add(member)
    outbox.put(session, said, group.id or 0, _to(route.channels, route.to), now, route=route.name, group_id=group.id)
    group.told_at, group.told_count, group.state, group.due_at = now, len(standing.live), "closed", None
    return said


def _end(session: Session, desk: Desk, standing: Standing, now: datetime) -> MessageFacts:
    group = standing.group
    said = _tell(session, desk, standing, "closed", "", now)
    group.state, group.due_at, group.repeat_at, group.escalate_at = "closed", None, None, None
    return said


def _go_on(session: Session, desk: Desk, standing: Standing, now: datetime) -> MessageFacts | None:
    """The most pressing of what a told group has to say now."""
    group, route = standing.group, standing.route
    if not standing.live:
        why = f"Nothing more is told of it: {standing.hushed}."
        return _tell(session, desk, standing, "silenced", why, now, turn=False) if standing.hushed else None
    step = due_step(route.escalate, group.step, group.escalate_at, now)
    if step is not None and standing.unheard:
        group.step += 1
        group.escalate_at = next_step_at(route.escalate, group.step, group.told_at or now, now)
        why = f"Nobody has acknowledged it for {step.after_s / 60:g} min."
        return _tell(session, desk, standing, "escalated", why, now, _to(step.channels, step.to))
    louder = standing.loudest > Severity.of(group.told_severity or "info")
    if standing.plan > group.told_decision:
        return _tell(session, desk, standing, "proposal", group.why, now)
    if louder:
        why = group.why or f"It was {group.told_severity or 'quiet'} and is {standing.loudest.word} now."
        return _tell(session, desk, standing, "changed", why, now)
    calm = now >= (group.told_at or now) + timedelta(seconds=route.interval_s)
    if (standing.fresh and calm) or (group.stirred and (calm or group.told_count <= 1)):
        why = group.why or f"{len(standing.fresh)} more of the same."
        return _tell(session, desk, standing, "changed", why, now, turn=False)
    if group.repeat_at is not None and group.repeat_at <= now:
        group.repeat_at = now + timedelta(seconds=route.repeat_s)
        if standing.unheard:
            return _tell(session, desk, standing, "changed", "It is still open, and nobody has acknowledged it.", now)
    return None


def _tell(
    session: Session,
    desk: Desk,
    standing: Standing,
    kind: MessageKind,
    why: str,
    now: datetime,
    channels: Mapping[str, Sequence[str]] | None = None,
    *,
    turn: bool = True,
) -> MessageFacts:
    """One message of a group to its channels, and what it said remembered."""
    group, route = standing.group, standing.route
    about = _about(standing, kind)
    said = _grouped(desk.compose(session, about, kind, why), standing, about, kind)
    if channels is None:
        channels = _to(heard_by(route.channels, desk.routing.edits, turn=turn), route.to)
    outbox.put(session, said, group.revision, channels, now, route=route.name, group_id=group.id)
    for member, _ in standing.live:
        member.state = "told"
        session.add(member)
    group.revision += 1
    group.told_at, group.stirred, group.why = now, False, ""
    group.told_count = max(group.told_count, len(standing.live))
    group.told_severity = max(Severity.of(group.told_severity or "info"), standing.loudest).word
    group.told_decision = max(group.told_decision, standing.plan)
    return said


def _about(standing: Standing, kind: MessageKind) -> Incident:
    """The incident that a message is about: the loudest that is live, the lead among equals; the lead at the end."""
    rows = _rows(standing, kind)
    lead = standing.group.lead
    return max(rows, key=lambda one: (Severity.of(one.severity), one.id == lead, -(one.id or 0)))


def _grouped(said: MessageFacts, standing: Standing, about: Incident, kind: MessageKind) -> MessageFacts:
    """A message of one incident as that of its group: in the group's thread, under an id of its own, with the others
    counted and named."""
    group = standing.group
    thread = f"{group.cluster}-inc-{group.lead}"
    by = "" if group.route == DEFAULT else f"-{_plain(group.route)}"
    rows = _rows(standing, kind)
    others = [row for row in rows if row.id != about.id]
    facts, headline = said.facts, said.headline
    if others:
        count = len(others)
        headline = f"{headline} And {count:,} more like it."
        named = ", ".join(dict.fromkeys(row.node or row.entity_name for row in others[:NAMED]))
        more = f" and {count - NAMED:,} more" if count > NAMED else ""
        facts = (*facts, (f"{count:,} more", f"{named}{more}"))
    return replace(said, id=f"{thread}{by}-{kind}-{group.revision}", thread=thread, headline=headline, facts=facts)


def _rows(standing: Standing, kind: MessageKind) -> list[Incident]:
    if kind == "closed":
        return standing.closed
    if kind == "silenced":
        return [incident for _, incident, _ in standing.held]
    return [incident for _, incident in standing.live]


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name)


def _to(channels: Sequence[str], to: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    return {name: to.get(name, ()) for name in channels}


def _next_moment(standing: Standing, now: datetime) -> datetime | None:
    """The earliest of what is pending."""
    group, route = standing.group, standing.route
    moments = [holds.until or now + LOOK_AGAIN for _, _, holds in standing.held]
    if group.told_at is not None:
        calm = max(now, group.told_at + timedelta(seconds=route.interval_s))
        moments += [calm] if standing.fresh or group.stirred else []
        moments += [at for at in (group.repeat_at, group.escalate_at) if at is not None and standing.unheard]
    return min((max(moment, now + timedelta(milliseconds=1)) for moment in moments), default=None)
