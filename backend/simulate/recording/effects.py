"""What trouble does to matter: effects on named channels, and what a channel reads when several act at once."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: channel -> (axis, value at rest, how effects join). times: factor ``size``; plus: adds; most: the larger; put: sets.
CHANNELS: Mapping[str, tuple[str, float, str]] = {
    "cooling": ("gpu", 1.0, "times"),
    "inlet_c": ("gpu", 0.0, "plus"),
    "vigour": ("gpu", 1.0, "times"),
    "brake": ("gpu", 1.0, "times"),
    "gone": ("gpu", 0.0, "most"),
    "xid": ("gpu", 0.0, "put"),
    "dbe": ("gpu", 0.0, "plus"),
    "sbe_a_s": ("gpu", 0.0, "plus"),
    "rows_bad": ("gpu", 0.0, "plus"),
    "rows_mended": ("gpu", 0.0, "plus"),
    "remap_failed": ("gpu", 0.0, "most"),
    "remap_pending": ("gpu", 0.0, "most"),
    "replays_a_s": ("gpu", 0.0, "plus"),
    "crc_a_s": ("gpu", 0.0, "plus"),
    "links": ("gpu", 1.0, "times"),
    "lanes": ("gpu", 16.0, "put"),
    "recovery": ("gpu", 0.0, "put"),
    "blank": ("gpu", 0.0, "most"),
    "fabric": ("gpu", 0.0, "most"),
    "down": ("nic", 0.0, "most"),
    "downs": ("nic", 0.0, "plus"),
    "symbols_a_s": ("nic", 0.0, "plus"),
    "pace": ("nic", 1.0, "times"),
    "congestion": ("nic", 0.0, "plus"),
    "off": ("node", 0.0, "most"),
    "gpu_dark": ("node", 0.0, "most"),
    "node_dark": ("node", 0.0, "most"),
    "unseen": ("node", 0.0, "most"),
    "frozen": ("node", 0.0, "most"),
    "drowsy": ("node", 1.0, "times"),
    "killed": ("node", 0.0, "plus"),
    "memory_share": ("node", 0.0, "plus"),
    "root_share": ("node", 0.0, "plus"),
    "edac_ce": ("node", 0.0, "plus"),
    "edac_ue": ("node", 0.0, "plus"),
    "skew_s": ("node", 0.0, "plus"),
    "nfs_wait": ("node", 1.0, "times"),
    "store_share": ("node", 0.0, "plus"),
    "feed": ("run", 1.0, "times"),
    "mix": ("run", 1.0, "times"),
    "scheduler_away": ("site", 0.0, "most"),
    "shipper_away": ("site", 0.0, "most"),
}


@dataclass(frozen=True, slots=True)
class Effect:
    """From ``start`` until ``end`` (unix s) on rows of the channel's axis; full after ``ramp_s``, 0 is at once."""

    channel: str
    rows: tuple[int, ...]
    start: float
    end: float = math.inf
    size: float = 1.0
    ramp_s: float = 0.0

    def share(self, now: Floats) -> Floats:
        """How far in force, 0..1, at each of the times ``now``."""
        on = (now >= self.start) & (now < self.end)
        if self.ramp_s <= 0.0:
            return on.astype(np.float64)
        return np.where(on, np.clip((now - self.start) / self.ramp_s, 0.0, 1.0), 0.0)


class Field:
    """All effects of one recording, ready to be asked."""

    def __init__(self, effects: Iterable[Effect]) -> None:
        self._by_channel: dict[str, list[tuple[Effect, NDArray[np.intp]]]] = defaultdict(list)
        for effect in sorted(effects, key=lambda one: one.start):
            self._by_channel[effect.channel].append((effect, np.array(effect.rows, np.intp)))

    def read(self, channel: str, now: Floats) -> Floats:
        """The channel at times ``now`` float64[rows of its axis]."""
        _, rest, how = CHANNELS[channel]
        values = np.full(len(now), rest)
        first, last = float(now.min(initial=math.inf)), float(now.max(initial=-math.inf))
        for effect, rows in self._by_channel.get(channel, ()):
            if effect.start > last or effect.end <= first:
                continue
            share = effect.share(now[rows])
            if how == "times":
                values[rows] *= 1.0 + (effect.size - 1.0) * share
            elif how == "plus":
                values[rows] += effect.size * share
            elif how == "most":
                values[rows] = np.maximum(values[rows], effect.size * share)
            else:
                values[rows] = np.where(share > 0.0, effect.size, values[rows])
        return values
