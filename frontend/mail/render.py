"""One message about one incident as a mail: subject, plain text and HTML, from plain arguments."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

Kind = Literal[
    "opened", "changed", "escalated", "proposal", "closed", "owner", "digest", "silenced", "lost", "report", "test"
]
#: (name, unit, ((unix s, value), ...)): a line of the figure
Curve = tuple[str, str, tuple[tuple[float, float], ...]]
#: name of a design token -> (light, dark), as ``#rrggbb``
Palette = Mapping[str, tuple[str, str]]

FOLDER = Path(__file__).parent
#: What a subject shows of a headline; the body holds it whole. Lists cut between 60 and 120 characters.
SUBJECT_CHARS = 120
#: Longer labels are not waited for: in plain text their values just start later.
LABEL_CHARS = 24
#: severity -> (character of ``tokens.css``, token that carries its hue)
SIGNS: Mapping[str, tuple[str, str]] = {
    "critical": ("◆", "failed"),
    "high": ("▲", "suspect"),
    "warning": ("△", "suspect"),
    "info": ("○", "ok"),
}
CLOSED = ("✓", "ok")
#: kind -> the word beside the glyph, where it is not the severity.
STATES: Mapping[str, str] = {
    "closed": "closed",
    "report": "weekly report",
    "owner": "verdict on your job",
    "digest": "digest",
    "silenced": "silenced",
    "test": "test",
}
#: kind -> what happened to the incident then, where the kind is not the word for it.
HAPPENED: Mapping[str, str] = {
    "proposal": "a plan waits since",
    "escalated": "nobody took it up by",
    "lost": "since",
    "silenced": "held back since",
    **dict.fromkeys(("report", "owner", "digest", "test"), ""),
}
OPENS: Mapping[str, str] = {
    "report": "Open the report",
    "digest": "Open the list",
    "lost": "Open System",
    "owner": "Open the run",
}
SEEN: Mapping[str, str] = {"report": "What cost most", "digest": "What happened", "silenced": "What is held back"}
ADDRESSED = "Watchkeeper writes to this address because it stands in its configuration."
OWNED = "Watchkeeper writes once for each job of yours that died."


@dataclass(frozen=True, slots=True)
class Letter:
    """All that a mail says. ``at`` is unix s; ``url`` is absolute or empty; ``facts`` are label/value pairs.

    ``severity`` is info, warning, high or critical. ``subject`` is the same in all mails of an incident; empty takes
    the headline.
    """

    kind: Kind
    cluster: str
    incident: int
    severity: str
    headline: str
    why: str
    facts: tuple[tuple[str, str], ...]
    evidence: tuple[str, ...]
    advice: str
    url: str
    at: float
    simulated: bool = False
    subject: str = ""
    moments: tuple[tuple[float, str], ...] = ()
    curves: tuple[Curve, ...] = ()


@dataclass(frozen=True, slots=True)
class Rendered:
    subject: str
    text: str
    html: str


def render(letter: Letter, figure: str = "", figure_words: str = "") -> Rendered:
    """The mail of a letter. Names and lines are shown as they are: escaped in HTML, each on one line in text.

    ``figure``: Content-ID of its picture, and the same in words; empty = none.
    """
    pages = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    pages.filters["line"] = one_line
    glyph, hue = CLOSED if letter.kind == "closed" else SIGNS[letter.severity]
    told = {
        "m": letter,
        "glyph": glyph,
        "hue": hue,
        "word": state_of(letter),
        "when": clock_words(letter.at),
        "width": min(LABEL_CHARS, max((len(one_line(label)) for label, _ in letter.facts), default=0)),
        "palette": palette(),
        "figure": figure,
        "figure_words": figure_words,
        "happened": f"{HAPPENED.get(letter.kind, letter.kind)} ".lstrip(),
        "opens": f"Open incident {letter.incident}" if letter.incident else OPENS.get(letter.kind, "Open Watchkeeper"),
        "seen_title": SEEN.get(letter.kind, "What we saw"),
        "because": OWNED if letter.kind == "owner" else ADDRESSED,
    }
    text = pages.get_template("message.txt").render(told)
    return Rendered(subject(letter), text, pages.get_template("message.html").render(told))


def subject(letter: Letter) -> str:
    """``[main 812] GPU 3 of gpu-0412 is lost``; later mails put ``Re:`` before it, the one prefix every client drops.

    Gmail and others part a thread where anything else of the subject changes.
    """
    words = one_line(letter.subject or letter.headline)
    if len(words) > SUBJECT_CHARS:
        words = words[: SUBJECT_CHARS - 1].rstrip() + "…"
    made_up = ", simulated" if letter.simulated else ""
    if not letter.incident:
        made_up += ", TEST" if letter.kind == "test" else ""
        return f"[{one_line(letter.cluster)}{made_up}] {words}"
    again = "" if letter.kind == "opened" else "Re: "
    return f"{again}[{one_line(letter.cluster)} {letter.incident}{made_up}] {words}"


def state_of(letter: Letter) -> str:
    """The word beside the glyph: the severity while an incident lasts, else what the message is."""
    return STATES.get(letter.kind, letter.severity)


def one_line(text: str) -> str:
    """All white space, line breaks too, as single spaces."""
    return " ".join(text.split())


def clock_words(at: float) -> str:
    """``2026-11-12 02:52:08 UTC``, as the facts of a message write it."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def palette() -> Palette:
    """The colours of mail, from the packaged table."""
    rows: dict[str, list[str]] = tomllib.loads((FOLDER / "palette.toml").read_text(encoding="utf-8"))
    return {name: (light, dark) for name, (light, dark) in rows.items()}
