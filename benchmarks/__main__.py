"""Runs every benchmark, or those named: ``python -m benchmarks [tick verdict line start]``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping

from benchmarks import line, start, tick, verdict
from benchmarks.ratio import Ratio

ALL: Mapping[str, Callable[[], Iterator[Ratio]]] = {
    "tick": tick.run,
    "verdict": verdict.run,
    "line": line.run,
    "start": start.run,
}


def main(names: list[str]) -> int:
    """Exit code 2 for a name that is no benchmark."""
    unknown = [name for name in names if name not in ALL]
    if unknown:
        print(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(ALL)}", file=sys.stderr)
        return 2
    for name in names or ALL:
        for ratio in ALL[name]():
            print(ratio, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
