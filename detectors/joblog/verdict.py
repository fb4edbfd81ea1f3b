"""What the logs of a job come to: the class, whose fault it is, which node to avoid, and a sentence for a person."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from detectors.joblog.cause import Culprit, Finding, Suspect, first_cause
from detectors.joblog.ends import End
from detectors.joblog.flight import Held, ranks_of
from detectors.joblog.reading import Sheet
from detectors.joblog.rules import AGAIN, CLEAN, SAYS, UNKNOWN, LogClass, Table, sure_of
from detectors.joblog.stacks import Stand

#: Hosts that complain of their links at once: from here on it is the fabric, and its nodes are victims.
FABRIC_HOSTS = 3
#: Lines of evidence that are shown.
EVIDENCE = 6
_XID = re.compile(r"\bXid\s{0,4}\([^)\n]{0,60}\)\s{0,4}:\s{0,4}(\d{1,3})\b|\bXid[ :]{1,3}(\d{1,3})\b", re.ASCII)


@dataclass(frozen=True, slots=True)
class Quote:
    """A line of a log, and what it is evidence of."""

    what: str
    file: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """``sentence``: for a tired person. ``alternates``: classes that also fit, best first."""

    log_class: str
    confidence: float
    component: str
    whose: str
    culprit: Culprit | None
    xids: tuple[int, ...]
    exclude_node: bool
    first: Quote | None
    evidence: tuple[Quote, ...]
    sentence: str
    alternates: tuple[str, ...]
    victims: int = 0


def judge(table: Table, sheets: Sequence[Sheet], end: End | None = None) -> Verdict:
    """All logs of one job, and how its launcher or scheduler says that it ended, where that is known."""
    found = first_cause(sheets)
    end = end or End()
    log_class, sure = _class_of(found, end)
    known = table.classes[log_class]
    first = found.first if log_class == _named(found) else None
    exclude = _exclude(found, known, first)
    culprit = found.culprit if log_class not in (CLEAN,) else None
    quotes = _quotes(found, first, end)
    return Verdict(
        log_class=log_class,
        confidence=round(sure, 2),
        component=first.hit.rule.component if first is not None and log_class != UNKNOWN else known.component,
        whose=known.whose,
        culprit=culprit,
        xids=_xids(found),
        exclude_node=exclude,
        first=quotes[0] if quotes and first is not None else None,
        evidence=tuple(quotes),
        sentence=_sentence(known, found, culprit, exclude),
        alternates=_alternates(found, log_class, end),
        victims=found.victims,
    )


def held_up(verdict: Verdict, sheets: Sequence[Sheet], held: Held | None, stand: Stand | None) -> Verdict:
    """The verdict with what flight-recorder dumps and stacks add: in a hang they know who held the others up.

    A cause that the logs name stands as it is; its evidence grows.
    """
    quotes, ranks = list(verdict.evidence), tuple[int, ...]()
    if held is not None and held.culprits:
        ranks = held.culprits
        words = [f"{ranks_of(held.absent)} never joined" if held.absent else ""]
        words.append(f"{ranks_of(held.stopped)} joined, then stood still" if held.stopped else "")
        where = f" ({held.operation} of {held.group})" if held.group else ""
        quotes.append(Quote("flight recorder", "", 0, "; ".join(w for w in words if w) + where))
    if stand is not None and stand.outliers:
        ranks = ranks or stand.outliers
        where = f" (all in {stand.shared})" if stand.shared else ""
        top = next(group.stack for group in stand.groups if stand.outliers[0] in group.ranks)
        said = f"{ranks_of(stand.outliers)}, unlike the others,{where} stand in {' < '.join(top[:4])}"
        quotes.append(Quote("stacks", "", 0, said))
    if not ranks or verdict.log_class not in (CLEAN, UNKNOWN, "nccl_timeout_hang", "nccl_remote_peer_failure"):
        return replace(verdict, evidence=tuple(quotes))
    node = next((sheet.seen.hosts[ranks[0]] for sheet in sheets if ranks[0] in sheet.seen.hosts), "")
    return replace(
        verdict,
        log_class="nccl_timeout_hang",
        confidence=0.85,
        component="network",
        whose="unknown",
        culprit=Culprit(node, ranks[0], None),
        evidence=tuple(quotes),
        sentence=f"A hang that {ranks_of(ranks)} caused: the others wait; it is safe to resubmit, and look first at "
        "what those ranks and their GPUs were doing.",
    )


def resembling(verdict: Verdict, known: LogClass, probability: float, alike: int) -> Verdict:
    """A verdict that no rule could give, by resemblance to ``alike`` past failures that people named. Nobody is blamed
    and no node is avoided by it."""
    name = known.name.replace("_", " ")
    failures = f"{alike} past failure{'s' if alike != 1 else ''}"
    return replace(
        verdict,
        log_class=known.name,
        confidence=probability,
        component=known.component,
        whose="unknown",
        culprit=None,
        exclude_node=False,
        sentence=f"No rule names the cause; by resemblance to {failures} it is {name} (confidence {probability:.2f}): "
        f"{known.advice}.",
        alternates=tuple(other for other in (UNKNOWN, *verdict.alternates) if other != known.name)[:3],
    )


def _named(found: Finding) -> str:
    """The class that the logs alone come to."""
    if found.first is None:
        return CLEAN
    return UNKNOWN if found.first.hit.level == "echo" else found.first.hit.log_class


def _class_of(found: Finding, end: End) -> tuple[str, float]:
    """The class and how sure: the logs' own words first, the end state where they only show consequences."""
    named = _named(found)
    weak = found.first is None or found.first.hit.level in ("echo", "symptom", "note")
    if weak and end.log_class and not (named == "nccl_timeout_hang" and end.log_class == "time_limit"):
        return end.log_class, 0.85
    if found.first is None:
        if end.failed:
            return UNKNOWN, 0.5
        return CLEAN, 0.97 if end.well or any(sheet.done is not None for sheet in found.sheets) else 0.8
    if end.well:
        return ("ecc_row_remap_pending", 0.9) if named == "ecc_row_remap_pending" else (CLEAN, 0.9)
    return named, sure_of(found.first.hit)


