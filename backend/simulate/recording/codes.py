"""Lines that drivers print about cards and links: the forms real drivers use, the words our own where they may be."""

from __future__ import annotations

import random
from datetime import UTC, datetime

from backend.simulate.recording.plant import Card, Node

NONE = "0x00000000 0x00000000 0x00000000 0x00000000"


def dressed(node: Node, at: float, line: str) -> str:
    """A kernel line as this node's log agent hands it on: bare, as syslog wrote it, or with seconds since its boot."""
    form = (node.row * 7 + len(node.cards[0].uuid) + int(node.cards[0].serial) % 3) % 3
    if form == 1:
        return f"{datetime.fromtimestamp(at, UTC).strftime('%b %e %H:%M:%S')} {node.name} kernel: {line}"
    return f"[{at % 1e7:.6f}] {line}" if form == 2 else line


def xid(card: Card, code: int, text: str) -> str:
    return f"NVRM: Xid (PCI:{card.pci}): {code}, {text}"


def who(dice: random.Random, name: str = "python3") -> str:
    return f"pid={dice.randrange(20_000, 4_000_000)}, name={name}"


def asks(card: Card, what: str) -> str:
    return xid(card, 154, f"GPU recovery action changed from 0x0 (None) to {what}")


REBOOT, RESET, DRAIN_RESET = "0x2 (Node Reboot Required)", "0x1 (GPU Reset Required)", "0x4 (Drain and Reset)"


def dbe(card: Card, dice: random.Random) -> str:
    part, sub = dice.randrange(10), dice.randrange(2)
    return xid(card, 48, f"{who(dice)}, An uncorrectable double bit error (DBE) has been detected on GPU in the "
                         f"framebuffer at partition {part}, subpartition {sub}.")  # fmt: skip


def remapped(card: Card, dice: random.Random) -> str:
    return xid(card, 63, f"{who(dice)}, Row Remapper: New row (0x{dice.getrandbits(36):016x}) marked for remapping, "
                         "reset gpu to activate.")  # fmt: skip


def remap_failed(card: Card, dice: random.Random) -> str:
    return xid(card, 64, f"{who(dice)}, Row Remapper: failed to record row 0x{dice.getrandbits(36):016x}, "
                         "no spare rows remain.")  # fmt: skip


def contained(card: Card, dice: random.Random) -> str:
    return xid(card, 94, f"{who(dice)}, Contained: CE User Channel (0x9). RST: No, D-RST: No")


def uncontained(card: Card) -> str:
    return xid(card, 95, "pid='<unknown>', name=<unknown>, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No")


def nvlink5(card: Card, code: int, unit: str, word: str, link: int, dice: random.Random) -> str:
    head = f"0x{dice.getrandbits(27):08x} 0x{1 << dice.randrange(6):08x}"
    return xid(card, code, f"{unit} {word} XC{dice.randrange(2)} i0 Link {link:02d} ({head} {NONE})")


def nvlink4(card: Card, link: int, dice: random.Random) -> str:
    words = " ".join(f"0x{dice.getrandbits(32) & 0x0410_0010:x}" for _ in range(6))
    return xid(card, 74, f"{who(dice)}, NVLink: fatal error detected on link {link}(0x0, 0x0, 0x{1 << 16:x}, {words})")


def sxid(dice: random.Random, code: int, word: str, text: str) -> str:
    switch = f"0000:{dice.randrange(0xA0, 0xA8):02x}:00.0"
    return (
        f"nvidia-nvswitch{dice.randrange(4)}: SXid (PCI:{switch}): {code}, {word}, Link {dice.randrange(64):02d} {text}"
    )


def gsp(card: Card, code: int, dice: random.Random) -> str:
    if code == 119:
        return xid(card, 119, f"{who(dice)}, Timeout after {dice.randrange(6, 46)}s of waiting for RPC response from "
                              f"GPU{card.index} GSP! Expected function 76 (GSP_RM_CONTROL) (0x2080 0x4).")  # fmt: skip
    return xid(
        card,
        120,
        f"{who(dice)}, GSP task exception: load access fault (cause:0x5) @ pc:0x{dice.getrandbits(24):x}, task: 1",
    )


def fault31(card: Card, dice: random.Random) -> str:
    return xid(card, 31, f"{who(dice)}, Ch {dice.randrange(8, 60):08x}, intr 00000000. MMU Fault: ENGINE GRAPHICS "
                         f"GPCCLIENT_T1_{dice.randrange(9)} faulted @ 0x7f{dice.getrandbits(24):06x}_"
                         f"{dice.getrandbits(32):08x}. "
                         "Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE")  # fmt: skip


def fault13(card: Card, dice: random.Random) -> str:
    return xid(card, 13, f"{who(dice)}, Graphics SM Warp Exception on (GPC {dice.randrange(8)}, "
                         f"TPC {dice.randrange(9)}, SM {dice.randrange(2)}): Out Of Range Address")  # fmt: skip


def fault43(card: Card, dice: random.Random) -> str:
    return xid(card, 43, f"{who(dice)}, Ch {dice.randrange(8, 60):08x}")


def teardown45(card: Card, dice: random.Random) -> str:
    return xid(card, 45, f"{who(dice)}, Ch {dice.randrange(8, 60):08x}")


def cuda_error(rank: int, text: str) -> list[str]:
    """What a rank prints when the driver refuses it."""
    return [
        "Traceback (most recent call last):",
        f'  File "/home/train/run.py", line {200 + rank % 40}, in train_step',
        "    loss.backward()",
        f"RuntimeError: CUDA error: {text}",
        "CUDA kernel errors might be asynchronously reported at some other API call.",
    ]
