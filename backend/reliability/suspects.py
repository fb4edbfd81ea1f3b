"""Which nodes are lemons, from counts: faults with a known culprit, failures among several nodes, and weaker signs.

Healthy nodes share a rate of faults, give or take (gamma); lemons have one many times as high (gamma, wide). A failure
whose culprit nobody named was one of its nodes', as likely as their rates are high; one whose cause nobody knows may as
well have been its user's. Rates, culprits, the fleet's usual rate and its share of lemons are drawn in turn (Gibbs), in
several chains that start alike and part: where the facts do not tell nodes apart the chains accuse different ones, and
none is accused by the mean. Being in large jobs is no evidence. The same facts give the same numbers (fixed seed).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from backend.reliability.history import Floats, Ints

#: Share of nodes that are lemons before anything is known (Meta found 1.2 to 1.7 %; small fleets are less even).
SHARE = 0.03
#: How many nodes that belief weighs.
SHARE_NODES = 40
#: A node that was hardly in a job can fail all the same: it is taken to have been exposed this long, node-days.
LEAST_DAYS = 3.0
#: How many times the usual rate a lemon may have; each as likely as the others until the fleet's own lemons say more:
#: the belief weighs so many of them, each.
TIMES = (6.0, 12.0, 24.0, 48.0)
TIMES_WEIGHT = 0.5
#: Shapes of the rates: healthy nodes differ by about half, lemons among each other by more.
HEALTHY_SHAPE, LEMON_SHAPE = 4.0, 2.0
#: A fleet's rate before anything is known: faults a node-day (papers.md 3: 2.34 and 6.50 per 1000), as a gamma with
#: this many faults behind it, so that a quiet fleet's first fault accuses nobody.
USUAL_RATE, USUAL_FAULTS = 0.004, 1.0
#: Failures a job and day that are no node's fault, before anything is known, with this much behind it.
USER_RATE, USER_FAILURES = 0.2, 1.0
#: Share of the faults of nodes that look like a failure of unknown cause: a Beta with these counts behind it.
HIDDEN, SHOWN = 0.5, 9.5
#: How many times as often a lemon may show a weaker sign; 1: it shows no more of it than others, half the time.
SIGN_TIMES, SIGN_PRIOR = (1.0, 3.0, 8.0, 20.0), (0.5, 1 / 6, 1 / 6, 1 / 6)
#: A sign a node-day before anything is known, one sign's worth.
SIGN_RATE = 0.01
#: Signs come with one another and with faults: each counts as this much of an independent one.
SIGN_WEIGHT = 0.7
#: Chains, sweeps that are thrown away and sweeps that count; the seed.
CHAINS, FIRST_SWEEPS, SWEEPS, SEED = 12, 40, 80, 20260101
#: Members of failures that are looked at in all; the smallest failures first, for those of huge jobs say least.
MOST_MEMBERS = 60_000

_SHAPES = np.array([HEALTHY_SHAPE, *(LEMON_SHAPE for _ in TIMES)])
_TIMES = np.array([1.0, *TIMES])


@dataclass(frozen=True, slots=True)
class Exposure:
    """What the score is made of. nodes: names; days, faults: float64[n], node-days and faults that are the node's own.

    shared: for each failure of the infrastructure that nobody pinned on a node the places of those it may have been;
    unsure: likewise of failures whose cause is not known; job_days: of all jobs that could fail so. signs: float64[n]
    a weaker sign, counts apart from faults.
    """

    nodes: tuple[str, ...]
    days: Floats
    faults: Floats
    shared: tuple[tuple[int, ...], ...] = ()
    unsure: tuple[tuple[int, ...], ...] = ()
    job_days: float = 0.0
    signs: tuple[Floats, ...] = ()


@dataclass(frozen=True, slots=True)
class Score:
    """Of the nodes of an Exposure, float64[n]: the chance to be healthy, the rate as a multiple of the fleet's usual
    one, and the expected number of the shared (and of the unsure) failures that were the node's."""

    p_false: Floats
    times: Floats
    shared: Floats
    usual_rate: float


