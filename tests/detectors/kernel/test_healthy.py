"""Healthy logs: no literal that is common, no alarm, the same answer by chunk, by line and by `re` alone."""

from __future__ import annotations

import io
import re
from collections import Counter

import pytest

from detectors.catalogue import load
from detectors.kernel.code import KernelCode
from detectors.kernel.levels import families
from detectors.kernel.lines import _kit, codes, parse, scanner
from detectors.kernel.rules import packaged
from detectors.model import Event, Severity, Tick
from detectors.scan import ENGINES, Engine, Scanner, chunks
from tests.detectors.fleets import T0, entity, fleet_of
from tests.detectors.kernel.healthy import BOOT, lines

LOG = list(lines(7, 20_000))
CATALOGUE = load()
FLEET = fleet_of(1)


def test_no_literal_is_common_in_healthy_logs() -> None:
    """What costs is a literal that hits often: one in 41 of 100 lines made a scan 80 times slower (measured)."""
    found: Counter[str] = Counter()
    for line in LOG:
        found.update(scanner().literals[index] for index in scanner().which(line.encode()))
    common = {literal: count / len(LOG) for literal, count in found.items() if count > 0.01 * len(LOG)}
    assert not common, f"literals that hit over 1 % of healthy lines: {common}"


def test_no_line_of_a_healthy_node_raises_an_alarm() -> None:
    """Each node by itself, with ticks of telemetry: nothing above a record."""
    alarms = [text for seed in range(8) if (text := alarm(list(lines(seed, 700))))]
    assert not alarms


def alarm(log: list[str]) -> str:
    """The first sentence above a record that a node's log makes any detector say; empty where there is none."""
    detectors = families(CATALOGUE)
    states = [detector.start(FLEET) for detector in detectors]
    at = T0
    for line in log:
        code, at = parse(line), at + 1.0
        events = (event(code, at),) if code is not None else ()
        for detector, state in zip(detectors, states, strict=True):
            tick = Tick(at, {("gpu", "power_w"): FLEET.axes["gpu"].live * 600.0}, {}, events)
            for finding in detector.step(state, tick, FLEET).findings:
                if finding.severity > Severity.INFO:
                    return f"{finding.reason} {finding.evidence[0].value}"
    return ""


def event(code: KernelCode, at: float) -> Event:
    attrs = {**code.attrs, "pci": code.pci}
    return Event(at, entity(FLEET, "gpu-0001"), code.namespace, code.code, code.text, int(at), attrs=attrs)


def faulty() -> list[str]:
    """A healthy log with every example of the table between its lines."""
    examples = [line for rule in packaged() for line in rule.matches]
    examples += ["NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.", "NVRM: GPU has fallen off the bus"]
    out: list[str] = []
    for place, line in enumerate(LOG[: 20 * len(examples)]):
        out.append(line)
        if place % 20 == 0:
            out.append(examples[place // 20])
    return out


@pytest.mark.parametrize("engine", ENGINES)
def test_literals_lose_nothing_that_the_readers_would_have_read(engine: Engine) -> None:
    """The same codes without any prefilter: every reader on every line."""
    log = faulty()
    _, _, readers = _kit()
    slow = []
    for line in log:
        found = next((code for reader in readers if (code := reader(line)) is not None), None)
        if found is not None:
            slow.append((found.namespace, found.code, found.text))
    text = "\n".join(log).encode()
    assert [(code.namespace, code.code, code.text) for code in codes(chunks(io.BytesIO(text), 4096))] == slow
    again = Scanner(scanner().literals, engine)
    assert again.hits(text) == scanner().hits(text)
    pattern = re.compile("|".join(map(re.escape, scanner().literals)).encode())
    assert [text[a:b] for a, b in again.hits(text)] == [line for line in text.split(b"\n") if pattern.search(line)]


def test_a_boot_is_told_and_nothing_else_of_it_is_louder_than_a_record() -> None:
    told = [parse(f"[    1.{n:06d}] {line}") for n, line in enumerate(BOOT)]
    assert Counter(code.namespace for code in told if code is not None)["boot"] == 1
