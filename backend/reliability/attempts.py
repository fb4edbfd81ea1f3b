"""Where the time of an attempt went, by its steps and checkpoints: the exact parts of contracts.md.

An attempt is cut where it loads again while it runs (a restart inside the job, a rollback): each piece is told like an
attempt of its own, and a piece that was followed by a load keeps what the load brought back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from backend.facts import AttemptFacts, CheckpointFacts
from backend.reliability.history import Floats
from backend.reliability.parts import PARTS, Part, Parts, exactly
from backend.reliability.progress import Progress
from backend.reliability.spans import NONE, Spans, length, spans, until, within, without

#: A row that stands at least this far inside a save (s, and as a share of the save) was trained beside it.
INSIDE_S = 1.0
INSIDE_SHARE = 0.05
#: A row this much slower than the run's usual pace is slow (papers.md 6, GREYHOUND: a change over 10 %).
SLOW_RATIO = 1.1
#: Rows whose median says that a slow one is no single hiccup.
SLOW_ROWS = 5

Ending = Literal["completed", "broken", "open"]


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """What of an attempt is accounted: ``begin`` to ``end`` (unix s). ``cut``: it had begun before the data do."""

    begin: float
    end: float
    ending: Ending
    cut: bool = False

    @property
    def wall_s(self) -> float:
        return self.end - self.begin


@dataclass(frozen=True, slots=True, eq=False)
class Told:
    """The time of an attempt as spans, one set a part, and how its productive time went.

    slow_s, degraded_s: productive seconds in rows slower than the run's pace, and with replicas missing.
    weighted_s: productive seconds times the share of replicas that lived. stepped_s: kept or not.
    """

    by_part: dict[Part, Spans]
    slow_s: float
    degraded_s: float
    weighted_s: float

    @property
    def parts(self) -> Parts:
        return {part: exactly(length(self.by_part[part])) for part in PARTS}


@dataclass(frozen=True, slots=True)
class _Piece:
    """From a start or load to the next load, or to the end: rows ``low`` to ``high`` of the progress."""

    begin: float
    end: float
    low: int
    high: int
    ending: Ending
    load: CheckpointFacts | None
    kept_until: float | None = None


def ending_of(attempt: AttemptFacts) -> Ending:
    """Of a cleaned attempt: only what is over has an end."""
    if attempt.end is None:
        return "open"
    return "completed" if attempt.state == "COMPLETED" else "broken"


def tell(window: Window, rows: Progress, checkpoints: Sequence[CheckpointFacts], pace_s: float) -> Told:
    """The parts of an attempt that was followed step by step. ``pace_s``: the run's usual step, NaN = its own.

    ``checkpoints`` are the saves and loads that finished in it. Without rows it never stepped: all but loads and
    saves is startup.
    """
    checkpoints = [c for c in checkpoints if c.at <= window.end]
    rows = replace(rows, at=np.clip(rows.at, window.begin, window.end))
    saves = [c for c in checkpoints if c.kind == "save"]
    loads = sorted((c for c in checkpoints if c.kind == "load"), key=lambda c: c.at)
    loads = [c for c in loads if not _rows_inside(rows.at, c)]
    stalls = spans(_cover(c, window) for c in saves if c.blocking and not _rows_inside(rows.at, c))
    found: dict[Part, list[Spans]] = {part: [] for part in PARTS}
    reading = spans(_cover(c, window) for c in loads)
    for piece in _pieces(window, rows, loads):
        _tell_piece(piece, window, rows, saves, stalls, reading, found)
    by_part = {part: np.concatenate([NONE, *sets]) for part, sets in found.items()}
    return Told(by_part, *_quality(window, rows, by_part["productive"], pace_s))


def _cover(checkpoint: CheckpointFacts, window: Window) -> tuple[float, float]:
    begin = checkpoint.at - max(0.0, checkpoint.duration_s)
    return max(begin, window.begin), min(checkpoint.at, window.end)


def _rows_inside(at: Floats, checkpoint: CheckpointFacts) -> bool:
    """Whether steps ended well inside of it: then training did not wait for it."""
    edge = max(INSIDE_S, INSIDE_SHARE * checkpoint.duration_s)
    low, high = np.searchsorted(at, [checkpoint.at - checkpoint.duration_s + edge, checkpoint.at - edge])
    return bool(high > low)


def _pieces(window: Window, rows: Progress, loads: Sequence[CheckpointFacts]) -> list[_Piece]:
    """The attempt, cut at each load that began after a step."""
    again = [c for c in loads if len(rows.at) and c.at - c.duration_s >= rows.at[0]]
    before = [c for c in loads if c not in again]
    begin, low = window.begin, 0
    load = before[-1] if before else None
    found: list[_Piece] = []
    for c in again:
        end = max(begin, _cover(c, window)[0])
        high = int(np.searchsorted(rows.at, c.at, side="left"))
        if high > low:
            found.append(_Piece(begin, end, low, high, "broken", load, _kept_until(rows, low, high, c)))
            begin, low = end, high
        load = c
    found.append(_Piece(begin, window.end, low, len(rows.at), window.ending, load))
    return found


def _kept_until(rows: Progress, low: int, high: int, load: CheckpointFacts) -> float:
    """When the piece had reached what the load brought back."""
    reached = int(np.searchsorted(np.maximum.accumulate(rows.step[low:high]), load.step, side="right"))
    return float(rows.at[low + reached - 1]) if reached else -np.inf


def _tell_piece(
    piece: _Piece,
    window: Window,
    rows: Progress,
    saves: Sequence[CheckpointFacts],
    stalls: Spans,
    reading: Spans,
    found: dict[Part, list[Spans]],
) -> None:
    found["load"].append(within(reading, piece.begin, piece.end))
    found["save_stall"].append(without_all(within(stalls, piece.begin, piece.end), reading))
    taken = spans((float(a), float(b)) for part in (stalls, reading) for a, b in part)
    if piece.high <= piece.low:
        found["startup"].append(without(piece.begin, piece.end, taken))
        return
    first = _first_step(piece, window, rows, reading)
    found["startup"].append(without(piece.begin, first, taken))
    held = within(stalls, first, piece.end)
    last = max(float(min(rows.at[piece.high - 1], piece.end)), float(held[-1, 1]) if len(held) else first)
    stepping_end, after = _tail(piece, last, rows, stalls)
    if after is not None:
        found[after].append(without(last, piece.end, taken))
    kept_until = _kept(piece, rows, saves, stepping_end)
    found["productive"].append(without(first, min(kept_until, stepping_end), taken))
    found["lost_since_checkpoint"].append(without(max(first, kept_until), stepping_end, taken))


def without_all(these: Spans, taken: Spans) -> Spans:
    """``these`` without ``taken``, which hardly ever meet."""
    parts = [without(float(low), float(high), taken) for low, high in these]
    return np.concatenate([NONE, *parts])


def _first_step(piece: _Piece, window: Window, rows: Progress, reading: Spans) -> float:
    """When the first row's own steps began: not before the load that it followed."""
    at = float(min(rows.at[piece.low], piece.end))
    if window.cut and piece.begin == window.begin and not at - window.begin > rows.hang_after_s:
        return window.begin
    before = piece.load.step if piece.load is not None else None
    loaded = within(reading, piece.begin, at)
    ready = float(loaded[-1, 1]) if len(loaded) else piece.begin
    return min(at, max(at - rows.own_s(piece.low, before), ready, piece.begin))


