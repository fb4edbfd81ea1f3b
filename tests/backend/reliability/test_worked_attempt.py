"""The worked attempt of the accounting's contract, number by number."""

from __future__ import annotations

import random

import pytest

from backend.facts import AttemptFacts, CheckpointFacts, StepFacts
from backend.reliability.ettr import ettr
from backend.reliability.report import reliability_json, runs_json
from tests.backend.reliability.facts import accounted, attempt, load, parts, save, steps

FIRST = attempt(state="NODE_FAIL", start=10.0, end=1980.0)
SECOND = attempt(restart=1, state="RUNNING", submit=1980.0, eligible=2100.0, start=2105.0)


def rows() -> list[StepFacts]:
    """Steps of 10 s to 1,140, a save to 1,180, steps to 1,680, then nothing."""
    return steps(140, 1140, 10) + steps(1190, 1680, 10, from_step=101)


CHECKPOINTS = [load(130, 60, step=0), save(1180, 40, step=101)]


def test_each_part_is_as_written() -> None:
    first, second = accounted([FIRST, SECOND], 2105.0, steps=rows(), checkpoints=CHECKPOINTS).attempts
    assert parts(first) == {
        "startup": 60,
        "load": 60,
        "productive": 1010,
        "save_stall": 40,
        "lost_since_checkpoint": 500,
        "hang": 300,
        "teardown": 0,
    }
    assert (first.queue_s, first.hold_s, first.wall_s) == (10, 0, 1970)
    assert (second.queue_s, second.hold_s, second.wall_s) == (5, 120, 0)
    assert first.failed
    assert first.verdict.infra is True


def test_the_shares_are_as_written() -> None:
    found = ettr(accounted([FIRST], 1980.0, steps=rows(), checkpoints=CHECKPOINTS).attempts)
    assert found.ettr is not None and found.saves_productive is not None
    assert found.ettr.middle == pytest.approx(1010 / 1980)
    assert found.saves_productive.middle == pytest.approx(1050 / 1980)
    both = ettr(accounted([FIRST, SECOND], 2105.0, steps=rows(), checkpoints=CHECKPOINTS).attempts)
    assert both.incl_hold is not None
    assert both.incl_hold.middle == pytest.approx(1010 / (1970 + 15 + 120))


def test_the_documents_say_the_same() -> None:
    told = accounted([FIRST, SECOND], 2405.0, steps=rows(), checkpoints=CHECKPOINTS)
    (run,) = runs_json(told)
    assert run["run"] == "r"
    assert [a["failed"] for a in run["attempts"]] == [True, False]
    assert run["decomposition_s"]["productive"] == 1010
    assert run["decomposition_s"]["hold"] == 120
    assert run["decomposition_s"]["startup"] == 360
    retry = reliability_json(told)["retry"]
    assert retry["open_chains"] == 1
    assert retry["interval_auto"] == {"n": 1, "median_s": 125.0, "q1_s": 125.0, "q3_s": 125.0}


def test_the_order_of_rows_and_what_is_told_twice_change_nothing() -> None:
    told: list[StepFacts] = rows() * 2
    saves: list[CheckpointFacts] = CHECKPOINTS * 2
    attempts: list[AttemptFacts] = [SECOND, FIRST, FIRST]
    straight = accounted([FIRST, SECOND], 2405.0, steps=rows(), checkpoints=CHECKPOINTS)
    for seed in range(5):
        for part in (told, saves, attempts):
            random.Random(seed).shuffle(part)
        mixed = accounted(attempts, 2405.0, steps=told, checkpoints=saves)
        assert runs_json(mixed) == runs_json(straight)
