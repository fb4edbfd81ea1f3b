"""A desk in a test's hands: incidents made at will, a clock that only the test turns, and what its groups say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from sqlmodel import col, select

from backend.clock import ManualClock, unix
from backend.incidents.message import message_of
from backend.model.actions import Decision
from backend.model.alerts import AlertGroup, AlertMember, Silence
from backend.model.cluster import Node
from backend.model.incidents import Incident
from backend.model.messages import Delivery, Message
from backend.notify import groups
from backend.notify.groups import Desk
from backend.notify.routing import Routing, fallback_of
from backend.notify.silences import Match, match_row
from backend.store import alerts
from backend.store.engine import Store
from backend.tidings import MessageFacts, MessageKind
from detectors.model import Severity

NUMBERS = count(1)


class AtTheDesk:
    """One cluster, main, with nodes n0 ... on switches of eight."""

    def __init__(self, store: Store, clock: ManualClock, routing: Routing | None = None) -> None:
        self.store, self.clock = store, clock
        self.routing = routing or Routing(edits=frozenset({"slack"}))
        self.muted: dict[int, str] = {}
        with store.write() as session:
            for number in range(32):
                row = Node(
                    cluster="main",
                    name=f"n{number}",
                    switch=f"s{number // 8}",
                    first_seen=clock.now(),
                    last_seen=clock.now(),
                )
                session.merge(row)

    @property
    def desk(self) -> Desk:
        channels = ("email", "slack")
        return Desk(
            "main",
            self.routing,
            fallback_of(channels, Severity.HIGH),
            self._compose,
            lambda _, incident: self.muted.get(incident.id or 0, ""),
        )

    def _compose(self, session: object, incident: Incident, kind: MessageKind, why: str) -> MessageFacts:
        now = self.clock.now()
        return message_of(incident, None, (), kind, now, "https://watch.test", simulated=False, why=why)

    def incident(self, node: str = "n0", kind: str = "ib_link_down", severity: str = "critical", **more: Any) -> int:
        """One opens, and is put among what is to be told as the pipeline does it. Its number."""
        return self.burst([node], kind, severity, **more)[0]

    def burst(
        self, nodes: Sequence[str], kind: str = "ib_link_down", severity: str = "critical", **more: Any
    ) -> list[int]:
        """So many open in one tick, in one transaction. Their numbers."""
        now = self.clock.now()
        with self.store.write() as session:
            rows = [self._row(node, kind, severity, now, **more) for node in nodes]
            session.add_all(rows)
            session.flush()
            groups.expect(session, self.desk, rows, now, 0.0)
            return [row.id or 0 for row in rows]

    def _row(self, node: str, kind: str, severity: str, now: datetime, **more: Any) -> Incident:
        return Incident(
            cluster="main",
            kind=kind,
            severity=severity,
            headline=f"{kind} on {node}",
            entity_kind=more.get("entity_kind", "nic"),
            entity_id=more.get("entity_id", f"e{next(NUMBERS)}"),
            entity_name=more.get("entity_name", f"{node}/nic:mlx5_0"),
            node=node,
            opened_at=now,
            changed_at=now,
            last_asserted_at=now,
        )

    def change(self, number: int, **change: object) -> None:
        """An incident becomes something else, and its groups hear of it."""
        with self.store.write() as session:
            row = session.get_one(Incident, number)
            for name, value in change.items():
                setattr(row, name, value)
            session.add(row)
            groups.stir(session, self.desk, row, self.clock.now())

    def close(self, number: int) -> None:
        self.change(number, state="resolved", closed_at=self.clock.now())

    def propose(self, number: int) -> None:
        """A plan that waits for an approver."""
        with self.store.write() as session:
            row = Decision(
                cluster="main",
                incident_id=number,
                revision=next(NUMBERS),
                at=self.clock.now(),
                mode="propose",
                state="proposed",
                sentence="Drain it.",
                recommended="drain_now",
            )
            session.add(row)
            session.flush()
            groups.stir(session, self.desk, session.get_one(Incident, number), self.clock.now())

    def silence(self, hours: float = 1, kind: str = "silence", **match: tuple[str, ...]) -> int:
        now = self.clock.now()
        with self.store.write() as session:
            row = Silence(
                cluster="main",
                kind=kind,
                matches=match_row(Match(**match)),  # type: ignore[arg-type]  # names of columns
                comment="swap",
                created_by="jana",
                created_at=now,
                starts_at=now,
                ends_at=now + timedelta(hours=hours),
            )
            session.add(row)
            session.flush()
            alerts.wake_held(session, "main", now)
            return row.id or 0

    def after(self, seconds: float) -> list[str]:
        """So much later, second by second where something is due: what was said meanwhile, as ``kind>channel,...``."""
        before = len(self.said())
        end = self.clock.now() + timedelta(seconds=seconds)
        while (due := self.next_due()) is not None and due <= end:
            self.clock.set(max(due, self.clock.now()))
            self.flush()
        self.clock.set(end)
        self.flush()
        return self.said()[before:]

    def next_due(self) -> datetime | None:
        with self.store.read() as session:
            query = select(AlertGroup.due_at).where(AlertGroup.state == "open", col(AlertGroup.due_at).is_not(None))
            return min((at for at in session.exec(query).all() if at is not None), default=None)

    def flush(self) -> None:
        """The alerts loop: each due group in a transaction of its own, as after any kill."""
        for _ in range(200):
            with self.store.read() as session:
                due = alerts.due_groups(session, "main", self.clock.now())
            if not due:
                return
            for number in due:
                with self.store.write() as session:
                    groups.flush(session, self.desk, session.get_one(AlertGroup, number), self.clock.now())
        raise AssertionError("the groups never come to rest")

    def said(self) -> list[str]:
        with self.store.read() as session:
            rows = session.exec(select(Message).order_by(col(Message.id))).all()
            sent = session.exec(select(Delivery).order_by(col(Delivery.id))).all()
        names = {row.id: ",".join(d.channel for d in sent if d.message_id == row.id) for row in rows}
        return [f"{row.kind}>{names[row.id]}" for row in rows]

    def last(self) -> Mapping[str, object]:
        """The body of the last message."""
        with self.store.read() as session:
            return session.exec(select(Message).order_by(col(Message.id).desc())).first().body  # type: ignore[union-attr]  # there is one

    def member(self, number: int) -> AlertMember:
        with self.store.read() as session:
            return session.exec(select(AlertMember).where(AlertMember.incident_id == number)).one()

    def with_routing(self, **change: object) -> None:
        self.routing = replace(self.routing, **change)  # type: ignore[arg-type]  # its own fields

    @property
    def now(self) -> float:
        return unix(self.clock.now())
