"""NVLink errors read to the end: sub-codes of NVLink5 (Xid 144 to 150) by driver version, registers of Xid 74."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from detectors.packaged import table

#: From this driver on the information word is laid out otherwise (NVIDIA's Xid catalogue: V1 before, V2 from here).
NEW_LAYOUT = 575
CODES = range(144, 151)
#: Unit, the word that decides, then link and registers. ``Link Fatal`` is fatal to the link, hence to its GPU's job.
_WORD = re.compile(r"([A-Za-z0-9_/ ]{1,60}?)\s{1,8}(?:Link\s)?(Fatal|Non-?fatal)\b", re.IGNORECASE)
_LINK = re.compile(r"\bLink\s{1,4}(-?[0-9]{1,4})\b")
_WORDS = re.compile(r"\((0x[0-9A-Fa-f]{1,8}(?:[, ]{1,3}0x[0-9A-Fa-f]{1,8}){0,15})\s?\)")
_LINK_74 = re.compile(r"\blink\s{0,2}(-?[0-9]{1,4})\s{0,2}\(")
_SAYS_74 = re.compile(r"\b(non-?fatal|fatal) error", re.IGNORECASE)
#: Sub-code of a link event: bits 20 to 25 of the information word.
SUBCODE_SHIFT, SUBCODE_MASK = 20, 0x3F

#: (register from 0, bits, meaning) of Xid 74: the first, third, fourth and fifth of the seven registers carry meaning
#: (NVIDIA's Xid catalogue, resolution of NVLink errors, Hopper).
REGISTERS_74: tuple[tuple[int, tuple[int, ...], str], ...] = (
    (0, (0, 23, 30), "harmless"),
    (0, (1, 20), "secondary"),
    (0, (4, 5), "parity"),
    (0, (8, 9, 12, 16, 17, 24, 28), "connection"),
    (0, (21, 22), "signal"),
    (0, (27, 29), "when_repeated"),
    (2, (0, 1, 2, 6), "parity"),
    (2, (13,), "unexpected"),
    (2, (16, 17, 18, 19), "when_repeated"),
    (3, (16, 17, 18), "secondary"),
    (4, (18, 19, 21, 22, 24, 25, 27, 28), "parity"),
    (4, (20, 23, 26, 29), "corrected_often"),
)
#: What the meanings say of the place of the fault, best known first.
MEANS_74: Mapping[str, str] = {
    "parity": "memory of this GPU's link hardware",
    "connection": "the connection: seating, connector, or the device at the other end",
    "signal": "weak signal on the link: seating, connector, or the device at the other end",
    "unexpected": "a state that should not occur",
    "when_repeated": "hardware, if it comes again on this link",
    "secondary": "another fault that this one follows, perhaps of the device at the other end",
    "corrected_often": "errors that were corrected, often",
    "harmless": "nothing that needs care",
}


@dataclass(frozen=True, slots=True)
class SubCode:
    """One row of nvlink5.csv. Masks are (bits that count, their value) of the information word, old and new layout.

    status: value of the error status, None where any. action and look: what NVIDIA asks for at once, and to look into.
    """

    code: int
    units: frozenset[str]
    old: tuple[int, int]
    new: tuple[int, int]
    status: int | None
    action: str
    look: str
    severity: str
    old_urgent: tuple[int, int] | None
    new_urgent: tuple[int, int] | None
    urgent_action: str


def decode(code: int, rest: str, driver: int = 0) -> dict[str, str]:
    """Of the text behind the number of an Xid 144 to 150: severity (fatal, nonfatal, as the line has it), unit, link,
    subcode, and from the table asks (none, reset_gpu, verdict) and look. driver: its major version; 0 = not known, then
    asks and look hold only what both layouts say, and ``old`` and ``new`` what each does where they differ."""
    word = _WORD.match(rest) if code in CODES else None
    if word is None:
        return {}
    attrs = {"unit": word[1].strip(), "severity": word[2].lower().replace("-", "")}
    if link := _LINK.search(rest, word.end()):
        attrs["link"] = link[1]
    words = _WORDS.search(rest, word.end())
    if words is None:
        return attrs
    numbers = [int(text, 16) for text in re.split(r"[, ]+", words[1])]
    if "LINK" in attrs["unit"]:
        attrs["subcode"] = str(numbers[0] >> SUBCODE_SHIFT & SUBCODE_MASK)
    return attrs | _asked(code, attrs["unit"], numbers, driver)


def _asked(code: int, unit: str, numbers: list[int], driver: int) -> dict[str, str]:
    """What the table asks for by the layout of this driver; by both, where it is not known."""
    if driver:
        return _reading(code, unit, numbers, driver)
    old, new = (_reading(code, unit, numbers, layout) for layout in (NEW_LAYOUT - 1, NEW_LAYOUT))
    if not old or not new or old == new:
        return old or new
    both = {name: value for name, value in old.items() if new[name] == value}
    return both | {"old": f"{old['asks']} {old['look']}", "new": f"{new['asks']} {new['look']}"}


def _reading(code: int, unit: str, numbers: list[int], driver: int) -> dict[str, str]:
    row = sub_code(code, unit, numbers, driver)
    if row is None:
        return {}
    mask = row.new_urgent if driver >= NEW_LAYOUT else row.old_urgent
    urgent = mask is not None and _fits(numbers[0], mask)
    return {"asks": row.urgent_action if urgent else row.action, "look": row.look}


def sub_code(code: int, unit: str, words: list[int], driver: int = 0) -> SubCode | None:
    """The row for an information word and an error status: the whole status first, else one of its bits that asks for
    the most."""
    status = words[1] if len(words) > 1 else 0
    rows = [row for row in _table() if row.code == code and _is(row, unit, words[0], driver)]
    exact = [row for row in rows if row.status is None or row.status == status]
    partly = exact or [row for row in rows if row.status and row.status & status]
    return max(partly, key=lambda row: (row.action == "reset_gpu", row.action == "verdict"), default=None)


def _is(row: SubCode, unit: str, word: int, driver: int) -> bool:
    """The same unit by its name, and the sub-code by the information word. The name wins where the bits of the unit
    disagree: the line was printed by the driver itself, the layout is a guess."""
    old, new = (row.old, row.old_urgent), (row.new, row.new_urgent)
    masks = {0: (*old, *new)}.get(driver, new if driver >= NEW_LAYOUT else old)
    if any(_fits(word, mask) for mask in masks if mask):
        return True
    high = (SUBCODE_MASK << SUBCODE_SHIFT) & row.old[0]
    return unit in row.units and word & high == row.old[1] & high


def _fits(word: int, mask: tuple[int, int]) -> bool:
    return word & mask[0] == mask[1]


@cache
def _table() -> tuple[SubCode, ...]:
    return tuple(map(_row, csv.DictReader(line for line in table("nvlink5.csv") if not line.startswith("#"))))


def _row(row: Mapping[str, str]) -> SubCode:
    def mask(column: str) -> tuple[int, int] | None:
        bits, _, value = row[column].partition("/")
        return (int(bits, 16), int(value, 16)) if value else None

    old, new = mask("old"), mask("new")
    assert old is not None and new is not None, row
    return SubCode(
        int(row["code"]),
        frozenset(row["units"].split("|")),
        old,
        new,
        int(row["status"], 16) if row["status"] else None,
        row["action"],
        row["look"],
        row["severity"],
        mask("old_urgent"),
        mask("new_urgent"),
        row["urgent_action"],
    )


def registers(rest: str) -> dict[str, str]:
    """Of the text behind Xid 74: link, severity where it is said, and from the seven registers ``meaning`` (the best
    known of MEANS_74, all of them in ``meanings``); ``unlisted`` where bits stand that no list explains."""
    attrs: dict[str, str] = {}
    if link := _LINK_74.search(rest):
        attrs["link"] = link[1]
    if said := _SAYS_74.search(rest):
        attrs["said_severity"] = said[1].lower().replace("-", "")
    words = _WORDS.search(rest)
    numbers = [int(text, 16) for text in re.split(r"[, ]+", words[1])] if words else []
    if len(numbers) != 7:
        return attrs
    found = {word for place, bits, word in REGISTERS_74 if any(numbers[place] >> bit & 1 for bit in bits)}
    known = {0: 0, 2: 0, 3: 0, 4: 0}
    for place, bits, _ in REGISTERS_74:
        known[place] |= sum(1 << bit for bit in bits)
    if any(numbers[place] & ~bits for place, bits in known.items()):
        attrs["unlisted"] = "yes"
    meanings = [word for word in MEANS_74 if word in found]
    return attrs | ({"meaning": meanings[0], "meanings": " ".join(meanings)} if meanings else {})
