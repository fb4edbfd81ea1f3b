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
    """The address is looked at and not called: a webhook can only be tried by posting to everybody."""
    if settings is None:
        yield off("slack", "no [slack]: nobody is told by Slack", "Add [slack] with webhook_url_file.")
    elif wrong := wrong_shape(settings.webhook_url.get_secret_value()):
        text = f"webhook_url does not look like Slack's: {wrong}; nothing was sent"
        yield warning("slack", text, "Copy the Webhook URL from the app's page in Slack.")
    else:
        yield ok("slack", "webhook_url looks right; it was not called and nothing was sent")


def links(settings: Settings) -> Iterator[Line]:
    if settings.server.url:
        yield ok("links", f"messages link to {settings.server.url}")
    elif settings.email is None and settings.slack is None:
        yield off("links", "no messages, no links", "")
    else:
        text = f"messages link to http://{settings.server.host}:{settings.server.port}, which readers may not reach"
        yield warning("links", text, "Set [server] url.")
