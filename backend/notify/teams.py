"""Microsoft Teams by a workflow's webhook: one Adaptive Card a message; a workflow can neither thread nor edit."""

from __future__ import annotations

import json
from typing import Any

from backend.clock import utc
from backend.notify.blocks import DONE, sign
from backend.notify.http import Endpoint, address_secrets
from backend.notify.outgoing import link, outgoing
from backend.settings import Teams
from backend.tidings import MessageFacts, Receipt

#: Teams refuses messages above 28 kB; this much is kept for headline, link and the card itself.
WHOLE, RESERVE = 28_000, 4_000
#: Longest single text: a headline or reason beyond it is cut, and the card says by how much.
TEXT = 8_000
#: severity -> colour of an Adaptive Card
COLOURS = {"critical": "attention", "high": "attention", "warning": "warning", "info": "default"}


class TeamsNotifier:
    """Posts to the address of the settings, which is a secret: it stands in no error and no log."""

    kind = "teams"

    def __init__(self, settings: Teams, url: str) -> None:
        self._settings = settings
        self._url = url
        self._endpoint = Endpoint("Teams", "[teams] webhook_url", settings.timeout_s, address_secrets(self._webhook))

    def send(self, message: MessageFacts) -> Receipt:
        """One try. A workflow answers 202 before it posts, and can read nothing back. Raises NotifyError."""
        body = json.dumps(payload(message, self._url)).encode()
        answer = self._endpoint.post(self._webhook, body, {"Content-Type": "application/json"})
        return Receipt(self._endpoint.taken(answer))

    @property
    def _webhook(self) -> str:
        return self._settings.webhook_url.get_secret_value()


def payload(message: MessageFacts, url: str) -> dict[str, Any]:
    """The message as Teams takes it, at most WHOLE bytes."""
    card = card_of(outgoing(message), url)
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [attachment]}


def card_of(shown: MessageFacts, url: str) -> dict[str, Any]:
    """Texts are runs, never text blocks: those would be read as Markdown, and a node's name could become a link."""
    page = Page(WHOLE - RESERVE)
    closed = shown.kind == "closed"
    colour = "good" if closed else COLOURS[shown.severity.word]
    page.add([run(f"{sign(shown)}  ", colour, bold=True), run(shown.headline, bold=True, size="large")])
    page.add([run(about(shown), subtle=True)])
    page.add([run(shown.why)] if shown.why else [])
    page.add([run("What to do  ", bold=True), run(shown.advice)] if shown.advice else [], spacing="medium")
    for place, (label, value) in enumerate(shown.facts):
        page.add([run(f"{label}  ", subtle=True), run(value)], spacing="none" if place else "medium")
    page.add([run("What we saw", bold=True)] if shown.evidence else [], spacing="medium")
    for line in shown.evidence:
        page.add([run(f"• {line}")], spacing="small")
    if page.lost:
        page.blocks.append(block([run(f"{page.lost:,} characters more stand in the incident.", subtle=True)]))
    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "msteams": {"width": "Full"},
        "body": page.blocks,
    }
    if to := link(shown, url):
        words = f"Open incident {shown.incident}" if shown.incident else "Open Watchkeeper"
        card["actions"] = [{"type": "Action.OpenUrl", "title": words, "url": to}]
    return card


class Page:
    """Blocks within a number of bytes; what does not fit is counted as lost."""

    def __init__(self, left: int) -> None:
        self.blocks: list[dict[str, Any]] = []
        self.left = left
        self.lost = 0

    def add(self, runs: list[dict[str, Any]], spacing: str = "default") -> None:
        if not runs:
            return
        shown = [self._short(each) for each in runs]
        made = block(shown, spacing)
        size = len(json.dumps(made)) + 2
        if size > self.left:
            self.lost += sum(len(each["text"]) for each in shown)
            return
        self.left -= size
        self.blocks.append(made)

    def _short(self, each: dict[str, Any]) -> dict[str, Any]:
        text = each["text"]
        most = TEXT if len(json.dumps(text)) <= TEXT else TEXT // 6  # beyond ASCII JSON takes six bytes a character
        if len(text) <= most:
            return each
        self.lost += len(text) - most
        return each | {"text": text[:most] + "…"}


def run(text: str, colour: str = "", *, bold: bool = False, subtle: bool = False, size: str = "") -> dict[str, Any]:
    made: dict[str, Any] = {"type": "TextRun", "text": text or " "}
    made |= {"color": colour} if colour else {}
    made |= {"weight": "bolder"} if bold else {}
    made |= {"isSubtle": True} if subtle else {}
    return made | ({"size": size} if size else {})


def block(runs: list[dict[str, Any]], spacing: str = "default") -> dict[str, Any]:
    return {"type": "RichTextBlock", "inlines": runs, "spacing": spacing}


def about(shown: MessageFacts) -> str:
    when = utc(shown.at).strftime("%Y-%m-%d %H:%M:%S UTC")
    made_up = " · simulated: this cluster is made up, no real node is touched" if shown.simulated else ""
    where = f"incident {shown.incident} on {shown.cluster}" if shown.incident else shown.cluster
    return f"{where} · {DONE.get(shown.kind, shown.kind)} {when}{made_up}"
