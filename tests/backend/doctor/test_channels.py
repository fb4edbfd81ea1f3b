"""Mail and Slack are tried as far as that sends nothing."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest

from backend.doctor import channels
from backend.doctor.line import Line, State
from backend.settings import Email, Server, Settings, Slack
from tests.services.need import need
from tests.services.smtp import smtp_sink

PASSWORD = "sesame-of-the-mail-server"
HOOK = "https://hooks.slack.com/services/T0AB/B0CD/kEyOfTheHook"


def account(port: int, **more: object) -> Email:
    return Email.model_validate(
        {"host": "127.0.0.1", "port": port, "to": ["oncall@example.com"], "timeout_s": 3, "starttls": False, **more}
    )


def mail(settings: Email | None, context: ssl.SSLContext | None = None) -> Line:
    (line,) = channels.email(settings, context)
    assert PASSWORD not in str(line)
    return line


def slack(webhook: str) -> Line:
    (line,) = channels.slack(Slack.model_validate({"webhook_url": webhook}))
    assert "kEyOfTheHook" not in str(line)
    return line


def test_what_is_not_set_up_is_no_failure() -> None:
    assert mail(None).state is State.OFF
    assert next(channels.slack(None)).state is State.OFF


def test_a_sign_in_is_tried_and_no_mail_is_sent() -> None:
    with smtp_sink(accounts={"watchkeeper": PASSWORD}) as desk:
        line = mail(account(desk.port, user="watchkeeper", password=PASSWORD))
        assert desk.tape.tries == 0 and not desk.mails
    assert line.state is State.WARNING and "signed in as watchkeeper" in line.what  # a warning: it was in clear
    assert "unencrypted" in line.what and "starttls" in line.fix


def test_a_wrong_password_and_a_server_that_is_not_there_are_failed() -> None:
    with smtp_sink(accounts={"watchkeeper": "another"}) as desk:
        assert mail(account(desk.port, user="watchkeeper", password=PASSWORD)).state is State.FAILED
    assert mail(account(1)).state is State.FAILED


def test_tls_that_was_asked_for_and_is_not_there_is_failed() -> None:
    with smtp_sink() as desk:
        assert mail(account(desk.port, starttls=True)).state is State.FAILED


def test_starttls_and_sign_in_are_ok(tmp_path: Path) -> None:
    file = tmp_path / "sink.pem"
    words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    made = [need("openssl", "openssl"), *words.split(), "-keyout", str(file), "-out", str(tmp_path / "sink.crt")]
    subprocess.run(made, check=True, capture_output=True, timeout=60)
    file.write_text(file.read_text() + (tmp_path / "sink.crt").read_text())
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(file)
    trusting = ssl.create_default_context(cafile=str(tmp_path / "sink.crt"))
    with smtp_sink(tls=served, accounts={"watchkeeper": PASSWORD}) as desk:
        settings = account(desk.port, starttls=True, user="watchkeeper", password=PASSWORD)
        assert mail(settings, trusting).state is State.OK
        stranger = mail(settings)
    assert stranger.state is State.FAILED and "certificate" in stranger.what


def test_a_webhook_is_looked_at_and_never_called() -> None:
    line = slack(HOOK)
    assert line.state is State.OK and "nothing was sent" in line.what


@pytest.mark.parametrize(
    "webhook",
    [
        HOOK.replace("https", "http"),
        "https://hooks.example.com/services/T0AB/B0CD/kEyOfTheHook",
        "https://hooks.slack.com/workflows/T0AB/kEyOfTheHook",
        f"{HOOK}/more",
    ],
)
def test_a_webhook_of_another_shape_is_a_warning(webhook: str) -> None:
    line = slack(webhook)
    assert line.state is State.WARNING and "nothing was sent" in line.what


def test_links_that_readers_cannot_follow_are_a_warning() -> None:
    settings = Settings(email=account(25))
    assert next(channels.links(settings)).state is State.WARNING
    reachable = settings.model_copy(update={"server": Server(url="https://watch.example.com")})
    assert next(channels.links(reachable)).state is State.OK
