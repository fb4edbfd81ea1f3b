"""How well the rules do on logs they were not made from: ``python -m tests.detectors.joblog.score``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.corpora.joblogs import Case, failing, healthy, holdout
from tests.detectors.joblog.reads import rules, verdict


@dataclass(frozen=True)
class Score:
    """Pairs of (true class, class given), and of (exclude asked for, given)."""

    pairs: Sequence[tuple[str, str]]
    excludes: Sequence[tuple[bool, bool]] = ()

    @property
    def right(self) -> int:
        return sum(true == given for true, given in self.pairs)

    @property
    def accuracy(self) -> float:
        return self.right / len(self.pairs)

    def macro_f1(self, least: int = 5) -> float:
        """Mean F1 over the classes with at least so many cases."""
        counts = Counter(true for true, _ in self.pairs)
        return sum(f1s := [self.f1(name) for name, n in counts.items() if n >= least]) / len(f1s)

    def f1(self, name: str) -> float:
        hit = sum(true == given == name for true, given in self.pairs)
        both = sum(true == name for true, _ in self.pairs) + sum(given == name for _, given in self.pairs)
        return 2 * hit / both if both else 0.0

    @property
    def wrong_exclusions(self) -> int:
        return sum(given and not asked for asked, given in self.excludes)


def wilson(right: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """95 % interval of a share (Wilson 1927)."""
    if not n:
        return 0.0, 1.0
    share, z2 = right / n, z * z
    middle = share + z2 / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return (middle - half) / (1 + z2 / n), (middle + half) / (1 + z2 / n)


def score(cases: Iterable[Case]) -> Score:
    pairs, excludes = [], []
    for case in cases:
        given = verdict(case.text)
        pairs.append((case.log_class, given.log_class))
        if case.exclude != "-":
            excludes.append((case.exclude == "yes", given.exclude_node))
    return Score(pairs, excludes)


def made_up(copies: int = 6) -> list[Case]:
    """Every rule's own example among noise of six kinds; the class is the rule's."""
    return [
        Case(rule.log_class, "-", rule.source, failing(copies * number + copy, rule.match))
        for number, rule in enumerate(rules().table.rules)
        if rule.level in ("cause", "surface")
        for copy in range(copies)
    ]


def false_alarms(logs: int) -> int:
    return sum(verdict(healthy(seed)).log_class != "clean_success" for seed in range(logs))


def main() -> None:
    for name, cases in (("hold-out, by hand", holdout()), ("made up by seed", made_up())):
        done = score(cases)
        low, high = wilson(done.right, len(done.pairs))
        print(
            f"{name}: accuracy {done.accuracy:.3f} [{low:.3f}, {high:.3f}], n {len(done.pairs)}, "
            f"macro-F1 {done.macro_f1():.3f}"
        )
        if done.excludes:
            asked = [given for wanted, given in done.excludes if wanted]
            low, high = wilson(sum(asked), len(asked))
            print(
                f"  exclusions: {done.wrong_exclusions} wrong of {sum(not a for a, _ in done.excludes)}, recall "
                f"{sum(asked) / len(asked):.3f} [{low:.3f}, {high:.3f}], n {len(asked)}"
            )
        for (true, given), count in Counter(p for p in done.pairs if p[0] != p[1]).most_common(12):
            print(f"  {count} x {true} called {given}")
    alarms, logs = false_alarms(500), 500
    low, high = wilson(alarms, logs)
    print(f"healthy logs: {alarms} false alarms of {logs} [{low:.3f}, {high:.3f}]")


if __name__ == "__main__":
    main()
