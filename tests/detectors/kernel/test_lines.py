"""One line, one code: every spelling is read, nothing raises, no line costs more than its length."""

from __future__ import annotations

import os
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.kernel.lines import MAX_CHARS, joined, normal_pci, parse
from detectors.kernel.rules import Rule, packaged

#: Random and mutated lines to survive; CI does the full count.
COUNT = 10_000 if os.environ.get("CI") else 1_500
PREFIXES = (
    "",
    "[111111.222] ",
    "Feb  3 11:38:06 gpu-0412 kernel: ",
    "<4>Feb  3 11:38:06 gpu-0412 kernel: [ 12.5] ",
    "4,1023,5140900,-;",
    "2026-02-03T11:38:06.123456+00:00 gpu-0412 kernel[0]: ",
)
LINES = (
    "NVRM: Xid (PCI:0000:0f:00): 94, pid=2503421, name=python3, Ch 00000008",
    "NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0018:01:00): 145, pid=9, name=a, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x8)",
    "NVRM: Xid (PCI:0009:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)",
    "NVRM: GPU at PCI:0000:9b:00.0 has fallen off the bus",
    "Linux version 5.15.0-91-generic (build@host) (gcc 11.4.0) #101 SMP",
)
REAL = (*LINES, *(line for rule in packaged() for line in rule.matches))


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(
    ("line", "code", "pci", "attrs"),
    [
        (LINES[0], "94", "0000:0f:00", {"pid": "2503421", "name": "python3"}),
        (LINES[1], "79", "0000:9b:00", {"pid": "<unknown>"}),
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", "14", "0000:03:00", {}),
        ("NVRM: Xid (PCI:0000:9B:00.0): 31, pid=1, name=x, Ch 1", "31", "0000:9b:00", {}),
        ("NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 43, pid=1, name=x, Ch 1", "43", "0000:3b:00", {}),
        (LINES[2], "145", "0018:01:00", {"severity": "nonfatal", "unit": "RLW_RXPIPE", "link": "13"}),
        (
            "NVRM: Xid (PCI:0008:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link -1 (0x0 0x1)",
            "149",
            "0008:01:00",
            {"severity": "fatal", "link": "-1"},
        ),
        (LINES[3], "154", "0009:01:00", {"action": "drain_and_reset"}),
        (
            "NVRM: Xid (PCI:0009:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
            "154",
            "0009:01:00",
            {"action": "reset_gpu"},
        ),
        (
            "NVRM: Xid (PCI:0009:01:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
            "154",
            "0009:01:00",
            {"action": "none"},
        ),
        (LINES[4], "79", "0000:9b:00", {"said": "text"}),
        ("NVRM: GPU 0000:29:00.0: GPU has fallen off the bus.", "79", "0000:29:00", {"said": "text"}),
        ("NVRM: GPU 18:00.0: GPU has fallen off the bus.", "79", "0000:18:00", {"said": "text"}),
        ("NVRM: fallen off the bus and is not responding to commands.", "79", "", {"said": "text"}),
        ("NVRM: Xid (PCI:0000:01:00): 1234, what no table knows", "1234", "0000:01:00", {}),
    ],
)
def test_every_spelling_of_a_code_is_read(prefix: str, line: str, code: str, pci: str, attrs: dict[str, str]) -> None:
    found = parse(prefix + line)
    assert found is not None
    assert (found.namespace, found.code, found.pci) == ("xid", code, pci)
    assert attrs.items() <= found.attrs.items()
    assert found.text.startswith(("NVRM", "GPU")), "what stands before the message is not part of it"


@pytest.mark.parametrize("prefix", PREFIXES)
def test_the_banner_of_a_boot_is_read(prefix: str) -> None:
    found = parse(prefix + LINES[5])
    assert found is not None and (found.namespace, found.pci) == ("boot", "")


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Regular log content",
        "NVRM: Xid error: xyz, invalid",
        "NVRM: Xid (invalid): some error",
        "NVRM: Xid (PCI:0000:05:00): ",
        "NVRM: Xid (PCI:0000:05:00): 0, nothing",
        "nvme0: the adapter has fallen off the bus",
        "grep 'Linux version 6.8.0 (x)' /var/log/kern.log",
        "Linux version 6.8",
    ],
)
def test_what_is_no_code_is_none(line: str) -> None:
    assert parse(line) is None


def test_a_process_called_fatal_decides_nothing() -> None:
    found = parse("NVRM: Xid (PCI:0000:05:00): 145, pid=1, name=Fatal, RLW_REMAP Nonfatal XC0 i0 Link 00 (0x4 0x1)")
    assert found is not None and found.attrs["severity"] == "nonfatal"


def test_a_clock_time_is_no_address() -> None:
    found = parse("Feb  3 11:18:06 gpu-0412 kernel: GPU has fallen off the bus.")
    assert found is not None and found.pci == ""


