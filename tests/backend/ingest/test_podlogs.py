"""Logs of pods: every line once whatever the page, equal times, a pod that waits, is gone or may not be read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from backend.clients.kubernetes import KubeClient
from backend.ingest.base import SourceError
from backend.ingest.podlogs import PodLogs
from tests.services.kube_fake import FakeKube
from tests.services.kube_http import fake_kube

S = 1_000_000_000
AT = 1_770_000_000 * S
PATH = "/var/log/pods/ml_train-0_0f3a-77/main/0.log"


@pytest.fixture
def fake() -> Iterator[FakeKube]:
    with fake_kube() as running:
        running.objects["", "pods", "ml", "train-0"] = {"metadata": {"name": "train-0", "namespace": "ml"}}
        yield running


def logs(fake: FakeKube) -> PodLogs:
    return PodLogs(KubeClient(fake.access(), 5.0))


def put(fake: FakeKube, *lines: tuple[int, str]) -> None:
    fake.printed.setdefault(("ml", "train-0", "main"), []).extend(lines)


def everything(found: PodLogs, most_bytes: int, after: str = "") -> tuple[list[str], str]:
    lines: list[str] = []
    for _ in range(1000):
        chunk, position = found.read(PATH, after, most_bytes)
        lines += [line.partition(" ")[2] for line in chunk.decode().splitlines()]
        if position == after:
            break
        after = position
    return lines, after


@pytest.mark.parametrize("most_bytes", [80, 200, 100_000])
def test_every_line_comes_once_whatever_the_page(fake: FakeKube, most_bytes: int) -> None:
    steps = [0, 0, 0, 1, 500_000_000, 500_000_000, S, S, 3 * S]
    put(fake, *((AT + step, f"line {n}") for n, step in enumerate(steps)))
    found = logs(fake)
    lines, position = everything(found, most_bytes)
    assert lines == [f"line {n}" for n in range(len(steps))]
    put(fake, (AT + 3 * S, "same time"), (AT + 3 * S + 1, "later"))
    assert everything(found, most_bytes, position)[0] == ["same time", "later"]


def test_a_second_that_is_longer_than_what_is_read_is_passed(fake: FakeKube) -> None:
    put(fake, *((AT, "x" * 99) for _ in range(4000)), (AT + S, "after"))
    lines, _ = everything(logs(fake), 100)
    assert lines[-1] == "after" and 400 < len(lines) < 4001


def test_a_container_that_waits_has_no_lines_yet(fake: FakeKube) -> None:
    assert logs(fake).read(PATH, "", 1000) == (b"", "")


def test_a_pod_that_is_gone_or_may_not_be_read_is_said(fake: FakeKube) -> None:
    with pytest.raises(SourceError, match="not found"):
        logs(fake).read("/var/log/pods/ml_gone_1/main/0.log", "", 1000)
    fake.rules["admin"] = set()
    with pytest.raises(SourceError, match="forbidden"):
        logs(fake).read(PATH, "", 1000)
    with pytest.raises(SourceError, match="no log of a pod"):
        logs(fake).read("/var/log/pods/x", "", 1000)


def test_lives_of_one_container_are_one_place(fake: FakeKube) -> None:
    other = "/var/log/pods/ml_train-0_ffff/main/3.log"
    assert logs(fake).place(PATH) == logs(fake).place(other) == "ml/train-0/main"


def test_a_position_that_is_none_begins_anew(fake: FakeKube) -> None:
    put(fake, (AT, "one"))
    assert logs(fake).read(PATH, "nonsense", 1000)[0].endswith(b" one\n")