@dataclass(frozen=True, slots=True)
class _Among:
    """Failures among several, flat: members[starts[i]:starts[i+1]] are those of failure i."""

    members: Ints
    starts: Ints

    @classmethod
    def of(cls, failures: Sequence[tuple[int, ...]], most: int) -> _Among:
        kept, total = [], 0
        for among in sorted(failures, key=lambda f: (len(f), f)):
            if among and total + len(among) <= most:
                kept.append(among)
                total += len(among)
        members = np.array([place for among in kept for place in among], np.int64)
        return cls(members, np.cumsum([0, *(len(among) for among in kept)]).astype(np.int64))

    def __len__(self) -> int:
        return len(self.starts) - 1


def score(exposure: Exposure) -> Score:
    """Means over all chains."""
    n = len(exposure.nodes)
    if not n:
        return Score(np.zeros(0), np.zeros(0), np.zeros(0), USUAL_RATE)
    chains = _Chains(exposure, np.random.default_rng(SEED))
    for _ in range(FIRST_SWEEPS):
        chains.sweep()
    lemon, rates, culprit, usual = np.zeros(n), np.zeros(n), np.zeros(n), 0.0
    for _ in range(SWEEPS):
        chains.sweep()
        lemon += chains.lemon.mean(axis=0)
        rates += (chains.rates / chains.usual[:, None]).mean(axis=0)
        culprit += chains.assigned.mean(axis=0)
        usual += float(chains.usual.mean())
    return Score(1.0 - lemon / SWEEPS, rates / SWEEPS, culprit / SWEEPS, usual / SWEEPS)


class _Chains:
    """The state of all chains, float64[chains, n] or [chains]."""

    def __init__(self, exposure: Exposure, rng: np.random.Generator) -> None:
        n = len(exposure.nodes)
        self._rng = rng
        self._days = np.maximum(exposure.days, LEAST_DAYS)
        self._faults = exposure.faults
        self._shared = _Among.of(exposure.shared, MOST_MEMBERS)
        self._unsure = _Among.of(exposure.unsure, MOST_MEMBERS - len(self._shared.members))
        self._job_days = exposure.job_days
        self._signs = sum((_sign(counts, self._days) for counts in exposure.signs), np.zeros(n))
        middle = float(np.median(exposure.faults)) * n
        start = (USUAL_FAULTS + middle) / (USUAL_FAULTS / USUAL_RATE + float(self._days.sum()))
        self.usual = np.full(CHAINS, start)
        self._share = np.full(CHAINS, SHARE)
        self._mix = np.full((CHAINS, len(TIMES)), 1 / len(TIMES))
        self._user = np.full(CHAINS, USER_RATE)
        self._hidden = np.full(CHAINS, HIDDEN / (HIDDEN + SHOWN))
        self.assigned = np.zeros((CHAINS, n))
        self._draw_rates()

    def sweep(self) -> None:
        shared = self._culprits(self._shared, None)
        guilty = self._culprits(self._unsure, self._user / self._hidden)
        self.assigned = shared + guilty
        self._draw_rates()
        users = len(self._unsure) - guilty.sum(axis=1)
        shown = shared.sum(axis=1) + float(self._faults.sum())
        self._hidden = self._rng.beta(HIDDEN + guilty.sum(axis=1), SHOWN + shown)
        self._user = self._rng.gamma(USER_FAILURES + users) / (USER_FAILURES / USER_RATE + self._job_days)

    def _draw_rates(self) -> None:
        counts = self._faults + self.assigned
        priors = np.column_stack([1 - self._share, self._share[:, None] * self._mix])
        logs = _log_chances(counts, self._days, self.usual, priors)
        logs[1:] += self._signs
        weights = np.exp(logs - logsumexp(logs, axis=0))
        self.lemon = 1.0 - weights[0]
        which = (np.cumsum(weights, axis=0)[:-1] < self._rng.random(counts.shape)).sum(axis=0)
        shape = _SHAPES[which]
        mean = _TIMES[which] * self.usual[:, None]
        self.rates = self._rng.gamma(shape + counts) / (shape / mean + self._days)
        healthy = which == 0
        faults, days = (counts * healthy).sum(axis=1), (self._days * healthy).sum(axis=1)
        self.usual = self._rng.gamma(USUAL_FAULTS + faults) / (USUAL_FAULTS / USUAL_RATE + days)
        bad = (~healthy).sum(axis=1)
        good = counts.shape[1] - bad
        ranks = np.arange(1, len(_TIMES))[:, None, None]
        drawn = self._rng.gamma(TIMES_WEIGHT + (which == ranks).sum(axis=2).T) + 1e-12
        self._mix = drawn / drawn.sum(axis=1, keepdims=True)
        self._share = self._rng.beta(SHARE * SHARE_NODES + bad, (1 - SHARE) * SHARE_NODES + good)

    def _culprits(self, among: _Among, user: Floats | None) -> Floats:
        """How many of the failures each node is drawn for; ``user``: a rate that stands beside those of the nodes."""
        found = np.zeros((CHAINS, len(self._days)))
        if not len(among):
            return found
        sums = np.cumsum(self.rates[:, among.members], axis=1)
        ends = sums[:, among.starts[1:] - 1]
        begins = np.concatenate([np.zeros((CHAINS, 1)), ends[:, :-1]], axis=1)
        totals = ends - begins
        drawn = self._rng.random(totals.shape)
        if user is not None:
            drawn *= (totals + user[:, None]) / totals
        for chain in range(CHAINS):
            nodes = drawn[chain] < 1
            aims = (begins[chain] + drawn[chain] * totals[chain])[nodes]
            places = np.minimum(np.searchsorted(sums[chain], aims, side="right"), among.starts[1:][nodes] - 1)
            places = np.maximum(places, among.starts[:-1][nodes])
            found[chain] = np.bincount(among.members[places], minlength=found.shape[1])
        return found


