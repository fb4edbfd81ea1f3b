"""Settings of channels to notifiers. Named by the registry only."""

from __future__ import annotations

import ssl

from backend.notify.alertmanager import AlertmanagerNotifier
from backend.notify.apprise import AppriseNotifier
from backend.notify.base import Notifier
from backend.notify.email import EmailNotifier
from backend.notify.pagerduty import PagerDutyNotifier
from backend.notify.slack import slack_of
from backend.notify.teams import TeamsNotifier
from backend.notify.webhook import WebhookNotifier
from backend.settings import Email, Settings

#: Every channel there is, by its section.
CHANNELS = ("email", "slack", "pagerduty", "teams", "webhook", "apprise", "alertmanager")


def notifiers_of(settings: Settings, url: str) -> dict[str, Notifier]:
    """The configured channels, by kind. ``url``: how people reach this server."""
    found: dict[str, Notifier] = {}
    if settings.email is not None:
        found["email"] = EmailNotifier(settings.email, url, tls_of(settings.email))
    if settings.slack is not None:
        found["slack"] = slack_of(settings.slack, url)
    if settings.pagerduty is not None:
        found["pagerduty"] = PagerDutyNotifier(settings.pagerduty, url)
    if settings.teams is not None:
        found["teams"] = TeamsNotifier(settings.teams, url)
    if settings.webhook is not None:
        found["webhook"] = WebhookNotifier(settings.webhook, url)
    if settings.apprise is not None:
        found["apprise"] = AppriseNotifier(settings.apprise, url)
    if settings.alertmanager is not None:
        found["alertmanager"] = AlertmanagerNotifier(settings.alertmanager, url)
    return found


def tls_of(settings: Email) -> ssl.SSLContext:
    """Whom a mail server's certificate must come from. Raises OSError where the file cannot be read."""
    return ssl.create_default_context(cafile=str(settings.ca_file) if settings.ca_file else None)
