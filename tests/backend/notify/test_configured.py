"""What [alerts] says becomes routes; what it asks of channels that are not there stops the start."""

from __future__ import annotations

from datetime import time
from pathlib import Path

import pytest

from backend.notify.configured import routing_of
from backend.settings import Settings, SettingsError, load
from detectors.model import Severity

MAIL = """
[email]
host = "smtp.test"
to = ["on@x.test"]
"""
WHOLE = """
[alerts]
flap_count = 3

[[alerts.route]]
name = "fabric by day"
channels = ["email"]
to = { email = ["fabric@x.test"] }
hours = "22:00-06:00"
days = ["monday", "friday"]
timezone = "Europe/Berlin"
group_by = ["team"]
group_wait_s = 5
page_from = "high"
go_on = true
match = { kind = ["ib_*"], most = "high" }
escalate = [{ after_s = 900, channels = ["email"], to = { email = ["boss@x.test"] } }]

[[alerts.route]]
name = "rest"
channels = ["email"]
digest = "08:00"

[[alerts.inhibit]]
cause = { kind = ["fs_down"] }
victim = { kind = ["checkpoint_*"] }
"""


def loaded(folder: Path, text: str) -> Settings:
    file = folder / "site.toml"
    (folder / "routing.toml").write_text(text)
    file.write_text(f'include = ["routing.toml"]\n{MAIL}')
    return load(file, {})


def test_a_file_of_routes_becomes_what_routing_asks(tmp_path: Path) -> None:
    settings = loaded(tmp_path, WHOLE)
    found = routing_of(settings.alerts, ("email", "slack"), slack_edits=True)
    first, rest = found.routes
    assert (first.hours.start, first.hours.end, first.hours.zone) == (time(22), time(6), "Europe/Berlin")
    assert (first.match.kind, first.match.most, first.page_from) == (("ib_*",), Severity.HIGH, Severity.HIGH)
    assert (first.to, first.group_by, first.wait_s, first.goes_on) == (
        {"email": ("fabric@x.test",)},
        ("team",),
        5.0,
        True,
    )
    assert (first.escalate[0].after_s, first.escalate[0].to["email"]) == (900, ("boss@x.test",))
    assert (rest.digest, found.flaps.count, found.inhibit[0].same) == (time(8), 3, ("cluster",))
    assert found.edits == frozenset({"slack"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[alerts.route]]\nname = "x"\nchannels = ["slack"]', "no section [slack]"),
        ('[[alerts.route]]\nname = "x"\nchannels = ["email"]\nto = { slack = ["C1"] }', "unused there"),
        ('[[alerts.route]]\nname = "x"\nhours = "8-18"', "alerts.route[0].hours"),
        ('[[alerts.route]]\nname = "x"\ntimezone = "Mars/North"', "is no time zone"),
        ('[[alerts.route]]\nname = "x"\n[[alerts.route]]\nname = "x"', "no name of its own"),
        ('[[alerts.route]]\nname = "x"\nmatch = { severity = ["high"] }', "is not a key"),
        ('[alerts]\nheartbeat_url = "ftp://x"', "is no address"),
    ],
)
def test_a_mistake_stops_the_start_and_says_where(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SettingsError) as wrong:
        loaded(tmp_path, text)
    assert said in str(wrong.value)
