"""Excerpts: what is worth keeping of a failing log, bounded, and lines as templates."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.joblog.excerpt import JOB_CHARS, MOST_LINES, NAMED, excerpt_of
from detectors.joblog.masks import masked
from detectors.joblog.reading import LogReader, Rules
from detectors.packaged import log_rules

RULES = Rules.of(log_rules())
STEPS = b"".join(b"step %d loss 2.1\n" % step for step in range(4_000))
STRANGE = b"2026-03-01 10:00:00 blobgate: quota of project exceeded, cannot write shard 12\n"
OOM = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.\n"


def read(log: bytes, size: int = 1_000) -> tuple[str, ...]:
    reader = LogReader(RULES, "a.out", excerpt=True)
    for at in range(0, len(log), size):
        reader.feed(log[at : at + size])
    return reader.close().excerpt


@pytest.mark.parametrize("size", [97, 4_096, 10_000_000])
def test_what_stands_before_the_first_hit_is_kept_however_the_log_comes(size: int) -> None:
    found = read(STEPS + STRANGE + OOM + STEPS, size)
    assert any("quota of project" in line and not line.startswith(NAMED) for line in found)
    assert any("OutOfMemory" in line and line.startswith(NAMED) for line in found)


def test_the_last_lines_are_kept_though_no_rule_names_them() -> None:
    found = read(STEPS + STRANGE)
    assert found[-1].strip().startswith("step 3999") or "quota" in found[-1]
    assert any("quota of project" in line for line in found)


def test_lines_that_only_differ_in_their_numbers_are_kept_once_and_all_is_bounded() -> None:
    log = b"".join(b"peer %d is unreachable\n" % n for n in range(500))
    assert sum("unreachable" in line for line in read(log)) == 1
    words = ("alpha beta gamma delta zeta eta theta iota kappa lambda omicron sigma " * 3).split()
    many = "".join(f"error {a} {b} failed {'x' * 500}\n" for a in words for b in words).encode()
    found = read(many)
    assert len(found) <= MOST_LINES and max(map(len, found)) <= 302
    assert len(excerpt_of([found] * 50)) <= JOB_CHARS


def test_ranks_that_say_the_same_are_told_once() -> None:
    one = ("  peer 1 is lost", "  shard 7 refused")
    assert excerpt_of([one, ("  peer 9 is lost", "  disk is stale")]).splitlines() == [*one, "  disk is stale"]


def test_a_reader_that_was_not_asked_keeps_nothing() -> None:
    reader = LogReader(RULES, "a.out")
    reader.feed(STRANGE + OOM)
    assert reader.close().excerpt == ()


@pytest.mark.parametrize(
    ("line", "template"),
    [
        ('File "/home/lena/train.py", line 31, in load_shard', 'File "<path>", line #, in load_shard'),
        ("connect to 10.0.3.4:29500 failed after 300.5s", "connect to <address> failed after #s"),
        ("exitcode: -9 (pid: 12345) of gpu-0412.cluster.local", "exitcode: -9 (pid: #) of <host>"),
        ("errno 28 at 0x7fff12ab, id 3f2a9bc1d2", "errno 28 at <hex>, id <id>"),
        ("torch.distributed.elastic: bad root", "torch.distributed.elastic: bad root"),
        ("GET https://hub.example/x?y=1 gave 503", "GET <url> gave #"),
        ("2026-03-01 10:00:00 stop", "# # stop"),
    ],
)
def test_a_template_keeps_words_and_codes_and_masks_the_rest(line: str, template: str) -> None:
    assert masked(line) == template


@settings(max_examples=80, deadline=None)
@given(st.text(max_size=600))
def test_no_line_breaks_a_mask(text: str) -> None:
    assert len(masked(text)) <= 3_000


@settings(max_examples=30, deadline=None)
@given(st.lists(st.binary(max_size=300), max_size=12))
def test_no_bytes_break_an_excerpt(chunks: list[bytes]) -> None:
    reader = LogReader(RULES, "a.out", excerpt=True)
    for chunk in chunks:
        reader.feed(chunk)
    assert len(reader.close().excerpt) <= MOST_LINES
