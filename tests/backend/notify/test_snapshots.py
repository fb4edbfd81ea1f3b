"""Every kind of message as its readers get it, kept as reviewed files: `python -m tests.backend.notify.test_snapshots`
writes them anew, and --pictures DIR takes pictures of the mails in Chromium."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from backend.notify.email import compose
from backend.notify.pagerduty import event_of
from backend.notify.slack import payload
from backend.notify.teams import payload as card
from backend.settings import Email
from tests.backend.notify.kinds import KINDS
from tests.services.slack_sink import as_read
from tests.services.smtp import part

URL = "https://watchkeeper.example.com"
MAIL = Email.model_validate({"host": "smtp", "from": "watch@example.org", "to": ["on-call@example.org"]})
SNAPSHOTS = Path(__file__).parent / "snapshots"


def shown(kind: str) -> str:
    """One message on every channel, as text."""
    message = KINDS[kind]
    mail = compose(message, MAIL, URL)
    teams = [
        "".join(run["text"] for run in block["inlines"])
        for block in card(message, URL)["attachments"][0]["content"]["body"]
    ]
    slack = payload(message, URL, pressable=True)
    pressed = [e["text"]["text"] for b in slack["blocks"] if b["type"] == "actions" for e in b["elements"]]
    event = event_of(message, "KEY", URL)
    return "\n".join([
        f"=== mail: {mail['Subject']}", part(mail, "plain"),
        f"=== slack: {slack['text']}", as_read(slack), f"buttons: {pressed}", "",
        "=== teams", *teams, "",
        f"=== pagerduty: {event['event_action']} {event['payload']['severity']}: {event['payload']['summary']}",
        json.dumps(event["payload"]["custom_details"], indent=1, ensure_ascii=False), "",
    ])  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_reads_as_it_was_reviewed(kind: str) -> None:
    assert shown(kind) == (SNAPSHOTS / f"{kind}.txt").read_text(encoding="utf-8")


def test_a_mail_with_a_figure_carries_it_inside_and_is_the_same_bytes_each_time() -> None:
    first, again = (compose(KINDS["opened"], MAIL, URL).as_bytes() for _ in range(2))
    assert first == again
    mail = compose(KINDS["opened"], MAIL, URL)
    pictures = [each for each in mail.walk() if each.get_content_type() == "image/png"]
    assert len(pictures) == 1
    assert f"cid:{pictures[0]['Content-ID'].strip('<>')}" in part(mail, "html")
    assert "Xid 79" in part(mail, "html")
    plain = compose(KINDS["opened"], MAIL.model_copy(update={"figures": False}), URL)
    assert [each.get_content_type() for each in plain.walk()] == ["multipart/alternative", "text/plain", "text/html"]


def pictures(folder: Path) -> None:
    """Each mail at 390 and 700 px, light and dark."""
    from tests.browser.pictures import chromium

    folder.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        for kind, message in KINDS.items():
            mail = compose(message, MAIL, URL)
            html = part(mail, "html")
            for each in mail.walk():
                if each.get_content_type() == "image/png":
                    raw = str(each.get_payload()).replace("\n", "")
                    html = html.replace(f"cid:{each['Content-ID'].strip('<>')}", f"data:image/png;base64,{raw}")
            for width in (390, 700):
                for theme in ("light", "dark"):
                    page = browser.new_page(viewport={"width": width, "height": 600}, color_scheme=theme)
                    page.set_content(html)
                    assert page.evaluate("document.documentElement.scrollWidth") <= width, kind
                    page.screenshot(path=folder / f"{kind}-{width}-{theme}.png", full_page=True)
                    page.close()


if __name__ == "__main__":
    if "--pictures" in sys.argv:
        pictures(Path(sys.argv[-1]))
    else:
        SNAPSHOTS.mkdir(exist_ok=True)
        for name in KINDS:
            (SNAPSHOTS / f"{name}.txt").write_text(shown(name), encoding="utf-8")
