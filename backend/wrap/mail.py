"""The report as a mail that a person reads, with the artifacts behind it."""

from __future__ import annotations

import os
import smtplib
import socket
import ssl
import time
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from typing import Any, Callable, Dict, Sequence

from backend.wrap.report import headline, person_text

Send = Callable[[Dict[str, Any], float], str]


class Account:
    """Who signs in, and the file that holds the password; read when it is needed, and kept nowhere."""

    def __init__(self, user: str = "", password_file: str = "") -> None:
        self.user, self.password_file = user, password_file

    def sign_in(self, session: smtplib.SMTP) -> None:
        """Never over a connection that is not proven. Raises OSError, SMTPException."""
        if self.user:
            with open(self.password_file, encoding="utf-8") as file:
                session.login(self.user, file.read().strip())


def mailer(server: str, sender: str, to: Sequence[str], account: Account, tls: str = "try") -> Send:
    """``server``: HOST:PORT, by default port 25, or 465 with ``tls``. ``tls``: "tls" from the first byte, "proven" by
    STARTTLS, both to a server whose certificate is one of this host's authorities (SSL_CERT_FILE names others); "try":
    STARTTLS where it is offered, whom we talk to unproven."""
    host, _, number = (
        server.rpartition(":") if server.count(":") == 1 else (server, "", "465" if tls == "tls" else "25")
    )

    def send(report: dict[str, Any], until: float) -> str:
        if not number.isdigit():
            return f"{server} is no HOST:PORT"
        mail = compose(report, sender or f"watchkeeper@{socket.getfqdn()}", to)
        with _session(host.strip("[]"), int(number), tls, max(0.05, until - time.monotonic())) as session:
            account.sign_in(session)
            refused = session.send_message(mail, to_addrs=list(to))
        return f"taken, but not for {', '.join(refused)}" if refused else "taken"

    return send


def _session(host: str, port: int, tls: str, timeout_s: float) -> smtplib.SMTP:
    """Raises OSError, SMTPException: also where a proven connection is asked for and not to be had."""
    context = ssl.create_default_context()
    if tls == "tls":
        return smtplib.SMTP_SSL(host, port, timeout=timeout_s, context=context)
    session = smtplib.SMTP(host, port, timeout=timeout_s)
    try:
        session.ehlo()
        if tls == "try":  # who listens on the way learns nothing
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if tls == "proven" or session.has_extn("starttls"):
            session.starttls(context=context)
            session.ehlo()
    except (OSError, smtplib.SMTPException):
        session.close()
        raise
    return session


def compose(report: dict[str, Any], sender: str, to: Sequence[str]) -> EmailMessage:
    """Plain text; a header holds nothing that ends a line or reads as an encoded word."""
    mail = EmailMessage(policy=SMTP.clone(max_line_length=998))
    mail["From"] = _header(sender)
    mail["To"] = ", ".join(_header(one) for one in to)
    mail["Subject"] = _header(f"[watchkeeper] {headline(report)}")[:300]
    mail["Date"] = formatdate(report["ts"])
    mail["Message-ID"] = f"<watchkeeper-wrap-{abs(hash(report['id'])):x}-{report['ts']:.0f}@{_domain(sender)}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(_text(person_text(report)), cte="quoted-printable")
    for one in report["artifacts"]:
        name = os.path.basename(one["path"]) or "artifact"
        mail.add_attachment(_text(one["text"]), filename=_header(name), cte="quoted-printable")
    return mail


def _text(text: str) -> str:
    """What every mail reader takes."""
    return (
        "".join(c if c.isprintable() or c in "\n\t" else " " for c in text).encode("utf-8", "replace").decode("utf-8")
    )


def _header(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text).replace("=?", "= ?").strip()


def _domain(sender: str) -> str:
    domain = sender.rpartition("@")[2].strip("> ")
    return domain if domain and all(c.isalnum() or c in ".-" for c in domain) and domain.isascii() else "localhost"
