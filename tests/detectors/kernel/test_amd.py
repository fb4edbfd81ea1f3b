"""AMD's hardware events by number: read in all their spellings, and held for as bad as their record says."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.catalogue import load
from detectors.kernel.amd import read
from detectors.kernel.levels import family
from detectors.model import Finding, Severity, Tick
from tests.detectors.fleets import T0, fleet_of, kernel

CATALOGUE = load()
FLEET = fleet_of(2)


@pytest.mark.parametrize(
    ("line", "code", "attrs"),
    [
        ("amd-smi[77]: gpu_id: 4 severity: fatal afid: 30", "30", {"gpu": "4", "severity": "fatal"}),
        ("amdgpuhealth: GPU 3 RAS AFID 24 severity non-fatal", "24", {"gpu": "3", "severity": "nonfatal"}),
        ("gpuagent[7]: RAS event uncorrected AFIDs: [11, 12] gpu=0", "11", {"afids": "11 12", "severity": "nonfatal"}),
        ('amd-smi: {"gpu_id": 2, "severity": "CORRECTED", "afid": 28}', "28", {"severity": "harmless", "gpu": "2"}),
        ("device-metrics-exporter[9]: AFID_LIST=34 on gpu 1", "34", {"gpu": "1"}),
    ],
)
def test_a_number_is_read_with_what_the_line_says_of_it(line: str, code: str, attrs: dict[str, str]) -> None:
    found = read(f"Mar  2 10:11:12 n1 {line}")
    assert found is not None and (found.namespace, found.code) == ("afid", code)
    assert attrs.items() <= dict(found.attrs).items()


@pytest.mark.parametrize(
    "line", ["sshd[77]: AFID 24", "python3: AFID: 24", "amd-smi: no AFID found", "amd-smi: afid.txt"]
)
def test_others_words_and_lines_without_a_number_are_none(line: str) -> None:
    assert read(f"Mar  2 10:11:12 n1 {line}") is None


def _told(*lines: str) -> tuple[Finding, ...]:
    detector = family("kernel/amd", CATALOGUE)
    events = tuple(kernel(FLEET, "gpu-0001/gpu1", T0 + n, line, n) for n, line in enumerate(lines))
    return detector.step(detector.start(FLEET), Tick(T0 + 60.0, events=events), FLEET).findings


def test_a_fatal_event_is_high_a_corrected_one_is_a_record_and_a_silent_one_asks_for_a_look() -> None:
    fatal, corrected, plain = (_told(f"amd-smi: gpu_id: 1 {word} afid: 30") for word in ("fatal", "corrected", "x"))
    assert [found[0].severity for found in (fatal, corrected, plain)] == [
        Severity.HIGH,
        Severity.INFO,
        Severity.WARNING,
    ]
    assert "AFID 30" in fatal[0].reason


@settings(max_examples=200, deadline=1000)
@given(st.text(max_size=200))
def test_no_text_raises(text: str) -> None:
    read(text)
    read(f"amd-smi: afid {text}")
