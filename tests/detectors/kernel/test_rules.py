"""The table of lines: every example is read as it should be, under every head, and none of the counter-examples."""

from __future__ import annotations

import pytest

from detectors.catalogue import TableError
from detectors.kernel.head import KERNEL
from detectors.kernel.lines import parse
from detectors.kernel.rules import Rule, packaged, rules

HEADS = (
    "",
    "[   12.345678] ",
    "<3>[   12.345678][ T1234] ",
    "3,1023,5140900,-;",
    "Feb  3 11:38:06 gpu-0412 kernel: ",
    "2026-02-03T11:38:06.123456+00:00 gpu-0412 kernel: [   12.345678] ",
    "<3>1 2026-02-03T11:38:06Z gpu-0412 kernel - - - [   12.345678] ",
    "kern  :err   : [   12.345678] ",
    "gpu-0412: [   12.345678] ",
    "\ufeff\x1b[32m[   12.345678] \x1b[0m\x1b[33m",
)
#: Whatever these print, or quote, is not the kernel's word.
OTHERS = (
    "Feb  3 11:38:06 gpu-0412 python3[4242]: ",
    "Feb  3 11:38:06 gpu-0412 sudo: lena : TTY=pts/0 ; COMMAND=/usr/bin/grep '",
    "<14>1 2026-02-03T11:38:06Z gpu-0412 python3 4242 - - ",
    "4242: ",
    'type=EXECVE msg=audit(1770120000.1:7): argc=3 a0="echo" a1="',
    "Feb  3 11:38:06 gpu-0412 kernel: audit: type=1327 audit(1770120000.1:7): proctitle=",
    "step 12 loss 2.31 | seen in dmesg: ",
    "INFO:root:kernel said ",
)


def rows() -> list[tuple[Rule, str]]:
    return [(rule, line) for rule in packaged() for line in rule.matches]


@pytest.mark.parametrize(("rule", "line"), rows(), ids=lambda value: value if isinstance(value, str) else value.code)
def test_every_example_says_what_the_table_says(rule: Rule, line: str) -> None:
    found = parse(line)
    assert found is not None and (found.namespace, found.code) == (rule.namespace, rule.code)
    assert any(literal in line for literal in rule.literals), "the literal stands in every line that matches"
    assert found.text.isprintable() and len(found.text) <= 400


@pytest.mark.parametrize("head", HEADS)
def test_what_stands_before_the_message_changes_nothing(head: str) -> None:
    for rule, line in rows():
        if not rule.programs or "kernel" in rule.programs:
            found, bare = parse(head + line), parse(line)
            assert found is not None and bare is not None, head + line
            assert (found.namespace, found.code, found.pci) == (bare.namespace, bare.code, bare.pci), head + line
            attrs = {name: said for name, said in found.attrs.items() if name != "uptime_s"}
            assert attrs == bare.attrs and found.text == bare.text, head + line


@pytest.mark.parametrize("head", OTHERS)
def test_a_program_that_quotes_the_kernel_is_not_the_kernel(head: str) -> None:
    quoted = [line for rule, line in rows() if not rule.programs]
    quoted += ["NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.", "NVRM: GPU has fallen off the bus"]
    quoted += ["nvidia-nvswitch2: SXid (PCI:0000:85:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"]
    quoted += ["Linux version 6.8.0-40-generic (build@host) (gcc 11.4.0) #101 SMP"]
    for line in quoted:
        assert parse(head + line) is None, head + line


def test_counter_examples_say_nothing_of_the_kind() -> None:
    for rule in packaged():
        for line in rule.misses:
            assert rule.read(line) is None, (rule.code, line)


def test_rules_of_programs_do_not_listen_to_others() -> None:
    for rule in packaged():
        assert not rule.programs or not rule.programs - KERNEL or "python3" not in rule.programs


def test_literals_are_long_enough_to_be_rare_and_every_row_has_a_source() -> None:
    for rule in packaged():
        assert rule.source and rule.matches, rule.code
        assert all(len(literal) >= 3 for literal in rule.literals), rule.code


@pytest.mark.parametrize(
    "row",
    [
        {"says": "nic", "literal": "x", "pattern": "x", "matches": "x"},
        {"says": "nic down", "literal": "x", "pattern": "(", "matches": "x"},
        {"says": "nic down", "literal": "x", "pattern": "x"},
    ],
)
def test_a_wrong_row_says_which(row: dict[str, str]) -> None:
    with pytest.raises(TableError, match=r"kernel_lines\.toml, nic"):
        rules([row])
