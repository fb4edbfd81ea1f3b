"""simulate: writes a replay bundle of a make-believe cluster, with the truth about what broke in it."""

from __future__ import annotations

import argparse
import json
import sys
import time

from backend.simulate.recording.record import RecordingError, Wish, record
from backend.simulate.recording.scenario import ScenarioError, names


def simulate(arguments: argparse.Namespace) -> int:
    if arguments.list:
        print("\n".join(names()))
        return 0
    if arguments.out is None:
        print("watchkeeper simulate: give a new folder with --out", file=sys.stderr)
        return 2
    wish = Wish(
        arguments.seed, arguments.scenario, arguments.nodes, arguments.gpus, arguments.hours, arguments.interval
    )
    began = time.monotonic()
    try:
        faults = record(arguments.out, wish, Progress(sys.stderr.isatty()))
    except (RecordingError, ScenarioError) as error:
        print(f"watchkeeper simulate: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"watchkeeper simulate: {arguments.out} cannot be written: {error}", file=sys.stderr)
        return 1
    wall_s = time.monotonic() - began
    if arguments.json:
        print(json.dumps({"bundle": str(arguments.out), "faults": faults, "wall_s": round(wall_s, 1)}))
    else:
        print(f"{arguments.out}: {faults} faults in {arguments.hours:g} hours, written in {wall_s:.0f} s")
    return 0


class Progress:
    """Says on stderr what is being done: a line that is rewritten on a terminal, one line a stage elsewhere."""

    def __init__(self, terminal: bool) -> None:
        self._terminal, self._last = terminal, ("", -1)

    def __call__(self, what: str, share: float) -> None:
        now = (what, int(share * 100))
        if now == self._last or (not self._terminal and what == self._last[0]):
            return
        self._last = now
        text = f"simulate: {what} {now[1]:3d} %" if self._terminal else f"simulate: {what}"
        print(
            f"\r{text:40}" if self._terminal else text, end="" if self._terminal else "\n", file=sys.stderr, flush=True
        )
