"""Attention, router, update and gradient by layer: a departure from the healthy band that the run itself has drawn.

No threshold holds for every model (2606.28116 says so of its own monitors). A signal is forecast from its level and
trend (Brown's double exponential smoothing); what is judged is a short and a longer mean of the forecast's misses, by
how far the same means strayed while the run was healthy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from detectors.catalogue import Catalogue
from detectors.model import Entity, Evidence, Finding, Fleet, Judged, Need, Severity, Tick
from detectors.rows import cells, started
from detectors.training import memory
from detectors.training.phrases import layer_words, plain_number, way_back
from detectors.training.signals import Signal, Signals
from detectors.training.told import SAVES, STEP, Row, by_step, mark, number, rows

Floats = NDArray[np.float64]
Places = NDArray[np.intp]
#: A value on the scale of its band, the row it is of, and the signal.
Look = tuple[float, Row, Signal]
#: What a departure of each sort of signal is called.
KINDS: Mapping[str, str] = {
    "attention": "attention_instability",
    "router": "router_collapse",
    "update": "grad_norm_precursor",
    "gradient": "grad_norm_precursor",
}
WORDS: Mapping[str, str] = {
    "attention": "attention",
    "router": "the router",
    "update": "the size of updates",
    "gradient": "the gradient",
}
#: Signals that are in proportion to the learning rate: their band is drawn for the quotient.
BY_RATE = frozenset({"qk_norm", "update_norm", "update_ratio"})


@dataclass(slots=True)
class BandState(memory.RunState):
    """One column a cell, in the order of ``cell``. ``cell_of``: mark of its run. ``cell_place``: its layer, as text.
    ``cell_code``: its signal; ``cell_apart``: as it is apart from the other layers. ``cell_step``, ``cell_at``: its
    last look. ``looks``: how many (since it began anew).
    ``once``, ``twice``: the signal smoothed once and twice; ``scatter``: usual miss of one look; ``short``, ``long``:
    means of the misses; ``short_spread``, ``long_spread``: their usual size. ``now``: a short mean of the signal.
    ``over``: looks in a row beyond the band, with the sign of the side; ``calm``: looks in a row within, since it was
    found; ``since``, ``from_step``: when it left (0 and -1 = it has not); ``usual``: the forecast then; ``worst``:
    farthest, in units of the band."""

    cell: memory.Marks = cells(0, np.uint64, axis="cell")
    cell_of: memory.Marks = cells(0, np.uint64, axis="cell")
    cell_place: NDArray[np.str_] = memory.texts(axis="cell")
    cell_code: NDArray[np.uint8] = cells(0, np.uint8, axis="cell")
    cell_apart: NDArray[np.bool_] = cells(False, np.bool_, axis="cell")
    cell_step: Floats = cells(-1.0, axis="cell")
    cell_at: Floats = cells(0.0, axis="cell")
    looks: Floats = cells(0.0, axis="cell")
    once: Floats = cells(0.0, axis="cell")
    twice: Floats = cells(0.0, axis="cell")
    scatter: Floats = cells(0.0, axis="cell")
    short: Floats = cells(0.0, axis="cell")
    long: Floats = cells(0.0, axis="cell")
    short_spread: Floats = cells(0.0, axis="cell")
    long_spread: Floats = cells(0.0, axis="cell")
    now: Floats = cells(0.0, axis="cell")
    over: Floats = cells(0.0, axis="cell")
    calm: Floats = cells(0.0, axis="cell")
    since: Floats = cells(0.0, axis="cell")
    from_step: Floats = cells(-1.0, axis="cell")
    usual: Floats = cells(0.0, axis="cell")
    worst: Floats = cells(0.0, axis="cell")


@dataclass(frozen=True, slots=True)
class Bands:
    """Thresholds: all that begin with band_, and training_forget_s, training_change_share."""

    catalogue: Catalogue = field(repr=False)
    signals: Signals = field(repr=False)
    needs: frozenset[Need] = frozenset({STEP, SAVES})

    @property
    def name(self) -> str:
        return "training/bands"

    def start(self, fleet: Fleet) -> BandState:
        return started(BandState, fleet)

    def move(self, state: BandState, old: Fleet, new: Fleet) -> BandState:
        return state

    def step(self, state: BandState, tick: Tick, fleet: Fleet) -> Judged:
        found = rows(tick, STEP, SAVES)
        for _, _, some in by_step(found):
            self._fold(state, some)
        memory.forget(state, tick.at, self.catalogue.limit("training_forget_s"), ("cell",))
        return Judged(self._findings(state, fleet))

    def _fold(self, state: BandState, some: Sequence[Row]) -> None:
        """One step of one run: what it says of itself, then every cell it has a value for."""
        at = memory.place(state, some[0])
        found: dict[int, Look] = {}
        anew, back = False, 0.0
        for row in some:
            if row.event.namespace == SAVES:
                memory.saved(state, at, row)
                continue
            back = max(back, memory.advance(state, at, row))
            anew |= memory.changed(state, at, row, self.catalogue.limit("training_change_share"))
            if row.layer or row.rank <= 0:
                found |= self._values(row, float(state.run_lr[at]))
        if anew or back:
            self._unsettle(state, at, anew, back)
        if found:
            found |= _apart(found)
            keys = np.array(sorted(found), np.uint64)
            picked = [found[int(key)] for key in keys]
            self._look(state, keys, picked)

    def _values(self, row: Row, rate: float) -> Iterable[tuple[int, Look]]:
        """What a row says of its layer, on the scale that its band is drawn on, by cell."""
        key = mark(row.run, row.place)
        for name, text in row.event.attrs.items():
            signal = self.signals.by_name.get(name)
            if signal is None or signal.about not in KINDS or signal.harm == "none":
                continue
            if not row.layer and signal.about == "gradient":  # the run's own is judged with its loss
                continue
            value = number(text)
            if value is None:
                continue
            if signal.name in BY_RATE and rate > 0:
                value /= rate
            if signal.scale == "log":
                value = float(np.log(value)) if value > 0 else np.nan
            if np.isfinite(value):
                yield key | signal.code, (value, row, signal)

    def _unsettle(self, state: BandState, at: int, anew: bool, back: float) -> None:
        """The run works otherwise, or went back: far enough, and its bands are drawn afresh where they left off."""
        limit = self.catalogue.limit
        mine = state.cell_of == state.run[at]
        if not anew and back <= limit("band_back_steps"):
            state.cell_step[mine] = np.minimum(state.cell_step[mine], state.run_step[at] - 1)
            return
        state.cell_step[mine] = -1.0
        state.looks[mine] = np.minimum(state.looks[mine], limit("band_looks") - limit("band_settle_looks"))
        state.over[mine] = 0.0
        for name in ("short", "long"):
            getattr(state, name)[mine] = 0.0

    def _look(self, state: BandState, keys: memory.Marks, picked: Sequence[Look]) -> None:
        at = np.searchsorted(state.cell, keys)
        known = np.isin(keys, state.cell, assume_unique=True)
        if not known.all():
            new = [one for one, there in zip(picked, known, strict=True) if not there]
            memory.grow(state, "cell", keys[~known], {"cell_place": [row.place for _, row, _ in new]})
            plain = _plain_keys(new)
            apart = [key not in plain for key in keys[~known].tolist()]
            at = np.searchsorted(state.cell, keys)
            fresh = at[~known]
            state.cell_of[fresh] = [mark(row.run) for _, row, _ in new]
            state.cell_code[fresh] = [signal.code for _, _, signal in new]
            state.cell_apart[fresh] = apart
        times = np.array([row.at for _, row, _ in picked])
        steps = np.array([float(row.step) for _, row, _ in picked])
        newer = (times > state.cell_at[at]) & (steps > state.cell_step[at])
        if newer.any():
            x = np.array([value for value, _, _ in picked])[newer]
            self._judge(state, at[newer], x, steps[newer], times[newer])

    def _judge(self, state: BandState, at: Places, x: Floats, steps: Floats, moments: Floats) -> None:
        """Fold one look of each cell in. Looks beyond the band teach it nothing."""
        limit = self.catalogue.limit
        looks = state.looks[at]
        begins = (looks == 0) & (state.scatter[at] == 0)
        for name in ("once", "twice", "now"):
            getattr(state, name)[at] = np.where(begins, x, getattr(state, name)[at])
        learning = looks < limit("band_looks")
        unsettled = learning & (limit("band_looks") - looks <= limit("band_settle_looks")) & (state.scatter[at] > 0)
        weight = np.maximum(1.0 / (looks + 1.0), 1.0 / limit("band_long_looks"))
        weight = np.where(unsettled, np.maximum(weight, 2.0 / limit("band_settle_looks")), weight)
        forecast = _forecast(state, at, weight)
        floor = limit("band_floor") * np.maximum(np.abs(forecast), limit("band_least"))
        miss, beyond = x - forecast, np.zeros(len(x))
        signed = np.zeros(len(x))
        holds = state.since[at] > 0
        for name in ("short", "long"):
            mean = getattr(state, name)[at]
            mean += (miss - mean) / limit(f"band_{name}_mean_looks")
            unit = np.maximum(getattr(state, f"{name}_spread")[at], floor)
            far = np.abs(mean) / unit
            signed = np.where(far > beyond, mean, signed)
            beyond = np.maximum(beyond, far)
            getattr(state, name)[at] = mean
        heavy = np.array([one.about in ("update", "gradient") for one in self.signals.by_name.values()])
        times = np.where(heavy[state.cell_code[at]], limit("band_gradient_share"), 1.0) * limit("band_times")
        out = ~learning & (beyond > times)
        self._learn(state, at, x, miss, weight, floor, learning, out | holds)
        state.now[at] += (x - state.now[at]) / limit("band_short_mean_looks")
        state.looks[at] = looks + 1
        state.cell_at[at], state.cell_step[at] = moments, steps
        side = np.where(signed < 0, -1.0, 1.0)
        state.over[at] = np.where(out, np.where(np.sign(state.over[at]) == side, state.over[at] + side, side), 0.0)
        self._level(state, at, out, beyond, forecast, steps, moments)

    def _learn(
        self,
        state: BandState,
        at: Places,
        x: Floats,
        miss: Floats,
        weight: Floats,
        floor: Floats,
        learning: NDArray[np.bool_],
        kept: NDArray[np.bool_],
    ) -> None:
        """kept: cells that learn nothing from this look, for they are out of their band."""
        limit = self.catalogue.limit
        most = limit("band_winsor")
        scatter = state.scatter[at]
        near = np.where(learning, miss, np.clip(miss, -most * scatter, most * scatter))
        once, twice = state.once[at], state.twice[at]
        once_after = once + weight * (x - miss + near - once)
        state.once[at] = np.where(kept, once, once_after)
        state.twice[at] = np.where(kept, twice, twice + weight * (once_after - twice))
        by = np.where(kept, 0.0, np.maximum(1.0 / (state.looks[at] + 1.0), 1.0 / limit("band_spread_looks")))
        state.scatter[at] = scatter + by * (np.abs(near) - scatter)
        for name in ("short", "long"):
            spread = getattr(state, f"{name}_spread")[at]
            size = np.abs(getattr(state, name)[at])
            far = np.where(learning, size, np.minimum(size, most * np.maximum(spread, floor)))
            getattr(state, f"{name}_spread")[at] = spread + by * (far - spread)

    def _level(
        self,
        state: BandState,
        at: Places,
        out: NDArray[np.bool_],
        beyond: Floats,
        forecast: Floats,
        steps: Floats,
        times: Floats,
    ) -> None:
        """A departure begins after some looks in a row, and ends after more of them within the band."""
        limit = self.catalogue.limit
        on = state.since[at] > 0
        begins = ~on & (np.abs(state.over[at]) >= limit("band_in_a_row")) & self._harms(state, at)
        state.since[at] = np.where(begins, times, state.since[at])
        state.from_step[at] = np.where(begins, steps, state.from_step[at])
        state.usual[at] = np.where(begins, forecast, state.usual[at])
        state.worst[at] = np.where(begins | on, np.maximum(np.where(begins, 0.0, state.worst[at]), beyond), 0.0)
        state.calm[at] = np.where(begins | out, 0.0, state.calm[at] + on)
        ends = on & (state.calm[at] >= limit("band_calm_looks"))
        # A departure that lasts is the new usual after a while: told once, not for ever.
        ends |= on & (state.looks[at] > 0) & (steps - state.from_step[at] > limit("band_told_steps"))
        state.since[at] = np.where(ends, 0.0, state.since[at])
        for name, fill in (("from_step", -1.0), ("worst", 0.0), ("calm", 0.0), ("over", 0.0)):
            getattr(state, name)[at] = np.where(ends, fill, getattr(state, name)[at])
        for name in ("once", "twice"):
            getattr(state, name)[at] = np.where(ends, state.now[at], getattr(state, name)[at])
        for name in ("short", "long"):
            getattr(state, name)[at] = np.where(ends, 0.0, getattr(state, name)[at])
        state.looks[at] = np.where(ends, limit("band_looks") - limit("band_settle_looks"), state.looks[at])

    def _harms(self, state: BandState, at: Places) -> NDArray[np.bool_]:
        harm = np.array([_SIDE[one.harm] for one in self.signals.by_name.values()])[state.cell_code[at]]
        good: NDArray[np.bool_] = (harm == 0) | (harm == np.sign(state.over[at]))
        return good

    # --- what is said ---------------------------------------------------------------------------------------------

    def _findings(self, state: BandState, fleet: Fleet) -> tuple[Finding, ...]:
        by_what: dict[tuple[int, str], list[int]] = {}
        listed = tuple(self.signals.by_name.values())
        for cell in np.flatnonzero(state.since > 0):
            run = memory.column(state, state.cell_of[cell])
            if run >= 0:
                kind = KINDS[listed[state.cell_code[cell]].about]
                by_what.setdefault((run, kind), []).append(int(cell))
        found = [self._finding(state, run, kind, some, fleet) for (run, kind), some in by_what.items()]
        return tuple(sorted(found, key=lambda f: f.key))

    def _finding(self, state: BandState, run: int, kind: str, some: list[int], fleet: Fleet) -> Finding:
        listed = tuple(self.signals.by_name.values())
        some.sort(key=lambda cell: (-float(state.worst[cell]), int(state.cell[cell])))
        first = min(some, key=lambda cell: (float(state.since[cell]), some.index(cell)))
        signals = [listed[state.cell_code[cell]] for cell in some]
        plain = [cell for cell in some if not state.cell_apart[cell]] or some
        suspect = [cell for cell in plain if 3 * state.worst[cell] >= state.worst[plain[0]]]
        layers = list(dict.fromkeys(str(state.cell_place[cell]) for cell in suspect))
        evidence = tuple(_evidence(state, cell, signal) for cell, signal in list(zip(some, signals, strict=True))[:6])
        looks = int(state.looks[some[0]])
        reason = (
            f"{state.run_name[run]}: {WORDS[signals[0].about]} of {layer_words(layers)} left its healthy band at step "
            f"{int(state.from_step[first]):,}: {signals[0].name} misses its own forecast by "
            f"{float(state.worst[some[0]]):.1f} times what is usual. "
            f"No threshold holds for every model: the band is this run's own, of {looks:,} looks. "
            f"{way_back(state, run, float(state.from_step[first]))}"
        )
        limit = self.catalogue.limit("band_times")
        score = min(
            0.9, 0.4 + 0.1 * len({s.name for s in signals}) + 0.1 * min(float(state.worst[some[0]]) / limit, 2.0)
        )
        entity: Entity = memory.entity(state, run, fleet)
        severity = Severity.WARNING
        return Finding(self.name, kind, entity, severity, score, float(state.since[first]), reason, evidence)


def _apart(found: Mapping[int, Look]) -> dict[int, Look]:
    """The same looks against the middle of the other layers: what an odd batch does to all layers falls out."""
    by_code: dict[int, list[Look]] = {}
    for value, row, signal in found.values():
        if signal.about == "router" or not row.layer:
            continue  # routers differ from each other for good
        by_code.setdefault(signal.code, []).append((value, row, signal))
    apart: dict[int, Look] = {}
    marks: dict[str, int] = {}
    for code, some in by_code.items():
        values = np.array([value for value, _, _ in some])
        middle = float(np.median(values))
        for place, (value, row, signal) in enumerate(some if len(some) > 1 else ()):
            if row.layer not in marks:
                marks[row.layer] = mark(row.run, row.place, "apart")
            others = middle if len(some) >= 9 else float(np.median(np.delete(values, place)))
            apart[marks[row.layer] | code] = (value - others, row, signal)
    return apart


def _plain_keys(picked: Sequence[Look]) -> frozenset[int]:
    return frozenset(mark(row.run, row.place) | signal.code for _, row, signal in picked)


def _forecast(state: BandState, at: Places, weight: Floats) -> Floats:
    """Brown's double exponential smoothing: level and trend of the next look; a level alone where the band is left."""
    once, twice = state.once[at], state.twice[at]
    trend = np.where(state.since[at] > 0, 0.0, weight / np.maximum(1.0 - weight, 0.5) * (once - twice))
    ahead: Floats = np.where(state.looks[at] < 4, once, 2 * once - twice + trend)
    return ahead


_SIDE: Mapping[str, int] = {"high": 1, "low": -1, "both": 0, "none": 2}


def _evidence(state: BandState, cell: int, signal: Signal) -> Evidence:
    log = signal.scale == "log" and not state.cell_apart[cell]
    now, usual = (float(np.exp(v)) if log else float(v) for v in (state.now[cell], state.usual[cell]))
    what = f"{signal.name}, {state.cell_place[cell]}" + (", over the learning rate" if signal.name in BY_RATE else "")
    what += " apart from the other layers" if state.cell_apart[cell] else ""
    ref = f"step:{state.run_name[memory.column(state, state.cell_of[cell])]}/{int(state.from_step[cell])}"
    return Evidence(what, plain_number(now), plain_number(usual), signal.unit, ref, "derived")
