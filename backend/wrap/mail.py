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


def mailer(server: str, sender: str, to: Sequence[str]) -> Send:
    """``server``: HOST:PORT, by default port 25. No account: what runs on compute nodes holds no password."""
    host, _, number = server.rpartition(":") if server.count(":") == 1 else (server, "", "25")

    def send(report: dict[str, Any], until: float) -> str:
        if not number.isdigit():
            return f"{server} is no HOST:PORT"
        mail = compose(report, sender or f"watchkeeper@{socket.getfqdn()}", to)
        with smtplib.SMTP(host.strip("[]"), int(number), timeout=max(0.05, until - time.monotonic())) as session:
            session.ehlo()
            if session.has_extn("starttls"):  # who listens on the way learns nothing; whom we talk to is not proven
                context = ssl.create_default_context()
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                session.starttls(context=context)
                session.ehlo()
            refused = session.send_message(mail, to_addrs=list(to))
        return f"taken, but not for {', '.join(refused)}" if refused else "taken"

    return send


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
