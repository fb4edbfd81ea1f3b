"""Asynchronous RL against documented lines: how far the sampler that made the data is from the trainer that learns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from detectors.catalogue import Catalogue
from detectors.model import Evidence, Finding, Fleet, Judged, Need, Severity, Tick
from detectors.rows import cells, started
from detectors.training import memory
from detectors.training.phrases import plain_number
from detectors.training.told import STEP, Row, number, rows

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Line:
    """``signal`` above (or below) the threshold ``limit``, as ``source`` documents. size: its absolute value counts."""

    signal: str
    limit: str
    above: bool
    kind: str
    says: str
    size: bool = False


#: verl's documented alarms, VCPO's effective sample size, M2PO's budget; the numbers stand in thresholds.toml.
LINES: tuple[Line, ...] = (
    Line("ess", "policy_ess", False, "async_rl_mismatch", "few samples carry the whole update"),
    Line("is_mean", "policy_is_mean_low", False, "async_rl_mismatch", "the mean weight is far from 1"),
    Line("is_mean", "policy_is_mean_high", True, "async_rl_mismatch", "the mean weight is far from 1"),
    Line("is_sd", "policy_is_sd", True, "async_rl_mismatch", "weights scatter widely"),
    Line("veto_share", "policy_veto_share", True, "async_rl_mismatch", "many tokens are all but impossible"),
    Line("kl", "policy_kl", True, "async_rl_mismatch", "trainer and sampler disagree", size=True),
    Line("chi2_token", "policy_chi2", True, "async_rl_mismatch", "trainer and sampler disagree"),
    Line("m2", "policy_m2", True, "async_rl_mismatch", "log ratios are beyond the budget of M2PO"),
)
#: And what the run itself allows.
STALE = Line("staleness", "policy_stale_times", True, "async_rl_stale", "data are older than the run allows")
#: And what it was itself: a collapse shows as a fall long before the documented line.
FALL = Line("ess", "policy_ess_fall", False, "async_rl_mismatch", "the share of samples that count falls")
ALL = (*LINES, FALL, STALE)


@dataclass(slots=True)
class PolicyState(memory.RunState):
    """[lines, runs]. ``over``: updates in a row beyond a line; ``within``: in a row within it; ``since``,
    ``from_step``, ``value``: of a level. ``allowed``: the run's own limit of staleness (NaN = not told). ``told``: the
    newest step judged. ``usual_ess``: the run's own effective sample share, over ``updates``."""

    over: Floats = cells(0.0, np.float64, len(ALL), axis="run")
    within: Floats = cells(0.0, np.float64, len(ALL), axis="run")
    since: Floats = cells(0.0, np.float64, len(ALL), axis="run")
    from_step: Floats = cells(-1.0, np.float64, len(ALL), axis="run")
    value: Floats = cells(0.0, np.float64, len(ALL), axis="run")
    usual_ess: Floats = cells(0.0, axis="run")
    updates: Floats = cells(0.0, axis="run")
    allowed: Floats = cells(np.nan, axis="run")
    told: Floats = cells(-1.0, axis="run")


