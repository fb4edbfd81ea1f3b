"""An incident as Markdown, to paste into a ticket or a chat: the same words as its page, in the same order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from frontend.contexts import Incident
from frontend.words import NB, bare

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#])")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\u200b-\u200f\u2028-\u202e\u2066-\u2069]+")


def safe(text: str) -> str:
    """Text of any origin on one line, with nothing in it that Markdown would read as its own."""
    return _SPECIAL.sub(r"\\\1", _UNSAFE.sub(" ", text.replace(NB, " "))).strip()


def code(text: str) -> str:
    """A raw line in back ticks, more of them than it holds in a row."""
    plain = _UNSAFE.sub(" ", text).strip()
    fence = "`" * (max((len(run) for run in re.findall("`+", plain)), default=0) + 1)
    return f"{fence} {plain} {fence}"


def incident_markdown(page: Incident, address: str) -> str:
    """The whole incident. ``address``: its absolute deep link."""
    at = page.frame.as_of
    lines = [f"# {safe(page.answer)}", "", f"{address}  ", f"As of {at:%Y-%m-%d %H:%M:%S} UTC", ""]
    lines += [f"- {safe(label)}: {safe(value)}" for label, value in (("Severity", page.severity.word), *page.facts)]
    for title, rows in _sections(page):
        found = list(rows)
        if found:
            lines += ["", f"## {title}", "", *found]
    return "\n".join(lines) + "\n"


def _sections(page: Incident) -> Iterator[tuple[str, Iterable[str]]]:
    causes = enumerate(page.hypotheses, 1)
    yield "Most likely cause", (f"{n}. {safe(h.name)} (score {h.score}): {safe(h.reason)}" for n, h in causes)
    yield "Decision", _decision(page)
    yield "What it costs", (f"- {safe(one)}" for one in page.cost)
    yield "What we saw", _evidence(page)
    yield "Folded victims", [safe(page.victims)] if page.victims else []
    yield "What changed before", (f"- {safe(b.text)}, {safe(b.when)}{_more(b.note)}" for b in page.before)
    yield "Seen before", [safe(page.alike), *(f"- {safe(s.cause)}, {safe(s.where)} ({s.cosine})" for s in page.similar)]
    yield (
        "Timeline, UTC",
        (f"- {line.when} {line.chip.word}{_by(line.who)}: {safe(line.text)}" for line in page.timeline),
    )


def _decision(page: Incident) -> Iterator[str]:
    panel = page.panel
    if panel is None:
        yield "Nothing is decided yet."
        return
    yield f"{safe(panel.title)}: {safe(panel.sentence)}"
    if panel.blast:
        yield "- Will touch: " + ", ".join(f"{n} {safe(word)}" for n, word in panel.blast)
    for guard in panel.guards:
        mark = {"pass": "holds", "failed": "refuses", "you": "asks"}.get(guard.glyph, "unknown")
        yield f"- Guard {mark}: {safe(bare(guard.text))}{f' ({safe(guard.value)})' if guard.value else ''}"
    for deed in panel.deeds:
        yield f"- {safe(deed.text)}: {deed.chip.word}, {safe(deed.when)}{_more(deed.note)}"
    for advice in panel.advice:
        yield f"- For a person: {safe(advice)}"
    if panel.undo:
        yield f"- {safe(panel.undo)}"


def _evidence(page: Incident) -> Iterator[str]:
    for e in page.evidence:
        raw = f" {code(e.code)}" if e.code else ""
        normal = f", expected {safe(e.expected)}" if e.expected else ""
        yield f"- {safe(e.what)}{raw}: {safe(e.seen)}{normal} ({e.grade}, {safe(e.detector)})"


def _more(note: str) -> str:
    return f" ({safe(bare(note))})" if note else ""


def _by(who: str) -> str:
    return f" by {safe(who)}" if who else ""
