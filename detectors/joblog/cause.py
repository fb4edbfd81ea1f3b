"""The first cause across the ranks of one job: the earliest true one by time, its rank and node, the victims folded."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from detectors.joblog import clocks
from detectors.joblog.lines import is_address
from detectors.joblog.reading import Sheet
from detectors.joblog.rules import HARD, Hit, finer, standing, tier

#: A fault of the hardware is believed over an earlier cause unless that one came this long before (s).
HARDWARE_LEAD_S = 60.0
#: A collective that hung this long before a cause was no consequence of it (s); clocks are corrected to about 1 s.
HANG_LEAD_S = 10.0
#: Times closer than this are the same time (s).
SAME_S = 1.0
#: From here on a message names its failure itself; below it only says that something broke.
STRONG = 30

_PEER = re.compile(
    r"(?:from|by) (?:remote )?peer ([\w.\-]{2,253}?)<\d|remote=\[?([\w.\-]{2,253})\]?:\d"
    r"|(?:Read|Write) error \[?([\w.:\-]{3,45}?)\]?:\d"
    r"|Connect to ([\w.\-]{2,253})<|node [^\n]{0,40}IP: ([\d.]{7,15})",
    re.ASCII,
)
_TASK = re.compile(r"/task:(\d{1,6})|\btask (\d{1,6})\b", re.ASCII)


@dataclass(frozen=True, slots=True)
class Culprit:
    node: str = ""
    rank: int | None = None
    gpu: int | None = None


@dataclass(frozen=True, slots=True)
class Suspect:
    """One standing hit: where it stands, and when on the clock that all logs share."""

    hit: Hit
    sheet: Sheet
    at: float | None

    @property
    def rank(self) -> int | None:
        return self.hit.rank if self.hit.rank is not None else self.sheet.rank

    @property
    def node(self) -> str:
        """By name where a log of one rank knows it; launchers give addresses."""
        known = self.sheet.host if self.sheet.rank is not None and is_address(self.hit.host) else ""
        return known or self.hit.host or self.sheet.host


@dataclass(frozen=True, slots=True)
class Finding:
    """The first cause, or None for a job whose logs name no failure; the others, best first; who did it."""

    first: Suspect | None
    others: tuple[Suspect, ...]
    culprit: Culprit | None
    sheets: tuple[Sheet, ...]
    #: Ranks that show only what followed.
    victims: int = 0


def first_cause(sheets: Sequence[Sheet]) -> Finding:
    """All logs of one job, in any order."""
    ordered = tuple(sorted(sheets, key=lambda sheet: sheet.path))
    suspects = _suspects(ordered)
    if not suspects:
        return Finding(None, (), None, ordered)
    first = _first(suspects)
    others = sorted((s for s in suspects if s is not first), key=lambda s: (tier(s.hit), *_order(s)))
    who = _culprit(first, suspects, ordered)
    followers = {(s.sheet.path, s.rank) for s in others if s.hit.level in ("symptom", "echo") and s.rank != first.rank}
    return Finding(first, tuple(others), who, ordered, len(followers))


def _suspects(sheets: Sequence[Sheet]) -> list[Suspect]:
    ahead, year = clocks.offsets(sheets), clocks.year_of(sheets)
    dated = any(h.at is not None and h.at > 1e6 for sheet in sheets for h in sheet.hits)
    found: list[Suspect] = []
    for sheet in sheets:
        for hit in standing(sheet.hits, sheet.progress, sheet.done):
            at = hit.at if hit.at is not None and (hit.at > 1e6 or not dated) else None
            at = None if at is None else clocks.placed(at, year) - ahead[clocks.clock_of(sheet)]
            found.append(Suspect(hit, sheet, at))
    return [s for s in found if not _follows(s, found)]


def _follows(suspect: Suspect, all_of_them: Iterable[Suspect]) -> bool:
    """Is it, by its rule, a consequence of what another log holds, from before or from a time that nobody knows?"""
    after = set(suspect.hit.rule.not_after) & {"cause", "surface", "symptom"}
    if not after:
        return False
    for other in all_of_them:
        if other.sheet is suspect.sheet or other.hit.soft or other.hit.level not in after:
            continue
        if other.hit.rule.not_after and other.hit.log_class == suspect.hit.log_class:
            continue
        if other.at is not None and suspect.at is not None:
            if other.at < suspect.at:
                return True
        elif other.hit.level != "symptom":
            return True
    return False


def _order(suspect: Suspect) -> tuple[float, int, int, int, str, int]:
    """Earliest first; where no time is known what says most, then the lowest rank: never the order of files."""
    hit = suspect.hit
    rank = suspect.rank if suspect.rank is not None else 1 << 30
    at = suspect.at if suspect.at is not None else float("inf")
    return (
        at,
        -hit.rule.precedence if suspect.at is None else 0,
        hit.behind if suspect.at is None else 0,
        rank,
        suspect.sheet.path,
        hit.line,
    )


def _first(suspects: Sequence[Suspect]) -> Suspect:
    if len({s.sheet.path for s in suspects}) == 1:
        suspects = sorted(suspects, key=lambda s: s.hit.behind)
        chosen = _of_tier(suspects, in_order=True)
    else:
        chosen = _of_tier(suspects, in_order=False)
    hang = [s for s in suspects if s.hit.log_class == "nccl_timeout_hang" and s.hit.rule.precedence >= STRONG]
    if chosen.at is None or chosen.hit.log_class in HARD or chosen.hit.level not in ("cause", "surface"):
        return chosen
    before = [s for s in hang if s.at is not None and s.at < chosen.at - HANG_LEAD_S]
    return min(before, key=_order) if before else chosen


def _of_tier(suspects: Sequence[Suspect], *, in_order: bool) -> Suspect:
    best = min(tier(s.hit) for s in suspects)
    mine = _strong([s for s in suspects if tier(s.hit) == best], best)
    chosen = mine[0] if in_order else _earliest(mine)
    if best == 0 and chosen.at is not None:
        before = [s for s in suspects if tier(s.hit) == 1 and s.at is not None and s.at < chosen.at - HARDWARE_LEAD_S]
        if before:
            return _earliest(before)
    return next((s for s in mine if s.sheet is chosen.sheet and finer(chosen.hit, s.hit)), chosen)


def _strong(mine: list[Suspect], best: int) -> list[Suspect]:
    strong = [s for s in mine if s.hit.rule.precedence >= STRONG] if best >= 3 else mine
    return strong or mine


def _earliest(mine: Sequence[Suspect]) -> Suspect:
    """The earliest; of those at the same time, the one whose class is known to come before others."""
    first = min(mine, key=_order)
    if first.at is None:
        return first
    same = [s for s in mine if s.at is not None and s.at - first.at <= SAME_S]
    return min(
        same, key=lambda s: (-s.hit.rule.precedence if s.hit.log_class != first.hit.log_class else 0, *_order(s))
    )


def _culprit(first: Suspect, suspects: Sequence[Suspect], sheets: Sequence[Sheet]) -> Culprit | None:
    level, log_class = first.hit.level, first.hit.log_class
    if log_class in ("nccl_timeout_hang", "nccl_remote_peer_failure"):
        return _absent(first, suspects, sheets)
    if log_class == "network_link_error" and first.hit.rule.exclude == "no":
        return _between(first, suspects, sheets)
    if level == "echo":
        return _summed_up(sheets)
    root = next((sheet.root for sheet in sheets if sheet.root and sheet.root.rank is not None), None)
    if first.rank is None and root is not None and level in ("cause", "surface"):
        return _who(sheets, root.rank, root.host or first.node, first.hit.gpu)
    return _who(sheets, first.rank, first.node, first.hit.gpu)


def _who(sheets: Sequence[Sheet], rank: int | None, node: str, gpu: int | None) -> Culprit | None:
    """Fill the node from the rank, or the rank from the GPU, by what the logs say of who runs where."""
    for sheet in sheets:
        if rank is None and node and gpu is not None:
            rank = sheet.seen.of_gpu.get((node, gpu))
        if rank is not None and not node:
            node = sheet.seen.hosts.get(rank, "") or (sheet.host if sheet.rank == rank else "")
    node = _named(node, sheets)
    return Culprit(node, rank, gpu) if node or rank is not None else None


def _named(node: str, sheets: Sequence[Sheet]) -> str:
    """The host behind an address, where the logs tell."""
    return next((sheet.seen.addresses[node] for sheet in sheets if node in sheet.seen.addresses), node)


def _summed_up(sheets: Sequence[Sheet]) -> Culprit | None:
    """Who failed first by torchrun's own summary."""
    for sheet in sheets:
        if sheet.root is not None and (sheet.root.rank is not None or sheet.root.host):
            return _who(sheets, sheet.root.rank, sheet.root.host, None)
    return None


