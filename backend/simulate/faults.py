"""What goes wrong, when, and for how long: a schedule that depends on the seed alone."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The simulation's own names for its mishaps."""

    BUS = "bus"
    FAN = "fan"
    SCRIPT = "script"
    EXPORTER = "exporter"
    MEMORY = "memory"
    LINK = "link"


#: In place of a run: a node nobody trains on, or whatever is fit.
SPARE, ANY = -2, -1
#: The first two minutes: (kind, earliest and latest second, index of the run it strikes first choice).
OPENING: tuple[tuple[Kind, float, float, int], ...] = (
    (Kind.BUS, 6.0, 11.0, 0),
    (Kind.FAN, 18.0, 26.0, 1),
    (Kind.SCRIPT, 34.0, 42.0, 2),
    (Kind.EXPORTER, 52.0, 62.0, SPARE),
    (Kind.MEMORY, 70.0, 80.0, 2),
    (Kind.LINK, 102.0, 112.0, 2),
)
#: Afterwards: at least this long between two, and on average this much more.
PAUSE_S = 150.0
MEAN_EXTRA_S = 210.0
WEIGHTS = {Kind.BUS: 3, Kind.FAN: 3, Kind.SCRIPT: 3, Kind.EXPORTER: 2, Kind.MEMORY: 3, Kind.LINK: 2}
#: Not more nodes than this wait for repair at once; the next fault is put off.
BROKEN_AT_ONCE = 4
#: A fault nobody attends to is taken over by the simulated administrator.
PATIENCE_S = (600.0, 900.0)
#: From drained to switched off, and from off to booted.
REPAIR_S = (25.0, 45.0)
BOOT_S = 20.0
EXPORTER_DOWN_S = (80.0, 130.0)
WATCHDOG_S = 240.0

NEEDS_REPAIR = frozenset({Kind.BUS, Kind.FAN, Kind.MEMORY, Kind.LINK})
#: A lost card or link leaves the other ranks waiting; a contained memory error or a bug ends the job at once.
STALLS = frozenset({Kind.BUS, Kind.LINK})
KILLS = frozenset({Kind.MEMORY, Kind.SCRIPT})


@dataclass(slots=True)
class Planned:
    """The next mishap. ``run``: index of the run it strikes first choice, SPARE or ANY."""

    number: int
    kind: Kind
    due_at: float
    run: int = ANY


@dataclass(slots=True)
class Fault:
    """One mishap that has happened and is not over. Times are seconds of the world; ``card`` -1: none.

    phase: active, then for those that need repair: repair (drained, waiting for hands) and boot (switched off).
    """

    number: int
    kind: Kind
    node: str
    card: int
    began_at: float
    attended_at: float
    phase: str = "active"
    next_at: float = 0.0


def dice_of(seed: int, number: int) -> random.Random:
    """The dice of one mishap: nothing else that happens can change what it throws."""
    return random.Random(f"fault/{seed}/{number}")


def opening(seed: int, start_at: float = 0.0) -> list[Planned]:
    """The promised first two minutes, soonest first."""
    dice = random.Random(f"opening/{seed}")
    return [
        Planned(number, kind, start_at + dice.uniform(earliest, latest), run)
        for number, (kind, earliest, latest, run) in enumerate(OPENING, 1)
    ]


def following(seed: int, number: int, after_at: float) -> Planned:
    """The mishap after the one that was due at ``after_at``."""
    dice = random.Random(f"following/{seed}/{number}")
    kind = dice.choices(list(WEIGHTS), weights=list(WEIGHTS.values()))[0]
    return Planned(number, kind, after_at + PAUSE_S + dice.expovariate(1.0 / MEAN_EXTRA_S))
