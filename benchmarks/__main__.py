"""Runs every benchmark, or those named: ``python -m benchmarks [tick fleet replay verdict line ... kernel_scan]``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping

from benchmarks import (
    allocations,
    fleet,
    follow,
    history,
    kernel_scan,
    line,
    page,
    pages,
    remote_write,
    replay,
    rollups,
    start,
    tick,
    training,
    verdict,
    wrap,
)

ALL: Mapping[str, Callable[[], Iterator[object]]] = {
    "tick": tick.run,
    "fleet": fleet.run,
    "replay": replay.run,
    "remote_write": remote_write.run,
    "verdict": verdict.run,
    "line": line.run,
    "page": page.run,
    "pages": pages.run,
    "start": start.run,
    "history": history.run,
    "follow": follow.run,
    "kernel_scan": kernel_scan.run,
    "allocations": allocations.run,
    "wrap": wrap.run,
    "rollups": rollups.run,
    "training": training.run,
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
