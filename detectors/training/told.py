"""What a tick tells of training: the shape of its events, and reading them in one order whatever order they came in.

Three namespaces. attrs are text, numbers as ``repr`` writes them (``nan``, ``inf``); what is not known is left out.

``step``: one row of ``ingest/steps``. ``at`` its ts; entity: ``run_entity`` or, with a rank, ``rank_entity``; code "".
  attrs: run, job, step (whole), rank, layer (a number or a name), host, gpu (uuid or index), and any number of signals
  under their canonical names (tables/signals.csv): loss, grad_norm, step_time_s, tokens, ess, param_hash ...
``ckpt``: code save, load or eval when it has ended; save_begin, load_begin, eval_begin where the job says that too.
  entity: the run. attrs: run, job, step, duration_s, bytes, blocking (yes or no), host.
``collective``: one call as one rank saw it. code: the operation (all_reduce, send). entity: the rank, else the run.
  attrs: run, job, comm, seq, rank, ranks (how many belong to it), host, gpu, start and end (unix s; no end: not done),
  entered (unix s, where it differs from start), bytes; src and dst (ranks) where it is one transfer between two.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from detectors.model import Entity, Event, Tick

STEP, SAVES, COLLECTIVE = "step", "ckpt", "collective"
#: Longest name of a run, a job, a layer that a state keeps.
LONGEST = 128
#: Whole numbers beyond this are mistakes.
MOST = 2**53


def run_entity(cluster: str, run: str) -> Entity:
    return Entity(cluster, "run", run, f"run:{run}")


def rank_entity(cluster: str, run: str, rank: int, host: str = "") -> Entity:
    return Entity(cluster, "rank", f"{run}/rank:{rank}", f"run:{run}/rank:{rank}", host)


def mark(*words: str) -> int:
    """A name of 56 bits that a state can hold for these words, never 0; the low 8 bits are left free for a signal."""
    text = "\0".join(words).encode()
    return ((zlib.crc32(text) << 24 | zlib.adler32(text) & 0xFFFFFF) or 1) << 8


def run_of(event: Event) -> str:
    """The run, else the job it is of: a trainer that names no run is one by itself."""
    named = event.attrs.get("run", "") or event.attrs.get("job", "")
    return named[:LONGEST] or event.entity.id[:LONGEST]


def number(text: str | None) -> float | None:
    """None where nothing, or no number, was said; NaN and infinities are numbers."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return None


def whole(text: str | None, missing: int = -1) -> int:
    found = number(text)
    return int(found) if found is not None and math.isfinite(found) and abs(found) <= MOST else missing


@dataclass(frozen=True, slots=True)
class Row:
    """One event with its order: of which run and step, of which rank and layer ("" and -1: of the whole run)."""

    event: Event
    run: str
    step: int
    rank: int
    layer: str

    @property
    def at(self) -> float:
        return self.event.at

    @property
    def place(self) -> str:
        """Whose numbers these are, as text: ``rank:3``, ``layer:12``, ``rank:3 layer:12``, or nothing: the run's."""
        parts = ([f"rank:{self.rank}"] if self.rank >= 0 else []) + ([f"layer:{self.layer}"] if self.layer else [])
        return " ".join(parts)

    @property
    def order(self) -> tuple[str, float, int, int, str, int]:
        return self.run, self.event.at, self.step, self.rank, self.layer, self.event.seq


def _row(event: Event) -> Row:
    attrs = event.attrs
    layer = attrs.get("layer", "")[:LONGEST]
    return Row(event, run_of(event), whole(attrs.get("step")), whole(attrs.get("rank")), layer.removesuffix(".0"))


def rows(tick: Tick, *namespaces: str) -> list[Row]:
    """Rows of a tick by run and time; in whatever order events came. Those marked late are left out."""
    found = [_row(e) for e in tick.events if e.namespace in namespaces and not e.late and math.isfinite(e.at)]
    if len(found) < 2:
        return found
    orders = [row.order for row in found]
    if len(set(orders)) < len(orders):  # rows that stand on one place: by what they say
        return sorted(found, key=lambda row: (*row.order, tuple(sorted(row.event.attrs.items()))))
    return [found[at] for at in sorted(range(len(found)), key=orders.__getitem__)]


def by_step(found: list[Row]) -> Iterator[tuple[str, int, list[Row]]]:
    """Neighbours of the same run and step."""
    for (run, step), some in groupby(found, key=lambda row: (row.run, row.step)):
        yield run, step, list(some)
