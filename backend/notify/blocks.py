"""An incident as Slack blocks, within Slack's limits: split where it can be, and where it is cut, said by how much."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from backend.clock import utc
from backend.tidings import ALONE, MessageFacts

Block = dict[str, Any]

#: Slack's limits: characters of a section, of a field, of a header; fields a section. (50 blocks are never reached.)
SECTION, FIELD, HEADER, FIELDS = 3000, 2000, 150, 10
#: All texts together: beyond about 13,200 Slack answers msg_blocks_too_long, which it does not document.
WHOLE = 12_000
#: Kept free of that for headline, link and context.
RESERVE = 1_000
#: Characters of the tokens for text channels.
GLYPHS = {"critical": "◆", "high": "▲", "warning": "△", "info": "○"}
#: Where the link of a message without an incident leads.
OPENS = {"report": "Open the report", "digest": "Open the list", "lost": "Open System", "owner": "Open the run"}
#: What a message of another kind than an incident's own is, before the headline.
SIGNS = {"closed": "✓ closed", "owner": "your job", "digest": "digest", "silenced": "silenced", "test": "TEST"}
#: What happened, where the kind alone does not say it.
DONE = {"proposal": "a plan waits,", "owner": "verdict", "lost": "told", "test": "sent", "escalated": "nobody has it,"}
#: Characters of a button and of what it asks back; Slack takes 75 and 300.
ASKS = 300
#: What mrkdwn would read as formatting or emoji; an underscore between letters is safe, and so are 02:52:08 and such.
_FORMATTING = re.compile(r"[*~`]|(?<!\w)_|_(?!\w)|:(?!\d\d:)\S+:")


def blocks(message: MessageFacts, url: str) -> list[Block]:
    """Headline, what it is about, why, facts, evidence, what to do, link. ``message`` is fit to leave (outgoing.py).

    Where not all fits, what to do and the facts go before the long reasons, and a line says how much is missing.
    """
    budget = Budget(WHOLE - RESERVE)
    title = message.headline if message.kind == "report" else f"{sign(message)}: {message.headline}"
    whole = _plain(message.headline, budget) if size(title) > HEADER else []
    advice = _plain(message.advice, budget)
    facts, why = _fields(message.facts, budget), _plain(message.why, budget, 2 * WHOLE)
    evidence = _plain_lines(message.evidence, budget)
    shown = [_header(_short(title, HEADER)), *whole, _context(_about(message)), *why, *facts]
    shown += [_bold("What cost most" if message.kind == "report" else "What we saw"), *evidence] if evidence else []
    shown += [_bold("What to do"), *advice] if advice else []
    if budget.lost:
        shown.append(_context(f"{budget.lost:,} characters more stand in the incident."))
    if url:
        to = f"Open incident {message.incident}" if message.incident else OPENS.get(message.kind, "Open Watchkeeper")
        shown.append(_section({"type": "mrkdwn", "text": f"<{escaped(url)}|{to}>"}))
    return shown


def fallback(message: MessageFacts) -> str:
    """One line for notifications, search and screen readers."""
    made_up = "simulated · " if message.simulated else ""
    if message.kind == "report":
        return escaped(f"{made_up}{_short(message.headline, 300)} (weekly report of {_short(message.cluster, 80)})")
    where = f"incident {message.incident} on {_short(message.cluster, 80)}" if message.incident else message.cluster
    return escaped(f"{made_up}{sign(message)}: {_short(message.headline, 300)} ({where})")


def escaped(text: str) -> str:
    """The three characters that Slack reads as control: with them escaped nobody is mentioned and nothing is linked."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def size(text: str) -> int:
    """Characters as Slack may count them: UTF-16 units, after escaping."""
    return len(escaped(text).encode("utf-16-le", "replace")) // 2


