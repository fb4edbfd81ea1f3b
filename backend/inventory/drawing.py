"""The Fleet that detectors see: who is there, and which card works for which job in which part."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from backend.facts import AttemptFacts
from backend.inventory.journal import Card, Place
from detectors.fleet import FleetRow, Parts, draw
from detectors.model import Fleet

#: How names of pods end: their number, or five characters that Kubernetes draws of this alphabet (apimachinery, rand).
_ORDINAL = re.compile(r"-(?:\d{1,6}|[bcdfghjklmnpqrstvwxz2456789]{5})$")


class Here(NamedTuple):
    """An attempt on one node: the indices it holds there (empty = not told), and its part in the job."""

    attempt: AttemptFacts
    gpus: tuple[int, ...]
    part: str


def draw_fleet(
    cluster: str,
    epoch: int,
    places: Sequence[Place],
    cards: Sequence[Card],
    held: Iterable[AttemptFacts],
    parts: Sequence[Parts] = (),
) -> Fleet:
    """Rows in order of their slots; "" for the job of what has none, or several that cannot be told apart."""
    here = on_nodes(held)
    size = Counter(card.place.name for card in cards if card.retired_at is None)
    nodes: list[FleetRow] = []
    for p in places:
        mine = here.get(p.name, ())
        job, part = (mine[0].attempt.job, mine[0].part) if len(mine) == 1 else ("", "")
        nodes.append(FleetRow(p.name, p.name, p.slot, p.retired_at is None, job, part, p.model, p.rack, p.switch))
    rows: list[FleetRow] = []
    for c in cards:
        mine = here.get(c.place.name, ())
        job = job_of(c, mine, size[c.place.name]) if mine or c.job else ""
        part = next((one.part for one in mine if one.attempt.job == job), "")
        live = c.retired_at is None and c.place.retired_at is None
        rows.append(FleetRow(c.id, c.name, c.place.slot, live, job, part, c.model, c.place.rack, c.place.switch))
    return draw(cluster, epoch, nodes, rows, parts)


def on_nodes(held: Iterable[AttemptFacts]) -> dict[str, list[Here]]:
    """Node to the attempts on it. Several parts on one node are a part of their own."""
    found: defaultdict[str, list[Here]] = defaultdict(list)
    for attempt in held:
        parts: defaultdict[str, set[str]] = defaultdict(set)
        for node, role in attempt.roles:
            parts[node].add(role)
        gpus = dict(attempt.gpus)
        for name in attempt.nodes:
            found[name].append(Here(attempt, gpus.get(name, ()), "+".join(sorted(parts[name]))))
    return dict(found)


def job_of(card: Card, here: Sequence[Here], cards: int) -> str:
    """The attempt whose scheduler says that it holds this index has the card; so has one with all of a node's cards.
    Else its exporter may know, if the scheduler agrees."""
    index = int(card.index) if card.index.isdecimal() else -1
    mine = [one.attempt.job for one in here if index in one.gpus]
    if len(mine) == 1:
        return mine[0]
    vague = [one.attempt for one in here if not one.gpus or mine or index < 0]  # an index that tells nothing
    if len(here) == 1 and vague and not here[0].gpus:
        asked = here[0].attempt.gpus_per_node
        if not asked or asked >= cards:
            return here[0].attempt.job
    if len(here) == 1 and len(here[0].gpus) >= cards:
        return here[0].attempt.job  # all of them, whatever they are called today
    if here or not card.job:
        return _whose({attempt.job for attempt in vague}, card.job)
    return _without_ordinal(card.job) if card.place.state != "idle" else ""


def _whose(jobs: Collection[str], told: str) -> str:
    """The job that an exporter names, or whose pod: controllers call pods ``<namespace>.<job>-<what>``. "" for none."""
    return max((job for job in jobs if told == job or told.startswith(f"{job}-")), key=len, default="")


def _without_ordinal(told: str) -> str:
    """A pod whose controller nobody knows, with its peers: without the numbers and the random ends of their names."""
    while "." in told and (shorter := _ORDINAL.sub("", told)) != told:
        told = shorter
    return told
