"""A process that writes ticks into a history as fast as it can, until it is killed: ``history_writer FOLDER START``."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from backend.history import History, period_of
from detectors.fleet import FleetRow, draw
from detectors.model import Fleet, Tick

KEY = ("gpu", "power_w")
TICK_S = 100.0
#: Rows before and after the fleet has grown: two segments of the file.
FEW, MANY = 200, 600


def ids(count: int) -> tuple[str, ...]:
    return tuple(f"GPU-{n}" for n in range(count))


def fleet_of(names: tuple[str, ...], epoch: int = 0) -> Fleet:
    return draw("main", epoch, [FleetRow("n1", "n1", 0)], [FleetRow(id_, id_, 0) for id_ in names])


def value_at(at: float) -> float:
    """What every GPU shows at ``at``: whose cell it is in thousands, and which of its three ticks."""
    return period_of(at) % 1000 * 1000.0 + at % 300 / TICK_S


def main(folder: Path, start: float) -> None:
    """``start`` is the first tick of a cell. The first line of output says that ticks are being written."""
    history = History.open(folder, "main", (KEY,), "write")
    few, many = fleet_of(ids(FEW), 1), fleet_of(ids(MANY), 2)
    at, written = start, 0
    while True:
        fleet = few if written < 48 else many
        values = np.full(len(fleet.axes["gpu"]), value_at(at), np.float32)
        history.add(Tick(at, {KEY: values}), fleet)
        at, written = at + TICK_S, written + 1
        if written == 1:
            print("writing", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
