"""How well the rules do on the reviewer's logs: ``python -m tests.detectors.joblog.score_fresh [-v]``."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence

from detectors.kernel.lines import parse
from tests.corpora.fresh_joblogs import cascades, healthy, singles
from tests.corpora.joblogs import HERE, Case
from tests.detectors.joblog.reads import job_verdict, verdict
from tests.detectors.joblog.score import Score, score, wilson

Row = tuple[str, str, str]


def share(name: str, right: int, n: int) -> str:
    low, high = wilson(right, n)
    return f"{name} {right / n:.3f} [{low:.3f}, {high:.3f}], n {n}"


def kernel_lines() -> Iterator[tuple[str, str]]:
    """(``namespace code`` or ``nothing``, line)."""
    for line in (HERE / "fresh_kernel.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            wanted, _, text = line.partition(" | ")
            yield wanted, text


def kernel_rows() -> list[Row]:
    """Asked for, given, line."""
    rows = []
    for wanted, line in kernel_lines():
        code = parse(line)
        told = code is not None and code.namespace != "version"
        rows.append((wanted, f"{code.namespace} {code.code}" if code and told else "nothing", line))
    return rows


def cascade_rows() -> tuple[Score, list[Row]]:
    """Classes and exclusions of the jobs, and the culprits: rank asked for, rank given."""
    pairs, excludes, culprits = [], [], []
    for job in cascades():
        given = job_verdict(job.logs)
        pairs.append((job.log_class, given.log_class))
        if job.exclude != "-":
            excludes.append((job.exclude == "yes", given.exclude_node))
        rank = given.culprit.rank if given.culprit else None
        culprits.append(
            (f"{job.rank} {job.node}", f"{rank} {given.culprit.node if given.culprit else ''}", job.log_class)
        )
    return Score(pairs, excludes), culprits


def told(name: str, done: Score) -> None:
    enough = max(Counter(true for true, _ in done.pairs).values()) >= 5
    f1 = f", macro-F1 {done.macro_f1():.3f}" if enough else ""
    print(share(f"{name}: accuracy", done.right, len(done.pairs)) + f1)
    asked = [given for wanted, given in done.excludes if wanted]
    others = len(done.excludes) - len(asked)
    print("  " + share("wrong exclusions", done.wrong_exclusions, others))
    if asked:
        print("  " + share("exclude recall", sum(asked), len(asked)))


def missed(cases: Sequence[Case]) -> Iterator[str]:
    for case in cases:
        given = verdict(case.text)
        if given.log_class != case.log_class or (case.exclude != "-" and (case.exclude == "yes") != given.exclude_node):
            wrong = "exclude" if given.exclude_node else ""
            yield f"  {case.log_class} ({case.source}, {case.exclude}) called {given.log_class} {wrong}"


def main(arguments: Sequence[str]) -> None:
    failing, well = singles(), healthy()
    jobs, culprits = cascade_rows()
    told("fresh logs", score(failing))
    told("fresh jobs of 16 ranks", jobs)
    both = [score(failing), jobs]
    told("both", Score([p for s in both for p in s.pairs], [e for s in both for e in s.excludes]))
    ranks = [(asked.split()[0] == given.split()[0]) for asked, given, _ in culprits]
    print("  " + share("culprit rank", sum(ranks), len(ranks)))
    done = score(well)
    print(share("fresh healthy logs: false alarms", len(well) - done.right, len(well)))
    rows = kernel_rows()
    print(share("fresh kernel lines: exact", sum(wanted == given for wanted, given, _ in rows), len(rows)))
    if "-v" in arguments:
        print("\n".join([*missed(failing), *missed(well)]))
        print("\n".join(f"  job: {p}" for p in jobs.pairs if p[0] != p[1]))
        print("\n".join(f"  culprit: {row}" for row in culprits if row[0] != row[1].strip()))
        print("\n".join(f"  kernel: {row}" for row in rows if row[0] != row[1]))


if __name__ == "__main__":
    main(sys.argv[1:])