def _tail(piece: _Piece, last: float, rows: Progress, stalls: Spans) -> tuple[float, Part | None]:
    """(until when it stepped, the part of the rest). What is shorter than a hang is a step that was not finished."""
    rest = piece.end - last
    if piece.ending == "completed":
        return last, "teardown"
    limit = rows.hang_after_s
    if piece.ending == "open" and piece.high - piece.low > 1:
        limit = max(limit, 1.5 * float(np.diff(rows.at[piece.low : piece.high]).max()))
    return (last, "hang") if rest > limit else (piece.end, None)


def _kept(piece: _Piece, rows: Progress, saves: Sequence[CheckpointFacts], stepping_end: float) -> float:
    """Until when the stepping of the piece counts: a save holds what was there when it began."""
    if piece.ending != "broken":
        return stepping_end
    if piece.kept_until is not None:
        following = piece.high < len(rows.step)
        if following and rows.step[piece.high] > rows.step[piece.high - 1]:
            return stepping_end
        return piece.kept_until
    done = [c for c in saves if piece.begin <= c.at <= piece.end]
    if not done:
        return -np.inf
    best = max(done, key=lambda c: c.at - _beside(c, rows))
    return best.at - _beside(best, rows)


def _beside(save: CheckpointFacts, rows: Progress) -> float:
    """Seconds that were trained while it was written: they are not in it."""
    return 0.0 if save.blocking and not _rows_inside(rows.at, save) else save.duration_s


def _quality(window: Window, rows: Progress, productive: Spans, pace_s: float) -> tuple[float, float, float]:
    """(slow, degraded, weighted) seconds of ``productive``."""
    total = length(productive)
    if not len(rows.at):
        return 0.0, 0.0, total
    edges = np.concatenate([[window.begin], rows.at, [window.end]])
    kept = np.diff(until(productive, np.clip(edges, window.begin, window.end)))
    kept[-2] += kept[-1]  # what follows the last row went like it
    kept = np.maximum(kept[:-1], 0.0)
    degraded = float(kept[rows.weight < 1.0].sum())
    lost = float((kept * (1.0 - rows.weight)).sum())
    return float(kept[_slow(rows, pace_s)].sum()), degraded, total - lost


def _slow(rows: Progress, pace_s: float) -> NDArray[np.bool_]:
    """Rows in which most of five in a row were slower than usual; gaps (evaluations, saves) are not pace."""
    usual = pace_s if np.isfinite(pace_s) else rows.pace_s
    steps = np.diff(rows.step)
    with np.errstate(invalid="ignore", divide="ignore"):
        by_gap = np.concatenate([[np.nan], np.where(steps > 0, np.diff(rows.at) / steps, np.nan)])
    by_gap[1:][np.diff(rows.at) > 3 * rows.gap_s] = np.nan
    pace = np.where(np.isfinite(rows.step_s), rows.step_s, by_gap)
    slow: NDArray[np.bool_] = pace > SLOW_RATIO * usual
    if len(slow) < SLOW_ROWS:
        return np.zeros(len(slow), np.bool_)
    half = SLOW_ROWS // 2
    around = np.lib.stride_tricks.sliding_window_view(np.pad(slow, half), SLOW_ROWS).sum(axis=1)
    sustained: NDArray[np.bool_] = np.logical_and(slow, around > half)
    return sustained
