"""Mail and Slack, as far as they can be tried without sending anything."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

from backend.doctor.line import Line, failed, off, ok, warning
from backend.notify.base import NotifyError
from backend.notify.slack import wrong_shape
from backend.notify.smtp import IMPLICIT_TLS_PORT, signed_in
from backend.settings import Email, Settings, Slack

#: The server is given this long for each answer, or less where the settings say so.
PATIENCE_S = 5.0


def email(settings: Email | None, context: ssl.SSLContext | None = None) -> Iterator[Line]:
    """Connects, encrypts, signs in and hangs up."""
    if settings is None:
        yield off("email", "no [email]: nobody is told by mail", "Add [email] with host and to.")
        return
    quick = settings.model_copy(update={"timeout_s": min(settings.timeout_s, PATIENCE_S)})
    try:
        with signed_in(quick, context or ssl.create_default_context()):
            pass
    except NotifyError as error:
        yield failed("email", str(error), "Check [email] host, port, starttls, user and password.")
        return
    where = f"{settings.host}:{settings.port}"
    how = "TLS" if settings.starttls and settings.port == IMPLICIT_TLS_PORT else "STARTTLS"
    who = f"signed in as {settings.user}" if settings.user else "no sign-in"
    if settings.starttls:
        yield ok("email", f"{where} answers, {how}, {who}; no mail was sent")
    else:
        text = f"{where} answers, {who}; mail{' and password go' if settings.user else ' goes'} unencrypted"
        yield warning("email", f"{text}; no mail was sent", "Set [email] starttls = true.")


def slack(settings: Slack | None) -> Iterator[Line]:
    """Addresses and tokens are looked at and not called: a webhook can only be tried by posting to everybody."""
    if settings is None:
        yield off("slack", "no [slack]: nobody is told by Slack", "Add [slack] with webhook_url_file or a bot.")
        return
    if settings.bot_token is not None:
        yield from _bot(settings)
    elif settings.webhook_url is not None and (wrong := wrong_shape(settings.webhook_url.get_secret_value())):
        text = f"webhook_url does not look like Slack's: {wrong}; nothing was sent"
        yield warning("slack", text, "Copy the Webhook URL from the app's page in Slack.")
    else:
        yield ok("slack", "webhook_url looks right; it was not called and nothing was sent")


def _bot(settings: Slack) -> Iterator[Line]:
    token = settings.bot_token.get_secret_value() if settings.bot_token else ""
    if not token.startswith("xoxb-"):
        yield warning("slack", "bot_token does not begin with xoxb-", "Copy the Bot User OAuth Token of the app.")
    elif settings.signing_secret is None:
        text = f"the bot posts to {settings.channel}; without signing_secret its messages have no buttons"
        yield ok("slack", text)
    elif not settings.users:
        text = "buttons come back, but [slack] users is empty: nobody may press one"
        yield warning("slack", text, 'Map Slack members to users here, as in users = { U0123ABCD = "jana" }.')
    else:
        yield ok("slack", f"the bot posts to {settings.channel}; {len(settings.users)} may press its buttons")


def others(settings: Settings) -> Iterator[Line]:
    """Channels that can only be tried by telling somebody."""
    names = ("pagerduty", "teams", "webhook", "apprise", "alertmanager")
    found = [name for name in names if getattr(settings, name) is not None]
    if found:
        text = f"{', '.join(found)} are not called; watchkeeper notify test --channel {found[0]} tries one"
        yield ok("channels", text)
    else:
        yield off("channels", "no pager, Teams, webhook, Apprise or Alertmanager is told", "")


def links(settings: Settings) -> Iterator[Line]:
    if settings.server.url:
        yield ok("links", f"messages link to {settings.server.url}")
    elif settings.email is None and settings.slack is None:
        yield off("links", "no messages, no links", "")
    else:
        text = f"messages link to http://{settings.server.host}:{settings.server.port}, which readers may not reach"
        yield warning("links", text, "Set [server] url.")
