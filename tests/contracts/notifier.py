"""The suite that every notifier passes: what arrives, what is tried again, what never leaves."""

from __future__ import annotations

import logging
import time
import traceback
from abc import ABC, abstractmethod
from dataclasses import replace

import pytest

from backend.notify.base import Notifier, NotifyError
from backend.tidings import MessageFacts
from tests.backend.notify.story import CLOSED, HOSTILE, OPENED, THREAD, hostile
from tests.services.sinks import Mode, Tape

#: What wires set as the time-out of their notifier.
TIMEOUT_S = 1.0
#: mode of the sink -> (permanent, the message may have arrived all the same)
RETRIES = {
    Mode.REFUSE: (True, False),
    Mode.PUT_OFF: (False, False),
    Mode.LIMIT: (False, False),
    Mode.BROKEN: (False, False),
    Mode.DROP_BEFORE: (False, False),
    Mode.SLOW: (False, False),
}


class Wire(ABC):
    """A notifier wired to a sink of its channel, with TIMEOUT_S as its time-out."""

    notifier: Notifier
    tape: Tape
    secrets: tuple[str, ...]

    @abstractmethod
    def read(self, row: int) -> str:
        """What the reader of this message sees, decoded, as text."""

    @abstractmethod
    def same(self, first: int, second: int) -> bool:
        """Whether a reader's program can tell that two arrived messages are one."""

    @abstractmethod
    def nobody_there(self) -> Notifier:
        """The same notifier, where nothing listens."""


def squeezed(text: str) -> str:
    """Without what a channel may change: white space, control characters, direction marks."""
    return "".join(c for c in text if c.isprintable() and not c.isspace())


class NotifierContract:
    """Subclass it as ``Test...`` with a ``wire`` fixture."""

    @pytest.mark.parametrize("message", THREAD, ids=lambda m: m.kind)
    def test_everything_a_message_says_arrives(self, wire: Wire, message: MessageFacts) -> None:
        receipt = wire.notifier.send(message)
        shown = squeezed(wire.read(0))
        for text in (message.headline, message.why, message.advice, *message.evidence):
            assert squeezed(text) in shown
        for label, value in message.facts:
            assert squeezed(label) in shown and squeezed(value) in shown
        assert "https://watchkeeper.example.com/incidents/812" in wire.read(0)
        assert receipt.text

    def test_one_send_is_one_message(self, wire: Wire) -> None:
        wire.notifier.send(OPENED)
        assert len(wire.tape.rows) == 1 and wire.tape.tries == 1

    def test_a_simulated_cluster_is_called_simulated(self, wire: Wire) -> None:
        wire.notifier.send(replace(OPENED, simulated=True))
        wire.notifier.send(OPENED)
        assert "simulated" in wire.read(0).lower()
        assert "simulated" not in wire.read(1).lower()

    @pytest.mark.parametrize("mode", RETRIES)
    def test_failures_are_permanent_only_where_no_later_try_helps(self, wire: Wire, mode: Mode) -> None:
        wire.tape.mode = mode
        permanent, arrived = RETRIES[mode]
        with pytest.raises(NotifyError) as raised:
            wire.notifier.send(OPENED)
        assert raised.value.permanent is permanent
        assert bool(wire.tape.rows) is arrived
        assert str(raised.value)

    def test_a_channel_that_drips_is_left_in_time(self, wire: Wire) -> None:
        wire.tape.mode = Mode.DRIP
        began = time.monotonic()
        try:
            wire.notifier.send(OPENED)
        except NotifyError as error:
            assert not error.permanent
        assert time.monotonic() - began < 6 * TIMEOUT_S

    def test_nobody_listening_is_tried_again(self, wire: Wire) -> None:
        with pytest.raises(NotifyError) as raised:
            wire.nobody_there().send(OPENED)
        assert not raised.value.permanent

    def test_a_message_sent_again_is_known_as_the_same(self, wire: Wire) -> None:
        wire.notifier.send(OPENED)
        wire.notifier.send(OPENED)
        wire.notifier.send(CLOSED)
        assert wire.same(0, 1)
        assert not wire.same(0, 2)

    @pytest.mark.parametrize("text", HOSTILE)
    def test_hostile_text_arrives_as_text(self, wire: Wire, text: str) -> None:
        wire.notifier.send(hostile(text))
        expected = squeezed(text.replace("\u202e", "").encode("utf-8", "replace").decode())
        assert expected in squeezed(wire.read(0))

    def test_ten_kilobytes_of_reason_are_whole_or_say_what_is_missing(self, wire: Wire) -> None:
        reason = " ".join(f"word{n}&<" for n in range(1000))
        wire.notifier.send(replace(OPENED, why=reason, evidence=(reason, reason)))
        shown = wire.read(0)
        assert shown.count("word999&<") == 3 or "characters more" in shown
        assert squeezed(OPENED.advice) in squeezed(shown)

    def test_long_names_arrive_whole(self, wire: Wire) -> None:
        name = "gpu-" + "0123456789" * 60
        wire.notifier.send(replace(OPENED, headline=name, facts=(("Node", name),)))
        assert squeezed(wire.read(0)).count(name) >= 2

    def test_secrets_in_log_lines_stay_in_the_house(self, wire: Wire) -> None:
        line = "export AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY password=hunter2hunter2"
        wire.notifier.send(replace(OPENED, evidence=(line,), why=line))
        assert "hunter2" not in wire.read(0)
        assert "wJalrXUtnFEMI" not in wire.read(0)

    @pytest.mark.parametrize("mode", [*RETRIES, None])
    def test_our_own_secrets_are_in_no_error_and_no_log(
        self, wire: Wire, mode: Mode | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        notifier = wire.nobody_there() if mode is None else wire.notifier
        wire.tape.mode = mode or Mode.TAKE
        with pytest.raises(NotifyError) as raised:
            notifier.send(OPENED)
        told = "".join(traceback.format_exception(raised.value)) + caplog.text
        assert not [secret for secret in wire.secrets if secret in told]
