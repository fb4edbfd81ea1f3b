"""What theory expects: ETTR of a run, the best checkpoint interval, times between failures, standbys.

Sources: papers.md 3 (Kokolis et al., HPCA'25: E[ETTR]), 4 (ByteRobust: standbys), 5 (FT-HSDP: stall), 8 (Young 1974,
Daly 2006). All times in seconds, rates a node and day.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special, stats

from backend.reliability.history import Floats

DAY_S = 86_400.0


def mttf_s(nodes: float, per_node_day: float) -> float:
    """1 / (N rf); infinity where nothing ever fails."""
    return DAY_S / (nodes * per_node_day) if nodes > 0 and per_node_day > 0 else math.inf


def expected_ettr(mttf: float, restart_s: float, interval_s: float, write_s: float = 0.0) -> float:
    """(1 - (u0 + dt/2) / MTTF) / (1 + w/dt), not below 0. Holds while u0 + dt/2 is small beside the MTTF; within about
    5 % of a simulation there (a test does one)."""
    lost = (restart_s + interval_s / 2) / mttf
    return max(0.0, 1 - lost) / (1 + write_s / interval_s)


def exact_ettr(mttf: float, restart_s: float, interval_s: float, write_s: float = 0.0) -> float:
    """The share where failures are exponential and may also hit saves and restarts: Daly's total time of a segment,
    M e^(R/M) (e^((dt+w)/M) - 1). Holds at any size, also where ``expected_ettr`` has come to 0."""
    if not math.isfinite(mttf):
        return interval_s / (interval_s + write_s)
    return float(exact_shares(np.array([mttf]), restart_s, interval_s, np.array([write_s]))[0])


def exact_shares(mttf: Floats, restart_s: float, interval_s: float, write_s: Floats) -> Floats:
    """``exact_ettr`` of many times between failures and costs, float64[n] each; all of them finite."""
    held = (restart_s + interval_s + write_s) / mttf <= 700  # what exp can hold; beyond, nothing is kept
    m, w = np.where(held, mttf, 1e9), np.where(held, write_s, 0.0)
    shares: Floats = np.where(held, interval_s / (m * np.exp(restart_s / m) * np.expm1((interval_s + w) / m)), 0.0)
    return shares


def best_interval_s(mttf: float, write_s: float) -> float:
    """The interval at which ``exact_ettr`` is best, whatever the restart costs: M (1 + W(-e^(-1 - w/M)))."""
    if not math.isfinite(mttf):
        return math.inf
    if write_s <= 0:
        return 0.0
    return float(best_intervals(np.array([mttf]), np.array([write_s]))[0])


def best_intervals(mttf: Floats, write_s: Floats) -> Floats:
    """``best_interval_s`` of many finite times between failures and costs above 0, float64[n] each."""
    best: Floats = mttf * (1 + special.lambertw(-np.exp(-1 - write_s / mttf)).real)
    return best


def simulated_ettr(
    mttf: float, restart_s: float, interval_s: float, write_s: float = 0.0, *, lives: int = 20_000, seed: int = 0
) -> tuple[float, float]:
    """(share, its standard error) of ``lives`` exponential lives between failures: each begins with a restart, then
    saves every ``interval_s``; what was not saved is lost. The check beside the formulas."""
    drawn = np.random.default_rng(seed).exponential(mttf, lives)
    saves = np.floor(np.maximum(0.0, drawn - restart_s) / (interval_s + write_s))
    kept = saves * interval_s
    share = float(kept.sum() / drawn.sum())
    return share, float(np.std(kept - share * drawn) / (math.sqrt(lives) * drawn.mean()))


def young_s(write_s: float, mttf: float) -> float:
    """Young's interval, sqrt(2 d M)."""
    return math.sqrt(2 * write_s * mttf)


def daly_first_s(write_s: float, mttf: float) -> float:
    """Daly's first order: Young's without the write itself."""
    return young_s(write_s, mttf) - write_s


def daly_s(write_s: float, mttf: float) -> float:
    """Daly's higher order, for d < 2 M; beyond, M."""
    if not math.isfinite(mttf):
        return math.inf
    return float(daly_intervals(np.array([mttf]), np.array([write_s]))[0])


def daly_intervals(mttf: Floats, write_s: Floats) -> Floats:
    """``daly_s`` of many, float64[n] each."""
    ratio = write_s / (2 * mttf)
    found = np.sqrt(2 * write_s * mttf) * (1 + np.sqrt(ratio) / 3 + ratio / 9) - write_s
    intervals: Floats = np.where(ratio < 1, found, mttf)
    return intervals


def effective_share(mttf: float, stall_s: float) -> float:
    """Time not stalled between two failures, (MTBF - stall) / MTBF."""
    return max(0.0, 1 - stall_s / mttf)


def standbys(nodes: int, per_day: float, days: float = 1.0, level: float = 0.99) -> int:
    """Spare nodes that suffice for ``days`` at ``level``: the quantile of Binomial(nodes, chance to fail)."""
    chance = -math.expm1(days * math.log1p(-per_day)) if per_day < 1 else 1.0
    return int(stats.binom.ppf(level, nodes, chance))
