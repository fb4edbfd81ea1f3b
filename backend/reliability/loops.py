"""Crash loops: runs that fail again and again before they get anywhere, and what they take from others meanwhile.

Published case (papers.md 3): one 1,024-GPU job put back 35 times, which preempted 548 jobs. Told from the third quick
failure in a row on, hours before anybody looks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from backend.reliability.account import Account, Accounts, RunAccount
from backend.reliability.cost import arrivals_of, gpus, made_room, name_of

#: So many failures in a row, each without a finished save, are a loop.
LEAST = 3
#: An attempt that ran this long was no quick failure, s: it had time to save even where saves are not known.
QUICK_S = 3600.0


@dataclass(frozen=True, slots=True)
class Loop:
    """A row of quick failures of one run. seen_at: when it could first be told (unix s); live: the row still goes on.

    infra: of the failures, how many were the infrastructure's, the user's, and not known. cause: the most frequent;
    same_node: a node that all of them had a fault of their own on, "" = none. preempted: attempts pushed aside by it.
    """

    run: str
    job: str
    failures: int
    seen_at: float
    live: bool
    infra: int
    user: int
    not_known: int
    cause: str
    same_node: str
    gpu_hours: float
    preempted: int


def crash_loops(accounts: Accounts) -> list[Loop]:
    """All rows of at least LEAST, live ones first, then by what they took."""
    found = [
        _loop(accounts, run, row, live)
        for run in accounts.runs
        for lane in run.lanes
        for row, live in _rows(run, lane)
        if len(row) >= LEAST
    ]
    return sorted(found, key=lambda loop: (not loop.live, -loop.gpu_hours, loop.run))


def _rows(run: RunAccount, lane: Sequence[Account]) -> list[tuple[list[Account], bool]]:
    """(quick failures in a row, whether nothing better followed)."""
    found: list[tuple[list[Account], bool]] = []
    row: list[Account] = []
    for account in lane:
        if account.failed and _got_nowhere(run, account):
            row.append(account)
        elif account.window is not None and (account.over or not _got_nowhere(run, account)):
            found.append((row, False))
            row = []
    last = lane[-1] if lane else None
    return [*found, (row, last is not None and (not last.over or last in row))]


def _got_nowhere(run: RunAccount, account: Account) -> bool:
    start = account.attempt.start
    if start is None or account.window is None:
        return account.failed
    end = account.window.end
    saved = any(c.kind == "save" and start < c.at <= end for c in run.checkpoints)
    return not saved and (bool(run.checkpoints) or account.recorded_s <= QUICK_S)


def _loop(accounts: Accounts, run: RunAccount, row: Sequence[Account], live: bool) -> Loop:
    nodes = [account.verdict.cause.nodes[:1] for account in row if account.verdict.cause is not None]
    same = nodes[0][0] if len(nodes) == len(row) and len(set(nodes)) == 1 and nodes[0] else ""
    arrivals = arrivals_of(row[1:])
    seen = row[LEAST - 1].attempt.end
    return Loop(
        run=run.run.name,
        job=row[-1].attempt.job,
        failures=len(row),
        seen_at=seen if seen is not None else accounts.history.end,
        live=live,
        infra=sum(a.verdict.infra is True for a in row),
        user=sum(a.verdict.infra is False for a in row),
        not_known=sum(a.verdict.infra is None for a in row),
        cause=Counter(name_of(a) for a in row).most_common(1)[0][0],
        same_node=same,
        gpu_hours=sum(a.recorded_s * gpus(a) for a in row) / 3600,
        preempted=sum(made_room(a, arrivals) for a in accounts.attempts if a.attempt.state == "PREEMPTED"),
    )