class Budget:
    """How much text a message still takes, and how much did not fit."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.lost = 0

    def take(self, text: str, most: int = SECTION) -> str:
        """As much of ``text`` as still fits, ``most`` units at most; the rest is counted as lost."""
        head = _head(text, min(most, self.left))
        self.left -= size(head)
        self.lost += len(text) - len(head)
        return head


def pieces(text: str, limit: int) -> Iterator[str]:
    """``text`` in parts of at most ``limit`` units, parted at spaces where there are any; joined they are the text."""
    while text:
        head = _head(text, limit)
        if len(head) < len(text) and (space := head.rfind(" ")) > 0:
            head = head[: space + 1]
        yield head
        text = text[len(head) :]


def _head(text: str, limit: int) -> str:
    """The longest beginning of at most ``limit`` units."""
    if size(text) <= limit:
        return text
    low, high = 0, min(len(text), max(0, limit))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if size(text[:middle]) <= limit else (low, middle - 1)
    return text[:low]


def buttons(message: MessageFacts) -> list[Block]:
    """Acknowledge while nobody has it, Approve and Reject while a plan waits; none for what is over or no incident."""
    if message.kind in ("closed", *ALONE) or message.state == "resolved" or not message.incident:
        return []
    pressed: list[Block] = []
    if message.state == "open":
        pressed.append(_button("acknowledge", "Acknowledge", f"{message.cluster}/{message.incident}"))
    if message.decision:
        which = f"{message.cluster}/{message.decision}"
        asks = _short(f"{message.advice} Guards run again when you press.", ASKS)
        pressed.append(_button("approve", "Approve", which, asks, style="primary"))
        pressed.append(_button("reject", "Reject", which, "The plan will not be carried out.", style="danger"))
    return [{"type": "actions", "block_id": "watchkeeper", "elements": pressed}] if pressed else []


def _button(verb: str, words: str, value: str, asks: str = "", style: str = "") -> Block:
    plain = {"type": "plain_text", "text": words, "emoji": False}
    made: Block = {"type": "button", "action_id": f"watchkeeper_{verb}", "text": plain, "value": value}
    if asks:
        made["confirm"] = {
            "title": {"type": "plain_text", "text": f"{words} this plan?", "emoji": False},
            "text": {"type": "plain_text", "text": asks, "emoji": False},
            "confirm": plain,
            "deny": {"type": "plain_text", "text": "Cancel", "emoji": False},
        }
    return made | ({"style": style} if style else {})


def sign(message: MessageFacts) -> str:
    """Glyph and word before a headline: the severity while it lasts, else what the message is."""
    return SIGNS.get(message.kind) or f"{GLYPHS[message.severity.word]} {message.severity.word}"


def _header(text: str) -> Block:
    return {"type": "header", "text": {"type": "plain_text", "text": escaped(text), "emoji": False}}


def _about(message: MessageFacts) -> str:
    was = f"was {message.severity.word} · " if message.kind == "closed" else ""
    when = utc(message.at).strftime("%Y-%m-%d %H:%M:%S UTC")
    made_up = " · simulated: this cluster is made up, no real node is touched" if message.simulated else ""
    cluster = _short(message.cluster, 80)
    if message.kind == "report":
        return f"weekly report of {cluster} · {when}{made_up}"
    where = f"incident {message.incident} on {cluster}" if message.incident else cluster
    return f"{was}{where} · {DONE.get(message.kind, message.kind)} {when}{made_up}"


def _plain(text: str, budget: Budget, most: int = SECTION) -> list[Block]:
    """Text as it is: no formatting, no mentions, no emoji out of ``0000:9b:00``."""
    return [
        _section({"type": "plain_text", "text": escaped(part), "emoji": False})
        for part in pieces(budget.take(text, most), SECTION)
    ]


def _plain_lines(lines: Iterable[str], budget: Budget) -> list[Block]:
    """Lines with a bullet, as many in one block as it holds."""
    groups: list[str] = []
    for line in lines:
        shown = f"• {line}"
        if groups and size(groups[-1]) + 1 + size(shown) <= SECTION:
            groups[-1] += "\n" + shown
        else:
            groups.append(shown)
    return [block for group in groups for block in _plain(group, budget)]


def _fields(facts: Iterable[tuple[str, str]], budget: Budget) -> list[Block]:
    """Label over value, two beside each other; a value longer than a field has blocks of its own."""
    shown: list[Block] = []
    fields: list[Block] = []
    for label, value in facts:
        if size(label) + size(value) + 3 > FIELD:
            shown += [*_grouped(fields), *_plain(f"{label}: {value}", budget)]
            fields = []
        elif (text := budget.take(f"{label}\n{value}")).strip():
            fields.append(_field(*text.split("\n", 1)))
    return shown + _grouped(fields)


def _field(label: str, value: str = "") -> Block:
    if not label or _FORMATTING.search(label + " " + value):
        return {"type": "plain_text", "text": f"{escaped(label)}\n{escaped(value)}", "emoji": False}
    return {"type": "mrkdwn", "text": f"*{escaped(label)}*\n{escaped(value)}", "verbatim": True}


def _grouped(fields: list[Block]) -> list[Block]:
    return [{"type": "section", "fields": fields[i : i + FIELDS]} for i in range(0, len(fields), FIELDS)]


def _bold(words: str) -> Block:
    return _section({"type": "mrkdwn", "text": f"*{words}*"})


def _section(text: Block) -> Block:
    return {"type": "section", "text": text}


def _context(text: str) -> Block:
    return {"type": "context", "elements": [{"type": "plain_text", "text": escaped(text), "emoji": False}]}


def _short(text: str, limit: int) -> str:
    """For lines whose whole text stands elsewhere in the message."""
    return text if size(text) <= limit else _head(text, limit - 1) + "…"
