"""Fourteen days of 63 nodes whose parts are known: ETTR within 0.005, each part within 0.5 % or 1 s an attempt."""

from __future__ import annotations

import time

import numpy as np
import pytest

from backend.reliability.account import Accounts, account
from backend.reliability.ettr import ettr, productive_spans, sliding
from backend.reliability.history import History, StepTable
from backend.reliability.parts import PARTS
from backend.reliability.report import reliability_json, runs_json
from backend.reliability.spans import length, within
from tests.backend.reliability.histories import START, Past, make


def accounts_of(past: Past) -> Accounts:
    return account(History(START, past.end, past.attempts, past.steps, past.checkpoints, checkpoints_whole=True))


@pytest.mark.parametrize("seed", range(4))
def test_parts_and_shares_are_those_of_the_history(seed: int) -> None:
    past = make(seed)
    told = accounts_of(past)
    assert len(told.attempts) == len(past.attempts)
    for one in told.attempts:
        truth = past.truth[(one.attempt.job, one.attempt.restart)]
        for part in PARTS:
            found, real = one.parts[part], truth.parts[part]
            assert found.low == found.high
            assert found.low == pytest.approx(real, abs=max(1.0, 0.005 * real)), (part, one.attempt, truth)
        assert one.queue_s == pytest.approx(truth.queue, abs=1e-3)
        assert one.hold_s == pytest.approx(truth.hold, abs=1e-3)
    for run in told.runs:
        truths = [past.truth[(a.attempt.job, a.attempt.restart)] for a in run.accounts]
        wall = sum(a.wall_s for a in run.accounts) + sum(t.queue for t in truths)
        share = ettr(run.accounts).ettr
        assert share is not None
        assert share.middle == pytest.approx(sum(t.parts["productive"] for t in truths) / wall, abs=0.005)
    assert sum(a.failed for a in told.attempts) == past.failed


def test_the_sliding_share_is_the_productive_share_of_each_hour() -> None:
    told = accounts_of(make(7, days=3))
    for run in told.runs:
        points = sliding(run, told.history.end)
        productive = productive_spans(run.accounts)
        begin = min(a.attempt.eligible for a in run.accounts if a.attempt.eligible is not None)
        assert all(round((at - begin) % 300, 3) in (0.0, 300.0) for at, _ in points)
        for at, share in points[:: max(1, len(points) // 20)]:
            assert share == pytest.approx(length(within(productive, at - 3600, at)) / 3600, abs=1e-6)


def test_without_steps_the_bounds_hold_the_truth() -> None:
    past = make(11, days=7)
    for checkpoints in (past.checkpoints, []):
        told = account(History(START, past.end, past.attempts, (), checkpoints))
        for one in told.attempts:
            truth = past.truth[(one.attempt.job, one.attempt.restart)]
            for part in PARTS:
                bounds = one.parts[part]
                assert bounds.low - 1e-3 <= truth.parts[part] <= bounds.high + 1e-3, (part, one.source, one.attempt)
        documents = runs_json(told)
        for run, document in zip(told.runs, documents, strict=True):
            low, high = document["ettr_bounds"]
            real = sum(past.truth[(a.attempt.job, a.attempt.restart)].parts["productive"] for a in run.accounts)
            assert low - 1e-6 <= real / document["denominator_s"] <= high + 1e-6


def test_a_million_rows_take_seconds() -> None:
    past = make(3)
    once = StepTable.of(past.steps)
    rows = once.take(np.tile(np.arange(len(once)), 1 + 1_000_000 // len(once)))
    assert len(rows) >= 1_000_000
    began = time.process_time()
    told = account(History(START, past.end, past.attempts, rows, past.checkpoints, checkpoints_whole=True))
    assert runs_json(told)
    assert reliability_json(told)
    assert time.process_time() - began < 10
