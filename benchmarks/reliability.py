"""How well the accounting does on histories whose truth is written down while they are made: 63 nodes, 14 days.

``python -m benchmarks.reliability [--seeds N] [--first S] [--lemon-seeds N]``: ETTR and parts with steps and saves,
bounds from checkpoints or accounting alone, counts of failures and chains, and lemon nodes of 28 days. Each figure with
its n; exit code 1 where a bar does not hold. Seeds that no test uses: the default ones begin at 7000.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from backend.reliability.account import Accounts, RunAccount, account
from backend.reliability.ettr import ettr
from backend.reliability.history import History
from backend.reliability.intervals import wilson
from backend.reliability.lemons import lemons
from backend.reliability.parts import PARTS
from backend.reliability.retries import chains_of
from tests.backend.reliability import fleets, histories, moving
from tests.backend.reliability.histories import START, Past

#: The bars: ETTR within 0.005, each part within 0.5 % or 1 s an attempt; lemons 0.9 and 0.8.
ETTR_CLOSE, PART_SHARE, PART_S = 0.005, 0.005, 1.0
PRECISION, RECALL = 0.9, 0.8
#: What is told the accounting, besides the accounting records.
SOURCES = ("steps and checkpoints", "checkpoints", "accounting alone")
CLOSE_TO = 1e-3


@dataclass
class Tally:
    """Counts of what was right of all that was asked, and the worst error seen."""

    right: int = 0
    n: int = 0
    worst: float = 0.0

    def add(self, error: float, most: float) -> None:
        self.n += 1
        self.right += error <= most
        self.worst = max(self.worst, error)

    def line(self, what: str, unit: str = "") -> str:
        within = wilson(self.right, self.n)
        bounds = f" [{within.low:.4f}, {within.high:.4f}]" if within is not None else ""
        worst = f", worst {self.worst:.4f}{unit}" if unit or self.worst else ""
        return f"{what:58s} {self.right:>7,} of {self.n:>7,}{bounds}{worst}"


@dataclass
class Score:
    tallies: defaultdict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    widths: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


def told(past: Past, source: str) -> Accounts:
    steps = past.steps if source == SOURCES[0] else []
    checkpoints = past.checkpoints if source != SOURCES[2] else []
    whole = source == SOURCES[0]
    return account(History(START, past.end, past.attempts, steps, checkpoints, checkpoints_whole=whole))


def weigh(score: Score, past: Past) -> None:
    """One history, told from each source."""
    for source in SOURCES:
        accounts = told(past, source)
        for one in accounts.attempts:
            truth = past.truth[(one.attempt.job, one.attempt.restart)]
            for part in PARTS:
                found, real = one.parts[part], truth.parts[part]
                if source == SOURCES[0]:
                    score.tallies[f"parts, {source}"].add(abs(found.middle - real), max(PART_S, PART_SHARE * real))
                outside = max(found.low - real, real - found.high, 0.0)
                slack = CLOSE_TO if source != SOURCES[0] else max(PART_S, PART_SHARE * real)
                score.tallies[f"parts within their bounds, {source}"].add(outside, slack)
        for run in accounts.runs:
            weigh_run(score, past, run, source)
    accounts = told(past, SOURCES[2])
    failed = sum(one.failed for one in accounts.attempts)
    score.tallies["failed attempts, accounting alone"].add(abs(failed - past.failed), 0.0)
    real_chains = true_chains(past)
    found_chains = sorted((c.run, c.attempts, str(c.success)) for c in chains_of(accounts))
    score.tallies["retry chains, accounting alone"].add(float(found_chains != real_chains), 0.0)


def weigh_run(score: Score, past: Past, run: RunAccount, source: str) -> None:
    truths = [past.truth[(a.attempt.job, a.attempt.restart)] for a in run.accounts]
    wall = sum(a.wall_s for a in run.accounts) + sum(t.queue for t in truths)
    share = ettr(run.accounts).ettr
    if share is None or wall <= 0:
        return
    real = sum(t.parts["productive"] for t in truths) / wall
    if source == SOURCES[0]:
        score.tallies[f"ETTR of a run, {source}"].add(abs(share.middle - real), ETTR_CLOSE)
    score.tallies[f"ETTR within its bounds, {source}"].add(
        max(share.low - real, real - share.high, 0.0), ETTR_CLOSE if source == SOURCES[0] else 1e-6
    )
    score.widths[source].append(share.width)


def true_chains(past: Past) -> list[tuple[str, int, str]]:
    """(run, attempts, success) as the history was made: a run is one chain where an attempt of it failed and another
    followed; None while its last attempt runs."""
    by_run: defaultdict[str, list[str]] = defaultdict(list)
    for attempt in past.attempts:
        by_run[attempt.run].append(attempt.state)
    found = []
    for run, states in by_run.items():
        if any(state in ("FAILED", "NODE_FAIL", "REQUEUED") for state in states[:-1]):
            last = states[-1]
            open_ = last in ("RUNNING", "REQUEUED")
            found.append((run, len(states), str(None if open_ else last == "COMPLETED")))
    return sorted(found)


def name_lemons(seeds: Sequence[int]) -> Iterator[tuple[str, int, int, int]]:
    """(sort of fleet, named rightly, named, lemons there are)."""
    sorts: dict[str, tuple[Any, dict[str, Any]]] = {
        "jobs stay, most culprits known": (fleets, {}),
        "jobs stay, large runs": (fleets, {"nodes": 200, "huge": 150}),
        "jobs stay, few culprits known": (fleets, {"pinned": 0.3}),
        "jobs stay, lemons hardly worse than others": (fleets, {"times": (10.0, 25.0)}),
        "jobs move, no culprit known": (moving, {}),
        "no lemon": (fleets, {"lemons": 0}),
    }
    for name, (module, how) in sorts.items():
        hits = named = real = 0
        for seed in seeds:
            made = module.make(seed, **how)
            bad = made.bad if module is moving else made.lemons
            history = made.history() if module is moving else made.history
            rows = [row.node for row in lemons(account(history)) if row.lemon]
            hits, named, real = hits + len(bad & set(rows)), named + len(rows), real + len(bad)
        yield name, hits, named, real


def main(argv: Sequence[str] | None = None) -> int:
    words = argparse.ArgumentParser(description="Score the accounting on made histories.")
    words.add_argument("--seeds", type=int, default=8)
    words.add_argument("--first", type=int, default=7000)
    words.add_argument("--lemon-seeds", type=int, default=20)
    asked = words.parse_args(argv)
    score = Score()
    for seed in range(asked.first, asked.first + asked.seeds):
        weigh(score, histories.make(seed))
    print(f"{asked.seeds} histories of 63 nodes and 14 days, seeds {asked.first} on; right of asked [95 %, Wilson]")
    for name, tally in sorted(score.tallies.items()):
        print(tally.line(name))
    for source, widths in score.widths.items():
        print(f"{'mean width of the ETTR of a run, ' + source:58s} {sum(widths) / len(widths):.4f} (n = {len(widths)})")
    right = all(tally.right == tally.n for tally in score.tallies.values())
    return 0 if print_lemons(asked.first, asked.lemon_seeds) and right else 1


def print_lemons(first: int, seeds: int) -> bool:
    """Whether the bars hold, pooled over the sorts in which lemons are what papers call one."""
    pooled = [0, 0, 0]
    for name, hits, named, real in name_lemons(range(first, first + seeds)):
        precision = f"{hits / named:.3f} ({hits} of {named})" if named else f"nobody named (0 of {named})"
        recall = f"{hits / real:.3f} ({hits} of {real})" if real else "none there"
        print(f"lemons, {name:50s} precision {precision}, recall {recall}")
        if name.startswith("jobs stay") and "hardly" not in name:
            pooled = [a + b for a, b in zip(pooled, (hits, named, real), strict=True)]
    hits, named, real = pooled
    print(f"lemons, pooled over jobs that stay: precision {hits / named:.3f}, recall {hits / real:.3f}, {seeds} seeds")
    return hits >= PRECISION * named and hits >= RECALL * real


if __name__ == "__main__":
    sys.exit(main())