@pytest.mark.parametrize(
    ("text", "pci"),
    [
        ("00000000:9B:00.0", "0000:9b:00"),
        ("0000:9b:00.0", "0000:9b:00"),
        ("PCI:0000:9b:00", "0000:9b:00"),
        ("9b:00.0", "0000:9b:00"),
        ("00010000:01:00.0", "10000:01:00"),
        ("0018:01:00", "0018:01:00"),
        ("", ""),
        ("N/A", ""),
    ],
)
def test_addresses_read_alike_whoever_printed_them(text: str, pci: str) -> None:
    assert normal_pci(text) == pci


def test_the_loss_that_the_driver_prints_over_three_lines_is_one_again() -> None:
    lines = [
        "kernel: NVRM: The NVIDIA GPU 0000:18:00.0",
        "kernel: NVRM: (PCI ID: 10de:2901) installed in this system has",
        "kernel: NVRM: fallen off the bus and is not responding to commands.",
        "kernel: something else",
    ]
    whole = list(joined(lines))
    assert len(whole) == 2
    found = parse(whole[0])
    assert found is not None and (found.code, found.pci) == ("79", "0000:18:00")


@given(st.lists(st.sampled_from((*LINES, "x", "NVRM: The NVIDIA GPU 0000:18:00.0", "NVRM: y")), max_size=12))
@settings(max_examples=100, deadline=None)
def test_joining_loses_and_reorders_nothing(lines: list[str]) -> None:
    assert "\n".join(joined(lines)).split("\n") == ([*lines] if lines else [""])


def test_text_that_is_kept_can_be_stored_and_mailed() -> None:
    found = parse("NVRM: Xid (PCI:0000:05:00): 79, name=\x00\udcff\nBcc: all, GPU" + "é" * 2000)
    assert found is not None
    assert found.text.isprintable() and len(found.text) <= 400
    found.text.encode("utf-8")


def mutated(dice: random.Random) -> str:
    """A real line of any family with pieces cut, doubled, swapped or replaced."""
    line = dice.choice(PREFIXES) + dice.choice(REAL)
    for _ in range(dice.randint(0, 6)):
        a, b = sorted(dice.randrange(len(line) + 1) for _ in range(2))
        noise = "".join(chr(dice.choice((dice.randrange(32, 127), dice.randrange(0x10FFFF)))) for _ in range(4))
        line = dice.choice((line[:a] + line[b:], line[:b] + line[a:], line[:a] + noise + line[b:], line[b:] + line[:b]))
    return line[:4000]


def survives(seed: int, count: int) -> None:
    """Mutated lines: an answer or none, that can be stored; and within the time of a few lines each."""
    dice = random.Random(seed)
    for _ in range(count):
        line = mutated(dice)
        found = parse(line)
        if found is not None:
            assert found.code and found.text.isprintable() and len(found.text) <= 400
            assert all(value.isprintable() for value in found.attrs.values()), line
        normal_pci(line)


def test_no_line_raises() -> None:
    survives(79, COUNT)


@pytest.mark.slow
def test_no_line_of_a_million_raises() -> None:
    survives(1, 1_000_000)


@pytest.mark.slow
def test_no_random_bytes_of_a_million_lines_raise() -> None:
    dice = random.Random(2)
    for _ in range(1_000_000):
        parse(dice.randbytes(dice.randint(0, 200)).decode(errors="replace"))


@pytest.mark.slow
@pytest.mark.parametrize("rule", packaged(), ids=lambda rule: f"{rule.namespace}-{rule.code}")
def test_no_rule_takes_long_on_what_nearly_fits(rule: Rule) -> None:
    """Each example with any one of its words said ten thousand times: time grows no faster than the line."""
    for example in rule.matches:
        words = example.split(" ")
        for place in range(len(words)):
            line = " ".join([*words[:place], *([words[place]] * 10_000), *words[place:-1]])
            begin = time.process_time()
            parse(line)
            assert time.process_time() - begin < 0.5, (place, example)


@given(st.text(max_size=300))
@settings(max_examples=200, deadline=None)
def test_no_text_raises(line: str) -> None:
    parse(line)
    parse(f"NVRM: Xid (PCI:{line}): {line}")
    normal_pci(line)


@pytest.mark.parametrize(
    "piece",
    [
        "Xid",
        "Xid (",
        "Xid (PCI:",
        "NVRM: Xid (PCI:0000:05:00",
        "GPU ",
        "GPU at PCI:",
        "Linux version ",
        "0:",
        "a" * 9,
        " ",
    ],
)
def test_time_grows_no_faster_than_the_line(piece: str) -> None:
    """Twice the line may cost twice the time; a wide allowance keeps a busy machine from failing it."""

    def cost(chars: int) -> float:
        line = (piece * (chars // len(piece) + 1))[:chars]
        best = float("inf")
        for _ in range(3):
            begin = time.process_time()
            parse(line)
            best = min(best, time.process_time() - begin)
        return best

    assert cost(MAX_CHARS) < 12 * 4 * max(cost(MAX_CHARS // 4), 1e-4)
    assert cost(10_000_000) < 12 * max(cost(MAX_CHARS), 1e-3), "what stands behind the limit is not read"
