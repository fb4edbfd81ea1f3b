"""A mail of the wrapper signs in where it must, over a proven connection only, and says why it was not sent."""

from __future__ import annotations

import ssl
import time
from pathlib import Path
from typing import Any

import pytest

from backend.wrap.mail import Account, mailer
from backend.wrap.words import WordError, read
from tests.backend.notify.test_email import certificate as certificate  # a fixture
from tests.services.smtp import Desk, smtp_sink

REPORT: dict[str, Any] = {
    "id": "71/0", "ts": 1_770_000_000.0, "exit_code": 1, "class": "cuda_oom", "name": "train", "job": "71",
    "artifacts": [],
}  # fmt: skip


@pytest.fixture
def account(tmp_path: Path) -> Account:
    (tmp_path / "password").write_text("s3cret\n")
    return Account("wrap", str(tmp_path / "password"))


def sent(monkeypatch: pytest.MonkeyPatch, desk: Desk, account: Account, tls: str) -> str:
    monkeypatch.setattr("backend.wrap.mail.person_text", lambda report: "it failed")
    monkeypatch.setattr("backend.wrap.mail.headline", lambda report: "train failed")
    send = mailer(f"127.0.0.1:{desk.port}", "w@example.com", ["a@example.com"], account, tls)
    return send(REPORT, time.monotonic() + 10)


def context(certificate: Path) -> ssl.SSLContext:
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    made.load_cert_chain(certificate)
    return made


def test_it_signs_in_over_a_proven_connection(
    monkeypatch: pytest.MonkeyPatch, certificate: Path, account: Account
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with smtp_sink(accounts={"wrap": "s3cret"}, tls=context(certificate)) as desk:
        assert sent(monkeypatch, desk, account, "proven") == "taken"
        assert len(desk.mails) == 1


def test_a_server_that_nobody_vouches_for_gets_no_password(
    monkeypatch: pytest.MonkeyPatch, certificate: Path, account: Account
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with smtp_sink(accounts={"wrap": "s3cret"}, tls=context(certificate)) as desk:
        with pytest.raises(ssl.SSLError):
            sent(monkeypatch, desk, account, "proven")
        assert desk.mails == []


def test_a_server_without_tls_gets_no_password(monkeypatch: pytest.MonkeyPatch, account: Account) -> None:
    with smtp_sink(accounts={"wrap": "s3cret"}) as desk:
        with pytest.raises(OSError):
            sent(monkeypatch, desk, account, "proven")
        assert desk.mails == []


def test_without_an_account_it_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    with smtp_sink() as desk:
        assert sent(monkeypatch, desk, Account(), "try") == "taken"


@pytest.mark.parametrize(
    "words",
    [
        ["--smtp-user", "w", "--", "true"],
        ["--smtp-user", "w", "--smtp-password-file", "f", "--smtp-tls", "try", "--", "true"],
        ["--smtp-tls", "x", "--", "true"],
    ],
)
def test_a_login_that_would_not_be_safe_is_no_command_line(words: list[str]) -> None:
    with pytest.raises(WordError):
        read(words, {})
    assert read(["--smtp-user", "w", "--smtp-password-file", "f", "--", "true"], {}).smtp_tls == "proven"
