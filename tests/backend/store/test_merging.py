"""No attempt lost, none doubled: whatever sources tell of a job, in whatever order and form."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest

from backend.facts import AttemptFacts
from backend.store.merging import WAITING, Key, fold, in_line, key_of, over

T = 1_772_366_400.0


def told(restart: int = 0, state: str = "RUNNING", **more: object) -> AttemptFacts:
    facts = AttemptFacts("7", restart, state=state, submit=T, start=T + 60, nodes=("n1",), user="ada", source="slurm")
    return replace(facts, **more)  # type: ignore[arg-type]  # fields by name, as each test needs them


def after(*records: AttemptFacts, now: float = T + 100_000) -> list[AttemptFacts]:
    """What is known after each of these was told, one by one."""
    known: dict[Key, AttemptFacts] = {}
    for record in records:
        known |= {key_of(one): one for one in fold(known.values(), [record], now)}
    return [known[key] for key in sorted(known)]


def seen(known: Sequence[AttemptFacts]) -> list[tuple[int, int, str]]:
    return [(one.life, one.restart, one.state) for one in known]


def test_four_sources_that_tell_one_attempt_make_one() -> None:
    live = told()
    account = told(-1, "COMPLETED", start=T + 61, end=T + 900, exit_code=0, account="phys", source="sacct")
    pushed = told(0, "COMPLETED", user="", submit=None, start=T + 60.4, end=T + 900, outputs=("/o",), source="jobs")
    pod = told(-1, "RUNNING", unit="uid-1", name="train-0", source="kubernetes")
    for order in ((live, account, pushed, pod), (pod, pushed, account, live), (account, live, pod, pushed)):
        (one,) = after(*order)
        assert (one.state, one.end, one.exit_code, one.account) == ("COMPLETED", T + 900, 0, "phys")
        assert (one.outputs, one.unit, one.user, one.nodes) == (("/o",), "uid-1", "ada", ("n1",))


def test_a_requeue_that_its_scheduler_has_not_numbered_yet_is_the_next_attempt() -> None:
    waiting = told(0, "PENDING", submit=T + 500, start=None, nodes=())
    assert seen(after(told(), waiting)) == [(0, 0, "REQUEUED"), (0, 1, "PENDING")]
    again = told(1, "PENDING", submit=T + 500, start=None, nodes=())
    running = told(1, "RUNNING", submit=T + 500, start=T + 700)
    assert seen(after(told(), waiting, again, running)) == [(0, 0, "REQUEUED"), (0, 1, "RUNNING")]
    still = told(0, "RUNNING", submit=T + 500, start=T + 700)
    assert seen(after(told(), waiting, still, running)) == [(0, 0, "REQUEUED"), (0, 1, "RUNNING")]


def test_a_source_that_never_numbers_has_its_attempts_told_apart_by_their_times() -> None:
    first, gone = told(), told(0, "NODE_FAIL", end=T + 400)
    second = told(0, "RUNNING", start=T + 900)
    done = told(0, "COMPLETED", start=T + 900, end=T + 2000)
    assert seen(after(first, gone, second, done, gone, done)) == [(0, 0, "NODE_FAIL"), (0, 1, "COMPLETED")]


def test_an_id_that_is_given_anew_begins_a_new_life() -> None:
    old = [told(0, "NODE_FAIL", end=T + 400), told(1, "COMPLETED", submit=T + 400, start=T + 500, end=T + 900)]
    later = told(0, "RUNNING", submit=T + 50_000, start=T + 50_100)
    assert seen(after(*old, later)) == [(0, 0, "NODE_FAIL"), (0, 1, "COMPLETED"), (1, 0, "RUNNING")]
    assert seen(after(later, *old)) == [(-1, 0, "NODE_FAIL"), (-1, 1, "COMPLETED"), (0, 0, "RUNNING")]
    other = told(0, "PENDING", submit=T + 1000, start=None, nodes=(), user="bob")
    assert seen(after(*old, other))[-1] == (1, 0, "PENDING")
    assert seen(after(*old, later, replace(later, state="FAILED", end=T + 51_000)))[-1] == (1, 0, "FAILED")


def test_a_kubernetes_job_made_anew_under_its_name_begins_a_new_life() -> None:
    def pod(unit: str, restart: int, start: float, state: str = "RUNNING", **more: object) -> AttemptFacts:
        base = told(restart, state, start=start, submit=start - 5, unit=unit, source="kubernetes")
        return replace(base, **more)  # type: ignore[arg-type]

    first = [pod("a", 0, T, "FAILED", end=T + 50), pod("b", 1, T + 80, "COMPLETED", end=T + 90)]
    anew = pod("c", 0, T + 200)
    assert seen(after(*first, anew, *first, anew)) == [(0, 0, "FAILED"), (0, 1, "COMPLETED"), (1, 0, "RUNNING")]


def test_restarts_within_the_rounding_of_clocks_are_attempts_of_their_own() -> None:
    """A container that dies at once, and again: its kubelet counts, and starts lie a second apart."""

    def pod(restart: int, start: float, state: str = "RUNNING", end: float | None = None) -> AttemptFacts:
        return told(restart, state, start=start, end=end, submit=T, unit="a", source="kubernetes")

    crashed = [pod(n, T + n, "FAILED", T + n + 0.5) for n in range(3)]
    every = [(0, 0, "FAILED"), (0, 1, "FAILED"), (0, 2, "FAILED"), (0, 3, "RUNNING")]
    assert seen(after(*crashed, pod(3, T + 3))) == every
    assert seen(after(*crashed, pod(3, T + 3), *crashed)) == every  # told again
    assert seen(after(pod(0, T), pod(1, T + 1))) == [(0, 0, "REQUEUED"), (0, 1, "RUNNING")]
    requeued = [told(0, "REQUEUED", end=T + 61), told(1, "RUNNING", start=T + 61)]
    assert seen(after(*requeued)) == [(0, 0, "REQUEUED"), (0, 1, "RUNNING")]


def test_a_late_reading_does_not_wake_what_is_over() -> None:
    over_ = told(0, "FAILED", end=T + 900)
    assert seen(after(over_, told())) == [(0, 0, "FAILED")]
    assert after(over_, told())[0].end == T + 900


def test_an_end_is_kept_from_being_a_time_limit_or_in_the_future() -> None:
    assert after(told(end=T + 9e6))[0].end is None
    assert after(told(0, "FAILED", end=T + 9e6), now=T + 1000)[0].end == T + 1000
    assert after(told(0, "FAILED"), told(0, "FAILED", end=T + 300), now=T + 1000)[0].end == T + 300


def test_a_start_that_moves_while_nodes_boot_stays_one_attempt() -> None:
    booting = told(0, "CONFIGURING", start=T + 10)
    assert [(a.state, a.start) for a in after(booting, told(start=T + 400))] == [("RUNNING", T + 400)]


# --- random lives ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class True_:
    """One attempt as it was."""

    life: int
    restart: int
    submit: float
    start: float
    end: float
    state: str


def truth(dice: random.Random) -> list[True_]:
    """A job id given one to three times, each requeued up to three times."""
    found, at = [], T
    for life in range(dice.choice((1, 1, 2, 3))):
        at += dice.uniform(4000, 90_000)
        for restart in range(dice.randint(1, 4)):
            start = at + dice.uniform(5, 3000)
            end = start + dice.uniform(30, 40_000)
            state = dice.choice(("NODE_FAIL", "FAILED", "PREEMPTED", "COMPLETED", "OUT_OF_MEMORY"))
            found.append(True_(life, restart, at, start, end, state))
            at = end + dice.uniform(0, 5)
    return found


def sightings(lives: Sequence[True_], dice: random.Random, least: int) -> Iterator[tuple[float, AttemptFacts]]:
    """When each source tells what of each attempt: live readings in order (``least`` of each), accounts late and twice,
    pushes at will."""
    for one in lives:
        base = AttemptFacts("7", one.restart, submit=one.submit, user="ada", nodes=("n1",))
        if dice.random() < 0.5:
            yield one.submit + 1, replace(base, state="PENDING", nodes=(), source="squeue")
        for at in sorted(dice.uniform(one.start, one.end) for _ in range(dice.randint(least, 3))):
            yield at, replace(base, state="RUNNING", start=round(one.start), source="squeue")
        ended = replace(base, state=one.state, start=one.start // 1, end=one.end // 1)
        for _ in range(dice.randint(0, 2)):
            late = one.end + dice.choice((1.0, 60.0, 4000.0, 400_000.0))
            restart = dice.choice((one.restart, -1))
            yield late, replace(ended, restart=restart, source="sacct", exit_code=1)
        if dice.random() < 0.3:
            yield dice.uniform(one.end, one.end + 20), replace(ended, source="jobs", submit=None, user="")
        yield one.end + dice.uniform(0, 100_000), replace(ended, source="sacct")


@pytest.mark.parametrize("part", range(10))
def test_no_attempt_is_lost_and_none_doubled_over_random_interleavings(part: int) -> None:
    for seed in range(part * 1000, part * 1000 + 1000):
        dice = random.Random(seed)
        lives = truth(dice)
        known: dict[Key, AttemptFacts] = {}
        for at, record in sorted(sightings(lives, dice, part % 2), key=lambda pair: pair[0]):
            known |= {key_of(one): one for one in fold(known.values(), [record], at)}
        known = {key: one for key, one in known.items() if one.start is not None}  # what never began, gave way
        found = sorted((one.start or 0.0, one.state, one.end or 0.0) for one in known.values())
        wanted = [(one.start, one.state, one.end) for one in lives]
        assert [state for _, state, _ in found] == [state for _, state, _ in wanted], (seed, found, wanted)
        for (start, _, end), (true_start, _, true_end) in zip(found, wanted, strict=True):
            assert abs(start - true_start) <= 1 and abs(end - true_end) <= 1, seed
        line = in_line(known.values())
        assert [one.start for one in line] == sorted(one.start or 0.0 for one in line), seed
        if part % 2:  # each was seen while it ran
            assert len({one.life for one in line}) <= len({one.life for one in lives}), (seed, lives)
        assert all(over(one) or one.state in WAITING for one in known.values())
