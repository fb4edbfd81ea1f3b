"""Hardware flags and counters that speak for themselves: a level that must last before it counts, by a table."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from detectors.catalogue import Catalogue, TableError, table
from detectors.columns import asked, column, measures
from detectors.model import (
    Axis,
    BoolArray,
    Entity,
    Evidence,
    FaultKind,
    Finding,
    Fleet,
    FloatArray,
    Judged,
    MetricKey,
    Need,
    Severity,
    Tick,
)
from detectors.rows import cells, fit, moved, started
from detectors.wording import number, subject

#: bits: any of ``bits`` is set; above, below: against the limit; rises: the counter moved; sum: it moved by the limit
#: within ``over_s`` (a leaky total, so that no list of moments is kept); among: a state of ``states``; falls: at most
#: the limit's share of the best this row ever had; turns, turns_off: a flag that is set (or no longer) where this row
#: was seen otherwise before; apart: the limit or more away from the middle of the fleet.
Test = Literal["bits", "above", "below", "rises", "sum", "among", "falls", "turns", "turns_off", "apart"]
#: Fewer rows than this have no middle.
LEAST_APART = 3
#: A rate is taken to have held for this long at most before its sample, s: a longer gap is no knowledge.
MOST_GAP_S = 600.0


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of levels.toml. Limits, and the times a condition must last and be gone, are names of thresholds.

    also: a second metric that must be above its own limit at the same time, "" = none. says: the sentence, with
    {who}, {value} and {limit}.
    """

    name: str
    axis: str
    metric: str
    test: Test
    kind: FaultKind
    severity: Severity
    score: float
    says: str
    what: str
    source: str
    bits: int = 0
    states: tuple[int, ...] = ()
    limit: str = ""
    hold_s: str = ""
    clear_s: str = ""
    over_s: str = ""
    also: str = ""
    also_limit: str = ""

    @property
    def key(self) -> MetricKey:
        return (self.axis, self.metric)


@dataclass(slots=True)
class LevelsState:
    """Per rule r and row n: ``begun`` float64[r, n], first look of this run (NaN: none); ``quiet`` float64[r, n], the
    first look at which a held level was not seen to hold; ``held`` bool[r, n]; ``since`` float64[r, n]; ``value``
    float32[r, n] at the last look that agreed; ``total`` float32[r, n], the leaky total of a ``sum``; ``best``
    float32[r, n], the highest value ever seen, or for ``turns`` the lowest, negative (-inf: none); ``seen_at``
    float64[r, n] (-inf: never); ``blind`` bool[n]."""

    begun: NDArray[np.float64] = cells(math.nan, np.float64, "rules", axis="")
    quiet: NDArray[np.float64] = cells(math.nan, np.float64, "rules", axis="")
    held: BoolArray = cells(False, np.bool_, "rules", axis="")
    since: NDArray[np.float64] = cells(0.0, np.float64, "rules", axis="")
    value: FloatArray = cells(math.nan, np.float32, "rules", axis="")
    total: FloatArray = cells(0.0, np.float32, "rules", axis="")
    best: FloatArray = cells(-math.inf, np.float32, "rules", axis="")
    seen_at: NDArray[np.float64] = cells(-math.inf, np.float64, "rules", axis="")
    blind: BoolArray = cells(False, np.bool_, axis="")


