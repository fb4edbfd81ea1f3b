"""How numbers, times, names and states read: one vocabulary for every page, figure and table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from markupsafe import Markup, escape

NB: Final = "\u00a0"
#: States of a device from best to worst: the place is its code in the rack map (0 is the gutter between racks).
STATES: Final = ("ok", "excluded", "suspect", "draining", "unknown", "failed")
STATE_WORDS: Final = {state: "no data" if state == "unknown" else state for state in STATES}
GLYPHS: Final = {"ok": "●", "suspect": "▲", "draining": "◐", "excluded": "⊘", "failed": "✕", "unknown": "◌"}
SEVERITIES: Final = ("info", "warning", "high", "critical")
MODES: Final = {
    "observe": "binds nobody, touches nothing",
    "propose": "approval first",
    "act": "acts by itself, guarded",
}
_DEVICE: Final = re.compile(r"^(?P<node>[^/]+)/gpu(?P<index>\d+)$")
#: Spaces that must not break: before a unit, and between a word and its number.
_BOUND: Final = re.compile(
    r"(?<=\d) (?=%|°C|(?:ms|s|min|h|W|GPUs?|nodes?|jobs?)\b)|(?<=\bGPU) (?=\d)|(?<=\b[Jj]ob|\bXid) (?=\d)"
)
#: A host name: hyphens inside it are no place to break.
_HOST: Final = re.compile(r"\b[A-Za-z][\w.]*(?:-[\w.]+)+")
_SENTENCE: Final = re.compile(r"(?<=[.!?]) (?=[A-Z])")
_CLAUSE: Final = re.compile(r"[;:,] | and ")
#: A longer name may break: it would not fit a narrow page.
_LONGEST: Final = 32


def number(value: float) -> str:
    """``4,096``; a fraction keeps two places."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"


def count(value: int, one: str, many: str = "") -> str:
    """``1 node``, ``3 nodes``; zero is said, never left out."""
    return f"{value:,}{NB}{one if value == 1 else many or one + 's'}"


def span(seconds: float) -> str:
    """``212 ms``, ``1.4 s``, ``22 s``, ``22 min``, ``1 h 43 min``, ``3 days``; a negative span is zero."""
    s = max(0.0, seconds)
    if 0 < s < 1:
        return f"{s * 1000:.0f}{NB}ms" if s >= 0.001 else f"under 1{NB}ms"
    if s < 60:
        return f"{s:.1f}{NB}s" if s < 10 and f"{s:.1f}"[-1] != "0" else f"{int(s + 0.05)}{NB}s"
    if s < 3600:
        return f"{int(s // 60)}{NB}min"
    if s < 48 * 3600:
        hours, minutes = int(s // 3600), int(s % 3600 // 60)
        return f"{hours}{NB}h {minutes}{NB}min" if minutes else f"{hours}{NB}h"
    return f"{int(s // 86400)}{NB}days"


def age(seconds: float) -> str:
    """How old something is: whole seconds, never less than one."""
    return span(max(1.0, round(seconds)))


def ago(at: datetime | None, now: datetime) -> str:
    return "never" if at is None else f"{age((now - at).total_seconds())} ago"


def clock(at: datetime, now: datetime) -> str:
    """``02:58`` within a day of ``now``, else ``12 Nov 02:58``. UTC; the page says so once."""
    near = abs((now - at).total_seconds()) < 86_400
    return f"{at:%H:%M}" if near else f"{at.day}{NB}{at:%b %H:%M}"


def moment(at: datetime) -> str:
    """``02:52:07``: to the second, where order matters."""
    return f"{at:%H:%M:%S}"


_SPELT: Final = {
    "gpu": "GPU", "pcie": "PCIe", "nvlink": "NVLink", "ecc": "ECC", "ib": "InfiniBand", "gsp": "GSP", "nfs": "NFS",
    "nic": "NIC", "oom": "OOM", "cuda": "CUDA", "rl": "RL", "nan": "NaN",
}  # fmt: skip


def kind_words(kind: str) -> str:
    """``GPU bus loss`` for ``gpu_bus_loss``; without a capital where it is no name."""
    return " ".join(_SPELT.get(word, word) for word in kind.split("_"))


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def device(name: str) -> str:
    """``gpu-0412 GPU 3`` for ``gpu-0412/gpu3``; any other name as it is."""
    found = _DEVICE.match(name)
    return f"{found['node']} GPU{NB}{found['index']}" if found else name


def of_device(name: str) -> str:
    """``GPU 3 of gpu-0412``: the same thing inside a sentence."""
    found = _DEVICE.match(name)
    return f"GPU{NB}{found['index']} of {found['node']}" if found else name


def listed(names: Sequence[str], most: int = 3) -> str:
    """``a``, ``a and b``, ``a, b and 7 more``; never an endless line."""
    if len(names) <= most:
        return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    return f"{', '.join(names[:most])} and {len(names) - most:,} more"


def shorten(text: str, most: int) -> str:
    """Cut at a word, with an ellipsis; what is short stays."""
    if len(text) <= most:
        return text
    return text[: most - 1].rsplit(" ", 1)[0].rstrip(" ,;:") + "…"


def sentence(text: str) -> str:
    """Ends like a sentence."""
    said = text.strip()
    return said if not said or said[-1] in ".!?…" else said + "."


def brief(text: str, most: int) -> str:
    """Its first sentence; where that is too long, the clauses that fit, else cut at a word."""
    said = first(text)
    ends = [found.start() for found in _CLAUSE.finditer(said) if most // 3 <= found.start() <= most]
    return said if len(said) <= most else said[: ends[-1]] if ends else shorten(said, most)


def first(text: str) -> str:
    """Its first sentence, without the full stop."""
    return bare(_SENTENCE.split(text.strip(), maxsplit=1)[0])


def bare(text: str) -> str:
    """The same without its full stop, to go on after it."""
    return text.strip().rstrip(".")


def kept(text: str) -> Markup:
    """Escaped text in which host names and numbers with their unit never break over a line."""
    bound, done, out = _BOUND.sub(NB, str(text)), 0, Markup()
    for found in _HOST.finditer(bound):
        name = found.group()
        if len(name) <= _LONGEST and any(c.isdigit() for c in name):
            out += escape(bound[done : found.start()]) + Markup('<span class="nowrap">{}</span>').format(name)
            done = found.end()
    return out + escape(bound[done:])
