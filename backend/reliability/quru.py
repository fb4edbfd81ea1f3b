"""Wall-clock as Meta splits it (papers.md 3): W = Q + R + U; what users' own failures took is left out.

Q: queued while eligible. R: productive. U: catch-up (stepped since the last save), restart (startup and load), and
what their model has no word for: stalls of saves, hangs, teardown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from backend.reliability.account import Account, RunAccount
from backend.reliability.parts import Bounds, exactly


@dataclass(frozen=True, slots=True)
class Quru:
    """Seconds. user_s: left out, taken by failures of the user's fault. ettr: R / (Q + R + U), None where empty."""

    queued_s: float
    productive: Bounds
    catch_up: Bounds
    restart: Bounds
    stalls: Bounds
    user_s: Bounds
    wall_s: float
    ettr: Bounds | None


def quru(run: RunAccount) -> Quru:
    """Of one run. An attempt that its user's fault ended keeps what it trained; its loss, its hang and the way back of
    the next attempt are the user's."""
    sums = {name: exactly(0.0) for name in ("productive", "catch_up", "restart", "stalls", "user")}
    for lane in run.lanes:
        for place, account in enumerate(lane):
            before = lane[place - 1] if place else None
            for name, bounds in _split(account, before):
                sums[name] = sums[name] + bounds
    queued = math.fsum(account.queue_s for account in run.accounts)
    wall = queued + math.fsum(account.wall_s for account in run.accounts)
    user, productive = sums["user"], sums["productive"]
    most, least = wall - user.low, max(wall - user.high, 0.0)
    share = None
    if most > 0:
        high = productive.high / least if least > 0 else 1.0
        share = Bounds(min(1.0, productive.low / most), min(1.0, high))
    return Quru(queued, productive, sums["catch_up"], sums["restart"], sums["stalls"], user, wall, share)


def _split(account: Account, before: Account | None) -> Sequence[tuple[str, Bounds]]:
    parts = account.parts
    own = account.failed and account.verdict.infra is False
    after = before is not None and before.failed and before.verdict.infra is False
    return (
        ("productive", parts["productive"]),
        ("user" if own else "catch_up", parts["lost_since_checkpoint"]),
        ("user" if after else "restart", parts["startup"] + parts["load"]),
        ("user" if own else "stalls", parts["hang"]),
        ("stalls", parts["save_stall"] + parts["teardown"]),
    )
