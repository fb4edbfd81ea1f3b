"""An SMTP session that is encrypted, signed in, and over in time; every failure is a NotifyError without secrets."""

from __future__ import annotations

import smtplib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from backend.notify.base import NotifyError
from backend.notify.outgoing import said
from backend.settings import Email

#: TLS from the first byte (RFC 8314); on every other port TLS starts with STARTTLS.
IMPLICIT_TLS_PORT = 465
#: The whole exchange, however slowly the server drips; below the lease of a delivery (60 s).
LONGEST_S = 50.0


class Watchdog:
    """Hangs up a session after three of its time-outs, LONGEST_S at most: a time-out by itself bounds one read only."""

    def __init__(self, session: smtplib.SMTP) -> None:
        self._timer = threading.Timer(min(LONGEST_S, 3 * session.timeout), _hang_up, [session])
        self._timer.daemon = True
        self._timer.start()

    def stop(self) -> None:
        self._timer.cancel()


class PlainSession(smtplib.SMTP):
    """Watched from before the greeting, which the constructor reads."""

    watchdog: Watchdog | None = None

    def connect(self, host: str = "localhost", port: int = 0, source_address: object = None) -> tuple[int, bytes]:
        self.watchdog = Watchdog(self)
        return super().connect(host, port)


class TlsSession(smtplib.SMTP_SSL):
    """The same, encrypted from the first byte."""

    watchdog: Watchdog | None = None

    def connect(self, host: str = "localhost", port: int = 0, source_address: object = None) -> tuple[int, bytes]:
        self.watchdog = Watchdog(self)
        return super().connect(host, port)


@contextmanager
def signed_in(settings: Email, context: ssl.SSLContext) -> Iterator[smtplib.SMTP]:
    """A session ready to send. What fails in it, or in the block, is raised as NotifyError."""
    with _as_notify_error(settings):
        session = _opened(settings, context)
        try:
            if settings.starttls and settings.port != IMPLICIT_TLS_PORT:
                session.starttls(context=context)
            if settings.user:
                session.login(settings.user, settings.password.get_secret_value() if settings.password else "")
            yield session
            _quit(session)
        finally:
            if session.watchdog is not None:
                session.watchdog.stop()
            session.close()


def answered(settings: Email, text: object) -> str:
    """What the server said, fit to be stored and shown."""
    return said(text, [settings.password.get_secret_value()] if settings.password else [])


def _opened(settings: Email, context: ssl.SSLContext) -> PlainSession | TlsSession:
    if settings.starttls and settings.port == IMPLICIT_TLS_PORT:
        return TlsSession(settings.host, settings.port, timeout=settings.timeout_s, context=context)
    return PlainSession(settings.host, settings.port, timeout=settings.timeout_s)


@contextmanager
def _as_notify_error(settings: Email) -> Iterator[None]:
    where = f"SMTP {settings.host}:{settings.port}"
    try:
        yield
    except smtplib.SMTPAuthenticationError as error:  # its text may repeat what was sent: only the code is shown
        raise NotifyError(f"{where} refuses the sign-in ({error.smtp_code}); check [email] user and password") from None
    except smtplib.SMTPNotSupportedError as error:
        text = f"{where}: {answered(settings, error)} Check [email] starttls and user."
        raise NotifyError(text) from None
    except smtplib.SMTPServerDisconnected:
        raise NotifyError(f"{where} hung up before it took the message, or was too slow") from None
    except smtplib.SMTPResponseException as error:
        text = f"{where} answers {error.smtp_code} {answered(settings, error.smtp_error)}"
        raise NotifyError(text, permanent=_for_good(error)) from None
    except smtplib.SMTPException as error:
        raise NotifyError(f"{where}: {answered(settings, error)}") from None
    except TimeoutError:
        raise NotifyError(f"{where} did not answer within {settings.timeout_s:g} s") from None
    except (OSError, ValueError) as error:
        raise NotifyError(f"{where} cannot be used: {answered(settings, error)}") from None


def _for_good(error: smtplib.SMTPResponseException) -> bool:
    """5xx to the sender or to the message itself. In the greeting or hello it is the server that is unwell."""
    return error.smtp_code >= 500 and isinstance(error, smtplib.SMTPSenderRefused | smtplib.SMTPDataError)


def _quit(session: smtplib.SMTP) -> None:
    """A server that hangs up after it took the message has taken it."""
    try:
        session.quit()
    except (smtplib.SMTPException, OSError):
        return


def _hang_up(session: smtplib.SMTP) -> None:
    if session.sock is not None:
        try:
            session.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return
