"""Runs from accounting: which attempts are one logical task, and what joins one attempt to the next."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

from backend.facts import AttemptFacts
from backend.reliability.clean import began
from detectors.joblog.again import stem, telling

#: A resubmission under the same name counts as a restart of the run for this long after its end, s: over a weekend.
RESUBMIT_WITHIN_S = 72 * 3600.0
#: A scheduler puts a job back at its end; a controller keeps ended jobs for minutes (slurm.conf, MinJobAge 300), s.
REQUEUE_WITHIN_S = 3600.0
#: Clocks and epilogs let an attempt begin a little before the last one is recorded as ended, s.
OVERLAP_S = 60.0
#: Another size than this many times the last one's is another task.
SIZE_RATIO = 2.0

_DEPENDENCY = re.compile(r"(afternotok|afterany|afterok|aftercorr)((?::[0-9]+(?:_[0-9*]+)?(?:\+[0-9]+)?)+)")
_TASK = re.compile(r"_(\d+)$")

LinkKind = Literal["requeue", "resubmit"]


@dataclass(frozen=True, slots=True)
class Lane:
    """Attempts of a run that followed each other; ``links[i]`` joins attempt i to i + 1."""

    attempts: tuple[AttemptFacts, ...]
    links: tuple[LinkKind, ...]


@dataclass(frozen=True)
class Run:
    """One logical task. Parts of it that run side by side (trainer and sampler jobs) are lanes of their own.

    ``by``: what joined it: "name" (its training said so), "accounting", or "job" (a single submission).
    """

    name: str
    by: Literal["name", "accounting", "job"]
    lanes: tuple[Lane, ...]

    @cached_property
    def attempts(self) -> tuple[AttemptFacts, ...]:
        """All attempts in the order they began."""
        if len(self.lanes) == 1 and len(self.lanes[0].attempts) == 1:
            return self.lanes[0].attempts
        return tuple(sorted((a for lane in self.lanes for a in lane.attempts), key=began))


@dataclass(slots=True, eq=False)
class _Submission:
    """The attempts of one submission of one job, in order. Everything after the first is a requeue."""

    attempts: list[AttemptFacts]
    run: str = ""

    @property
    def first(self) -> AttemptFacts:
        return self.attempts[0]

    @property
    def last(self) -> AttemptFacts:
        return self.attempts[-1]

    @property
    def submit(self) -> float:
        return next((t for t in (self.first.submit, self.first.start) if t is not None), math.inf)

    @property
    def end(self) -> float:
        return math.inf if self.last.end is None else self.last.end

    @property
    def size(self) -> int:
        return max(len(a.nodes) for a in self.attempts)

    @property
    def task(self) -> str:
        found = _TASK.search(self.first.array)
        return found[1] if found else ""

    @property
    def key(self) -> tuple[str, str, str]:
        """What a resubmission has in common with what it repeats: owner, name, task of the array."""
        return self.first.user, stem(label(self.first)), self.task


class _Groups:
    """Which submissions are one run: disjoint sets, each of at most one name that training gave."""

    def __init__(self, names: Sequence[str]) -> None:
        self._over = list(range(len(names)))
        self._names = list(names)

    def of(self, place: int) -> int:
        while self._over[place] != place:
            self._over[place] = place = self._over[self._over[place]]
        return place

    def join(self, a: int, b: int) -> None:
        """One run from now on, unless their training says that they are two."""
        low, high = sorted((self.of(a), self.of(b)))
        names = {self._names[low], self._names[high]} - {""}
        if low != high and len(names) <= 1:
            self._over[high] = low
            self._names[low] = min(names, default="")


def label(attempt: AttemptFacts) -> str:
    """The name it goes by: its run's where a launcher or scheduler gave one, else the job's."""
    return attempt.run or attempt.name


def runs_of(attempts: Sequence[AttemptFacts], named: Mapping[int, str]) -> list[Run]:
    """Runs of cleaned ``attempts``, in the order they began. ``named``: run names that training rows gave, by the
    place in ``attempts``. Every attempt is in exactly one run."""
    submissions = _submissions(attempts, named)
    groups = _Groups([s.run for s in submissions])
    for a, b in _links(submissions):
        groups.join(a, b)
    members: defaultdict[int, list[_Submission]] = defaultdict(list)
    for place, submission in enumerate(submissions):
        members[groups.of(place)].append(submission)
    runs = [_run(part) for part in members.values()]
    return _told_apart(sorted(runs, key=lambda run: began(run.attempts[0])))


def _submissions(attempts: Sequence[AttemptFacts], named: Mapping[int, str]) -> list[_Submission]:
    by_job: defaultdict[str, list[int]] = defaultdict(list)
    for place, attempt in enumerate(attempts):
        by_job[attempt.job].append(place)
    found: list[_Submission] = []
    for places in by_job.values():
        part: _Submission | None = None
        for place in sorted(places, key=lambda p: (began(attempts[p])[1], attempts[p].restart)):
            attempt = attempts[place]
            if part is None or not _requeued(part.last, attempt):
                part = _Submission([])
                found.append(part)
            part.attempts.append(attempt)
            part.run = named.get(place, "") or part.run
    return sorted(found, key=lambda s: (s.submit, began(s.first)))


def _requeued(before: AttemptFacts, after: AttemptFacts) -> bool:
    """Whether ``after`` is a requeue of ``before``, both of one job id; else the id was used again."""
    if before.life != after.life or (before.user and after.user and before.user != after.user):
        return False
    if before.name and after.name and before.name != after.name:
        return False
    if before.unit and before.unit == after.unit:
        return True
    if after.restart <= before.restart or before.end is None:
        return False
    return after.submit is None or after.submit == before.submit or after.submit <= before.end + REQUEUE_WITHIN_S


def _links(submissions: Sequence[_Submission]) -> Iterable[tuple[int, int]]:
    by_run: defaultdict[str, list[int]] = defaultdict(list)
    by_key: defaultdict[tuple[str, str, str], list[int]] = defaultdict(list)
    by_job: defaultdict[str, list[int]] = defaultdict(list)
    for place, submission in enumerate(submissions):
        if submission.run:
            by_run[submission.run].append(place)
        by_key[submission.key].append(place)
        by_job[submission.first.job].append(place)
        if submission.first.array:
            by_job[submission.first.array].append(place)
    for places in by_run.values():
        yield from pairwise(places)
    followed: set[int] = set()
    for place in range(len(submissions)):
        for before in _dependencies(submissions, by_job, place):
            if before not in followed:
                followed.add(before)
                yield before, place
    for (_, name, _), places in by_key.items():
        if telling(name):
            yield from _same_name(submissions, places)


def _dependencies(submissions: Sequence[_Submission], by_job: Mapping[str, list[int]], place: int) -> Iterable[int]:
    """The submission that this one was told to wait for and to carry on from."""
    here = submissions[place]
    for kind, jobs in _DEPENDENCY.findall(here.first.dependency):
        for job in jobs.strip(":").split(":"):
            earlier = [p for p in by_job.get(job, ()) if p != place and submissions[p].submit <= here.submit]
            if not earlier:
                continue
            there = submissions[earlier[-1]]
            if there.key[0] != here.key[0] or _conflict(there, here):
                continue
            if there.key == here.key or (kind == "afternotok" and _like(there, here)):
                yield earlier[-1]


def _same_name(submissions: Sequence[_Submission], places: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Each submission with the last one of that name, where it can only be its restart: none ran or waited beside."""
    latest, crowded = -math.inf, False  # when the last of the earlier ones ends; whether the one before had company
    for before, after in pairwise(places):
        a, b = submissions[before], submissions[after]
        crowded = a.submit < latest - OVERLAP_S
        latest = max(latest, a.end)
        if _conflict(a, b):
            continue
        tried_again = a.last.state != "COMPLETED" and latest - OVERLAP_S <= b.submit <= a.end + RESUBMIT_WITHIN_S
        if "singleton" in b.first.dependency or (tried_again and not crowded and _like(a, b)):
            yield before, after


