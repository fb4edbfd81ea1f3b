"""A mail sink on loopback that keeps every raw message, and can refuse, stall or hang up; also a program by itself."""

from __future__ import annotations

import asyncio
import email
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.message import EmailMessage
from email.policy import default
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, Session

from tests.services.sinks import Mode, Tape, run


class Post:
    """Answers as the mode says. ``refused`` are recipients with an answer of their own, ``bob@x -> 550 no``."""

    def __init__(self, tape: Tape, *, closed: bool) -> None:
        self.tape = tape
        self.closed = closed
        self.refused: Mapping[str, str] = {}

    async def handle_MAIL(self, server: SMTP, session: Session, envelope: Envelope, address: str, options: Any) -> str:
        mode = self.tape.tried()
        if mode is Mode.SLOW:
            await asyncio.sleep(self.tape.slow_s)
        if mode is Mode.DRIP:
            await _drip(server)
        if mode is Mode.BROKEN:
            return "451 4.3.0 local error"
        if self.closed and not session.authenticated:
            return "530 5.7.0 sign in first"
        envelope.mail_from = address
        return "250 ok"

    async def handle_RCPT(self, server: SMTP, session: Session, envelope: Envelope, address: str, options: Any) -> str:
        mode = self.tape.mode
        if mode is Mode.REFUSE:
            return "550 5.1.1 no such user"
        if mode in (Mode.PUT_OFF, Mode.LIMIT):
            return "451 4.7.1 greylisted, come again"
        if address in self.refused:
            return self.refused[address]
        envelope.rcpt_tos.append(address)
        return "250 ok"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        mode = self.tape.mode
        if mode is Mode.DROP_BEFORE:
            _hang_up(server)
            return "421 closing"
        raw = envelope.content if isinstance(envelope.content, bytes) else b""
        self.tape.keep(
            {"from": envelope.mail_from, "to": list(envelope.rcpt_tos), "raw": raw.decode("utf-8", "replace")}
        )
        if mode is Mode.DROP_AFTER:
            _hang_up(server)
        return "250 kept"


class Desk:
    """A running mail sink."""

    def __init__(self, port: int, tape: Tape, post: Post) -> None:
        self.port = port
        self.tape = tape
        self.post = post

    @property
    def mails(self) -> list[EmailMessage]:
        """What was taken, parsed."""
        return [parsed(row["raw"]) for row in self.tape.rows]


def parsed(raw: str) -> EmailMessage:
    return email.message_from_bytes(raw.encode(), policy=default)


def part(mail: EmailMessage, subtype: str) -> str:
    """The text of ``plain`` or ``html`` as a mail client decodes it."""
    body = mail.get_body((subtype,))
    assert isinstance(body, EmailMessage)
    return str(body.get_content())


@contextmanager
def smtp_sink(
    port: int = 0,
    tape: Tape | None = None,
    accounts: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> Iterator[Desk]:
    """A sink in a thread; with ``accounts`` (user -> password) it takes mail after a sign-in only, with ``tls`` it
    offers STARTTLS and takes nothing before it."""
    tape = tape or Tape()
    post = Post(tape, closed=accounts is not None)

    def connection() -> SMTP:
        return SMTP(
            post,
            hostname="sink",
            loop=loop,
            tls_context=tls,
            require_starttls=tls is not None,
            auth_require_tls=False,
            authenticator=_doorman(accounts or {}),
        )

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(loop.create_server(connection, "127.0.0.1", port))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield Desk(server.sockets[0].getsockname()[1], tape, post)
    finally:
        asyncio.run_coroutine_threadsafe(_close(server), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _close(server: asyncio.AbstractServer) -> None:
    server.close()
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.sleep(0)


def _doorman(accounts: Mapping[str, str]) -> Any:
    def check(_server: SMTP, _session: Session, _envelope: Envelope, _mechanism: str, login: Any) -> AuthResult:
        name, password = login.login.decode(), login.password.decode()
        return AuthResult(success=accounts.get(name) == password, handled=False)

    return check


def _hang_up(server: SMTP) -> None:
    assert isinstance(server.transport, asyncio.WriteTransport)
    server.transport.abort()


async def _drip(server: SMTP) -> None:
    """One byte of a never ending answer every 0.1 s: no single read of the client ever times out."""
    assert isinstance(server.transport, asyncio.WriteTransport)
    while not server.transport.is_closing():
        server.transport.write(b"2")
        await asyncio.sleep(0.1)


@contextmanager
def _port_of(port: int, tape: Tape) -> Iterator[int]:
    with smtp_sink(port, tape) as desk:
        yield desk.port


if __name__ == "__main__":
    run("tests.services.smtp", _port_of)
