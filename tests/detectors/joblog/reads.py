"""Logs of a test through the reader and the judge."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from detectors.joblog.ends import End
from detectors.joblog.reading import LogReader, Rules, Sheet
from detectors.joblog.verdict import Verdict, judge
from detectors.packaged import log_rules


@cache
def rules() -> Rules:
    return Rules.of(log_rules())


def sheet(log: str | bytes, path: str = "train.log", size: int = 1 << 20) -> Sheet:
    raw = log.encode() if isinstance(log, str) else log
    reader = LogReader(rules(), path)
    for at in range(0, len(raw), size):
        reader.feed(raw[at : at + size])
    return reader.close()


def verdict(log: str | bytes, path: str = "train.log", end: End | None = None) -> Verdict:
    return judge(rules().table, [sheet(log, path)], end)


def job_verdict(logs: Mapping[str, str | bytes], end: End | None = None) -> Verdict:
    return judge(rules().table, [sheet(log, path) for path, log in logs.items()], end)
