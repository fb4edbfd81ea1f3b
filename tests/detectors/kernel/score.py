"""How the readers do on kernel lines that no rule was written from: ``python -m tests.detectors.kernel.score [-v]``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from detectors.kernel.lines import parse
from tests.corpora.joblogs import HERE
from tests.detectors.joblog.score import wilson

#: Corpus -> right of the faulty lines, false alarms of the harmless ones, when it was first run, before any mending.
FIRST_RUN = {
    "kernel_holdout_1.txt": "codes 168 of 191, false alarms 3 of 109",
    "kernel_holdout_2.txt": "codes 72 of 79, false alarms 0 of 40",
}


class Told(NamedTuple):
    """One line: the codes it may have ("namespace code", or "nothing"), and the one it was given."""

    wanted: frozenset[str]
    given: str
    line: str

    @property
    def right(self) -> bool:
        return self.given in self.wanted

    @property
    def harmless(self) -> bool:
        return self.wanted == frozenset({"nothing"})

    @property
    def numbered(self) -> bool:
        return next(iter(self.wanted)).split()[0] in {"xid", "sxid"}


def lines(corpus: str) -> Iterator[Told]:
    for row in (HERE / corpus).read_text(encoding="utf-8").splitlines():
        if not row.startswith("#"):
            label, _, line = row.partition(" | ")
            code = parse(line)
            yield Told(
                _wanted(label),
                f"{code.namespace} {code.code}" if code and code.namespace != "version" else "nothing",
                line,
            )


def _wanted(label: str) -> frozenset[str]:
    namespace, _, codes = label.partition(" ")
    return frozenset(f"{namespace} {code}" for code in codes.split("/")) if codes else frozenset({label})


def _share(name: str, right: int, n: int) -> str:
    low, high = wilson(right, n)
    return f"{name} {right / n:.3f} [{low:.3f}, {high:.3f}], n {n}"


def main(arguments: Sequence[str]) -> None:
    for corpus, first in FIRST_RUN.items():
        told = list(lines(corpus))
        faulty = [row for row in told if not row.harmless]
        numbered = [row for row in faulty if row.numbered]
        harmless = [row for row in told if row.harmless]
        print(f"{corpus} (first run, before mending: {first})")
        print("  " + _share("codes exact", sum(row.right for row in faulty), len(faulty)))
        print("  " + _share("Xid and SXid exact", sum(row.right for row in numbered), len(numbered)))
        print("  " + _share("false alarms on harmless lines", sum(not row.right for row in harmless), len(harmless)))
        if "-v" in arguments:
            print("\n".join(f"    {sorted(row.wanted)} given {row.given}: {row.line}" for row in told if not row.right))


if __name__ == "__main__":
    main(sys.argv[1:])
