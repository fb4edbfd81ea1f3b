"""notify test: one clearly marked message on one channel of the configuration, now, beside the outbox."""

from __future__ import annotations

import argparse
import json
import sys
import uuid

from backend.clock import SystemClock, unix
from backend.commands.server import settings_of
from backend.notify.base import NotifyError
from backend.registry_channels import notifiers_of
from backend.settings import Settings, SettingsError
from backend.tidings import MessageFacts
from detectors.model import Severity


def notify(arguments: argparse.Namespace) -> int:
    """0: the channel took it; 1: it did not, and the line says why."""
    try:
        settings = settings_of(arguments.config)
        url = settings.server.url or f"http://{settings.server.host}:{settings.server.port}"
        found = notifiers_of(settings, url)
    except (SettingsError, OSError) as error:
        print(f"watchkeeper: {error}", file=sys.stderr)
        return 1
    notifier = found.get(arguments.channel)
    if notifier is None:
        there = f"configured: {', '.join(found)}" if found else "no channel is configured"
        print(f"watchkeeper: no [{arguments.channel}] in the configuration; {there}.", file=sys.stderr)
        return 1
    try:
        receipt = notifier.send(test_message(settings, unix(SystemClock().now())))
    except NotifyError as error:
        later = "" if error.permanent else " A message of the outbox would be tried again."
        print(f"watchkeeper: {arguments.channel}: {error}.{later}", file=sys.stderr)
        return 1
    told = {"channel": arguments.channel, "taken": receipt.text, **receipt.attrs}
    print(json.dumps(told) if arguments.json else f"{arguments.channel}: {receipt.text}")
    return 0


def test_message(settings: Settings, at: float) -> MessageFacts:
    """What a channel shows of a test: nothing happened, and how real ones will look."""
    number = uuid.uuid4().hex[:12]
    return MessageFacts(
        id=f"watchkeeper-test-{number}",
        thread=f"watchkeeper-test-{number}",
        kind="test",
        cluster=settings.cluster[0].name,
        incident=0,
        severity=Severity.INFO,
        headline="This is a test of Watchkeeper. Nothing happened, nothing is to be done.",
        why="Somebody ran watchkeeper notify test. Messages of incidents come this way too.",
        facts=(("Sent by", "watchkeeper notify test"), ("Mode", settings.mode)),
        evidence=(),
        advice="Nothing. If it should not have come here, take the channel out of the configuration.",
        url="/",
        at=at,
    )