def _exclude(found: Finding, known: LogClass, first: Suspect | None) -> bool:
    """Only for a fault of the node that a line names itself; never where many nodes say it at once."""
    if first is None or first.hit.soft or known.whose != "hardware" or first.hit.level != "cause":
        return False
    same = [s for s in (first, *found.others) if s.hit.log_class == known.name]
    if known.name == "ecc_uncorrectable" and any(s.hit.rule.name == "xid_ecc_contained" for s in same):
        return any(s.hit.rule.name in ("xid_ecc", "ecc_words") for s in same)
    if known.name == "network_link_error" and len({s.node for s in same if s.node}) >= FABRIC_HOSTS:
        return False
    return any(s.hit.rule.exclude in ("yes", "local") and s.hit.level == "cause" and s.node == first.node for s in same)


def _xids(found: Finding) -> tuple[int, ...]:
    numbers = {
        int(match[1] or match[2])
        for sheet in found.sheets
        for hit in sheet.hits
        if "Xid" in hit.text and "SXid" not in hit.text
        for match in _XID.finditer(hit.text)
    }
    return tuple(sorted(number for number in numbers if 0 < number < 1000))


def _quotes(found: Finding, first: Suspect | None, end: End) -> list[Quote]:
    quotes = [_quote("first cause", first)] if first is not None else []
    seen = {first.hit.rule.name} if first is not None else set()
    for other in found.others:
        if other.hit.rule.name not in seen and len(quotes) < EVIDENCE:
            seen.add(other.hit.rule.name)
            quotes.append(_quote("consequence" if other.hit.level in ("symptom", "echo") else "also seen", other))
    if end.said:
        quotes.append(Quote("end state", "", 0, end.said))
    return quotes


def _quote(what: str, suspect: Suspect) -> Quote:
    return Quote(what, suspect.sheet.path, suspect.hit.line, suspect.hit.text)


def _alternates(found: Finding, log_class: str, end: End) -> tuple[str, ...]:
    others = [s.hit.log_class for s in found.others if s.hit.level in ("cause", "surface", "symptom", "note")]
    if found.first is not None:
        others.insert(0, found.first.hit.log_class)
        if (
            "SIGKILL" in found.first.hit.text
            or "exitcode: -9" in found.first.hit.text
            or "Killed" in found.first.hit.text
        ):
            others.append("host_oom_killed")
    return tuple(
        name for name in dict.fromkeys([*others, end.log_class]) if name and name not in (log_class, UNKNOWN, CLEAN)
    )[:3]


def _sentence(known: LogClass, found: Finding, culprit: Culprit | None, exclude: bool) -> str:
    if known.name == CLEAN:
        return "No failure: the logs end well, or hold nothing but warnings."
    where = _where(culprit)
    avoid = (
        f", without {culprit.node}" if exclude and culprit and culprit.node else ", on another node" if exclude else ""
    )
    if known.name == "ecc_row_remap_pending":
        return f"A memory repair waits for a reset{where}; the job itself did not fail of it: {known.advice}."
    name = known.name.replace("_", " ")
    head = f"{SAYS[known.whose]}: {name}{where}"
    if known.whose == "unknown" and known.name != UNKNOWN:
        head = f"{name[0].upper()}{name[1:]}{where}; these logs do not show why"
    if known.name == UNKNOWN:
        head = f"{SAYS['unknown']}: they only show what followed{where}"
    return f"{head}; {AGAIN[known.resubmit]}{avoid}: {known.advice}."


def _where(culprit: Culprit | None) -> str:
    if culprit is None:
        return ""
    words = [
        f"rank {culprit.rank}" if culprit.rank is not None else "",
        f"GPU {culprit.gpu}" if culprit.gpu is not None else "",
    ]
    said = ", ".join(word for word in words if word)
    node = f" on {culprit.node}" if culprit.node else ""
    return f" ({said}{node})" if said else node
