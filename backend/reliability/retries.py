"""Retry chains: how often a run that failed got through, by whose hand, and how long it took to start again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from backend.reliability.account import Account, Accounts, RunAccount
from backend.reliability.intervals import Interval, wilson

#: An open chain has recovered when its last attempt finished a save and runs this long, s (DESIGN, accounting).
RECOVERED_S = 1800.0

Hand = Literal["auto", "manual", "mixed"]


@dataclass(frozen=True, slots=True)
class Chain:
    """Attempts of one run of which at least one failed and was followed by another.

    success None = open: the last attempt waits or runs; then ``recovered`` says whether it got over it, None = no
    save of its run is known.
    """

    run: str
    hand: Hand
    attempts: int
    failures: int
    success: bool | None
    recovered: bool | None = None


@dataclass(frozen=True, slots=True)
class Chains:
    """``success`` of ``chains`` closed ones; attempts in all of them."""

    chains: int
    success: int
    attempts: int

    @property
    def rate(self) -> float | None:
        return self.success / self.chains if self.chains else None

    @property
    def interval(self) -> Interval | None:
        return wilson(self.success, self.chains)


@dataclass(frozen=True, slots=True)
class Gaps:
    """Start of the next attempt minus end of the failed one, s; quartiles interpolated linearly, None for n = 0."""

    n: int
    median_s: float | None
    q1_s: float | None
    q3_s: float | None


def chains_of(accounts: Accounts) -> list[Chain]:
    """One chain at most a lane of a run, in the order of the runs."""
    found = (_chain(accounts, run, place) for run in accounts.runs for place in range(len(run.lanes)))
    return [chain for chain in found if chain is not None]


def counted(chains: Sequence[Chain], hand: Hand | None) -> Chains:
    """Closed chains by ``hand``, None = all."""
    closed = [c for c in chains if c.success is not None and hand in (None, c.hand)]
    return Chains(len(closed), sum(bool(c.success) for c in closed), sum(c.attempts for c in closed))


def gaps(accounts: Accounts, link: Literal["requeue", "resubmit"]) -> list[float]:
    """Seconds from the end of each failed attempt to the start of the next, where that started."""
    found: list[float] = []
    for run in accounts.runs:
        for lane, told in zip(run.run.lanes, run.lanes, strict=True):
            for kind, before, after in zip(lane.links, told, told[1:], strict=False):
                if kind == link and before.failed and after.attempt.start is not None:
                    assert before.attempt.end is not None
                    found.append(after.attempt.start - before.attempt.end)
    return found


def quartiles(values: Sequence[float]) -> Gaps:
    if not values:
        return Gaps(0, None, None, None)
    q1, median, q3 = (float(q) for q in np.quantile(np.array(values), [0.25, 0.5, 0.75]))
    return Gaps(len(values), median, q1, q3)


def _chain(accounts: Accounts, run: RunAccount, place: int) -> Chain | None:
    told, links = run.lanes[place], run.run.lanes[place].links
    if not any(account.failed for account in told[:-1]):
        return None
    hands = set(links)
    hand: Hand = "mixed" if len(hands) > 1 else "auto" if hands == {"requeue"} else "manual"
    last = told[-1]
    failures = sum(account.failed for account in told)
    if not last.over or last.attempt.state == "REQUEUED":
        return Chain(run.run.name, hand, len(told), failures, None, _recovered(accounts, run, last))
    return Chain(run.run.name, hand, len(told), failures, last.attempt.state == "COMPLETED")


def _recovered(accounts: Accounts, run: RunAccount, last: Account) -> bool | None:
    start = last.attempt.start
    if last.over or start is None or accounts.history.end - start < RECOVERED_S:
        return False
    if not run.checkpoints:
        return False if accounts.history.checkpoints_whole else None
    return any(c.kind == "save" and c.at > start for c in run.checkpoints)
