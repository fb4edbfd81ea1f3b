"""What failures cost: lost GPU-hours by cause, node and part, and the jobs that fell for another's failure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from backend.reliability.account import Account, Accounts
from backend.reliability.columns import Columns
from backend.reliability.parts import Bounds, exactly

#: What a failure takes from goodput at most: work since the last save, taken as this long, s (papers.md 3).
GOODPUT_S = 1800.0
#: A preemption this soon before a failed job starts again made room for it, s.
MADE_ROOM_S = 60.0


@dataclass(frozen=True, slots=True)
class Goodput:
    """GPU-hours lost by Meta's rule (papers.md 3): min(runtime, 30 min) x GPUs of jobs that the infrastructure ended,
    and of those preempted so that one of them could start again."""

    direct_h: float
    direct: int
    second_h: float
    second: int

    @property
    def second_share(self) -> float | None:
        total = self.direct_h + self.second_h
        return self.second_h / total if total > 0 else None


def gpus(account: Account) -> int:
    return len(account.attempt.nodes) * account.attempt.gpus_per_node


def gpu_hours(seconds: Bounds, account: Account) -> Bounds:
    scale = gpus(account) / 3600
    return Bounds(seconds.low * scale, seconds.high * scale)


def waterfall(accounts: Iterable[Account]) -> dict[str, Bounds]:
    """GPU-hours by part; queue and hold held no GPU, and count at the size of the attempt that waited."""
    told = Columns.of(list(accounts))
    hours = told.gpus / 3600
    waits = {"queue_eligible": told.queue_s, "hold": told.hold_s}
    found: dict[str, Bounds] = {part: sums for part, sums in told.sums(hours).items()}
    return found | {name: exactly(float(column @ hours)) for name, column in waits.items()}


def ettr_by_gpus(accounts: Iterable[Account]) -> Bounds | None:
    """ETTR of many runs, each second weighted by the GPUs of its attempt; None where none was held."""
    told = Columns.of(list(accounts))
    productive = told.sums(told.gpus)["productive"]
    below = float((told.wall_s + told.queue_s) @ told.gpus)
    return Bounds(productive.low / below, min(1.0, productive.high / below)) if below > 0 else None


def name_of(account: Account) -> str:
    """What a failure is counted under."""
    cause = account.verdict.cause
    return cause.kind if cause is not None else account.verdict.log_class or f"unknown ({account.attempt.state})"


def goodput(accounts: Accounts) -> Goodput:
    """Direct and second-order losses. Second-order: preempted at most MADE_ROOM_S before the next attempt of a job that
    the infrastructure had ended, on a node that it then got."""
    hit = [a for a in accounts.attempts if a.failed and a.verdict.infra is True]
    again: list[Account] = []
    for run in accounts.runs:
        for lane in run.lanes:
            again += [b for a, b in zip(lane, lane[1:], strict=False) if a.failed and a.verdict.infra is True]
    arrivals = arrivals_of(again)
    pushed = [a for a in accounts.attempts if a.attempt.state == "PREEMPTED" and made_room(a, arrivals)]
    return Goodput(_taken(hit), len(hit), _taken(pushed), len(pushed))


def arrivals_of(again: Iterable[Account]) -> Mapping[str, list[float]]:
    """When attempts began on each node."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for account in again:
        for node in account.attempt.nodes:
            if account.attempt.start is not None:
                found[node].append(account.attempt.start)
    return found


def made_room(account: Account, arrivals: Mapping[str, list[float]]) -> bool:
    """Whether it ended at most MADE_ROOM_S before one of ``arrivals`` on a node of its."""
    end = account.attempt.end
    if end is None:
        return False
    return any(0 <= at - end <= MADE_ROOM_S for node in account.attempt.nodes for at in arrivals.get(node, ()))


def _taken(accounts: Iterable[Account]) -> float:
    return sum(min(a.recorded_s, GOODPUT_S) * gpus(a) / 3600 for a in accounts)
