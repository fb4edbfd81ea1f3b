"""Attempts from pods: every restart is counted once, in whatever order reads, failures and our own restarts come."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.clients.kubernetes_pods import End, Pod
from backend.clients.kubernetes_work import Owner
from backend.facts import AttemptFacts
from backend.ingest.kubernetes_attempts import GATHER_S, Lives, Room, Work, life_of

ROOM = Room({f"n{i}": 8 for i in range(64)}, {})
T0 = 1_800_000_000.0
BLANK = Pod(
    "ns", "p", "u", "n0", "Running", T0, T0, None, T0, False, "train", "PyTorchJob", "own", "worker/0", "worker",
    8, 0, (), (), 0, None, "", "", "", (), "train", "", "", None, (), (), False,
)  # fmt: skip
OWNER = Owner("pytorchjobs", "ns", "train", "own", "", "", T0, "", "", None, False, None, None, 0, None, True)


@dataclass
class Gang:
    """A job of several ranks whose pods are begun anew in place, or replaced; ``truth`` counts its restarts."""

    ranks: int = 4
    now: float = T0
    truth: int = 0
    made: int = 0
    pods: dict[int, Pod] = field(default_factory=dict)
    gone: list[Pod] = field(default_factory=list)

    def __post_init__(self) -> None:
        for rank in range(self.ranks):
            self.replace(rank)
        self.gone = []

    def replace(self, rank: int) -> None:
        self.made += 1
        if rank in self.pods:
            self.gone.append(replace(self.pods[rank], deleting=True))
        slot, name = f"worker/{rank}", f"train-worker-{rank}"
        pod = replace(BLANK, name=name, uid=f"u{self.made}", node=f"n{rank}", slot=slot)
        self.pods[rank] = replace(pod, created=self.now, started=self.now, began=self.now)

    def again(self, rank: int) -> None:
        """The container is begun anew in place."""
        pod = self.pods[rank]
        end = End("train", 1, None, "Error", self.now - 1, before=True)
        self.pods[rank] = replace(pod, lives=pod.lives + 1, ends=(end,), started=self.now, began=self.now)

    def restart(self, how: str, ranks: list[int], spread_s: float, between: Callable[[], None]) -> None:
        """A restart of the job: some ranks, or all of them, within a while."""
        self.truth += 1
        begin = self.now
        for rank in ranks:
            self.now = begin + spread_s * ranks.index(rank) / len(ranks)
            (self.replace if how == "replaced" else self.again)(rank)
            between()

    def work(self) -> Work:
        gone, self.gone = self.gone, []
        return Work("ns.train", list(self.pods.values()), gone, OWNER)


class Kept:
    """What a store would hold: attempts by number, and the marks."""

    def __init__(self) -> None:
        self.rows: dict[int, AttemptFacts] = {}
        self.marks: dict[str, str] = {}
        self.lives = Lives()

    def read(self, gang: Gang) -> None:
        for one in self.lives.follow([gang.work()], ROOM, gang.now):
            self.rows[one.restart] = one
        for job, mark in self.lives.marks().items():
            assert mark is not None
            self.marks[job] = mark

    def restart(self) -> None:
        self.lives = Lives()
        self.lives.resume(self.marks)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_every_restart_is_one_attempt_whatever_happens_in_between(seed: int, ranks: int) -> None:
    """Restarts are further apart than ranks of one restart are spread; reads and our own restarts come at any time."""
    chance = random.Random(seed)
    gang, kept = Gang(ranks), Kept()
    kept.read(gang)

    def meddle() -> None:
        if chance.random() < 0.3:
            kept.restart()
        if chance.random() < 0.5:
            kept.read(gang)

    for _ in range(12):
        gang.now += GATHER_S + chance.uniform(5, 5000)
        step = chance.choice(["quiet", "replaced", "in place", "crash"])
        if step in ("replaced", "in place"):
            some = sorted(chance.sample(range(ranks), chance.randint(1, ranks)))
            gang.restart(step, some, chance.uniform(0, GATHER_S * 0.9), meddle)
        if step == "crash":
            kept.restart()
        kept.read(gang)
        meddle()
    assert sorted(kept.rows) == list(range(gang.truth + 1))
    for number, row in kept.rows.items():
        assert row.start is not None and (row.end is None) == (number == gang.truth)
        assert row.end is None or row.end >= row.start


def test_the_ranks_that_follow_within_the_gathering_time_are_the_same_restart() -> None:
    gang, kept = Gang(8), Kept()
    kept.read(gang)
    gang.now += 3600
    for rank in range(8):
        gang.now += 15
        gang.again(rank)
        kept.read(gang)
    assert sorted(kept.rows) == [0, 1]


def test_a_rank_that_fails_again_within_that_time_is_another_restart() -> None:
    gang, kept = Gang(2), Kept()
    kept.read(gang)
    for restart in range(1, 5):
        gang.now += 20
        gang.again(0)
        kept.read(gang)
        assert max(kept.rows) == restart


def test_restarts_between_two_reads_are_counted_by_the_containers_own_count() -> None:
    gang, kept = Gang(1), Kept()
    kept.read(gang)
    for _ in range(7):
        gang.now += 30
        gang.again(0)
    kept.read(gang)
    assert max(kept.rows) == 7


def test_a_job_seen_for_the_first_time_begins_with_what_its_pods_have_been_through() -> None:
    gang = Gang(2)
    for _ in range(3):
        gang.now += 600
        gang.again(1)
    kept = Kept()
    kept.read(gang)
    assert list(kept.rows) == [3] and kept.rows[3].start == gang.now


def test_the_cause_is_the_rank_that_failed_first_and_not_those_that_were_told_to_stop() -> None:
    gang, kept = Gang(3), Kept()
    kept.read(gang)
    gang.now += 600
    for rank, (code, later) in enumerate([(143, 9), (134, 2), (137, 30)]):
        end = End("train", code, code - 128, "Error", gang.now + later)
        gang.pods[rank] = replace(gang.pods[rank], phase="Failed", ended=gang.now + later, ends=(end,))
    kept.read(gang)
    assert (kept.rows[0].state, kept.rows[0].signal, kept.rows[0].exit_code) == ("FAILED", 6, 134)
    assert "train-worker-1 on n1" in kept.rows[0].reason


@pytest.mark.parametrize(
    ("why", "state"),
    [
        ("PreemptionByScheduler", "PREEMPTED"),
        ("DeletionByTaintManager", "NODE_FAIL"),
        ("TerminationByKubelet", "NODE_FAIL"),
        ("EvictionByEvictionAPI", "REQUEUED"),
    ],
)
def test_why_kubernetes_ended_a_pod_is_told_in_the_words_of_slurm(why: str, state: str) -> None:
    gang, kept = Gang(1), Kept()
    kept.read(gang)
    gang.now += 600
    gang.pods[0] = replace(gang.pods[0], phase="Failed", disrupted=why, ended=gang.now)
    kept.read(gang)
    gang.replace(0)
    kept.read(gang)
    assert kept.rows[0].state == state and kept.rows[1].state == "RUNNING"


def test_a_job_made_anew_under_the_same_name_begins_from_nought(now: float = T0) -> None:
    gang, kept = Gang(1), Kept()
    gang.again(0)
    kept.read(gang)
    again = Gang(1, now=T0 + 7200)
    told = kept.lives.follow([replace(again.work(), owner=replace(OWNER, uid="other"))], ROOM, again.now)
    assert [(one.restart, one.unit, one.state) for one in told] == [(1, "own", "CANCELLED"), (0, "other", "RUNNING")]


def test_one_pod_after_another_of_a_queue_of_work_is_no_restart() -> None:
    """A Job of many completions makes a new pod for each; nothing failed."""
    owner = replace(OWNER, kind="jobs")
    kept = Lives()
    numbers = set()
    for done in range(5):
        pod = replace(BLANK, kind="Job", name=f"train-{done}", slot=f"train-{done}", uid=f"u{done}")
        over = [replace(pod, name=f"train-{i}", slot=f"train-{i}", uid=f"u{i}", phase="Succeeded") for i in range(done)]
        numbers |= {one.restart for one in kept.follow([Work("ns.train", [*over, pod], (), owner)], ROOM, T0 + done)}
    assert numbers == {0}


@given(st.text() | st.binary().map(str) | st.just("[1,2]") | st.just('["u",0,0,null,{},[],0,false]'))
def test_a_mark_of_another_release_is_forgotten_and_never_an_error(mark: str) -> None:
    assert life_of(mark) is None or life_of(mark)


def test_a_pod_of_random_name_that_was_deleted_while_it_ran_is_a_restart_counted_once() -> None:
    """The controller counts the deletion as a failure too, sooner or later."""
    for failed_seen_at in (1, 2, 3):
        kept, owner = Lives(), replace(OWNER, kind="jobs")
        numbers = []
        for step, name in enumerate(["a", "b", "b", "b"]):
            pod = replace(BLANK, kind="Job", name=name, slot=name, uid=name)
            told = replace(owner, failed=int(step >= failed_seen_at))
            last = kept.follow([Work("ns.train", [pod], (), told)], ROOM, T0 + 60 * step)[-1]
            numbers.append(last.restart)
        done = [replace(BLANK, kind="Job", name="b", slot="b", uid="b", phase="Succeeded")]
        done.append(replace(BLANK, kind="Job", name="c", slot="c", uid="c"))
        last = kept.follow([Work("ns.train", done, (), replace(owner, failed=1))], ROOM, T0 + 600)[-1]
        assert (numbers, last.restart) == ([0, 1, 1, 1], 1)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_job_of_random_names_counts_failures_and_deletions_and_no_completion(seed: int) -> None:
    """Its controller counts a failure when it likes: before the next pod is there, with it, or later."""
    chance = random.Random(seed)
    owner, kept = replace(OWNER, kind="jobs"), Lives()
    marks: dict[str, str] = {}
    made, truth, owed, now = 1, 0, 0, T0
    pods = [replace(BLANK, kind="Job", name="train-0", slot="train-0", uid="u0")]
    numbers: set[int] = set()

    def read() -> None:
        nonlocal kept
        if chance.random() < 0.3:
            kept = Lives()
            kept.resume(marks)
        numbers.update(one.restart for one in kept.follow([Work("ns.train", pods, (), owner)], ROOM, now))
        marks.update({job: mark for job, mark in kept.marks().items() if mark is not None})

    read()
    for _ in range(10):
        now += chance.uniform(20, 3000)
        step = chance.choice(["Failed", "deleted", "Succeeded", "quiet"])
        running, over = pods[-1], pods[:-1]
        if step == "quiet":
            read()
            continue
        pods = over if step == "deleted" else [*over, replace(running, phase=step, ended=now)]
        truth += step != "Succeeded"
        owed += step != "Succeeded"
        if chance.random() < 0.5:
            owner, owed = replace(owner, failed=owner.failed + owed), 0
        if chance.random() < 0.5:
            read()
        pod = replace(BLANK, kind="Job", name=f"train-{made}", slot=f"train-{made}", uid=f"u{made}")
        pods, made = [*pods, replace(pod, created=now, started=now, began=now)], made + 1
        read()
        if chance.random() < 0.7:
            owner, owed = replace(owner, failed=owner.failed + owed), 0
            read()
    assert max(numbers) == truth and len(numbers) == truth + 1


def test_a_pod_that_ends_for_ever_on_a_dead_node_does_not_hide_the_one_that_replaced_it() -> None:
    kept, owner = Lives(), replace(OWNER, kind="jobs")
    first = replace(BLANK, kind="Job", name="a", slot="a", uid="a", node="n1")
    told = kept.follow([Work("ns.train", [first], (), owner)], ROOM, T0)
    stuck = replace(first, deleting=True, disrupted="DeletionByTaintManager")
    told = kept.follow([Work("ns.train", [stuck], (), owner)], ROOM, T0 + 300)
    second = replace(BLANK, kind="Job", name="b", slot="b", uid="b", node="n2")
    second = replace(second, created=T0 + 310, started=T0 + 310, began=T0 + 310)
    for now in (T0 + 320, T0 + 600):
        told = kept.follow([Work("ns.train", [stuck, second], (), owner)], ROOM, now)
        last = told[-1]
        assert (last.restart, last.state, last.nodes) == (1, "RUNNING", ("n2",))
        if now == T0 + 320:
            assert (told[0].restart, told[0].state) == (0, "NODE_FAIL")
    assert kept.follow([Work("ns.train", [second], [stuck], owner)], ROOM, T0 + 900)[-1].restart == 1