@dataclass(frozen=True, slots=True)
class Levels:
    """The rules of one axis. name: ``telemetry/flags``, ``telemetry/host`` ..."""

    name: str
    axis: str
    rules: tuple[Rule, ...]
    catalogue: Catalogue = field(repr=False)

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({r.key for r in self.rules} | {(self.axis, r.also) for r in self.rules if r.also})

    def start(self, fleet: Fleet) -> LevelsState:
        return started(LevelsState, fleet, self.axis, rules=len(self.rules))

    def step(self, state: LevelsState, tick: Tick, fleet: Fleet) -> Judged:
        axis = fleet.axes.get(self.axis)
        if axis is None:
            return Judged()
        fit(state, fleet, self.axis)
        if measures(tick, [rule.key for rule in self.rules]):
            missing, seen = np.zeros(len(axis), np.bool_), _Seen(tick, axis)
            with np.errstate(over="ignore", invalid="ignore"):  # absurd numbers are no reason to fail
                for at, rule in enumerate(self.rules):
                    if rule.key in tick.values:
                        missing |= self._look(state, at, rule, seen)
            state.blind = missing
        return Judged(self._findings(state, axis, fleet), {self.axis: state.blind & axis.live})

    def move(self, state: LevelsState, old: Fleet, new: Fleet) -> LevelsState:
        return moved(state, old, new, self.axis)

    def _look(self, state: LevelsState, r: int, rule: Rule, tick: _Seen) -> BoolArray:
        """Fold one metric of one tick in; returns the rows that were asked for, spoke before, and say nothing now."""
        values, seen, silent = tick.metric(rule.key)
        missing: BoolArray = tick.none if silent is None else silent & np.isfinite(state.seen_at[r])
        if rule.test == "sum":
            values = self._summed(state, r, rule, values, seen, tick.at)
        flagged = seen & self._holds(rule, values, state.best[r])
        if rule.also:
            flagged &= tick.metric((self.axis, rule.also))[0] >= self.catalogue.limit(rule.also_limit)
        if rule.test in ("falls", "turns", "turns_off"):
            best = -values if rule.test == "turns" else values
            state.best[r] = np.where(seen, np.fmax(state.best[r], best), state.best[r])
        if flagged.any() or state.held[r].any() or not np.isnan(state.begun[r]).all():
            self._follow(state, r, rule, values, flagged, seen, tick.at)
        if tick.whole(rule.key):
            state.seen_at[r] = tick.at
        else:
            state.seen_at[r, seen] = tick.at
        return missing

    def _follow(
        self, state: LevelsState, r: int, rule: Rule, values: FloatArray, flagged: BoolArray, seen: BoolArray, at: float
    ) -> None:
        """Levels rise once the condition has lasted, and end once it has been gone."""
        begun, quiet = state.begun[r], state.quiet[r]
        begun[flagged & np.isnan(begun)] = at
        begun[seen & ~flagged] = np.nan
        rising = flagged & ~state.held[r] & (at - begun >= self._s(rule.hold_s))
        state.since[r, rising] = begun[rising]
        state.value[r, flagged] = values[flagged]
        state.held[r] |= rising
        quiet[flagged] = np.nan
        gone = seen & ~flagged & state.held[r]
        quiet[gone & np.isnan(quiet)] = at
        state.held[r] &= ~(gone & (at - quiet >= self._s(rule.clear_s)))
        quiet[~state.held[r]] = np.nan

    def _holds(self, rule: Rule, values: FloatArray, best: FloatArray) -> BoolArray:
        holds: BoolArray
        limit = np.float32(self.catalogue.limit(rule.limit)) if rule.limit else np.float32(0)
        match rule.test:
            case "bits":
                whole = np.where(np.isfinite(values) & (np.abs(values) < 2**31), values, 0).astype(np.int64)
                holds = (whole & rule.bits) != 0
            case "rises":
                holds = values > 0
            case "among":
                holds = np.logical_or.reduce([values == state for state in rule.states])
            case "falls":
                holds = (values <= limit * best) & (best > 0)
            case "turns":
                holds = (values >= 1) & (best == 0)
            case "turns_off":
                holds = (values < 1) & (best >= 1)
            case "apart":
                known = np.count_nonzero(~np.isnan(values)) >= LEAST_APART
                holds = np.abs(values - np.nanmedian(values)) >= limit if known else np.zeros(len(values), np.bool_)
            case "below":
                holds = values <= limit
            case _:
                holds = values >= limit
        return holds

    def _summed(
        self, state: LevelsState, r: int, rule: Rule, rates: FloatArray, seen: BoolArray, at: float
    ) -> FloatArray:
        """The leaky total after this look: what came since the last one is rate x time; old increments fade."""
        still: FloatArray = state.total[r].copy()
        if not (still.any() or (rates > 0).any()):
            return still
        gap = np.clip(at - state.seen_at[r], 0.0, MOST_GAP_S)
        gap[~np.isfinite(state.seen_at[r])] = 0.0
        faded = state.total[r] * np.exp(-gap / max(self._s(rule.over_s), 1.0))
        total = np.where(seen, faded + np.nan_to_num(np.maximum(rates, 0.0)) * gap, state.total[r])
        summed: FloatArray = total.astype(np.float32)
        state.total[r] = summed
        return summed

    def _s(self, name: str) -> float:
        return self.catalogue.limit(name) if name else 0.0

    def _findings(self, state: LevelsState, axis: Axis, fleet: Fleet) -> tuple[Finding, ...]:
        """One finding an entity and kind: of two rules that say the same, the louder."""
        best: dict[tuple[str, FaultKind], Finding] = {}
        for at, row in np.argwhere(state.held & axis.live):
            entity = fleet.entity(self.axis, int(row))
            made = self._finding(self.rules[at], entity, float(state.value[at, row]), float(state.since[at, row]))
            known = best.get((entity.id, made.kind))
            if known is None or (made.severity, made.score) > (known.severity, known.score):
                best[(entity.id, made.kind)] = made
        return tuple(sorted(best.values(), key=lambda f: f.key))

    def _finding(self, rule: Rule, entity: Entity, value: float, since: float) -> Finding:
        limit = self.catalogue.limit(rule.limit) if rule.limit else math.nan
        limit = math.nan if rule.test == "apart" else limit
        unit = self.catalogue.metrics[rule.metric].unit
        shown = f"0x{int(value):x}" if rule.test == "bits" else number(value, 0 if abs(value) >= 10 else 2)
        expected = "" if math.isnan(limit) else f"{'over' if rule.test == 'below' else 'under'} {number(limit, 1)}"
        ref = f"metric:{rule.axis}/{rule.metric}"
        evidence = Evidence(rule.what, shown, expected, "" if rule.test == "bits" else unit, ref, "observed")
        who = subject(entity) if entity.kind == "gpu" else str(entity)
        reason = rule.says.format(who=who, value=shown, limit=number(limit, 1) if limit == limit else "")
        return Finding(self.name, rule.kind, entity, rule.severity, rule.score, since, reason, (evidence,))


