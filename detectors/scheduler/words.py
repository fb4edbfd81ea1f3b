"""What schedulers say of a node: it does not answer, it was taken out on purpose, it is back."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detectors.model import BoolArray, Event, Fleet

#: Namespaces whose events are heard here.
HEARD = frozenset({"slurm", "k8s", "boot"})
#: The scheduler has given the node up; it only waits for an answer; it has one again.
DOWN = frozenset({"node_down", "NodeNotReady"})
SLOW = frozenset({"node_not_responding"})
BACK = frozenset({"node_back", "NodeReady", "node_rebooted", "Rebooted", "boot"})
#: Somebody takes the node out (until it is put back), or has just said that something will be done to it.
TAKEN = frozenset({"NodeNotSchedulable"})
PUT_BACK = frozenset({"NodeSchedulable"})
TOLD = frozenset({"node_reboot_asked", "node_reason"})
#: Beginnings of node states of Slurm, as ``scontrol update`` sets them.
OUT_STATES = ("DRAIN", "DOWN", "FAIL", "POWER", "REBOOT", "MAINT", "FUTURE")
IN_STATES = ("RESUME", "IDLE", "UNDRAIN", "ALLOC", "MIX")
#: Clocks of scheduler and scrapes differ, and a scrape sees a silence late; never early.
SKEW_S = 60.0
#: Slurm's own reason for a node that it gave up.
NO_ANSWER = "not responding"


@dataclass(slots=True)
class Words:
    """The newest word of each sort per node row, float64[n] in unix s, NaN = none: ``down``, ``slow`` (it does not
    answer), ``out`` (taken out), ``told`` (something is going to be done to it), ``back`` (it is there again or put
    back)."""

    down: NDArray[np.float64]
    slow: NDArray[np.float64]
    out: NDArray[np.float64]
    told: NDArray[np.float64]
    back: NDArray[np.float64]


def hear(words: Words, events: Iterable[Event], fleet: Fleet) -> None:
    """Fold the events in, in order of their times; those of nodes that are no rows are left out."""
    for event in sorted(events, key=lambda e: (e.at, e.seq, e.namespace, e.code, e.text)):
        row = fleet.slots.get(("node", event.entity.host), -1) if event.namespace in HEARD else -1
        if 0 <= row < len(words.down) and not event.late:
            _hear(words, row, event)


def _hear(words: Words, row: int, event: Event) -> None:
    code, state = event.code, event.attrs.get("state", "").upper()
    put_back = code in PUT_BACK or (code == "node_state" and state.startswith(IN_STATES))
    if code in BACK or put_back:
        words.down[row] = words.slow[row] = words.told[row] = math.nan
        words.out[row] = math.nan if put_back else words.out[row]
        words.back[row] = event.at
    elif code in DOWN or (code == "node_out" and NO_ANSWER in event.text.lower()):
        words.down[row] = event.at
    elif code in SLOW:
        words.slow[row] = event.at
    elif code in TAKEN or code == "node_out" or (code == "node_state" and state.startswith(OUT_STATES)):
        words.out[row] = event.at
    elif code in TOLD:
        words.told[row] = event.at


def planned(words: Words, since: NDArray[np.float64], at: float, within_s: float) -> BoolArray:
    """bool[n]: nodes that were out on purpose when their silence began (``since`` float64[n], unix s), or of which
    somebody had spoken, at most ``within_s`` before now (``at``). What is done to a node later answers the silence."""
    with np.errstate(invalid="ignore"):
        lately = (words.told <= since + SKEW_S) & (at - words.told <= within_s)
        found: BoolArray = (words.out <= since + SKEW_S) | lately
    return found


def unanswered(words: Words, at: float, fresh_s: float) -> BoolArray:
    """bool[n]: nodes that the scheduler gave up, or waited for in vain within ``fresh_s`` before ``at`` (unix s)."""
    found: BoolArray = ~np.isnan(words.down) | (at - words.slow <= fresh_s)
    return found
