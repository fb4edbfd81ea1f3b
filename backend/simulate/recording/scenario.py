"""Which trouble a recording holds and when: nothing, a family, one kind, or a mix that can be told apart."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping

from backend.simulate.recording.calm import CALM
from backend.simulate.recording.cards import CARDS
from backend.simulate.recording.hosts import HOSTS
from backend.simulate.recording.learning import JOBS, LEARNING
from backend.simulate.recording.network import NETWORK
from backend.simulate.recording.plant import Plant
from backend.simulate.recording.scene import Fault, Scene, Unfit
from backend.simulate.recording.slowness import SLOWNESS
from backend.simulate.recording.stores import STORES, WATCHING
from backend.simulate.recording.timetable import timetable
from backend.simulate.recording.work import runs

Builder = Callable[[Scene, float], Fault]

FAMILIES: Mapping[str, Mapping[tuple[str, str], Builder]] = {
    "cards": CARDS,
    "slowness": SLOWNESS,
    "network": NETWORK,
    "hosts": HOSTS,
    "storage": STORES,
    "jobs": JOBS,
    "learning": LEARNING,
    "watching": WATCHING,
}
TROUBLE: Mapping[tuple[str, str], Builder] = {
    key: builder for family in FAMILIES.values() for key, builder in family.items()
}
KINDS = tuple(dict.fromkeys(kind for kind, _ in TROUBLE))
#: Trouble begins after the first quarter of an hour (less in a short recording) and at least this far apart.
QUIET_S, APART_S = 900.0, 1500.0
#: How often a fault that found nobody to strike is tried again, and how much later each time.
TRIES, LATER_S = 40, 45.0
SITE_NODES, DAY_S = 24.0, 86_400.0


class ScenarioError(ValueError):
    """A scenario that is not known, or that this site is too small for; the text says what is."""


def names() -> tuple[str, ...]:
    """Every scenario; ``kind:NAME`` stands for one kind."""
    return ("quiet", "mixed", *FAMILIES, *(f"kind:{kind}" for kind in KINDS))


def chosen(name: str) -> Mapping[tuple[str, str], Builder]:
    """Trouble of a scenario by kind and variant; ``kind:NAME/VARIANT`` is one variant. Raises ScenarioError."""
    if name == "quiet":
        return {}
    if name == "mixed":
        return TROUBLE
    if name in FAMILIES:
        return FAMILIES[name]
    kind, _, variant = name.removeprefix("kind:").partition("/")
    found = {key: builder for key, builder in TROUBLE.items() if key[0] == kind and variant in ("", key[1])}
    if not name.startswith("kind:") or not found:
        raise ScenarioError(f"no scenario {name!r}; there are {', '.join(names())}")
    return found


def scene(site: Plant, scenario: str, start: float, end: float) -> Scene:
    """Everything planned: attempts with their fates, effects, lines and truth. Raises ScenarioError."""
    trouble = chosen(scenario)
    nvidia = sum(node.vendor == "nvidia" for node in site.nodes)
    table = timetable(site, runs(site.seed, nvidia, len(site.nodes) - nvidia), start, end)
    made = Scene(site, table, start, end, random.Random(f"scene/{site.seed}/{scenario}"))
    plan = sorted([*_troubled(made, trouble, scenario), *_calm(made)], key=lambda one: one[0])
    for at, name, what in plan:
        made.dice = random.Random(f"event/{site.seed}/{name}")
        _let(made, at, what)
    table.advance(end)
    return made


def _let(made: Scene, at: float, what: Callable[[Scene, float], object]) -> None:
    """Let it happen as soon as there is somebody it can happen to."""
    for attempt in range(TRIES):
        moment = at + attempt * LATER_S
        if moment > made.end - 60.0:
            return
        made.table.advance(moment)
        try:
            what(made, moment)
        except Unfit:
            continue
        return


def _troubled(
    made: Scene, trouble: Mapping[tuple[str, str], Builder], scenario: str
) -> list[tuple[float, str, Builder]]:
    """Times for as many faults as can be told apart: every kind once before any kind twice."""
    if not trouble:
        return []
    dice = random.Random(f"trouble/{made.site.seed}/{scenario}")
    length = made.end - made.start
    first = made.start + min(QUIET_S, 0.2 * length)
    room = made.end - first - min(1200.0, 0.3 * length)
    keys = list(trouble)
    dice.shuffle(keys)
    seen: Counter[str] = Counter()
    turns: list[tuple[int, tuple[str, str]]] = []
    for key in keys:
        turns.append((seen[key[0]], key))
        seen[key[0]] += 1
    order = [key for _, key in sorted(turns, key=lambda turn: turn[0])]
    apart = max(APART_S * min(1.0, SITE_NODES / len(made.site.nodes)), 300.0)
    most = max(1, int(room / apart) + 1)
    order = order[:most]
    gap = room / len(order)
    return [
        (first + gap * (place + 0.6 * dice.random()), f"{scenario}/{place}", trouble[key])
        for place, key in enumerate(order)
    ]


def _calm(made: Scene) -> list[tuple[float, str, Callable[[Scene, float], None]]]:
    dice = random.Random(f"calm/{made.site.seed}")
    length = made.end - made.start
    scale = length / DAY_S * max(0.5, len(made.site.nodes) / SITE_NODES)
    found: list[tuple[float, str, Callable[[Scene, float], None]]] = []
    for what, often in CALM:
        times = int(often * scale) + (dice.random() < often * scale % 1.0)
        found += [(made.start + dice.uniform(0.05, 0.9) * length, f"{what.__name__}/{i}", what) for i in range(times)]
    return found
