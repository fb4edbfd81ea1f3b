"""Processes in which a storm breaks and is told, until they are killed: FOLDER SMTP_PORT HTTP_PORT INCIDENTS.

Each line on stdin starts one, by fork: what takes seconds to import is imported once. Its number comes on stdout.
"""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path

import requests
from sqlmodel import col, func, select

from backend import telling
from backend.clock import SystemClock
from backend.incidents import lifecycle
from backend.loops import Loop, run_every
from backend.model.alerts import AlertGroup
from backend.model.incidents import Incident
from backend.notify.base import Notifier, NotifyError
from backend.notify.email import EmailNotifier
from backend.notify.outbox import deliver_one
from backend.registry import Parts, build
from backend.settings import Cluster, Email, Settings, Store
from backend.tidings import MessageFacts, Receipt
from backend.watch import Watch

#: The lease of a sender in this test: what a kill leaves behind is taken up after so many seconds.
LEASE_S = 4.0
#: Incidents that open in one transaction; one that was told closes in it.
AT_ONCE = 4
KINDS = ("gpu_bus_loss", "ib_link_down", "ecc_uncorrectable", "node_down")


class ReadsBack:
    """A channel over HTTP that asks first whether a message is there, where an earlier try may have arrived."""

    kind = "webhook"

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def send(self, message: MessageFacts) -> Receipt:
        try:
            if message.again and requests.get(f"{self._url}/{message.id}", timeout=5).status_code == 200:
                return Receipt("was there")
            answer = requests.post(f"{self._url}/{message.id}", timeout=5)
        except requests.RequestException as error:
            raise NotifyError(f"no answer ({type(error).__name__})", retry_after_s=0.01) from error
        if not answer.ok:
            raise NotifyError(f"{answer.status_code}")
        return Receipt("taken")


def parts_of(folder: Path, smtp_port: int) -> Parts:
    mail = Email(
        **{"from": "watch@example.test"}, host="127.0.0.1", port=smtp_port, starttls=False, to=("on@example.test",)
    )
    return build(Settings(store=Store(folder=folder), cluster=(Cluster(name="main"),), email=mail), SystemClock())


def opened(number: int, now: datetime) -> Incident:
    """Each on a node of its own: each has a thread of its own."""
    node, kind = f"n{number}", KINDS[number % len(KINDS)]
    return Incident(
        cluster="main", kind=kind, severity="critical", headline=f"{kind} on {node}", entity_kind="node",
        entity_id=node, entity_name=node, node=node, opened_at=now, changed_at=now, last_asserted_at=now,
    )  # fmt: skip


def storm(watch: Watch, count: int) -> bool:
    """The next few incidents open, put among what is to be told in the transaction that opens them; the
    oldest that was told closes. False: all have opened."""
    now = watch.clock.now()
    with watch.turn() as session:
        known = session.exec(select(func.count()).select_from(Incident)).one()
        if known >= count:
            return False
        rows = [opened(known + n, now) for n in range(AT_ONCE)]
        session.add_all(rows)
        session.flush()
        telling.expect(session, watch, rows)
        told = select(AlertGroup).where(col(AlertGroup.told_at).is_not(None), AlertGroup.state == "open")
        if (group := session.exec(told.order_by(col(AlertGroup.id)).limit(1)).first()) is not None:
            first = session.get_one(Incident, group.lead)
            lifecycle.close(session, first, now, "It is over.")
            telling.announce(session, watch, first, None, "closed")
    return True


def main(folder: Path, smtp_port: int, http_port: int, count: int) -> None:
    parts = parts_of(folder, smtp_port)
    assert parts.settings.email is not None
    channels: dict[str, Notifier] = {
        "email": EmailNotifier(parts.settings.email, ""), "webhook": ReadsBack(http_port)
    }  # fmt: skip
    watch = parts.watches["main"]
    watch.rules = replace(watch.rules, channels=tuple(channels))
    stop = threading.Event()
    loops = [Loop("main", "loop", "alerts", 0.05, partial(telling.tell_due, watch), stop.wait)]
    for name, notifier in channels.items():
        step = partial(deliver_one, parts.store, {name: notifier}, parts.clock, parts.who, LEASE_S)
        loops.append(Loop("", "loop", f"notify {name}", 0.02, step, stop.wait))
    for loop in loops:
        threading.Thread(target=run_every, args=(loop, parts.store, parts.clock, stop), daemon=True).start()
    while True:
        storm(watch, count)
        stop.wait(0.02)


def nursery(folder: Path, smtp_port: int, http_port: int, count: int) -> None:
    """A process a line; the one before it has been killed by then."""
    child = 0
    for _ in sys.stdin:
        if child:
            os.waitpid(child, 0)
        child = os.fork()
        if not child:
            main(folder, smtp_port, http_port, count)
        print(child, flush=True)


if __name__ == "__main__":
    nursery(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
