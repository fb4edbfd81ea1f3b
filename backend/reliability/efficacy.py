"""Repair efficacy: of the repairs of each sort, how many held, with n and interval."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from backend.reliability.account import Accounts
from backend.reliability.exclusions import outage_spans
from backend.reliability.faults import Fault, node_faults
from backend.reliability.history import RepairFacts
from backend.reliability.intervals import Interval, wilson

DAY_S = 86_400.0
#: A repair held where its node showed no fault for this long after it, s.
HOLD_S = 7 * DAY_S
#: An outage is a repair where its node had shown a fault at most this long before it began, s.
FAULT_BEFORE_S = 2 * DAY_S
#: What was done, by the words of whoever took the node out; the first that matches.
WORDS = (
    ("replace", r"replac|swap|rma\b|new gpu|new card|new dimm"),
    ("reseat", r"reseat|re-seat"),
    ("firmware", r"firmware|vbios|bios\b|driver (?:update|upgrade)"),
    ("reset_gpu", r"gpu.?reset|reset.{0,8}gpu|nvidia-smi -r"),
    ("reboot", r"reboot|power.?cycle|restart"),
    ("reinstall", r"re-?install|re-?imag"),
)
NOT_SAID = "not said"


@dataclass(frozen=True, slots=True)
class Repair:
    """One repair of a node, done at ``at``. relapse_s: until its next fault, None = none in the data."""

    node: str
    at: float
    what: str
    relapse_s: float | None


@dataclass(frozen=True, slots=True)
class Efficacy:
    """Of ``n`` repairs that are old enough to judge, ``held`` held; ``young`` are not. median_relapse_s: of those that
    did not hold."""

    what: str
    n: int
    held: int
    interval: Interval | None
    young: int
    median_relapse_s: float | None

    @property
    def share(self) -> float | None:
        return self.held / self.n if self.n else None


def repairs_of(accounts: Accounts) -> list[Repair]:
    """Repairs that were told, and outages that followed a fault and are over; one that was told lies in none twice."""
    faults: defaultdict[str, list[Fault]] = defaultdict(list)
    for fault in node_faults(accounts):
        if fault.node:
            faults[fault.node].append(fault)
    begins = {node: sorted(f.begin for f in rows) for node, rows in faults.items()}
    told = [*accounts.history.repairs, *_by_outages(accounts, begins)]
    rows = [Repair(r.node, r.at, r.what or NOT_SAID, _relapse_s(begins.get(r.node, []), r.at)) for r in told]
    return sorted(rows, key=lambda r: (r.at, r.node, r.what))


def _by_outages(accounts: Accounts, begins: dict[str, list[float]]) -> list[RepairFacts]:
    said = defaultdict(list)
    for repair in accounts.history.repairs:
        said[repair.node].append(repair.at)
    reasons = defaultdict(list)
    for outage in accounts.history.outages:
        reasons[outage.node].append(outage)
    found = []
    for node, gone in outage_spans(accounts.history.outages):
        for begin, end in gone:
            before = bisect_right(begins.get(node, []), end) - bisect_right(
                begins.get(node, []), begin - FAULT_BEFORE_S
            )
            if end < np.inf and before and not any(begin <= at <= end + DAY_S for at in said[node]):
                words = " ".join(o.reason for o in reasons[node] if begin <= o.start <= end)
                found.append(RepairFacts(node, end, what_of(words)))
    return found


def what_of(words: str) -> str:
    """Which repair the words of a reason tell of."""
    return next((what for what, form in WORDS if re.search(form, words, re.IGNORECASE)), NOT_SAID)


def _relapse_s(begins: list[float], at: float) -> float | None:
    place = bisect_right(begins, at)
    return begins[place] - at if place < len(begins) else None


def efficacy(accounts: Accounts, hold_s: float = HOLD_S) -> list[Efficacy]:
    """By what was done, the most frequent first, and all together (``all``) before them."""
    repairs = repairs_of(accounts)
    by_what: defaultdict[str, list[Repair]] = defaultdict(list)
    for repair in repairs:
        by_what[repair.what].append(repair)
    rows = [_efficacy(what, rows, accounts.history.end, hold_s) for what, rows in by_what.items()]
    rows.sort(key=lambda row: (-row.n, -row.young, row.what))
    return [_efficacy("all", repairs, accounts.history.end, hold_s), *rows] if repairs else []


def _efficacy(what: str, repairs: list[Repair], end: float, hold_s: float) -> Efficacy:
    old = [r for r in repairs if r.at + hold_s <= end]
    back = [r.relapse_s for r in old if r.relapse_s is not None and r.relapse_s <= hold_s]
    held = len(old) - len(back)
    median = float(np.median(back)) if back else None
    return Efficacy(what, len(old), held, wilson(held, len(old)), len(repairs) - len(old), median)
