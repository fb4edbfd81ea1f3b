"""Trouble that slows cards instead of killing them: heat, power, lanes, and cards that are slow and say nothing."""

from __future__ import annotations

from functools import partial

from backend.simulate.recording.plant import Card, Node
from backend.simulate.recording.scene import Fault, Scene, Sight
from backend.simulate.recording.work import Attempt


def _span(scene: Scene, at: float) -> float:
    """When slow trouble is put right: an hour or two, within the recording."""
    return at + min(scene.dice.uniform(3600.0, 9000.0), 0.7 * scene.left(at))


def _kept(attempt: Attempt, until: float) -> None:
    """A job that is only slow does not happen to end right now."""
    attempt.planned_end = max(attempt.planned_end, until + 300.0)


def _name(scene: Scene, card: Card) -> str:
    return f"{scene.site.nodes[card.node].name}/gpu{card.index}"


def _rack(scene: Scene, node: Node) -> list[Node]:
    return [other for other in scene.site.nodes if other.rack == node.rack]


def heat(scene: Scene, at: float, how: str) -> Fault:
    """fan: one card's air stops; paste: it dries out over hours; node: a fan wall fails; rack: the inlet gets warm."""
    attempt, card = scene.card(at, scene.dice.choice(("nvidia", "")), full=True)
    node, until = scene.site.nodes[card.node], _span(scene, at)
    _kept(attempt, until)
    cards = [one.row for one in node.cards]
    if how == "fan":
        made = scene.fault("thermal_throttle", how, _name(scene, card), at, until, True, attempt)
        scene.act("cooling", (card.row,), at, until, scene.dice.uniform(0.42, 0.5))
        wait = 0.0
    elif how == "paste":
        ramp = 0.8 * (until - at)
        made = scene.fault("thermal_throttle", how, _name(scene, card), at, until, True, attempt)
        scene.act("cooling", (card.row,), at, until, scene.dice.uniform(0.4, 0.48), ramp)
        wait = 0.2 * ramp
    elif how == "node":
        made = scene.fault("thermal_throttle", how, node.name, at, until, True, attempt)
        scene.act("cooling", cards, at, until, scene.dice.uniform(0.38, 0.45), 60.0)
        wait = 15.0
    else:
        made = scene.fault("thermal_throttle", how, f"rack:{node.rack}", at, until, False, attempt, True)
        hot = [one.row for other in _rack(scene, node) for one in other.cards]
        scene.act("inlet_c", hot, at, until, scene.dice.uniform(15.0, 19.0), 900.0)
        scene.act("cooling", hot, at, until, scene.dice.uniform(0.6, 0.66), 900.0)
        made.nodes = tuple(other.name for other in _rack(scene, node))
        wait = 120.0
    made.sights = [Sight("busy", at + wait, card.node)]
    return made


def brake(scene: Scene, at: float, how: str) -> Fault:
    """The power brake holds clocks down: one card, a node whose supply failed, or a rack whose feed did."""
    attempt, card = scene.card(at, full=True)
    node, until = scene.site.nodes[card.node], _span(scene, at)
    _kept(attempt, until)
    rows, entity, exclude = {
        "card": ([card.row], _name(scene, card), True),
        "node": ([one.row for one in node.cards], node.name, True),
        "rack": ([one.row for other in _rack(scene, node) for one in other.cards], f"rack:{node.rack}", False),
    }[how]
    made = scene.fault("power_brake", how, entity, at, until, exclude, attempt, True)
    if how == "rack":
        made.nodes = tuple(other.name for other in _rack(scene, node))
    scene.act("brake", rows, at, until, scene.dice.uniform(0.45, 0.6))
    made.sights = [Sight("gpu", at, card.node)]
    return made


def lanes(scene: Scene, at: float, how: str) -> Fault:
    """A PCIe link trains narrower at once, or replays more and more until it does."""
    attempt, card = scene.card(at, full=True)
    node, until = scene.site.nodes[card.node], _span(scene, at)
    _kept(attempt, until)
    made = scene.fault("pcie_width_downgrade", how, _name(scene, card), at, until, True, attempt)
    down = at if how != "gradual" else at + 0.3 * (until - at)
    if how == "gradual":
        scene.act("replays_a_s", (card.row,), at, until, 0.8, down - at)
    told = scene.kernel(at, node, [
        f"pci {card.pci}.0: 63.008 Gb/s available PCIe bandwidth, limited by 32.0 GT/s PCIe x2 link at "
        f"0000:{card.pci[5:7]}:01.0 (capable of 504.112 Gb/s with 32.0 GT/s PCIe x16 link)",
    ]) if how == "line" else []  # fmt: skip
    scene.act("lanes", (card.row,), down, until, scene.dice.choice((2.0, 4.0)))
    scene.act("vigour", (card.row,), down, until, scene.dice.uniform(0.72, 0.85))
    made.sights = [*told, Sight("gpu", at + (120.0 if how == "gradual" else 0.0), card.node)]
    return made


def silent(scene: Scene, at: float, how: str) -> Fault:
    """A card does less per clock and shows nothing of it: its peers wait for it."""
    attempt, card = scene.card(at, "")
    until = _span(scene, at)
    _kept(attempt, until)
    ramp = 0.0 if how == "abrupt" else 0.6 * (until - at)
    made = scene.fault("silent_slow_gpu", how, _name(scene, card), at, until, True, attempt)
    scene.act("vigour", (card.row,), at, until, scene.dice.uniform(0.6, 0.78), ramp)
    made.sights = [Sight("coupled", at + 0.25 * ramp, row) for row in attempt.nodes]
    return made


SLOWNESS = {
    ("thermal_throttle", how): partial(heat, how=how) for how in ("fan", "paste", "node", "rack")
} | {
    ("power_brake", how): partial(brake, how=how) for how in ("card", "node", "rack")
} | {
    ("pcie_width_downgrade", how): partial(lanes, how=how) for how in ("abrupt", "gradual", "line")
} | {
    ("silent_slow_gpu", how): partial(silent, how=how) for how in ("abrupt", "gradual")
}  # fmt: skip
