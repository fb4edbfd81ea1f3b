"""What happens in a healthy cluster and looks like trouble: none of it is ever written into the truth."""

from __future__ import annotations

from collections.abc import Callable

from backend.simulate.recording import codes
from backend.simulate.recording.aftermath import mend, power_cycle
from backend.simulate.recording.scene import Scene


def exporter_restart(scene: Scene, at: float) -> None:
    """The GPU exporter of a node is replaced; the gauge of the last Xid starts at 0 again."""
    node = scene.dice.choice(scene.site.nodes)
    scene.act("gpu_dark", (node.row,), at, at + scene.dice.uniform(20.0, 75.0))


def blanks(scene: Scene, at: float) -> None:
    """Profiling fields of one card read blank for a while, and on again."""
    node = scene.dice.choice([one for one in scene.site.nodes if one.vendor == "nvidia"])
    scene.act("blank", (scene.dice.choice(node.cards).row,), at, at + scene.dice.uniform(300.0, 1800.0))


def twins(scene: Scene, at: float) -> None:
    """Series of a node come with and without pod labels."""
    node = scene.dice.choice([one for one in scene.site.nodes if one.vendor == "nvidia"])
    scene.twins.append((node.row, at, at + scene.dice.uniform(900.0, 3600.0)))


def replayed(scene: Scene, at: float) -> None:
    """A log agent starts again and reads the old kernel buffer: codes of days ago arrive once more."""
    node = scene.dice.choice([one for one in scene.site.nodes if one.vendor == "nvidia"])
    card, old = scene.dice.choice(node.cards), at - scene.dice.uniform(1.0, 4.0) * 86_400.0
    for i, line in enumerate((codes.xid(card, 79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."),
                              codes.asks(card, codes.REBOOT))):  # fmt: skip
        scene.say(old + i, node.name, "kernel", codes.dressed(node, old, line), at + 0.01 * i)


def debugging(scene: Scene, at: float) -> None:
    """Somebody tries out a kernel on a spare node: application codes, no job of note."""
    node = scene.spare(at)
    if node.vendor == "nvidia":
        card = scene.dice.choice(node.cards)
        scene.kernel(at, node, [codes.fault31(card, scene.dice), codes.fault43(card, scene.dice)])
        scene.act("xid", (card.row,), at, scene.end + 1.0, 43.0)


def nonfatal(scene: Scene, at: float) -> None:
    """Links correct themselves and say so."""
    node = scene.dice.choice([one for one in scene.site.nodes if one.vendor == "nvidia"])
    card, link = scene.dice.choice(node.cards), scene.dice.randrange(18)
    code, unit = scene.dice.choice(((145, "RLW_SRC_TRACK"), (147, "TREX"), (145, "RLW_RXPIPE")))
    scene.kernel(at, node, [codes.nvlink5(card, code, unit, "Nonfatal", link, scene.dice)])
    if scene.dice.random() < 0.4:
        scene.kernel(at + 7.0, node, [codes.sxid(scene.dice, 12028, "Non-fatal", "egress non-posted PRIV error")])


def driver_wave(scene: Scene, at: float) -> None:
    """Spare nodes get a new driver, one after the other: drained, rebooted, back with another version label."""
    for place in range(2):
        start = at + 900.0 * place
        node = scene.spare(start)
        scene.slurm(start, f"update_node: node {node.name} reason set to: driver wave, planned")
        scene.slurm(start + 0.01, f"update_node: node {node.name} state set to DRAINED")
        power_cycle(scene, node, start + 120.0, start + 330.0)
        scene.relabels.append((node.row, start + 330.0, scene.end + 1.0, {"DCGM_FI_DRIVER_VERSION": "550.144.03"}))
        scene.table.hold(node.row, start + 600.0)
        scene.slurm(start + 590.0, f"update_node: node {node.name} state set to RESUME")
        scene.tense[node.row] = start + 900.0


def maintenance(scene: Scene, at: float) -> None:
    """A spare node is drained, switched off for a while, and returns."""
    node = scene.spare(at)
    scene.tense[node.row] = mend(scene, node, at, "planned maintenance, ticket 4411") + 900.0


def planned_reboot(scene: Scene, at: float) -> None:
    node = scene.spare(at)
    scene.slurm(at, f"update_node: node {node.name} reason set to: reboot ASAP, kernel update")
    scene.say(at + 3.0, node.name, "kernel", "systemd-shutdown[1]: Rebooting.")
    power_cycle(scene, node, at + 4.0, at + 200.0)
    scene.table.hold(node.row, at + 420.0)
    scene.tense[node.row] = at + 900.0


def workload_change(scene: Scene, at: float) -> None:
    """A run moves to another mix: all of its cards draw less and step in another time, none of them is at fault."""
    attempt = scene.attempt(at)
    until = at + min(5400.0, 0.5 * scene.left(at))
    for row in attempt.nodes:
        scene.tense[row] = max(scene.tense.get(row, 0.0), at + 600.0)
    scene.act("mix", (attempt.run.row,), at, until, scene.dice.uniform(0.8, 0.9))


#: Each with how often it happens in a day of a site of some 24 nodes.
CALM: tuple[tuple[Callable[[Scene, float], None], float], ...] = (
    (exporter_restart, 6.0),
    (blanks, 4.0),
    (twins, 3.0),
    (replayed, 3.0),
    (debugging, 5.0),
    (nonfatal, 14.0),
    (driver_wave, 2.0),
    (maintenance, 1.5),
    (planned_reboot, 1.5),
    (workload_change, 4.0),
)
