"""Mail through a real SMTP conversation with a sink on loopback."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from email import message_from_bytes
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.notify.base import NotifyError
from backend.notify.email import EmailNotifier, compose
from backend.settings import Email
from detectors.model import Severity
from tests.backend.notify.story import CHANGED, CLOSED, OPENED, THREAD, hostile
from tests.contracts.notifier import TIMEOUT_S, NotifierContract, Wire
from tests.services.need import need
from tests.services.sinks import Mode
from tests.services.smtp import Desk, part, smtp_sink

URL = "https://watchkeeper.example.com"
PASSWORD = "sesame-of-the-mail-server"


def account(port: int, **more: object) -> Email:
    return Email.model_validate(
        {
            "host": "127.0.0.1",
            "port": port,
            "starttls": False,
            "from": "Watchkeeper <watchkeeper@hpc.example.com>",
            "to": ["oncall@example.com", "lead@example.com"],
            "timeout_s": TIMEOUT_S,
            **more,
        }
    )


class MailWire(Wire):
    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.tape = desk.tape
        self.settings = account(desk.port, user="watchkeeper", password=PASSWORD)
        self.notifier = EmailNotifier(self.settings, URL)
        self.secrets = (PASSWORD,)

    def read(self, row: int) -> str:
        return part(self.desk.mails[row], "plain")

    def same(self, first: int, second: int) -> bool:
        one, other = self.tape.rows[first]["raw"], self.tape.rows[second]["raw"]
        ids = [self.desk.mails[row]["Message-ID"] for row in (first, second)]
        assert (one == other) is (ids[0] == ids[1])
        return bool(ids[0] == ids[1])

    def nobody_there(self) -> EmailNotifier:
        return EmailNotifier(self.settings.model_copy(update={"port": 1}), URL)


@pytest.fixture
def wire() -> Iterator[Wire]:
    with smtp_sink(accounts={"watchkeeper": PASSWORD}) as desk:
        yield MailWire(desk)


class TestEmailKeepsTheContract(NotifierContract):
    """Mail is a notifier."""


@pytest.fixture
def desk() -> Iterator[Desk]:
    with smtp_sink() as running:
        yield running


def test_all_mails_of_an_incident_refer_to_one_root(desk: Desk) -> None:
    notifier = EmailNotifier(account(desk.port), URL)
    for message in THREAD:
        notifier.send(message)
    root = "<watchkeeper-main-inc-812@hpc.example.com>"
    assert [(m["References"], m["In-Reply-To"]) for m in desk.mails] == [(root, root)] * 3
    assert len({m["Message-ID"] for m in desk.mails}) == 3
    assert desk.mails[0]["Message-ID"] == "<main-inc-812-opened-0@hpc.example.com>"


def test_subjects_differ_by_a_prefix_only(desk: Desk) -> None:
    notifier = EmailNotifier(account(desk.port), URL)
    for message in THREAD:
        notifier.send(message)
    opened, changed, closed = (str(m["Subject"]) for m in desk.mails)
    assert changed == closed == f"Re: {opened}"
    assert opened.startswith("[main 812] GPU 3 of gpu-0412 is lost")


def test_headers_say_that_a_machine_writes_and_how_urgent_it_is(desk: Desk) -> None:
    notifier = EmailNotifier(account(desk.port), URL)
    for message in (OPENED, CLOSED, replace(OPENED, severity=Severity.HIGH)):
        notifier.send(message)
    assert {m["Auto-Submitted"] for m in desk.mails} == {"auto-generated"}
    assert {m["List-Id"] for m in desk.mails} == {"<main.watchkeeper.hpc.example.com>"}
    assert [m["X-Priority"] for m in desk.mails] == ["1 (Highest)", None, None]
    assert desk.tape.rows[0]["to"] == ["oncall@example.com", "lead@example.com"]
    assert desk.mails[0]["Date"].datetime.timestamp() == OPENED.at


def test_a_mail_has_text_and_html_of_the_same_message(desk: Desk) -> None:
    EmailNotifier(account(desk.port), URL).send(CHANGED)
    mail = desk.mails[0]
    assert mail.get_content_type() == "multipart/alternative"
    for kind in ("plain", "html"):
        assert "gpu-0412 is drained. Job 48213 runs again" in part(mail, kind)
    assert max(len(line) for line in desk.tape.rows[0]["raw"].splitlines()) <= 998


def test_a_header_cannot_be_smuggled_in(desk: Desk) -> None:
    evil = "x\r\nBcc: everybody@example.com\r\n\r\n<html>"
    message = replace(hostile(evil), cluster=evil, id=evil, thread=evil)
    EmailNotifier(account(desk.port), URL).send(message)
    mail = desk.mails[0]
    assert mail["Bcc"] is None and "everybody@example.com" in mail["Subject"]
    assert [part.get_content_subtype() for part in mail.walk()] == ["alternative", "plain", "html"]
    assert desk.tape.rows[0]["to"] == ["oncall@example.com", "lead@example.com"]


@pytest.mark.parametrize("evil", ["=?utf-8?q?=0d=0aBcc:_everybody?=", "==??=?utf-8?b?DQpCY2M6IHg=?=", "=?x?q?a?="])
def test_an_encoded_word_stays_what_it_is(evil: str) -> None:
    """A run's name is its user's to choose; decoded, this one would be a header of its own."""
    raw = bytes(compose(replace(OPENED, subject=evil), account(25), URL))
    assert message_from_bytes(raw).get_all("Bcc") is None
    assert message_from_bytes(raw)["Subject"].replace("= ?", "=?").endswith(evil)


def test_ids_that_are_no_ids_still_differ() -> None:
    ids = {
        compose(replace(OPENED, id=text), account(25), URL)["Message-ID"] for text in ("a b", "a\nb", "ä", "a..b", "")
    }
    assert len(ids) == 5
    assert all(" " not in i and i.isascii() for i in ids)


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=200), st.text(max_size=40))
def test_any_text_composes_to_a_mail_that_reads_back(text: str, name: str) -> None:
    made = compose(replace(hostile(text), id=text, cluster=name), account(25), URL)
    back = message_from_bytes(made.as_bytes(), policy=made.policy)
    assert sorted(back.keys()) == sorted(made.keys())
    assert "\n" not in back["Subject"] and back["References"].startswith("<watchkeeper-")


def test_one_refused_recipient_stands_in_the_receipt(desk: Desk) -> None:
    desk.post.refused = {"lead@example.com": "550 5.1.1 has left"}
    receipt = EmailNotifier(account(desk.port), URL).send(OPENED)
    assert "1 of 2" in receipt.text
    assert "has left" in receipt.attrs["lead@example.com"]


def test_a_recipient_put_off_is_tried_again_alone(desk: Desk) -> None:
    notifier = EmailNotifier(account(desk.port), URL)
    desk.post.refused = {"lead@example.com": "451 greylisted"}
    with pytest.raises(NotifyError, match=r"lead@example\.com: 451 greylisted") as raised:
        notifier.send(OPENED)
    assert not raised.value.permanent
    desk.post.refused = {}
    assert "2 of 2" in notifier.send(OPENED).text
    assert [row["to"] for row in desk.tape.rows] == [["oncall@example.com"], ["lead@example.com"]]


def test_a_recipient_put_off_and_then_refused_for_good_ends_the_tries(desk: Desk) -> None:
    notifier = EmailNotifier(account(desk.port), URL)
    desk.post.refused = {"lead@example.com": "451 greylisted"}
    with pytest.raises(NotifyError):
        notifier.send(OPENED)
    desk.post.refused = {"lead@example.com": "550 has left"}
    assert "1 of 2" in notifier.send(OPENED).text


def test_a_failure_in_between_does_not_forget_who_has_it(desk: Desk) -> None:
    notifier = EmailNotifier(account(desk.port), URL)
    desk.post.refused = {"lead@example.com": "451 greylisted"}
    with pytest.raises(NotifyError):
        notifier.send(OPENED)
    desk.tape.mode = Mode.BROKEN
    with pytest.raises(NotifyError):
        notifier.send(OPENED)
    desk.tape.mode, desk.post.refused = Mode.TAKE, {}
    notifier.send(OPENED)
    assert [row["to"] for row in desk.tape.rows] == [["oncall@example.com"], ["lead@example.com"]]


def test_a_server_that_hangs_up_after_it_took_the_mail_gets_it_again_under_the_same_id(desk: Desk) -> None:
    notifier = EmailNotifier(account(desk.port), URL)
    desk.tape.mode = Mode.DROP_AFTER
    with pytest.raises(NotifyError) as raised:
        notifier.send(OPENED)
    assert not raised.value.permanent
    desk.tape.mode = Mode.TAKE
    notifier.send(OPENED)
    assert [m["Message-ID"] for m in desk.mails] == ["<main-inc-812-opened-0@hpc.example.com>"] * 2


def test_a_wrong_password_waits_for_a_person() -> None:
    with smtp_sink(accounts={"watchkeeper": "another"}) as desk, pytest.raises(NotifyError) as raised:
        EmailNotifier(account(desk.port, user="watchkeeper", password=PASSWORD), URL).send(OPENED)
    assert "[email] user and password" in str(raised.value)
    assert not raised.value.permanent


def test_nothing_is_sent_in_clear_where_tls_was_asked_for(desk: Desk) -> None:
    with pytest.raises(NotifyError, match="starttls") as raised:
        EmailNotifier(account(desk.port, starttls=True), URL).send(OPENED)
    assert not raised.value.permanent and not desk.tape.rows


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key and certificate of 127.0.0.1 in one file."""
    file = tmp_path_factory.mktemp("tls") / "sink.pem"
    words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    made = [need("openssl", "openssl"), *words.split(), "-keyout", str(file), "-out", str(file.with_suffix(".crt"))]
    subprocess.run(made, check=True, capture_output=True, timeout=60)
    file.write_text(file.read_text() + file.with_suffix(".crt").read_text())
    return file


def test_starttls_comes_before_anything_else(certificate: Path) -> None:
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(certificate)
    trusting = ssl.create_default_context(cafile=str(certificate.with_suffix(".crt")))
    with smtp_sink(tls=served, accounts={"watchkeeper": PASSWORD}) as desk:
        settings = account(desk.port, starttls=True, user="watchkeeper", password=PASSWORD)
        EmailNotifier(settings, URL, trusting).send(OPENED)
        assert len(desk.mails) == 1
        with pytest.raises(NotifyError, match="certificate") as raised:
            EmailNotifier(settings, URL).send(OPENED)
        assert not raised.value.permanent


def test_without_a_server_url_there_is_no_dead_link(desk: Desk) -> None:
    EmailNotifier(account(desk.port), "").send(OPENED)
    EmailNotifier(account(desk.port), "").send(replace(OPENED, url="javascript:alert(1)"))
    assert all("href" not in part(mail, "html") for mail in desk.mails)


def test_a_message_may_name_its_readers_itself() -> None:
    settings = Email.model_validate({"host": "smtp", "from": "watch@example.org", "to": ["on-call@example.org"]})
    mail = compose(replace(OPENED, to=("jana@example.org",)), settings, "")
    assert mail["To"] == "jana@example.org"