def _absent(first: Suspect, suspects: Sequence[Suspect], sheets: Sequence[Sheet]) -> Culprit | None:
    """Who did not come: named as missing, behind in its collectives, silent where all others complain, or the peer
    that most lost."""
    stalled = Counter(rank for sheet in sheets for rank in sheet.seen.stalled)
    if stalled:
        return _who(sheets, min(stalled, key=lambda rank: (-stalled[rank], rank)), "", None)
    rank = _behind(sheets)
    if rank is None:
        rank = _silent(suspects, sheets)
    if rank is not None:
        return _who(sheets, rank, "", None)
    peers = Counter(_named(peer, sheets) for s in suspects if (peer := _peer_of(s.hit.text)))
    if peers and (len(peers) == 1 or peers.most_common(2)[0][1] > peers.most_common(2)[1][1]):
        return _who(sheets, None, peers.most_common(1)[0][0], None)
    if task := _TASK.search(first.hit.text):
        return _who(sheets, int(task[1] or task[2]), "", None)
    return _summed_up(sheets)


def _behind(sheets: Sequence[Sheet]) -> int | None:
    """The one rank whose watchdog stands behind all others: it enqueued fewer collectives, or completed fewer."""
    for field in ("enqueued", "completed", "seq"):
        lowest: dict[int, int] = {}
        for sheet in sheets:
            for dog in sheet.watchdogs:
                rank, value = dog.rank if dog.rank is not None else sheet.rank, getattr(dog, field)
                if rank is not None and value >= 0:
                    lowest[rank] = min(value, lowest.get(rank, value))
        if len(lowest) >= 3 and len(set(lowest.values())) > 1:
            few = min(lowest.values())
            late = [rank for rank, value in lowest.items() if value == few]
            if len(late) == 1:
                return late[0]
    return None


