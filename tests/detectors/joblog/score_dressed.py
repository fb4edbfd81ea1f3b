"""How well the rules do on hold-outs their author had not seen: ``python -m tests.detectors.joblog.score_dressed``."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from detectors.joblog.ends import End, end_of
from detectors.joblog.verdict import Verdict
from tests.corpora.dressed_joblogs import Dressed, cases, healthy, jobs
from tests.detectors.joblog.reads import job_verdict
from tests.detectors.joblog.score import Score, wilson

NAMES = ("second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
#: Hold-outs of logs that went well alone.
WELL = ("ninth", "tenth")


def ended(words: str) -> End | None:
    """``FAILED:1:0``: state, exit code, signal."""
    if not words:
        return None
    state, code, signal = words.split(":")
    return end_of(state, int(code), int(signal) or None)


@dataclass(frozen=True)
class Graded:
    """One case and what was said of it."""

    case: Dressed
    given: Verdict

    @property
    def right(self) -> bool:
        return self.given.log_class == self.case.log_class

    @property
    def rank(self) -> int | None:
        return self.given.culprit.rank if self.given.culprit else None

    @property
    def node(self) -> str:
        return self.given.culprit.node if self.given.culprit else ""


def graded(found: Sequence[Dressed]) -> list[Graded]:
    return [Graded(case, job_verdict(case.logs, ended(case.end))) for case in found]


def scored(found: Sequence[Graded]) -> Score:
    excludes = [(one.case.exclude == "yes", one.given.exclude_node) for one in found if one.case.exclude != "-"]
    return Score([(one.case.log_class, one.given.log_class) for one in found], excludes)


def share(name: str, right: int, n: int) -> str:
    low, high = wilson(right, n)
    return f"{name} {right / max(n, 1):.3f} [{low:.3f}, {high:.3f}], n {n}"


def culprits(found: Sequence[Graded]) -> tuple[list[bool], list[bool]]:
    """Whether each rank, and each node, that can be known was named."""
    ranks = [one.rank == one.case.rank for one in found if one.case.rank is not None]
    return ranks, [one.node == one.case.node for one in found if one.case.node]


def told(name: str) -> Iterator[str]:
    single, well, many = graded(cases(name)), graded(healthy(name)), graded(jobs(name))
    done = scored([*single, *many])
    counts = Counter(case.log_class for case in (*cases(name), *jobs(name)))
    least = 5 if max(counts.values()) >= 5 else 2
    f1 = f"macro-F1 {done.macro_f1(least):.3f} of classes with {least} and more"
    yield f"{share(f'{name}: accuracy', done.right, len(done.pairs))}, {f1}"
    yield share("  single logs alone", sum(one.right for one in single), len(single))
    yield share("  jobs alone", sum(one.right for one in many), len(many))
    yield share("  false alarms", sum(not one.right for one in well), len(well))
    ranks, nodes = culprits(many)
    yield share("  culprit rank", sum(ranks), len(ranks))
    yield share("  culprit node", sum(nodes), len(nodes))
    asked = [given for wanted, given in done.excludes if wanted]
    wrong = done.wrong_exclusions + sum(one.given.exclude_node for one in well)
    yield share("  wrong exclusions", wrong, len(done.excludes) - len(asked) + len(well))
    yield share("  exclude recall", sum(asked), len(asked))


def missed(name: str) -> Iterator[str]:
    for one in graded([*cases(name), *healthy(name), *jobs(name)]):
        case, given = one.case, one.given
        if not one.right or (case.exclude != "-" and (case.exclude == "yes") != given.exclude_node):
            yield f"  {case.log_class} ({case.source}) called {given.log_class} exclude {given.exclude_node}"
        if (case.node and one.node != case.node) or (case.rank is not None and one.rank != case.rank):
            yield f"  culprit of {case.log_class} ({case.source}) {case.rank} {case.node} called {one.rank} {one.node}"


def main(arguments: Sequence[str]) -> None:
    say: Callable[[str], None] = print
    for name in [name for name in NAMES if cases(name)]:
        say("\n".join(told(name)))
        if "-v" in arguments:
            say("\n".join(missed(name)))
            counts = Counter(case.log_class for case in cases(name))
            say(f"  classes {len(counts)}, of five and more {sum(n >= 5 for n in counts.values())}")
    for name in WELL:
        found = graded(healthy(name))
        say(share(f"{name}: false alarms", sum(not one.right for one in found), len(found)))


if __name__ == "__main__":
    main(sys.argv[1:])
