"""Messages leave in order, at least once, under a stable id, on both databases."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.exc import IntegrityError
from sqlmodel import col, select

from backend.clock import ManualClock
from backend.model.messages import Delivery, Message
from backend.notify import outbox
from backend.notify.base import NotifyError
from backend.notify.outbox import claim_next, deliver_one, drop_unserved, facts_of, put
from backend.store import messages
from backend.store.engine import Store
from backend.tidings import MessageFacts, Receipt
from tests.backend.notify.story import CHANGED, CLOSED, OPENED, THREAD, hostile

BOTH = ("email", "slack")


class Channel:
    """A notifier that keeps what it was sent; ``fails`` holds the errors of the next tries."""

    def __init__(self, kind: str, fails: Sequence[BaseException | None] = ()) -> None:
        self.kind = kind
        self.fails = list(fails)
        self.ids: list[str] = []
        self.again: list[bool] = []
        self.earlier: list[dict[str, str]] = []

    def send(self, message: MessageFacts) -> Receipt:
        self.again.append(message.again)
        self.earlier.append(dict(message.earlier))
        error = self.fails.pop(0) if self.fails else None
        if isinstance(error, NotifyError):
            raise error
        self.ids.append(message.id)
        if error is not None:
            raise error
        return Receipt("ok", {"id": message.id})


class Killed(BaseException):
    """The process ends here, as with kill -9."""


def tell_all(store: Store, clock: ManualClock, *told: MessageFacts, channels: Sequence[str] = BOTH) -> None:
    for message in told:
        message = replace(message, thread=f"{message.cluster}-inc-{message.incident}")
        with store.write() as session:
            put(session, message, len(message.id), dict.fromkeys(channels, ()), clock.now())


def run(store: Store, clock: ManualClock, *channels: Channel, who: str = "one") -> int:
    """Steps until nothing is due; how many there were."""
    for steps in count():
        if not deliver_one(store, {c.kind: c for c in channels}, clock, who):
            return steps
    return 0


def later(clock: ManualClock, seconds: float) -> None:
    clock.set(clock.now() + timedelta(seconds=seconds))


def deliveries(store: Store) -> list[Delivery]:
    with store.read() as session:
        return list(session.exec(select(Delivery).order_by(col(Delivery.id))))


def test_a_thread_leaves_in_order_on_every_channel(store: Store, clock: ManualClock) -> None:
    mail, slack = Channel("email"), Channel("slack")
    tell_all(store, clock, *THREAD)
    assert run(store, clock, mail, slack) == 6
    assert mail.ids == slack.ids == [OPENED.id, CHANGED.id, CLOSED.id]
    assert {(d.state, d.attempts) for d in deliveries(store)} == {("sent", 1)}
    assert all(d.receipt == {"text": "ok", "id": i} for d, i in zip(deliveries(store)[:1], mail.ids, strict=False))


def test_a_message_survives_the_database_as_it_was(store: Store, clock: ManualClock) -> None:
    told = replace(hostile("日本語 <b> \u202e & '"), url="/x", simulated=True)
    with store.write() as session:
        put(session, told, 1, dict.fromkeys(BOTH, ()), clock.now())
    with store.read() as session:
        row = session.exec(select(Message)).one()
    assert facts_of(row.body) == told
    assert facts_of({**row.body, "from_a_newer_release": 1}) == told


def test_all_messages_of_a_thread_carry_the_subject_of_the_first(store: Store, clock: ManualClock) -> None:
    first = replace(OPENED, subject="", headline="GPU 3 of gpu-0412 is lost")
    tell_all(store, clock, first, replace(CLOSED, subject=""))
    with store.read() as session:
        bodies = [facts_of(m.body) for m in session.exec(select(Message).order_by(col(Message.id)))]
    assert [b.subject for b in bodies] == ["GPU 3 of gpu-0412 is lost"] * 2


def test_a_message_that_nobody_takes_is_kept_for_the_page(store: Store, clock: ManualClock) -> None:
    tell_all(store, clock, OPENED, channels=())
    with store.read() as session:
        assert session.exec(select(Message)).one().kind == "opened"
    assert deliveries(store) == []


def test_the_same_thing_is_not_told_twice(store: Store, clock: ManualClock) -> None:
    tell_all(store, clock, OPENED)
    with pytest.raises(IntegrityError):
        tell_all(store, clock, OPENED)


def test_a_later_message_waits_for_the_earlier_one(store: Store, clock: ManualClock) -> None:
    mail = Channel("email", [NotifyError("busy")])
    tell_all(store, clock, OPENED, CLOSED)
    assert run(store, clock, mail) == 1
    later(clock, 4)
    assert run(store, clock, mail) == 0
    later(clock, 2)
    assert run(store, clock, mail) == 2
    assert mail.ids == [OPENED.id, CLOSED.id]


def test_another_incident_does_not_wait(store: Store, clock: ManualClock) -> None:
    mail = Channel("email", [NotifyError("busy")])
    tell_all(store, clock, OPENED, replace(OPENED, id="main-inc-9-opened-0", incident=9))
    assert run(store, clock, mail) == 2
    assert mail.ids == ["main-inc-9-opened-0"]


def test_the_same_incident_number_of_another_cluster_does_not_wait(store: Store, clock: ManualClock) -> None:
    mail = Channel("email", [NotifyError("busy")])
    tell_all(store, clock, OPENED, replace(OPENED, id="other-inc-812-opened-0", cluster="other"))
    assert run(store, clock, mail) == 2
    assert mail.ids == ["other-inc-812-opened-0"]


def test_waits_double_up_to_a_quarter_of_an_hour() -> None:
    assert [outbox.wait_s(n) for n in (1, 2, 3, 4)] == [5, 10, 20, 40]
    assert outbox.wait_s(9) == outbox.wait_s(100) == 900


def test_a_day_of_outage_is_waited_for_and_then_given_up_visibly(store: Store, clock: ManualClock) -> None:
    mail = Channel("email", [NotifyError("mail server is down")] * 200)
    tell_all(store, clock, OPENED, channels=("email",))
    began = clock.now()
    while run(store, clock, mail):
        later(clock, outbox.LONGEST_WAIT_S)
    (row,) = deliveries(store)
    assert (row.state, row.attempts, row.error) == ("dead", outbox.MAX_TRIES, "mail server is down")
    assert clock.now() - began > timedelta(hours=20)
    with store.read() as session:
        assert [d.id for d in messages.dead_deliveries(session, "main")] == [row.id]


def test_a_permanent_failure_is_dead_at_once_and_does_not_hold_up_the_next(store: Store, clock: ManualClock) -> None:
    mail = Channel("email", [NotifyError("no such user", permanent=True)])
    tell_all(store, clock, OPENED, CLOSED)
    assert run(store, clock, mail) == 2
    assert mail.ids == [CLOSED.id]
    assert [(d.state, d.error) for d in deliveries(store) if d.channel == "email"] == [
        ("dead", "no such user"),
        ("sent", ""),
    ]


def test_retry_after_rests_the_whole_channel_and_no_other(store: Store, clock: ManualClock) -> None:
    slack, mail = Channel("slack", [NotifyError("429", retry_after_s=120)]), Channel("email")
    tell_all(store, clock, OPENED, *(replace(OPENED, id=f"inc-{n}", incident=n) for n in range(3)))
    run(store, clock, slack, mail)
    assert (len(slack.ids), len(mail.ids)) == (0, 4)
    later(clock, 119)
    assert run(store, clock, slack, mail) == 0
    later(clock, 1)
    assert run(store, clock, slack, mail) == 4


@pytest.mark.parametrize("asked", [float("nan"), float("inf"), -1.0, 1e12])
def test_a_lying_retry_after_does_not_silence_a_channel(store: Store, clock: ManualClock, asked: float) -> None:
    slack = Channel("slack", [NotifyError("429", retry_after_s=asked)])
    tell_all(store, clock, OPENED)
    run(store, clock, slack)
    later(clock, 3600)
    assert run(store, clock, slack) == 1


def test_a_sender_that_dies_after_sending_sends_again_under_the_same_id(store: Store, clock: ManualClock) -> None:
    mail = Channel("email", [Killed()])
    tell_all(store, clock, OPENED, CLOSED)
    with pytest.raises(Killed):
        run(store, clock, mail)
    assert run(store, clock, mail, who="another") == 0, "the lease still holds"
    later(clock, outbox.LEASE_S)
    assert run(store, clock, mail, who="another") == 2
    assert mail.ids == [OPENED.id, OPENED.id, CLOSED.id]


def test_a_message_that_kills_every_sender_is_given_up(store: Store, clock: ManualClock) -> None:
    mail = Channel("email", [Killed()] * 200)
    tell_all(store, clock, OPENED, channels=("email",))
    for _ in range(outbox.MAX_TRIES):
        with pytest.raises(Killed):
            run(store, clock, mail)
        later(clock, outbox.LEASE_S)
    assert run(store, clock, mail) == 0
    (row,) = deliveries(store)
    assert (row.state, row.attempts) == ("dead", outbox.MAX_TRIES)
    assert "died" in row.error


def test_who_lost_the_lease_cannot_record_an_outcome(store: Store, clock: ManualClock) -> None:
    tell_all(store, clock, OPENED, channels=("email",))
    with store.write() as session:
        slow = claim_next(session, clock.now(), "slow")
    later(clock, outbox.LEASE_S)
    with store.write() as session:
        quick = claim_next(session, clock.now(), "quick")
    assert slow is not None and quick is not None
    with store.write() as session:
        assert not outbox.failed(session, slow, NotifyError("late", permanent=True), clock.now())
        assert outbox.sent(session, quick, Receipt("ok"), clock.now())
        assert not outbox.sent(session, slow, Receipt("ok"), clock.now())
    assert deliveries(store)[0].state == "sent"


def test_channels_that_this_loop_does_not_serve_are_left_alone(store: Store, clock: ManualClock) -> None:
    mail = Channel("email")
    tell_all(store, clock, OPENED)
    assert run(store, clock, mail) == 1
    with store.read() as session:
        assert messages.outbox_counts(session, "main") == {("email", "sent"): 1, ("slack", "waiting"): 1}


def test_what_waits_for_a_channel_that_is_gone_is_shown_as_dead(store: Store, clock: ManualClock) -> None:
    tell_all(store, clock, OPENED)
    with store.write() as session:
        assert drop_unserved(session, {"email"}) == 1
    assert [(d.channel, d.state) for d in deliveries(store)] == [("email", "waiting"), ("slack", "dead")]


def test_a_row_that_cannot_be_read_is_dead_and_says_why(store: Store, clock: ManualClock) -> None:
    mail = Channel("email")
    with store.write() as session:
        put(session, OPENED, 1, {"email": ()}, clock.now()).body = {"severity": "loud"}
    assert run(store, clock, mail) == 1
    assert mail.ids == []
    assert "outbox row" in deliveries(store)[0].error


def test_what_was_given_up_is_sent_again_and_says_that_it_may_have_arrived(store: Store, clock: ManualClock) -> None:
    mail = Channel("email", [NotifyError("no such mailbox", permanent=True)])
    tell_all(store, clock, OPENED, channels=("email",))
    run(store, clock, mail)
    (dead,) = deliveries(store)
    assert dead.state == "dead"
    with store.write() as session:
        assert outbox.send_again(session, dead.id or 0, clock.now())
        assert not outbox.send_again(session, dead.id or 0, clock.now())
    assert run(store, clock, mail) == 1
    assert mail.ids == [OPENED.id] and mail.again == [False, True]
    assert deliveries(store)[0].state == "sent"


def test_a_channel_learns_where_its_thread_is_and_whether_a_try_may_have_arrived(
    store: Store, clock: ManualClock
) -> None:
    mail = Channel("email", [None, NotifyError("cut off"), None])
    tell_all(store, clock, OPENED, CLOSED, channels=("email",))
    run(store, clock, mail)
    later(clock, 10)
    run(store, clock, mail)
    assert mail.again == [False, False, True]
    assert mail.earlier == [{}, {"id": OPENED.id}, {"id": OPENED.id}]


def test_a_page_can_show_all_that_was_said(store: Store, clock: ManualClock) -> None:
    tell_all(store, clock, *THREAD)
    with store.read() as session:
        told = messages.deliveries_of(session, "main", 812)
    assert [(m.kind, d.channel) for m, d in told] == [
        ("opened", "email"),
        ("opened", "slack"),
        ("changed", "email"),
        ("changed", "slack"),
        ("closed", "email"),
        ("closed", "slack"),
    ]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=8),
    st.lists(st.sampled_from(["ok", "busy", "dies", "rest"]), max_size=12),
    st.integers(0, 1_000_000),
)
def test_whatever_fails_each_message_arrives_and_first_arrivals_are_in_order(
    sqlite_store: Store, clock: ManualClock, incidents: list[int], fate: list[str], run_id: int
) -> None:
    fates = {"ok": None, "busy": NotifyError("busy"), "dies": Killed(), "rest": NotifyError("r", retry_after_s=7)}
    mail = Channel("email", [fates[word] for word in fate])
    with sqlite_store.write() as session:
        for row in [*session.exec(select(Delivery)), *session.exec(select(Message))]:
            session.delete(row)
    sent = [
        replace(CHANGED, id=f"{run_id}-{place}" + "x" * place, incident=incident)
        for place, incident in enumerate(incidents)
    ]
    tell_all(sqlite_store, clock, *sent, channels=("email",))
    for _ in range(40):
        try:
            run(sqlite_store, clock, mail)
        except Killed:
            continue
        finally:
            later(clock, outbox.LEASE_S)
    assert set(mail.ids) == {m.id for m in sent}
    for incident in set(incidents):
        expected = [m.id for m in sent if m.incident == incident]
        assert list(dict.fromkeys(i for i in mail.ids if i in expected)) == expected


def test_four_senders_at_once_send_each_message_once_and_in_order(store: Store, clock: ManualClock) -> None:
    mail = Channel("email")
    told = [replace(CHANGED, id=f"{n:02}" + "x" * n, incident=n % 3) for n in range(12)]
    tell_all(store, clock, *told, channels=("email",))
    senders = [threading.Thread(target=run, args=(store, clock, mail), kwargs={"who": f"w{n}"}) for n in range(4)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join(60)
    assert sorted(mail.ids) == [m.id for m in told]
    for incident in range(3):
        ids = [m.id for m in told if m.incident == incident]
        assert [i for i in mail.ids if i in ids] == ids
