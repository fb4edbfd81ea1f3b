"""Who hears what."""

from __future__ import annotations

from dataclasses import replace

from backend.notify.routing import route
from detectors.model import Severity
from tests.backend.notify.story import CHANGED, CLOSED, OPENED

BOTH = ("email", "slack")
HIGH = Severity.HIGH


def test_open_and_close_go_everywhere_and_a_change_to_mail_only() -> None:
    told = frozenset(BOTH)
    assert route(OPENED, BOTH, HIGH, frozenset()) == BOTH
    assert route(CHANGED, BOTH, HIGH, told) == ("email",)
    assert route(CLOSED, BOTH, HIGH, told) == BOTH


def test_below_the_floor_nobody_is_told() -> None:
    for message in (OPENED, CHANGED, CLOSED):
        assert route(replace(message, severity=Severity.WARNING), BOTH, HIGH, frozenset()) == ()


def test_the_floor_itself_is_told() -> None:
    assert route(replace(OPENED, severity=HIGH), BOTH, HIGH, frozenset()) == BOTH


def test_who_heard_of_the_open_hears_of_the_close_however_quiet_it_became() -> None:
    quiet = replace(CLOSED, severity=Severity.INFO)
    assert route(quiet, BOTH, HIGH, frozenset({"slack"})) == ("slack",)
    assert route(replace(CHANGED, severity=Severity.INFO), BOTH, HIGH, frozenset(BOTH)) == ("email",)


def test_who_was_not_told_of_the_open_is_not_told_of_the_close() -> None:
    assert route(CLOSED, BOTH, HIGH, frozenset()) == ()


def test_an_incident_that_becomes_loud_is_opened_on_slack_by_its_change() -> None:
    assert route(CHANGED, BOTH, HIGH, frozenset()) == BOTH


def test_without_history_only_the_severity_counts() -> None:
    assert route(CHANGED, BOTH, HIGH) == ("email",)
    assert route(CLOSED, BOTH, HIGH) == BOTH


def test_only_configured_channels_are_named() -> None:
    assert route(OPENED, ("slack",), HIGH, frozenset()) == ("slack",)
    assert route(OPENED, (), HIGH, frozenset()) == ()
