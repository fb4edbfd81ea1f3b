"""Kernel lines the simulated nodes print: the formats real drivers use, the words our own."""

from __future__ import annotations

import random

from backend.simulate.site import Card

TRAINER = "python3"


def xid(card: Card, code: int, text: str) -> str:
    """``NVRM: Xid (PCI:0000:9d:00): 79, ...``"""
    return f"NVRM: Xid (PCI:{card.pci}): {code}, {text}"


def recovery(card: Card, to: str) -> str:
    """The driver's own verdict: which recovery it now asks for."""
    return xid(card, 154, f"GPU recovery action changed from 0x0 (None) to {to}")


def pid(dice: random.Random) -> int:
    return dice.randrange(20_000, 4_000_000)


def bus_loss(card: Card, dice: random.Random) -> list[str]:
    return [
        f"pcieport 0000:{card.pci[5:7]}:01.0: pciehp: Slot({dice.randrange(1, 40)}): Link Down",
        xid(card, 79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."),
        recovery(card, "0x2 (Node Reboot Required)"),
    ]


def memory_error(card: Card, dice: random.Random) -> list[str]:
    """An uncorrectable error that takes the application with it, then the repair that waits for a reset."""
    who = f"pid={pid(dice)}, name={TRAINER}"
    part, sub = dice.randrange(10), dice.randrange(2)
    return [
        xid(card, 48, f"{who}, DBE (double bit error) seen in frame buffer, partition {part}, subpartition {sub}"),
        xid(card, 63, f"{who}, Row Remapper: one row marked for remapping, pending until reset"),
        xid(card, 94, f"{who}, Contained: SM (0x1). RST: No, D-RST: Yes"),
        recovery(card, "0x4 (Drain and Reset)"),
    ]


def link_error(card: Card, dice: random.Random) -> list[str]:
    """A fatal NVLink event: a warning the link layer survives, then the one it does not."""
    link = dice.randrange(18)
    tail = "0x00000000 0x00000000 0x00000000 0x00000000"
    return [
        xid(card, 145, f"RLW_SRC_TRACK Nonfatal XC1 i0 Link {link:02d} (0x{0x07:08x} 0x00000002 {tail})"),
        xid(card, 149, f"NETIR_LINK_EVT Fatal XC0 i0 Link {link:02d} (0x{0x11 | 1 << 24:08x} 0x00000000 {tail})"),
        recovery(card, "0x1 (GPU Reset Required)"),
    ]


def page_fault(card: Card, dice: random.Random) -> list[str]:
    """A bug in a training script: an address nobody mapped. The GPU is fine."""
    number = pid(dice)
    who = f"pid={number}, name={TRAINER}"
    address = f"0x7f{dice.getrandbits(32):08x}"
    return [
        xid(
            card,
            31,
            f"{who}, Ch {dice.randrange(8, 40):08x}, intr 10000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_2 "
            f"faulted @ {address}. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
        ),
        xid(card, 43, f"{who}, Ch {dice.randrange(8, 40):08x}"),
    ]


def boot(dice: random.Random) -> list[str]:
    """What a node prints first when it comes back."""
    return [
        f"Linux version 5.15.0-{dice.randrange(100, 140)}-generic (build@sim) (gcc 11.4.0) #1 SMP",
        "NVRM: loading the simulated driver 550.127",
    ]


def chatter(dice: random.Random) -> str:
    """A line that means nothing, as nearly all do."""
    return dice.choice(
        (
            f"systemd[1]: Started session {dice.randrange(100, 9999)} of user slurm.",
            f"audit: type=1400 audit(0.0:{dice.randrange(10, 99)}): profile replaced",
            f"docker0: port {dice.randrange(1, 9)} entered forwarding state",
            f"perf: interrupt took {dice.randrange(2500, 3900)} ns, lowering the sample rate",
            f"nfs: server store-{dice.randrange(1, 5)} OK",
        )
    )
