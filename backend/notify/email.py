"""Mail by SMTP: one thread an incident, one stable Message-ID a message."""

from __future__ import annotations

import hashlib
import re
import smtplib
import ssl
from collections.abc import Sequence
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, formataddr, parseaddr

from backend.clock import utc
from backend.notify.base import NotifyError
from backend.notify.outgoing import link, outgoing
from backend.notify.plain import letter
from backend.notify.smtp import answered, signed_in
from backend.settings import Email
from backend.tidings import MessageFacts, Receipt
from detectors.model import Severity
from frontend.mail import render as mail_page
from frontend.mail.figure import figure, words_of

#: Messages that some recipients put off, remembered so that the next try leaves the others alone.
REMEMBERED = 1000
#: address -> what the server said when it refused
Refused = dict[str, str]
#: Headers fold only at the limit of RFC 5322: shorter, an id longer than a line would be cut into encoded words.
MAIL = SMTP.clone(max_line_length=998)


class EmailNotifier:
    """Sends to all recipients of the settings. ``url`` is how people reach this server; empty: mails have no link."""

    kind = "email"

    def __init__(self, settings: Email, url: str, context: ssl.SSLContext | None = None) -> None:
        self._settings = settings
        self._url = url
        self._context = context or ssl.create_default_context()
        self._settled: dict[str, Refused] = {}

    def send(self, message: MessageFacts) -> Receipt:
        """One try. Raises NotifyError: permanent where the server refused the message or everybody for good (5xx).

        Recipients put off (4xx) while others were taken make it fail for now; the next try sends to them alone, as
        long as this process remembers. After a restart everybody gets it again, under the same Message-ID.
        """
        mail = compose(message, self._settings, self._url)
        settled = self._settled.get(message.id, {})
        waiting = [address for address in message.to or self._settings.to if address not in settled]
        with signed_in(self._settings, self._context) as session:
            taken, refused = _hand_over(session, mail, waiting)
        words = {address: f"{code} {answered(self._settings, text)}" for address, (code, text) in refused.items()}
        later = {address for address, (code, _) in refused.items() if code < 500}
        settled = settled | dict.fromkeys(taken, "") | {a: said for a, said in words.items() if a not in later}
        if later:
            self._remember(message.id, settled)
            raise NotifyError(f"put off by the server: {_listed({a: words[a] for a in sorted(later)})}")
        self._settled.pop(message.id, None)
        no = {address: said for address, said in settled.items() if said}
        if len(no) == len(settled):
            raise NotifyError(f"every recipient refused: {_listed(no)}", permanent=True)
        count = len(settled) - len(no)
        return Receipt(f"taken for {count} of {len(settled)} recipients", {"message_id": str(mail["Message-ID"]), **no})

    def _remember(self, message_id: str, settled: Refused) -> None:
        if not any(said == "" for said in settled.values()):
            return  # nobody has it yet: the next try is for everybody
        while len(self._settled) >= REMEMBERED and message_id not in self._settled:
            self._settled.pop(next(iter(self._settled)))
        self._settled[message_id] = settled


def compose(message: MessageFacts, settings: Email, url: str) -> EmailMessage:
    """The mail, the same bytes each time: a resend is a copy that mail clients show once.

    The thread has a made-up root to which every mail refers (RFC 5322, 3.6.4), so their order of arrival is free.
    """
    shown = outgoing(message)
    domain = domain_of(settings.sender)
    picture = figure(shown.curves, shown.moments) if settings.figures else b""
    drawn = f"figure-{_hash(message.id)[:16]}@{domain}" if picture else ""
    page = mail_page.render(letter(shown, link(shown, url)), drawn, words_of(shown.curves, shown.moments))
    began = f"watchkeeper-{message.cluster}-inc-{message.incident}" if message.incident else message.thread
    root = f"<{_token(began)}@{domain}>"
    name, address = parseaddr(settings.sender)
    mail = EmailMessage(policy=MAIL)
    mail["From"] = formataddr((name or "Watchkeeper", address))
    mail["To"] = ", ".join(message.to or settings.to)
    mail["Subject"] = said_plainly(page.subject)
    mail["Date"] = format_datetime(utc(message.at))
    mail["Message-ID"] = f"<{_token(message.id)}@{domain}>"
    mail["In-Reply-To"] = root
    mail["References"] = root
    mail["Auto-Submitted"] = "auto-generated"
    mail["List-Id"] = f"<{_token(message.cluster)}.watchkeeper.{domain}>"
    if shown.severity is Severity.CRITICAL and shown.kind != "closed":
        mail["X-Priority"] = "1 (Highest)"
    mail.set_content(page.text, cte="quoted-printable")
    mail.add_alternative(page.html, subtype="html", cte="quoted-printable")
    if picture:
        _attach(mail, picture, drawn, _hash(message.id))
    mail.set_boundary("=_" + _hash(message.id))
    return mail


def _attach(mail: EmailMessage, picture: bytes, content_id: str, boundary: str) -> None:
    """The picture beside the HTML that shows it (RFC 2387)."""
    page = mail.get_body(("html",))
    assert isinstance(page, EmailMessage)
    page.add_related(picture, "image", "png", cid=f"<{content_id}>", filename="figure.png", disposition="inline")
    page.set_boundary("=_r" + boundary)


def said_plainly(text: str) -> str:
    """A header's text with nothing in it that reads as an encoded word (RFC 2047). The library would decode one, line
    ends included, and older releases of it write them out: the name of a job could then add headers of its own."""
    return text.replace("=?", "= ?")


def domain_of(sender: str) -> str:
    """What stands behind the @ of the sender: the domain of the ids we make up."""
    domain = parseaddr(sender)[1].rpartition("@")[2]
    return domain if re.fullmatch(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*", domain) else "localhost"


def _hand_over(
    session: smtplib.SMTP, mail: EmailMessage, to: Sequence[str]
) -> tuple[list[str], dict[str, tuple[int, bytes]]]:
    """Who has it now, and who was refused. A session cut short by 421 leaves nobody with it."""
    try:
        refused = session.send_message(mail, to_addrs=to)
    except smtplib.SMTPRecipientsRefused as error:
        return [], error.recipients
    return [address for address in to if address not in refused], refused


def _token(text: str) -> str:
    """``text`` where it may stand in an id (RFC 5322 dot-atom), else its readable part and a hash, so that two texts
    never become one."""
    if len(text) <= 120 and re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", text):
        return text
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", text[:80]).strip("-")
    return f"{plain}-{_hash(text)[:12]}".lstrip("-")


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


def _listed(refused: Refused) -> str:
    return "; ".join(f"{address}: {said}" for address, said in refused.items())
