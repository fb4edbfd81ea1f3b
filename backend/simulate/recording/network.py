"""Trouble of the fabric: ports that go down, flap or fade, and a switch that takes all its ports along."""

from __future__ import annotations

from functools import partial

from backend.simulate.recording.aftermath import broken, stall, stopped
from backend.simulate.recording.plant import Port
from backend.simulate.recording.scene import Fault, Scene, Sight


def _line(port: Port, word: str) -> str:
    return f"mlx5_core {port.pci}.0 ib{port.name[-1]}: Link {word}"


def port_down(scene: Scene, at: float, how: str) -> Fault:
    attempt, node, port = scene.port(at)
    told = scene.kernel(at, node, [
        f"mlx5_core {port.pci}.0: Port module event: module {port.name[-1]}, Cable unplugged", _line(port, "down"),
    ]) if how == "line" else []  # fmt: skip
    ended = stall(scene, attempt, at)
    back = broken(scene, attempt, node, ended, f"port {port.name} down")
    made = scene.fault("ib_link_down", how, f"{node.name}/nic:{port.name}", at, back, True, attempt)
    scene.act("down", (port.row,), at, back)
    scene.act("downs", (port.row,), at, back)
    made.sights = [*told, Sight("node", at, node.row), *stopped(attempt, at)]
    return made


def port_flap(scene: Scene, at: float, how: str) -> Fault:
    attempt, node, port = scene.port(at)
    until = at + min(4200.0, 0.6 * scene.left(at))
    attempt.planned_end = max(attempt.planned_end, until + 300.0)
    made = scene.fault("ib_link_flap", how, f"{node.name}/nic:{port.name}", at, until, True, attempt)
    moment, told = at, []
    while moment < until:
        down_s = scene.dice.uniform(1.5, 40.0)
        scene.act("down", (port.row,), moment, moment + down_s)
        scene.act("downs", (port.row,), moment, scene.end + 1.0)
        if how == "line":
            told += scene.kernel(moment, node, [_line(port, "down")])
            scene.kernel(moment + down_s, node, [_line(port, "up")])
        moment += scene.dice.uniform(180.0, 600.0)
    scene.act("pace", (port.row,), at, until, 0.85)
    made.sights = [*told[:1], Sight("node", at, node.row)]
    return made


def port_fades(scene: Scene, at: float, how: str) -> Fault:
    """abrupt: the port trains at half its rate; gradual: symbol errors and waiting grow."""
    attempt, node, port = scene.port(at)
    until = at + min(7200.0, 0.65 * scene.left(at))
    attempt.planned_end = max(attempt.planned_end, until + 300.0)
    ramp = 0.0 if how == "abrupt" else 0.4 * (until - at)
    made = scene.fault("ib_port_degraded", how, f"{node.name}/nic:{port.name}", at, until, True, attempt)
    scene.act("pace", (port.row,), at, until, 0.5, ramp)
    scene.act("symbols_a_s", (port.row,), at, until, 2.5, ramp)
    scene.act("congestion", (port.row,), at, until, 1.0, ramp)
    scene.act("feed", (attempt.run.row,), at, until, 0.78, ramp)
    made.sights = [Sight("node", at + 0.1 * ramp, node.row)]
    made.sights += [Sight("coupled", at + 0.2 * ramp, row) for row in attempt.nodes]
    return made


def fabric(scene: Scene, at: float, how: str) -> Fault:
    """A leaf switch: all its ports drop together, or they crawl."""
    attempt, node = scene.node(at)
    hit = [other for other in scene.site.nodes if other.switch == node.switch]
    ports = [port.row for other in hit for port in other.ports]
    until = at + min(scene.dice.uniform(900.0, 2400.0), 0.5 * scene.left(at))
    rows = {other.row for other in hit}
    attempts = [one for one in scene.table.stepping(at, 1.0) if rows & set(one.nodes)]
    made = scene.fault("network_fabric", how, f"switch:{node.switch}", at, until, False, attempt)
    made.nodes = tuple(other.name for other in hit)
    scene.tense.update({other.row: until + 1800.0 for other in hit})
    told: list[Sight] = []
    if how == "down":
        scene.act("down", ports, at, until)
        scene.act("downs", ports, at, scene.end + 1.0)
        for place, other in enumerate(hit):
            told += scene.kernel(at + 0.3 * place, other, [_line(port, "down") for port in other.ports])
            scene.kernel(until + 0.3 * place, other, [_line(port, "up") for port in other.ports])
        for one in attempts:
            stall(scene, one, at)
            one.state = "REQUEUED"
            scene.table.requeue(one)
    else:
        scene.act("pace", ports, at, until, 0.3)
        scene.act("congestion", ports, at, until, 1.6)
        for one in attempts:
            one.planned_end = max(one.planned_end, until + 300.0)
            scene.act("feed", (one.run.row,), at, until, 0.5)
    made.sights = [*told[:1], *(Sight("node", at, other.row) for other in hit)]
    made.sights += [Sight("coupled", at, row) for one in attempts for row in one.nodes]
    return made


NETWORK = {
    ("ib_link_down", how): partial(port_down, how=how) for how in ("line", "counter")
} | {
    ("ib_link_flap", how): partial(port_flap, how=how) for how in ("line", "counter")
} | {
    ("ib_port_degraded", how): partial(port_fades, how=how) for how in ("abrupt", "gradual")
} | {
    ("network_fabric", how): partial(fabric, how=how) for how in ("down", "crawl")
}  # fmt: skip