def _silent(suspects: Sequence[Suspect], sheets: Sequence[Sheet]) -> int | None:
    """The one rank that says nothing where the others complain."""
    loud = {s.rank for s in suspects if s.hit.level in ("symptom", "cause", "surface") and s.rank is not None}
    ranks = {sheet.rank for sheet in sheets if sheet.rank is not None} | {
        r for sheet in sheets for r in sheet.seen.ranks
    }
    world = max((sheet.seen.world for sheet in sheets), default=0)
    if world <= 4 * len(ranks):
        ranks |= set(range(world))
    quiet = ranks - loud
    return next(iter(quiet)) if len(quiet) == 1 and len(loud) >= 2 else None


def _between(first: Suspect, suspects: Sequence[Suspect], sheets: Sequence[Sheet]) -> Culprit | None:
    """A link has two ends. The end that several others name, or the one that lost several, is the culprit."""
    pairs = {
        (s.node, _named(peer, sheets))
        for s in suspects
        if s.hit.log_class == "network_link_error" and (peer := _peer_of(s.hit.text))
    }
    ends = Counter(end for pair in pairs for end in pair if end)
    top = ends.most_common(2)
    if len(pairs) >= 2 and top and (len(top) == 1 or top[0][1] > top[1][1]):
        return _who(sheets, None, top[0][0], None)
    return _who(sheets, first.rank, first.node, None)


def _peer_of(text: str) -> str:
    found = _PEER.search(text)
    return next((word for word in found.groups() if word), "") if found else ""
