"""What a training job tells of itself: canonical names of its signals, their spellings, how their bands are drawn."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast, get_args

from detectors.packaged import TableError, text

Scale = Literal["log", "plain", "text"]
Harm = Literal["high", "low", "both", "none"]
_APART = re.compile(r"[/.\-\s]+")


@dataclass(frozen=True, slots=True)
class Signal:
    """One row of ``tables/signals.csv``; ``code`` is its place there, below 256."""

    code: int
    name: str
    of: tuple[str, ...]
    unit: str
    scale: Scale
    harm: Harm
    about: str
    spellings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Signals:
    """The table, by name; ``spelt`` maps every spelling, as ``plain`` writes it, to the canonical name."""

    by_name: Mapping[str, Signal]
    spelt: Mapping[str, str]

    def canonical(self, name: str) -> str:
        """``train/loss`` is ``loss``; what the table does not know stays as it is."""
        return self.spelt.get(plain(name), name)

    def about(self, *what: str) -> tuple[Signal, ...]:
        """All signals about attention, router, policy and so on."""
        return tuple(signal for signal in self.by_name.values() if signal.about in what)


def plain(name: str) -> str:
    """Lower case, with one underscore for any of / . - and space."""
    return _APART.sub("_", name.strip().lower())


def load() -> Signals:
    """Read the packaged table. Raises TableError that names row and fault."""
    rows = csv.DictReader(line for line in text("signals.csv").splitlines() if not line.startswith("#"))
    by_name: dict[str, Signal] = {}
    spelt: dict[str, str] = {}
    for code, row in enumerate(rows):
        signal = _signal(code, row)
        by_name[signal.name] = signal
        for spelling in (signal.name, *signal.spellings):
            if spelt.setdefault(plain(spelling), signal.name) != signal.name:
                raise TableError(f"signals.csv: {spelling} stands for both {spelt[plain(spelling)]} and {signal.name}")
    return Signals(by_name, spelt)


def _signal(code: int, row: Mapping[str, str]) -> Signal:
    scale, harm = row["scale"], row["harm"]
    if scale not in get_args(Scale) or harm not in get_args(Harm):
        raise TableError(f"signals.csv, {row['signal']}: scale {scale!r} or harm {harm!r} is none that is known")
    if code > 255:
        raise TableError("signals.csv: more than 256 signals")
    of, spellings = tuple(row["of"].split("|")), tuple(row["spellings"].split())
    return Signal(code, row["signal"], of, row["unit"], cast(Scale, scale), cast(Harm, harm), row["about"], spellings)
