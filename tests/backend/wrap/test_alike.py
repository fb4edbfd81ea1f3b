"""What the wrapper says and what the server says of its report, and of the whole log, are alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from backend.facts import AttemptFacts
from backend.ingest.wrap import WrapRow, facts_of, sheet_of
from backend.wrap import evidence
from backend.wrap.report import ROOM, ROOM_OF_MANY, excerpt
from backend.wrap.streams import Log
from detectors.joblog.ends import end_of
from detectors.joblog.reading import LogReader, Rules
from detectors.joblog.verdict import Verdict, judge
from detectors.packaged import log_rules
from tests.corpora import joblogs

RULES = Rules.of(log_rules())
FAILED = AttemptFacts("71", 0, state="FAILED", start=1_000.0, end=2_000.0, exit_code=1)


@dataclass
class Ended:
    """As much of a child as the reading of its log asks for."""

    code: int = 1
    signal: int = 0
    asked_to_end: bool = False


def wrapped(raw: bytes, path: Path) -> evidence.Found:
    path.write_bytes(raw)
    log = Log(-1)
    log.size = len(raw)
    return evidence.find(log, str(path), Ended(), 0)  # type: ignore[arg-type]


def judged(found: evidence.Found, room: tuple[int, int] = ROOM) -> Verdict:
    """The server's word on the report."""
    row = {"id": "x", "ts": 1772366400, "start": 1772366000, "host": "gpu-1", "exit_code": 1}
    sheet = sheet_of(RULES, facts_of(WrapRow.model_validate(row | {"excerpt": excerpt(found, room)})))
    return judge(RULES.table, [sheet], end_of("FAILED", 1, None))


def heard(raw: bytes) -> Verdict:
    """The server's word on the log itself."""
    reader = LogReader(RULES, "output.log")
    reader.feed(raw)
    return judge(RULES.table, [reader.close()], end_of("FAILED", 1, None))


def cases() -> Iterator[str]:
    """Every hand-written log as it stands, and its text within the noise of a long run."""
    yield from (case.text for case in joblogs.holdout())
    for seed, case in enumerate(joblogs.holdout()[::3]):
        yield joblogs.failing(seed, case.text.strip().splitlines()[-1])


@pytest.fixture(scope="module", autouse=True)
def one_table() -> Iterator[None]:
    """Compiled once for all of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evidence, "table", lambda: RULES.table)
        yield


def test_they_name_the_same_class_and_line(tmp_path: Path) -> None:
    apart, many = [], 0
    for text in cases():
        many += 1
        found, whole = wrapped(text.encode(), tmp_path / "one.log"), heard(text.encode())
        report = judged(found)
        assert (report.log_class, report.exclude_node) == (whole.log_class, whole.exclude_node), text[-300:]
        if report.first is not None and whole.first is not None:
            assert report.first.line == whole.first.line
        if found.log_class != whole.log_class:
            apart.append((found.log_class, whole.log_class))
    assert many > 200 and len(apart) <= 0.01 * many, apart


@pytest.mark.parametrize("before", [0, 400, 40_000])
@pytest.mark.parametrize("after", [0, 300, 30_000])
def test_what_is_far_from_the_start_and_the_end_is_found_with_its_line(tmp_path: Path, before: int, after: int) -> None:
    step = "step {0} | loss 2.31 | grad norm 0.41 | tokens/s 40211 | lr 1.2e-04 | eta 1:02:03\n"
    head = "".join(step.format(n) for n in range(before))
    tail = "".join(f"waiting for the others, {n} s so far, nothing to be seen of them\n" for n in range(after))
    text = (head + "RuntimeError: CUDA error: uncorrectable ECC error encountered\n" + tail).encode()
    found = wrapped(text, tmp_path / "one.log")
    for room in (ROOM, ROOM_OF_MANY):
        served = judged(found, room)
        assert served.log_class == found.log_class == heard(text).log_class == "ecc_uncorrectable"
        assert served.first is not None and served.first.line == before + 1
    assert found.first is not None and found.lines[found.first.line - 1].number == before + 1


def test_a_failure_that_the_run_survived_is_not_the_cause_in_either(tmp_path: Path) -> None:
    step = "step {0} | loss 2.31 | grad norm 0.41 | tokens/s 40211\n"
    text = "RuntimeError: CUDA out of memory. Tried to allocate 2 GiB; skipping this batch\n"
    text += "".join(step.format(n) for n in range(60_000)) + "OSError: [Errno 28] No space left on device\n"
    found = wrapped(text.encode(), tmp_path / "one.log")
    assert found.log_class == judged(found).log_class == heard(text.encode()).log_class == "disk_full"