@dataclass(frozen=True, slots=True)
class Policy:
    """Thresholds: all that begin with policy_, and training_forget_s."""

    catalogue: Catalogue = field(repr=False)
    needs: frozenset[Need] = frozenset({STEP})

    @property
    def name(self) -> str:
        return "training/policy"

    def start(self, fleet: Fleet) -> PolicyState:
        return started(PolicyState, fleet)

    def move(self, state: PolicyState, old: Fleet, new: Fleet) -> PolicyState:
        return state

    def step(self, state: PolicyState, tick: Tick, fleet: Fleet) -> Judged:
        for row in rows(tick, STEP):
            if not row.layer:
                at = memory.place(state, row)
                if memory.advance(state, at, row):
                    state.told[at] = row.step - 1
                if row.step > state.told[at] and _SIGNALS.intersection(row.event.attrs):
                    state.told[at] = row.step
                    self._fold(state, at, row)
        memory.forget(state, tick.at, self.catalogue.limit("training_forget_s"))
        return Judged(self._findings(state, fleet))

    def _fold(self, state: PolicyState, at: int, row: Row) -> None:
        attrs, limit = row.event.attrs, self.catalogue.limit
        allowed = number(attrs.get("staleness_limit"))
        if allowed is not None and np.isfinite(allowed):
            state.allowed[at] = allowed
        for place, line in enumerate(ALL):
            value = number(attrs.get(line.signal))
            if value is None or np.isnan(value):
                continue
            value = abs(value) if line.size else value
            bound = self._bound(state, at, line)
            out = bool(value > bound if line.above else value < bound)
            state.over[place, at] = state.over[place, at] + 1 if out else 0.0
            state.within[place, at] = 0.0 if out else state.within[place, at] + 1
            if state.over[place, at] >= limit("policy_in_a_row") and not state.since[place, at]:
                state.since[place, at], state.from_step[place, at] = row.at, row.step
            if out:
                state.value[place, at] = value
            elif line is FALL and np.isfinite(value):
                state.updates[at] += 1
                weight = max(1.0 / state.updates[at], 1.0 / limit("policy_learn_updates"))
                state.usual_ess[at] += weight * (value - state.usual_ess[at])
            if state.within[place, at] >= limit("policy_calm_updates"):
                state.since[place, at] = 0.0

    def _bound(self, state: PolicyState, at: int, line: Line) -> float:
        bound = self.catalogue.limit(line.limit)
        if line is STALE:
            return bound * float(state.allowed[at])  # NaN: nothing is above it
        if line is FALL:
            known = state.updates[at] >= self.catalogue.limit("policy_learn_updates")
            return bound * float(state.usual_ess[at]) if known else 0.0
        return bound

    def _findings(self, state: PolicyState, fleet: Fleet) -> tuple[Finding, ...]:
        found = []
        for run in np.flatnonzero((state.since > 0).any(axis=0)):
            on = [(place, line) for place, line in enumerate(ALL) if state.since[place, run] > 0]
            for kind in sorted({line.kind for _, line in on}):
                found.append(self._finding(state, int(run), kind, {p: ln for p, ln in on if ln.kind == kind}, fleet))
        return tuple(sorted(found, key=lambda f: f.key))

    def _finding(self, state: PolicyState, run: int, kind: str, on: Mapping[int, Line], fleet: Fleet) -> Finding:
        first = min(on, key=lambda place: (float(state.since[place, run]), place))
        line, step = on[first], int(state.from_step[first, run])
        evidence = tuple(
            Evidence(
                one.signal,
                plain_number(float(state.value[place, run])),
                f"{'at most' if one.above else 'at least'} {plain_number(self._bound(state, run, one))}",
                ref=f"step:{state.run_name[run]}/{int(state.from_step[place, run])}",
            )
            for place, one in on.items()
        )
        plan = (
            "Sync the sampler more often or lower the number of updates that data may be old."
            if kind == "async_rl_stale"
            else "Check that sampler and trainer compute the same probabilities; sync weights, or lower the rate by "
            "the root of the effective sample share, as VCPO does."
        )
        reason = (
            f"{state.run_name[run]}: {line.says}: {line.signal} is {plain_number(float(state.value[first, run]))} "
            f"since step {step:,}, beyond {'its usual' if line is FALL else 'the documented line'}: "
            f"{plain_number(self._bound(state, run, line))}. {plan}"
        )
        since, score = float(state.since[first, run]), min(0.9, 0.6 + 0.1 * len(on))
        entity = memory.entity(state, run, fleet)
        return Finding(self.name, kind, entity, Severity.WARNING, score, since, reason, evidence)


_SIGNALS = frozenset(line.signal for line in ALL) | {"staleness_limit"}
