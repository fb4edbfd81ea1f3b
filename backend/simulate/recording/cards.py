"""Trouble of single cards: lost on the bus, memory, links, system processor, and bugs that only look like it."""

from __future__ import annotations

from functools import partial

from backend.simulate.recording import codes
from backend.simulate.recording.aftermath import again, broken, crash, stall, stopped
from backend.simulate.recording.plant import Card, Node
from backend.simulate.recording.scene import Fault, Scene, Sight
from backend.simulate.recording.work import Attempt


def _place(scene: Scene, card: Card) -> tuple[Node, str]:
    node = scene.site.nodes[card.node]
    return node, f"{node.name}/gpu{card.index}"


def _struck(scene: Scene, kind: str, variant: str, attempt: Attempt, card: Card, at: float, ended: float,
            exclude: bool = True, exclude_ok: bool | None = None, why: str = "gpu fault") -> Fault:  # fmt: skip
    """A fault of a card that needs a mended node."""
    node, entity = _place(scene, card)
    back = broken(scene, attempt, node, ended, f"{why} gpu{card.index}")
    return scene.fault(kind, variant, entity, at, back, exclude, attempt, exclude_ok)


def bus_loss(scene: Scene, at: float, how: str) -> Fault:
    attempt, card = scene.card(at)
    node, _ = _place(scene, card)
    bus = card.pci[5:7]
    told: list[Sight] = []
    if how == "code":
        told = scene.kernel(at, node, [
            f"pcieport 0000:{bus}:01.0: pciehp: Slot({scene.dice.randrange(1, 40)}): Link Down",
            codes.xid(card, 79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."),
            codes.asks(card, codes.REBOOT),
        ])  # fmt: skip
    elif how == "text":
        told = scene.kernel(at, node, [
            f"NVRM: GPU at PCI:{card.pci}: {card.uuid}",
            f"NVRM: GPU {card.pci}.0: GPU has fallen off the bus.",
        ])  # fmt: skip
    ended = stall(scene, attempt, at, silent=card.node)
    made = _struck(scene, "gpu_bus_loss", how, attempt, card, at, ended, why="no answer from")
    scene.act("gone", (card.row,), at, made.end)
    made.first_xid = told[1].after if how == "code" else None
    made.sights = [*told, *stopped(attempt, at)]
    return made


def memory(scene: Scene, at: float, how: str) -> Fault:
    """48, 64, 94, 95, or a counter that moves while nobody prints a line."""
    attempt, card = scene.card(at, full=how == "counter")
    node, _ = _place(scene, card)
    dice = scene.dice
    lines = {
        "48": [codes.dbe(card, dice), codes.remapped(card, dice), codes.asks(card, codes.DRAIN_RESET),
               codes.teardown45(card, dice)],
        "64": [codes.remap_failed(card, dice), codes.asks(card, codes.RESET)],
        "94": [codes.contained(card, dice)],
        "95": [codes.uncontained(card), codes.asks(card, codes.REBOOT)],
        "counter": [],
    }[how]  # fmt: skip
    told = scene.kernel(at, node, lines)
    ended = crash(scene, attempt, at + 0.3, codes.cuda_error(card.index, "uncorrectable ECC error encountered"),
                  scene.rank(attempt, card.node, card.index))  # fmt: skip
    if how == "94":
        again(scene, attempt)
        made = scene.fault("gpu_ecc_uncorrectable", how, _place(scene, card)[1], at, at + 1800.0, False, attempt, True)
    else:
        made = _struck(scene, "gpu_ecc_uncorrectable", how, attempt, card, at, ended, why="uncorrectable ECC")
    until = scene.end + 1.0 if how == "94" else made.end
    if lines:
        scene.act("xid", (card.row,), at, until, float(how))
    scene.act("dbe", (card.row,), at, until)
    scene.act("rows_bad", (card.row,), at, until)
    scene.act("remap_failed" if how == "64" else "remap_pending", (card.row,), at, until)
    made.first_xid = told[0].after if told else None
    made.sights = [
        *told,
        *([] if told else [Sight("gpu", at, card.node)]),
        Sight("at", at + 0.7),
        *stopped(attempt, at + 0.3),
    ]
    return made


def row_remap(scene: Scene, at: float, how: str) -> Fault:
    attempt, card = scene.card(at, full=how == "counter")
    node, entity = _place(scene, card)
    told = scene.kernel(at, node, [codes.remapped(card, scene.dice)]) if how == "63" else []
    made = scene.fault("gpu_ecc_row_remap", how, entity, at, at + 3600.0, False, attempt, True)
    if told:
        scene.act("xid", (card.row,), at, scene.end + 1.0, 63.0)
    scene.act("rows_bad", (card.row,), at, scene.end + 1.0)
    scene.act("remap_pending", (card.row,), at, scene.end + 1.0)
    made.first_xid = told[0].after if told else None
    made.sights = [*told, Sight("gpu", at, card.node)]
    return made


def remap_trend(scene: Scene, at: float, how: str) -> Fault:
    """Correctable remaps rise for hours, then the card is gone, with a code or without one."""
    attempt, card = scene.card(at)
    node, _ = _place(scene, card)
    rise = min(scene.dice.uniform(2.0, 4.0) * 3600.0, 0.5 * scene.left(at))
    attempt.planned_end = max(attempt.planned_end, at + rise + 3600.0)
    lost = at + rise
    step = rise / scene.dice.randrange(18, 40)
    told = scene.kernel(lost, node, [
        codes.xid(card, 79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."),
    ]) if how == "code" else []  # fmt: skip
    ended = stall(scene, attempt, lost, silent=card.node)
    made = _struck(scene, "gpu_remap_trend_loss", how, attempt, card, at, ended, why="no answer from")
    for i in range(int(rise / step)):
        scene.act("rows_mended", (card.row,), at + i * step * scene.dice.uniform(0.96, 1.0), made.end)
    scene.act("sbe_a_s", (card.row,), at, lost, 0.4, rise)
    scene.act("gone", (card.row,), lost, made.end)
    made.first_xid = told[0].after if told else None
    made.sights = [Sight("gpu", at, card.node)]
    return made


def nvlink(scene: Scene, at: float, how: str) -> Fault:
    attempt, card = scene.card(at, full=how == "counter")
    node, entity = _place(scene, card)
    dice, link = scene.dice, scene.dice.randrange(18)
    if how == "counter":
        until = at + min(5400.0, 0.7 * scene.left(at))
        made = scene.fault("nvlink_error", how, entity, at, until, False, attempt, True)
        scene.act("crc_a_s", (card.row,), at, until, 40.0, 600.0)
        scene.act("links", (card.row,), at, until, 0.6, 600.0)
        made.sights = [Sight("busy", at + 30.0, card.node)]
        return made
    lines = {
        "74": [codes.nvlink4(card, link, dice), codes.asks(card, codes.RESET)],
        "145": [codes.nvlink5(card, 145, "RLW_CTRL", "Fatal", link, dice), codes.asks(card, codes.RESET)],
        "149": [codes.nvlink5(card, 149, "NETIR_LINK_EVT", "Fatal", link, dice), codes.asks(card, codes.RESET)],
        "sxid": [codes.sxid(dice, 22013, "Fatal", "Minion Link DLREQ interrupt"),
                 codes.xid(card, 45, f"{codes.who(dice)}, Ch 00000008")],
    }[how]  # fmt: skip
    told = scene.kernel(at, node, lines)
    ended = crash(scene, attempt, at + 0.5, codes.cuda_error(card.index, "an NVLink error was detected"),
                  scene.rank(attempt, card.node, card.index), "6:0")  # fmt: skip
    made = _struck(scene, "nvlink_error", how, attempt, card, at, ended, why="nvlink down")
    scene.act("xid", (card.row,), at, made.end, 45.0 if how == "sxid" else float(how))
    scene.act("links", (card.row,), at, made.end, 0.0)
    made.first_xid, made.sights = told[0].after, told
    return made


def gsp(scene: Scene, at: float, how: str) -> Fault:
    """The card's system processor stops answering: its exporter fields freeze away with it."""
    attempt, card = scene.card(at)
    node, _ = _place(scene, card)
    told = scene.kernel(at, node, [codes.gsp(card, int(how), scene.dice), codes.asks(card, codes.RESET)])
    ended = stall(scene, attempt, at, silent=card.node)
    made = _struck(scene, "gsp_timeout", how, attempt, card, at, ended, why="GSP")
    scene.act("xid", (card.row,), at, made.end, float(how))
    scene.act("blank", (card.row,), at, made.end)
    made.first_xid, made.sights = told[0].after, told
    return made


def other(scene: Scene, at: float, how: str) -> Fault:
    """Codes without a kind of their own, a card that does not start, and the other maker's RAS events."""
    attempt, card = scene.card(at, "amd" if how == "amd_ras" else "nvidia")
    node, _ = _place(scene, card)
    lines = {
        "62": codes.xid(card, 62, "0x2c2b, 0x0000cd10, 0x00000000, 0x20c6bd1a, 0x20c7a1b2"),
        "109": codes.xid(
            card, 109, f"{codes.who(scene.dice)}, Ch 00000018, errorString CTX SWITCH TIMEOUT, Info 0x4c019"
        ),
        "140": codes.xid(card, 140, f"{codes.who(scene.dice)}, Uncorrectable ECC error outside of repairable rows"),
        "adapter": f"NVRM: GPU {card.pci}.0: RmInitAdapter failed! (0x62:0x40:2478)",
        "amd_ras": f"amdgpu {card.pci}.0: amdgpu: socket: 0, die: 0, 1 uncorrectable hardware errors detected "
        "in umc block",
    }[how]
    told = scene.kernel(at, node, [lines])
    ended = crash(scene, attempt, at + 0.6, codes.cuda_error(card.index, "unspecified launch failure"),
                  scene.rank(attempt, card.node, card.index))  # fmt: skip
    made = _struck(scene, "gpu_hardware_other", how, attempt, card, at, ended, why="check")
    if how.isdigit():
        scene.act("xid", (card.row,), at, made.end, float(how))
        made.first_xid = told[0].after
    elif how == "adapter":
        scene.act("gone", (card.row,), at, made.end)
    else:
        scene.act("dbe", (card.row,), at, made.end)
    made.sights = told
    return made


def application(scene: Scene, at: float, how: str) -> Fault:
    """A bug of the training code: the driver names the card, the card is fine."""
    attempt, card = scene.card(at)
    node, _ = _place(scene, card)
    line = {"13": codes.fault13, "31": codes.fault31, "43": codes.fault43}[how](card, scene.dice)
    told = scene.kernel(at, node, [line] if how == "43" else [line, codes.fault43(card, scene.dice)])
    ended = crash(scene, attempt, at + 0.2, codes.cuda_error(card.index, "an illegal memory access was encountered"),
                  scene.rank(attempt, card.node, card.index))  # fmt: skip
    scene.table.resubmit(attempt)
    made = scene.fault("gpu_memory_fault_app", how, f"job:{attempt.job}", at, ended + 600.0, False, attempt)
    scene.act("xid", (card.row,), at, scene.end + 1.0, 43.0)
    made.first_xid, made.sights = told[0].after, told
    return made


CARDS = {
    ("gpu_bus_loss", how): partial(bus_loss, how=how) for how in ("code", "text", "series")
} | {
    ("gpu_ecc_uncorrectable", how): partial(memory, how=how) for how in ("48", "64", "94", "95", "counter")
} | {
    ("gpu_ecc_row_remap", how): partial(row_remap, how=how) for how in ("63", "counter")
} | {
    ("gpu_remap_trend_loss", how): partial(remap_trend, how=how) for how in ("series", "code")
} | {
    ("nvlink_error", how): partial(nvlink, how=how) for how in ("74", "145", "149", "sxid", "counter")
} | {
    ("gsp_timeout", how): partial(gsp, how=how) for how in ("119", "120")
} | {
    ("gpu_hardware_other", how): partial(other, how=how) for how in ("62", "109", "140", "adapter", "amd_ras")
} | {
    ("gpu_memory_fault_app", how): partial(application, how=how) for how in ("13", "31", "43")
}  # fmt: skip