def _conflict(a: _Submission, b: _Submission) -> bool:
    """Their training says that they are two runs."""
    return bool(a.run and b.run and a.run != b.run)


def _like(a: _Submission, b: _Submission) -> bool:
    """Of about one size, where both are known."""
    small, large = sorted((a.size, b.size))
    return not small or large <= SIZE_RATIO * small


def _run(submissions: Sequence[_Submission]) -> Run:
    given = sorted({s.run for s in submissions if s.run})
    name = given[0] if given else stem(label(submissions[0].first)) if len(submissions) > 1 else ""
    name = name or label(submissions[0].first) or submissions[0].first.array or submissions[0].first.job
    lanes: list[list[_Submission]] = []
    for submission in sorted(submissions, key=lambda s: began(s.first)):
        free = [lane for lane in lanes if _follows(lane[-1], submission)]
        lane = next((lane for lane in free if lane[-1].key == submission.key), free[0] if free else None)
        if lane is None:
            lanes.append([submission])
        else:
            lane.append(submission)
    by: Literal["name", "accounting", "job"] = "name" if given else "accounting" if len(submissions) > 1 else "job"
    return Run(name, by, tuple(_lane(lane) for lane in lanes))


def _follows(before: _Submission, after: _Submission) -> bool:
    start = after.first.start if after.first.start is not None else math.inf
    return before.end <= start + OVERLAP_S


def _lane(submissions: Sequence[_Submission]) -> Lane:
    attempts: list[AttemptFacts] = []
    links: list[LinkKind] = []
    for submission in submissions:
        if attempts:
            links.append("resubmit")
        for _ in submission.attempts[1:]:
            links.append("requeue")
        attempts += submission.attempts
    return Lane(tuple(attempts), tuple(links))


def _told_apart(runs: Sequence[Run]) -> list[Run]:
    """Runs that go by one name get the first job's id after it, all but a single one that its training named."""
    shared: defaultdict[str, list[Run]] = defaultdict(list)
    for run in runs:
        shared[run.name].append(run)
    return [
        run
        if len(shared[run.name]) == 1 or (run.by == "name")
        else Run(f"{run.name} ({run.attempts[0].array or run.attempts[0].job})", run.by, run.lanes)
        for run in runs
    ]
