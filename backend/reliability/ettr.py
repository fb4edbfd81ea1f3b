"""ETTR: the share of time that was training and was kept. Definitions: contracts.md, accounting.

``ettr`` = productive / (queue_eligible + scheduled wall); ``ettr_incl_hold`` adds hold below,
``ettr_saves_productive`` adds save_stall above. Where a part is only bounded, so is the share.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from backend.reliability.account import Account, RunAccount
from backend.reliability.columns import Columns
from backend.reliability.history import Floats, Ints
from backend.reliability.parts import PARTS, Bounds, Part
from backend.reliability.spans import Spans, union, until

#: The sliding window and the distance of its points, s (ByteRobust, papers.md 4; contracts.md).
HOUR_S, GRID_S = 3600.0, 300.0
#: A share whose bounds are this close to their middle is told as one number: the bar of RELIABILITY.
CLOSE = 0.005


@dataclass(frozen=True, slots=True)
class Ettr:
    """Shares as bounds; None where nothing was scheduled or waited. ``weighted``: a lost replica costs its share."""

    ettr: Bounds | None
    incl_hold: Bounds | None
    saves_productive: Bounds | None
    weighted: Bounds | None
    parts: dict[Part, Bounds]
    queue_s: float
    hold_s: float
    wall_s: float
    attempts: int

    @property
    def denominator_s(self) -> float:
        return self.queue_s + self.wall_s


def ettr(accounts: Iterable[Account]) -> Ettr:
    """Of one run, or of many: sums above and below."""
    told = list(accounts)
    return ettrs([told])[0]


def ettrs(groups: Sequence[Sequence[Account]]) -> list[Ettr]:
    """Of each group of accounts, all at once."""
    told = Columns.of([account for group in groups for account in group])
    sizes = np.array([len(group) for group in groups], np.int64)
    place, stall = PARTS.index("productive"), PARTS.index("save_stall")
    both = told.low[:, place] + told.low[:, stall]
    both_high = np.minimum(told.high[:, place] + told.high[:, stall], told.wall_s)
    rest = (told.queue_s, told.hold_s, told.wall_s, told.missing_s, both, both_high)
    sums = _by_group(np.column_stack([told.low, told.high, *rest]), sizes).tolist()
    return [_of(row, size) for row, size in zip(sums, sizes.tolist(), strict=True)]


def _by_group(columns: Floats, sizes: Ints) -> Floats:
    """float64[groups, k]: sums of rows, those of a group standing together."""
    found = np.zeros((len(sizes), columns.shape[1]))
    full = sizes > 0
    if full.any():
        starts = np.concatenate([[0], np.cumsum(sizes[full])[:-1]])
        found[full] = np.add.reduceat(columns, starts, axis=0)
    return found


def _of(row: Sequence[float], attempts: int) -> Ettr:
    count = len(PARTS)
    parts = {part: Bounds(row[i], row[count + i]) for i, part in enumerate(PARTS)}
    queue_s, hold_s, wall_s, lost, both, both_high = row[2 * count :]
    productive, below = parts["productive"], queue_s + wall_s
    return Ettr(
        ettr=_share(productive, below),
        incl_hold=_share(productive, below + hold_s),
        saves_productive=_share(Bounds(both, max(both, both_high)), below),
        weighted=_share(Bounds(max(0.0, productive.low - lost), max(0.0, productive.high - lost)), below),
        parts=parts,
        queue_s=queue_s,
        hold_s=hold_s,
        wall_s=wall_s,
        attempts=attempts,
    )


def close(bounds: Bounds | None) -> float | None:
    """The share as one number, where its bounds leave no more open than CLOSE."""
    return bounds.middle if bounds is not None and bounds.width <= 2 * CLOSE else None


def sliding(run: RunAccount, end: float) -> list[tuple[float, float]]:
    """(at, productive share of the hour before) on a 300 s grid that begins with the first eligible time; the first
    point is when an hour has passed. Empty where a part of the run is only bounded, or where it was shorter."""
    accounts = run.accounts
    if any(account.told is None and account.window is not None for account in accounts):
        return []
    begin = first_eligible(accounts)
    over = [account.attempt.end for account in accounts]
    last = end if any(t is None for t in over) else max((t for t in over if t is not None), default=end)
    if begin is None or last - begin < HOUR_S:
        return []
    points = begin + HOUR_S + GRID_S * np.arange(math.floor((last - begin - HOUR_S) / GRID_S + 1e-9) + 1)
    productive = until(productive_spans(accounts), np.concatenate([points, points - HOUR_S]))
    shares = (productive[: len(points)] - productive[len(points) :]) / HOUR_S
    return list(zip(points.tolist(), shares.tolist(), strict=True))


def first_eligible(accounts: Sequence[Account]) -> float | None:
    """When the run could first have started; of a run cut by the begin of the data, when they begin."""
    if accounts and accounts[0].window is not None and accounts[0].window.cut:
        return accounts[0].window.begin
    times = [
        next((t for t in (a.attempt.eligible, a.attempt.submit, a.attempt.start) if t is not None), None)
        for a in accounts
    ]
    starts = [a.attempt.start for a in accounts if a.attempt.start is not None]
    return min([t for t in times if t is not None] + starts, default=None)


def productive_spans(accounts: Iterable[Account]) -> Spans:
    """When anything of the run was productive."""
    return union(*(account.told.by_part["productive"] for account in accounts if account.told is not None))


def _share(above: Bounds, below: float) -> Bounds | None:
    if below <= 0:
        return None
    return Bounds(max(0.0, above.low / below), min(1.0, above.high / below))
