"""The training half of the Run page: its curves with what happened, its ranks and layers over time, its sampler."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sqlmodel import Session

from backend import traces
from backend.clock import unix, utc
from backend.model.reckoning import Run
from backend.store import incidents
from backend.traces import Cells, Rollback, Trace
from backend.web.base import Visit
from backend.web.cost_words import Drawing, amount
from detectors.training.signals import Signals
from frontend.figures.decimate import binned, kept
from frontend.figures.steps import Mark, Panel, curves, heat
from frontend.words import count, kind_words, number, span

Floats = NDArray[np.float64]
#: Days of a run that its page draws, marks in a figure, and rows of a map: of more ranks each row is several.
MOST_S, MOST_MARKS, MOST_ROWS, COLUMNS = 45 * 86_400.0, 120, 128, 120
#: Layers of one map.
MOST_LAYERS = 512
#: Rows of a table twin, evenly and with the extremes of the first curve.
TWIN_ROWS = 400
#: Signals of asynchronous training: those drawn first, and limits where papers give one (papers.md section 7).
DRAWN = ("reward", "ess", "staleness", "staleness_max", "kl", "clip_share", "buffer_depth", "sync_s", "idle_share")
LIMITS: Mapping[str, str] = {
    "ess": "below 0.3 (verl)",
    "m2": "above 0.04 (M2PO)",
    "kl": "beyond ±0.1 (verl)",
    "chi2_token": "above 1.0 (verl)",
    "is_mean": "outside 0.5 to 2 (verl)",
    "is_sd": "above 1.0 (verl)",
    "veto_share": "above 0.1 (verl)",
}
ASYNC = frozenset({"policy", "pools", "reward"})
#: Layer maps, what asks first: what papers watch before the loss moves.
FIRST_OF_LAYERS = ("qk_entropy", "qk_effective_rank", "qk_stable_rank", "router_similarity", "router_entropy",
                   "router_load_max", "update_ratio", "grad_norm", "weight_norm")  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Told:
    """All that a run told of its training between two times (unix s)."""

    folders: tuple[Path, ...]
    start: float
    end: float
    trace: Trace
    signals: Mapping[str, bool]
    back: tuple[Rollback, ...]

    @property
    def span(self) -> tuple[float, float]:
        at = self.trace.at
        return (float(at[0]), max(float(at[-1]), float(at[0]) + 1.0)) if len(at) else (self.start, self.end)


def told_by(seen: Visit, row: Run) -> Told:
    """What lies on the disk of the run."""
    end = row.moved_at.timestamp() + 86_400.0
    begun = row.began_at.timestamp() if row.began_at is not None else end - MOST_S
    start = max(begun - 60.0, end - MOST_S)
    jobs = {str(one["job"]) for one in row.document["attempts"]}
    trained = seen.parts.trained.get(seen.watch.cluster)
    folders = tuple(trained.folders(row.name, jobs, start, end)) if trained is not None else ()
    trace = trained.trace(folders, start, end) if trained is not None else traces.trace_of((), traces.CELL, start, end)
    return Told(folders, start, end, trace, traces.signals_in(folders), tuple(traces.rollbacks(trace)))


def training_drawings(session: Session, seen: Visit, row: Run, signal: str = "") -> dict[str, Drawing]:
    """Those of which the run tells something: training, ranks, layers, sampler."""
    told = told_by(seen, row)
    if not len(told.trace) and not told.signals:
        return {}
    found = {"training": training(told, marks(session, seen, row, told))}
    if (ranks := rank_map(told)) is not None:
        found["ranks"] = ranks
    if (layers := layer_map(told, signal)) is not None:
        found["layers"] = layers
    if (sampler := sampler_drawing(told, seen.watch.signals)) is not None:
        found["sampler"] = sampler
    return found


# --- curves ---------------------------------------------------------------------------------------------------------


def training(told: Told, found: Sequence[Mark]) -> Drawing:
    whole = told.trace.whole()
    named: tuple[tuple[str, Floats, str, bool], ...] = (
        ("Loss", whole.loss, "", False),
        ("Gradient norm", whole.grad_norm, "", True),
        ("Step time", whole.step_s, "s", True),
    )
    panels = []
    for name, values, unit, log in named:
        said = ~np.isnan(values) if np.isfinite(values).any() else np.zeros(len(values), bool)
        if name == "Loss" and said.any():
            said |= np.isnan(values) & (whole.step_s > 0) & after(said)
        if said.any():
            panels.append(Panel(name, whole.at[said], values[said], log and wide(values[said]), unit))
    places = kept(panels[0].values if panels else whole.at, TWIN_ROWS) if len(whole) else np.zeros(0, np.int64)
    rows = tuple(
        (f"{utc(float(whole.at[n])):%Y-%m-%d %H:%M:%S}", number(int(whole.step[n])),
         *(_cell(values[n]) for _, values, _, _ in named))
        for n in places if n < len(whole)
    )  # fmt: skip
    redone = sum(back.steps for back in told.back)
    note = f"{number(len(whole))} rows to step {number(int(whole.step.max()))}." if len(whole) else ""
    if told.back:
        lost = sum(back.lost_s for back in told.back)
        again = f" {number(redone)} steps were done again" + (f", {span(lost)} of work." if lost else ".")
        note += f" It went back {count(len(told.back), 'time')}:{again}"
    return Drawing(
        title="How it trains",
        note=note,
        defined="",
        label=f"Curves of {', '.join(p.name.lower() for p in panels) or 'nothing'} over time.",
        caption="Lines through all: incidents red, rollbacks dashed, saves dotted, attempts grey. Every spike is kept "
        "where points are left out; x marks what is no number.",
        columns=("Time, UTC", "#Step", "#Loss", "#Gradient norm", "#Step time, s"),
        rows=rows,
        draw=lambda theme, narrow: curves(panels, found, told.span, theme, narrow),
        absent=None if panels else ("No loss is known", "It takes rows with loss, grad_norm or step_time_s."),
        size="",
    )


def after(said: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """From the first that was said on."""
    return np.arange(len(said)) > int(np.argmax(said))


def wide(values: Floats) -> bool:
    good = values[np.isfinite(values) & (values > 0)]
    return bool(good.size and good.max() > 20 * np.median(good))


def _cell(value: float) -> str:
    return "" if math.isnan(value) else amount(value, 4) if math.isfinite(value) else str(value)


def marks(session: Session, seen: Visit, row: Run, told: Told) -> list[Mark]:
    """What happened: of too many saves every so many, of the others the newest."""
    attempts = row.document["attempts"]
    jobs = [str(one["job"]) for one in attempts]
    start, end = told.span
    found = [Mark(one["start"], "attempt", f"job {one['job']}") for one in attempts if one["start"] is not None]
    found += [Mark(back.at, "rollback", f"back to step {back.to}") for back in told.back]
    opened = incidents.of_run(session, seen.watch.cluster, row.name, jobs, utc(start), MOST_MARKS)
    found += [Mark(unix(one.opened_at), "incident", kind_words(one.kind)) for one in opened]
    trained = seen.parts.trained.get(seen.watch.cluster)
    saves = trained.saves({row.name, *jobs}, start, end) if trained is not None else []
    done = [Mark(save.at, "save", f"save of step {save.step}") for save in saves if save.kind == "save"]
    return [*found[-MOST_MARKS:], *done[:: max(1, -(-len(done) // 16))]]


# --- maps -----------------------------------------------------------------------------------------------------------


def rank_map(told: Told) -> Drawing | None:
    """Step time of each rank as a ratio to the median of all ranks at that time; rows of several ranks show the
    slowest of them."""
    trace = told.trace
    own = (trace.rank >= 0) & np.isfinite(trace.step_s)
    at, of, took = trace.at[own], trace.rank[own], trace.step_s[own]
    usual, several = medians(trace.step[own], took)
    at, of, ratio = at[several], of[several], took[several] / np.maximum(usual[several], 1e-9)
    ranks = np.unique(of)
    if len(ranks) < 2:
        return None
    each = -(-int(ranks.max() + 1) // MOST_ROWS)
    height = -(-int(ranks.max() + 1) // each)
    names = [f"rank {n * each}" if each == 1 else f"{n * each} to {(n + 1) * each - 1}" for n in range(height)]
    cells = binned((of // each).astype(np.int64), at, ratio, (height, COLUMNS), *told.span)
    worst = worst_rows(of, ratio)
    rows = tuple((f"rank {rank}", amount(middle, 3), amount(high, 3), number(n)) for rank, middle, high, n in worst)
    slow = rows[0] if rows and worst[0][1] > 1.1 else None
    return Drawing(
        title="Ranks over time",
        note=f"{slow[0]} takes {slow[1]} of the usual step, in the middle." if slow else "No rank stays behind.",
        defined="",
        label=f"Step time of {count(len(ranks), 'rank')} over time, as a ratio to the median of all.",
        caption=f"Ratio to the median of the step; each cell shows its highest. {count(len(ranks), 'rank')}"
        + (f", {each} to a row." if each > 1 else "."),
        columns=("Rank", "#Median ratio", "#Highest", "#Steps"),
        rows=rows,
        draw=lambda theme, narrow: heat(cells, names, told.span, theme, narrow, (0.9, 1.5), "of the median"),
        size="",
    )


def medians(group: NDArray[np.int64], values: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Of each value the median of its group, and whether there are several in it: one alone has nothing to compare."""
    order = np.lexsort((values, group))
    ranked, sorted_ = values[order], group[order]
    starts = np.flatnonzero(np.concatenate([[True], sorted_[1:] != sorted_[:-1]])) if len(group) else np.zeros(0, int)
    counts = np.diff(np.append(starts, len(group)))
    middle = (ranked[starts + (counts - 1) // 2] + ranked[starts + counts // 2]) / 2
    found, several = np.empty(len(group)), np.empty(len(group), np.bool_)
    found[order], several[order] = np.repeat(middle, counts), np.repeat(counts > 1, counts)
    return found, several


def worst_rows(of: NDArray[np.int32], ratio: Floats, most: int = 60) -> list[tuple[int, float, float, int]]:
    """(rank, median ratio, highest, rows) of each rank, the slowest first."""
    ranks = np.unique(of)
    order = np.argsort(of, kind="stable")
    cuts = np.searchsorted(of[order], ranks)
    parts = np.split(ratio[order], cuts[1:])
    found = [(int(r), float(np.median(p)), float(p.max()), len(p)) for r, p in zip(ranks, parts, strict=True)]
    return sorted(found, key=lambda row: (-row[1], row[0]))[:most]


def layer_map(told: Told, signal: str) -> Drawing | None:
    """One signal of every layer: how far it stands from its own usual value, in its own usual deviations."""
    names = [name for name, of_layers in told.signals.items() if of_layers]
    if not names:
        return None
    first = next((name for name in FIRST_OF_LAYERS if name in names), sorted(names)[0])
    shown = signal if signal in names else first
    cells = traces.cells_of(told.folders, shown, told.start, told.end)
    layers = sorted(cells.layers, key=lambda text: (not text.isdecimal(), text.zfill(12)))[:MOST_LAYERS]
    far, table = departures(cells, layers)
    span_ = (float(cells.at.min()), max(float(cells.at.max()), float(cells.at.min()) + 1.0))
    place = {name: n for n, name in enumerate(layers)}
    of = np.array([*(place.get(name, -1) for name in cells.layers), -1], np.int64)[cells.layer]
    drawn = binned(of, cells.at, np.where(np.isfinite(far), np.abs(far), 12.0), (len(layers), COLUMNS), *span_)
    rows = tuple((f"layer {name}", *(amount(value, 4) for value in values)) for name, values in table)
    named = [f"layer {n}" for n in layers]
    other = ", ".join(sorted(set(names) - {shown})[:8])
    return Drawing(
        title=f"Layers over time: {shown.replace('_', ' ')}",
        note="No limit holds for every model; red left the run's own band." + f" Also told: {other}." * bool(other),
        defined="",
        label=f"{shown} of {count(len(layers), 'layer')} over time.",
        caption="Distance from the layer's median over the run in median absolute deviations, cut at 12; add "
        "?signal=NAME to the address for another signal.",
        columns=("Layer", "#Median", "#Lowest", "#Highest", "#Newest"),
        rows=rows,
        draw=lambda theme, narrow: heat(drawn, named, span_, theme, narrow, (0.0, 12.0), "MADs"),
        size="",
    )  # fmt: skip


def departures(cells: Cells, layers: Sequence[str]) -> tuple[Floats, list[tuple[str, tuple[float, ...]]]]:
    """Per value its distance from the layer's median in MADs (floored at 0.1 % of the median); and of each layer
    median, lowest, highest, newest."""
    far = np.full(len(cells), np.nan)
    table: list[tuple[str, tuple[float, ...]]] = []
    order = np.argsort(cells.layer, kind="stable")
    cuts = np.searchsorted(cells.layer[order], np.arange(len(cells.layers) + 1))
    place_of = {name: place for place, name in enumerate(cells.layers)}
    for name in layers:
        mine = order[cuts[place_of[name]] : cuts[place_of[name] + 1]]
        values = cells.value[mine]
        good = values[np.isfinite(values)]
        if not good.size:
            continue
        middle = float(np.median(good))
        spread = 1.4826 * float(np.median(np.abs(good - middle)))
        far[mine] = (values - middle) / max(spread, abs(middle) * 1e-3, 1e-12)
        table.append((name, (middle, float(good.min()), float(good.max()), float(values[-1]))))
    return far, table


# --- asynchronous RL -------------------------------------------------------------------------------------------------


def sampler_drawing(told: Told, signals: Signals) -> Drawing | None:
    """Trainer and sampler: reward, effective samples, staleness, distance of the two policies, their pools."""
    names = asynchronous(told, signals)
    if not names:
        return None
    found = {name: traces.cells_of(told.folders, name, told.start, told.end) for name in names}
    panels = [
        Panel(name.replace("_", " "), cells.at, cells.value, wide(cells.value), signals.by_name[name].unit)
        for name, cells in found.items()
        if name in DRAWN
    ][:6]
    panels = panels or [Panel(n.replace("_", " "), c.at, c.value) for n, c in list(found.items())[:6]]
    ends = [float(panel.at[place]) for panel in panels for place in (0, -1)]
    over = (min(ends), max(max(ends), min(ends) + 1.0))
    return Drawing(
        title="Trainer and sampler",
        note="Asynchronous RL: what the trainer learns from was sampled by an older policy.",
        defined="",
        label=f"Curves of {', '.join(p.name for p in panels)} over time.",
        caption="Every spike is kept where points are left out.",
        columns=("Signal", "#Newest", "#Median", "#Lowest", "#Highest", "Asks"),
        rows=tuple(sampler_row(name, cells) for name, cells in found.items()),
        draw=partial(_sampler, panels, over),
        size="",
    )


def _sampler(
    panels: Sequence[Panel], over: tuple[float, float], theme: Mapping[str, str], narrow: bool
) -> dict[str, object]:
    return curves(panels, (), over, theme, narrow)


def asynchronous(told: Told, signals: Signals) -> list[str]:
    """Signals of the run that a sampler and a trainer tell, those drawn first."""
    its = [name for name in told.signals if name in signals.by_name and signals.by_name[name].about in ASYNC]
    return sorted(its, key=lambda name: (DRAWN.index(name) if name in DRAWN else len(DRAWN), name))


def sampler_row(name: str, cells: Cells) -> tuple[str, ...]:
    good = cells.value[np.isfinite(cells.value)]
    told = [cells.value[-1], np.median(good), good.min(), good.max()] if good.size else [math.nan] * 4
    return name.replace("_", " "), *(_cell(float(value)) for value in told), LIMITS.get(name, "departure from its band")
