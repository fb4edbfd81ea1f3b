"""Chance of one scrape interval, in streams of their own: what one thing throws changes nothing for another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Noise:
    """``rare`` is for counts whose rates differ: they take more or fewer throws where trouble is."""

    cards: np.random.Generator
    hosts: np.random.Generator
    rare: np.random.Generator

    @classmethod
    def of(cls, seed: int, tick: int) -> Noise:
        cards, hosts, rare = (np.random.default_rng((seed, stream, tick)) for stream in (41, 42, 43))
        return cls(cards, hosts, rare)