class _Seen:
    """One tick, each of its metrics read once."""

    def __init__(self, tick: Tick, axis: Axis) -> None:
        self._tick, self._axis = tick, axis
        self._known: dict[MetricKey, tuple[FloatArray, BoolArray, BoolArray | None]] = {}
        self._whole: set[MetricKey] = set()
        self._all_live = bool(axis.live.all())
        self.at = tick.at
        self.none = np.zeros(len(axis), np.bool_)

    def metric(self, key: MetricKey) -> tuple[FloatArray, BoolArray, BoolArray | None]:
        """Values, the rows that have one, and those that were asked and have none; None: there are no such rows."""
        found = self._known.get(key)
        if found is None:
            found = self._plain(key)
        if found is None:
            values = column(self._tick, key, len(self._axis))
            seen = ~np.isnan(values) & self._axis.live
            silent = asked(self._tick, key, len(self._axis)) & ~seen & self._axis.live
            found = (values, seen, silent if silent.any() else None)
        self._known[key] = found
        return found

    def _plain(self, key: MetricKey) -> tuple[FloatArray, BoolArray, None] | None:
        """The quick way, for a metric that every row was asked for and reported."""
        values, sampled = self._tick.values.get(key), self._tick.sampled.get(key)
        if values is None or sampled is None or not len(values) == len(sampled) == len(self._axis):
            return None
        if not (self._all_live and sampled.all() and np.isfinite(values).all()):
            return None
        self._whole.add(key)
        return values, self._axis.live, None

    def whole(self, key: MetricKey) -> bool:
        """Whether every row reported it."""
        return key in self._whole


# --- the table ------------------------------------------------------------------------------------------------------


def rules_of(catalogue: Catalogue, axis: str) -> tuple[Rule, ...]:
    """The rules of one axis in the order of levels.toml. Raises TableError naming the rule and what is wrong."""
    rows = tomllib.loads("\n".join(table("levels.toml")))
    return tuple(_rule(name, row, catalogue) for name, row in rows.items() if row.get("axis") == axis)


def _rule(name: str, row: dict[str, Any], catalogue: Catalogue) -> Rule:
    try:
        states = tuple(row.get("states", ()))
        made = Rule(name=name, **(row | {"severity": Severity.of(row["severity"]), "states": states}))
    except (KeyError, TypeError) as error:
        raise TableError(f"levels.toml, {name}: {error}") from error
    wrong = _problems(made, catalogue)
    if wrong:
        raise TableError(f"levels.toml, {name}: {'; '.join(wrong)}")
    return made


def _problems(rule: Rule, catalogue: Catalogue) -> Sequence[str]:
    found = [f"no metric {m!r}" for m in (rule.metric, rule.also) if m and m not in catalogue.metrics]
    found += [] if rule.kind in catalogue.kinds else [f"no kind {rule.kind!r}"]
    found += [] if rule.test in get_args(Test) else [f"no test {rule.test!r}"]
    named = (rule.limit, rule.hold_s, rule.clear_s, rule.over_s, rule.also_limit)
    found += [f"no threshold {t!r}" for t in named if t and t not in catalogue.thresholds]
    needs_limit = rule.test in ("above", "below", "sum", "falls", "apart") and not rule.limit
    needs_states = rule.test == "among" and not rule.states
    return [*found, *(["no limit"] if needs_limit else []), *(["no states"] if needs_states else [])]