def _log_chances(counts: Floats, days: Floats, usual: Floats, priors: Floats) -> Floats:
    """float64[hypotheses, chains, n]: log of prior times the negative binomial of ``counts``, healthy first."""
    log_priors = np.log(priors)
    found = np.empty((len(_TIMES), *counts.shape))
    factorial = gammaln(counts + 1)
    for place, (shape, times) in enumerate(zip(_SHAPES, _TIMES, strict=True)):
        if place < 2:
            rising = gammaln(shape + counts) - gammaln(shape) - factorial
        p = shape / (shape + times * usual[:, None] * days)
        found[place] = log_priors[:, place, None] + rising + shape * np.log(p) + counts * np.log1p(-p)
    return found


def _sign(counts: Floats, days: Floats) -> Floats:
    """Log of how much likelier a lemon shows ``counts`` of a weaker sign than a healthy node does."""
    usual = (1.0 + float(counts.sum())) / (1.0 / SIGN_RATE + float(days.sum()))
    logs = []
    for times, prior in zip(SIGN_TIMES, SIGN_PRIOR, strict=True):
        p = LEMON_SHAPE / (LEMON_SHAPE + times * usual * days)
        logs.append(np.log(prior) + LEMON_SHAPE * np.log(p) + counts * np.log1p(-p))
    found: Floats = SIGN_WEIGHT * (logsumexp(np.array(logs), axis=0) - (logs[0] - np.log(SIGN_PRIOR[0])))
    return found


def naming(p_false: Floats, faults: Floats, worst: float, mean: float, least: float) -> NDArray[np.bool_]:
    """Which nodes are named: the surest first, while none is likelier healthy than ``worst`` and the mean chance of a
    false accusation stays below ``mean``; only such as have ``least`` (expected) faults."""
    named = np.zeros(len(p_false), np.bool_)
    total, count = 0.0, 0
    for i in np.argsort(p_false, kind="stable"):
        if faults[i] < least:
            continue
        total, count = total + float(p_false[i]), count + 1
        if p_false[i] > worst or total / count > mean:
            break
        named[i] = True
    return named
