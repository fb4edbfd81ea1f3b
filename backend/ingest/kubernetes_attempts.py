"""Pods and their owners become attempts: which pods are one attempt, when the next one began, how one ended.

A controller's own count of restarts is the number (JobSet, RayJob, Volcano). Where there is none, an attempt ends when
a pod of the job is begun anew, in place or by another pod in its slot; what follows within GATHER_S in the other slots
belongs to the same restart. What was concluded is kept as marks, so that a restart of Watchkeeper counts nothing twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from backend.clients.kubernetes_json import whole
from backend.clients.kubernetes_pods import LOOSE, Pod
from backend.clients.kubernetes_work import Owner, Verdict, verdict_of
from backend.facts import AttemptFacts

#: The pods of one restart are begun anew within this time of each other, s: the ranks that are left time out by and by.
GATHER_S = 180.0
#: Times of the API have whole seconds.
ROUNDING_S = 1.5
#: Log files that are named for one attempt; a job of ten thousand ranks names those of its first ones.
MOST_OUTPUTS = 256
SOURCE = "kubernetes"
#: Kinds whose restart makes the objects between them and their pods anew.
RENEWED = frozenset({"JobSet", "RayJob", "LeaderWorkerSet"})


@dataclass(slots=True)
class Life:
    """What is remembered of one job. slots: place to "uid:lives". moved: slots that were begun anew in this attempt.

    count: the controller's own count; where it has none and pods have random names, failures that no pod has followed
    yet. start: fixed once it is known.
    """

    unit: str
    restart: int = 0
    begin: float = 0.0
    start: float | None = None
    slots: dict[str, str] = field(default_factory=dict)
    moved: set[str] = field(default_factory=set)
    count: int = 0
    over: bool = False
    last: AttemptFacts | None = None

    def mark(self) -> str:
        kept = [self.unit, self.restart, self.begin, self.start, self.slots, sorted(self.moved), self.count, self.over]
        return json.dumps(kept, separators=(",", ":"))


def life_of(mark: str) -> Life | None:
    """What a mark says; None for one that another release wrote."""
    try:
        unit, restart, begin, start, slots, moved, count, over = json.loads(mark)
        return Life(str(unit), int(restart), float(begin), start, dict(slots), set(moved), int(count), bool(over))
    except (ValueError, TypeError):
        return None


@dataclass(frozen=True, slots=True)
class Work:
    """One job as it is now: its pods, those that just went, and the object that owns them (None = not readable)."""

    job: str
    pods: Sequence[Pod]
    gone: Sequence[Pod] = ()
    owner: Owner | None = None


@dataclass(frozen=True, slots=True)
class Room:
    """What is known of nodes and claims: GPUs of each node, and GPU indices of each claim (namespace/name)."""

    gpus: Mapping[str, int]
    claims: Mapping[str, tuple[int, ...]]


class Lives:
    """All jobs that are remembered."""

    def __init__(self) -> None:
        self._lives: dict[str, Life] = {}
        self._kept: dict[str, str] = {}

    def resume(self, marks: Mapping[str, str]) -> None:
        found = {job: life for job, mark in marks.items() if (life := life_of(mark)) is not None}
        self._lives, self._kept = found, {job: marks[job] for job in found}

    def knows(self, job: str) -> bool:
        return job in self._lives

    def follow(self, works: Sequence[Work], room: Room, now: float) -> list[AttemptFacts]:
        """The attempts of now, those that ended since the last time, and those of jobs that are gone."""
        told: list[AttemptFacts] = []
        for work in works:
            if work.pods or work.owner is not None:
                told += self._one(work, room, now)
        there = {work.job for work in works if work.pods or work.owner is not None}
        gone = {work.job: work.gone for work in works}
        for job in [job for job in self._lives if job not in there]:
            told += _vanished(job, self._lives.pop(job), gone.get(job, ()), now)
        return told

    def marks(self) -> dict[str, str | None]:
        """What changed since the last call."""
        now = {job: life.mark() for job, life in self._lives.items()}
        moved: dict[str, str | None] = {job: mark for job, mark in now.items() if self._kept.get(job) != mark}
        moved |= {job: None for job in self._kept if job not in now}
        self._kept = now
        return moved

    def _one(self, work: Work, room: Room, now: float) -> Iterator[AttemptFacts]:
        pods = current(work.pods)
        unit = unit_of(work)
        life = self._lives.get(work.job)
        if life is None or (unit and life.unit and life.unit != unit):
            if life is not None:
                yield from _vanished(work.job, life, work.gone, now)
            life = self._lives[work.job] = _first_sight(unit, work, pods)
        else:
            yield from _restarted(life, work, pods, now)
        life.unit = life.unit or unit
        facts = _facts(life, work, _of_attempt(life, pods), room, now)
        life.over, life.last = facts.end is not None, facts
        yield facts


# --- which pods are one attempt -------------------------------------------------------------------------------------


def unit_of(work: Work) -> str:
    """The uid of what was submitted; it stays through restarts."""
    if work.owner is not None:
        return work.owner.uid
    kinds = {pod.kind for pod in work.pods}
    if kinds <= LOOSE:
        return next((pod.uid for pod in work.pods), "")
    owners = {pod.owner_uid for pod in work.pods}
    return owners.pop() if len(owners) == 1 and not kinds & RENEWED else ""


def current(pods: Sequence[Pod]) -> list[Pod]:
    """The newest pod of each slot, of the controller's latest attempt where it counts."""
    latest = max((pod.attempt for pod in pods if pod.attempt is not None), default=None)
    mine = [pod for pod in pods if latest is None or pod.attempt in (None, latest)]
    newest: dict[str, Pod] = {}
    for pod in sorted(mine, key=lambda pod: (pod.created or 0.0, pod.uid)):
        newest[pod.slot] = pod
    return sorted(newest.values(), key=lambda pod: pod.name)


def _of_attempt(life: Life, pods: Sequence[Pod]) -> list[Pod]:
    """Without those of earlier attempts that a Job keeps: with random names, only their age tells."""
    if not (life.restart and _unslotted(pods)):
        return list(pods)
    return [pod for pod in pods if _alive(pod) or (pod.created or 0.0) >= life.begin - ROUNDING_S]


def _alive(pod: Pod) -> bool:
    """It runs, or will. One that is being deleted is as good as gone: on a node that died it stays so for ever."""
    return not pod.over and not pod.deleting


def counted(work: Work) -> int | None:
    """How often the controller says that it began the job anew; None where it does not count that."""
    said = [pod.attempt for pod in work.pods if pod.attempt is not None]
    if work.owner is not None and work.owner.restarts is not None:
        said.append(work.owner.restarts)
    return max(said) if said else None


def _unslotted(pods: Sequence[Pod]) -> bool:
    """Pods of a Job without indices have random names: nothing says which one takes over from which."""
    return any(pod.kind == "Job" and pod.slot == pod.name for pod in pods)


def _failures(work: Work) -> int:
    return max(work.owner.failed if work.owner else 0, sum(pod.phase == "Failed" for pod in work.pods))


def _slots(pods: Sequence[Pod]) -> dict[str, str]:
    """What each slot holds. Of pods with random names those that ended well are left out, and those that failed hold
    nothing: nobody takes their place under that name."""
    if not _unslotted(pods):
        return {pod.slot: f"{pod.uid}:{pod.lives}" for pod in pods}
    kept = (pod for pod in pods if pod.phase != "Succeeded")
    return {pod.slot: f"{pod.uid}:{pod.lives}" if _alive(pod) else "" for pod in kept}


def _first_sight(unit: str, work: Work, pods: Sequence[Pod]) -> Life:
    """A job that nobody remembers: its number is what its controller counts, else what its pods have been through."""
    alive = [pod for pod in pods if _alive(pod)]
    count = counted(work)
    if count is not None:
        restart = count
    elif _unslotted(pods):
        restart = min(_failures(work), 1) if len(alive) > 1 else max(0, _failures(work) - (not alive))
        count = 0 if alive else 1  # a failure whose next pod is still to come
    else:
        before = [sum(one.slot == pod.slot and one.uid != pod.uid for one in work.pods) for pod in pods]
        restart = max((pod.lives + earlier for pod, earlier in zip(pods, before, strict=True)), default=0)
    begins = sorted((pod.began for pod in alive or pods if pod.began is not None), reverse=True)
    begin = min(begins, default=0.0)
    if restart:
        begin = begins[0] if begins else 0.0
        for earlier in begins:
            begin = earlier if begin - earlier <= GATHER_S else begin
    moved = {pod.slot for pod in pods if restart and (pod.began or 0.0) >= begin - ROUNDING_S}
    return Life(unit, restart, begin, None, _slots(pods), moved, count or 0)


def _restarted(life: Life, work: Work, pods: Sequence[Pod], now: float) -> Iterator[AttemptFacts]:
    """Moves the life on where the job was begun anew; gives the attempt that ended by it."""
    moved, times = _moved(life, work, pods)
    slots = life.slots
    life.slots = _slots(pods) if _unslotted(pods) else slots | _slots(pods)
    if not times:
        return
    begins = [pod.began for pod in pods if pod.slot in moved and pod.began is not None]
    begin = min(begins, default=now)
    if counted(work) is None and not _unslotted(pods):
        again = moved & life.moved
        if not again and begin <= life.begin + GATHER_S and life.restart and not life.over:
            life.moved |= moved
            return
    mine = (*work.gone, *_of_attempt(life, work.pods))
    before = [p for p in mine if p.slot not in moved or p.lives or slots.get(p.slot) == f"{p.uid}:{p.lives}"]
    yield _replaced(life, work, verdict_of([_since(pod, life.start) for pod in before]), begin)
    count = counted(work)
    life.restart = max(count, life.restart + 1) if count is not None else life.restart + times
    life.begin, life.start, life.moved, life.last = begin, None, set(moved), None


def _moved(life: Life, work: Work, pods: Sequence[Pod]) -> tuple[set[str], int]:
    """(slots that were begun anew since, how often at most)."""
    count, alive = counted(work), [pod for pod in pods if _alive(pod)]
    new = {pod.slot for pod in alive if pod.slot not in life.slots}
    if count is not None:
        before, life.count = life.count, max(life.count, count)
        if count > before:
            return {pod.slot for pod in pods}, count - before
    elif _unslotted(pods):
        life.count += len(_broken(life, pods))
        lived = {pod.slot for pod in alive if _lived(life.slots.get(pod.slot, ""), pod)}
        if lived or (new and life.count):
            often, life.count = (life.count, 0) if len(alive) == 1 else (1, max(0, life.count - len(new)))
            return new | lived, max(1, often)
    else:
        times = {pod.slot: _lived(life.slots[pod.slot], pod) for pod in pods if pod.slot in life.slots}
        if any(times.values()):
            return {slot for slot, often in times.items() if often}, max(times.values())
        if new and len(new) == len(alive) and life.start is not None:  # pods of random names, all of them replaced
            return new, 1
    again = new | {pod.slot for pod in alive if life.slots.get(pod.slot) != f"{pod.uid}:{pod.lives}"}
    return (again, 1) if life.over and again else (set(), 0)


def _broken(life: Life, pods: Sequence[Pod]) -> set[str]:
    """Pods of random names that failed, or were deleted while they ran, since the last time."""
    now = {pod.slot: pod.phase if pod.over or _alive(pod) else "Failed" for pod in pods}
    ended = {slot for slot, held in life.slots.items() if held and now.get(slot, "Failed") == "Failed"}
    return ended | {slot for slot, phase in now.items() if phase == "Failed" and slot not in life.slots}


def _lived(known: str, pod: Pod) -> int:
    """How often the slot was begun anew since ``known``."""
    uid, _, lives = known.partition(":")
    if not known:
        return 0
    if uid != pod.uid:
        return 1 + pod.lives
    return max(0, pod.lives - (whole(lives) or 0))


def _since(pod: Pod, start: float | None) -> Pod:
    """The pod with only those ends that belong to the attempt that began at ``start``."""
    ends = tuple(e for e in pod.ends if not e.before or start is None or e.at is None or e.at >= start - ROUNDING_S)
    return replace(pod, ends=ends)


# --- facts ----------------------------------------------------------------------------------------------------------


def _bare(job: str, life: Life) -> AttemptFacts:
    """The attempt, when only a mark remembers it."""
    name = job.partition(".")[2]
    return AttemptFacts(job, life.restart, run=name, start=life.start, unit=life.unit, name=name, source=SOURCE)


def _replaced(life: Life, work: Work, verdict: Verdict, begin: float) -> AttemptFacts:
    last = life.last or _bare(work.job, life)
    if last.end is not None:
        return last
    ended = verdict.at if verdict.at is not None and verdict.at <= begin else begin
    told = replace(last, state=verdict.state or "REQUEUED", end=max(ended, last.start or 0.0))
    return _with(told, verdict)


def _vanished(job: str, life: Life, gone: Sequence[Pod], now: float) -> Iterator[AttemptFacts]:
    """A job whose objects were deleted: over before, or ended by that."""
    if life.over:
        return
    verdict = verdict_of(list(gone))
    last = life.last or _bare(job, life)
    done = bool(gone) and all(pod.phase == "Succeeded" for pod in gone)
    state = "COMPLETED" if done else verdict.state or "CANCELLED"
    deleted = "deleted while it ran" if last.start is not None else "deleted before it began"
    reason = "" if done else verdict.reason or deleted
    yield replace(_with(replace(last, state=state, end=now), verdict), reason=reason)


def _with(told: AttemptFacts, verdict: Verdict) -> AttemptFacts:
    code, signal = verdict.exit_code, verdict.signal
    return replace(told, exit_code=code, signal=signal, reason=verdict.reason[:300]) if verdict.state else told


def _facts(life: Life, work: Work, pods: Sequence[Pod], room: Room, now: float) -> AttemptFacts:
    """The present attempt of a job."""
    first, owner = (pods[0] if pods else None), work.owner
    state, verdict, end = _state(life, work, pods, now)
    mine = [pod for pod in pods if not life.moved or pod.slot in life.moved]
    started = [pod.started for pod in mine if pod.started is not None and pod.node]
    if life.start is None and started:
        life.start = min(started)
    submit = owner.created if owner else min((p.created for p in pods if p.created is not None), default=None)
    waits = state == "PENDING"
    asked = life.begin or submit
    holding = [pod for pod in pods if pod.node]
    name = first.run if first else work.job.partition(".")[2]
    told = AttemptFacts(
        job=work.job,
        restart=life.restart,
        run=name,
        user=next((pod.user for pod in pods if pod.user), ""),
        state=state,
        submit=asked if life.restart else submit,
        eligible=asked if life.restart else min((p.created for p in pods if p.created is not None), default=None),
        start=None if waits else life.start,
        end=end,
        nodes=() if waits else tuple(sorted({pod.node for pod in holding})),
        gpus_per_node=max(_per_node(holding).values(), default=0),
        excluded=first.excluded if first else (),
        unit=life.unit,
        name=name,
        partition=next((pod.queue for pod in pods if pod.queue), ""),
        account=work.job.partition(".")[0],
        gpus=() if waits else tuple(_indices(holding, room)),
        roles=tuple(sorted({(pod.node, pod.role) for pod in holding if pod.role})),
        reason=owner.reason if owner and end is not None and not verdict.reason else "",
        limit_s=(owner.limit_s if owner else None) or (first.limit_s if first else None),
        outputs=tuple(sorted({path for pod in holding for path in pod.outputs}))[:MOST_OUTPUTS],
        source=SOURCE,
    )
    told = _with(told, verdict) if end is not None else told
    return replace(told, exit_code=0) if state == "COMPLETED" else told


def _state(life: Life, work: Work, pods: Sequence[Pod], now: float) -> tuple[str, Verdict, float | None]:
    """(state in Slurm's words, what failed first, when it ended)."""
    owner = work.owner
    verdict = verdict_of([_since(pod, life.start) for pod in (*pods, *work.gone)])
    ends = [pod.ended for pod in pods if pod.ended is not None]
    if owner is not None and owner.state:
        state = verdict.state if owner.state == "FAILED" and verdict.state else owner.state
        failed = verdict if owner.state != "COMPLETED" else Verdict("")
        return state, failed, owner.ended or max(ends, default=now)
    if any(pod.node and not pod.over for pod in pods):
        return "RUNNING", verdict, None
    if pods and all(pod.over for pod in pods):
        done = all(pod.phase == "Succeeded" for pod in pods)
        if done and owner is not None:
            return "RUNNING", verdict, None  # its controller says that there is more to do
        state = "COMPLETED" if done else verdict.state or "FAILED"
        return state, Verdict("") if done else verdict, max(ends, default=now)
    if life.start is not None and not any(not pod.over for pod in pods):  # it ran, and its pods are gone
        before = life.last.end if life.last is not None and life.over else None
        state = "PREEMPTED" if owner is not None and owner.suspended else verdict.state or "REQUEUED"
        return state, verdict, before or now
    return "PENDING", Verdict(""), None


def _per_node(pods: Sequence[Pod]) -> dict[str, int]:
    found: dict[str, int] = {}
    for pod in pods:
        found[pod.node] = found.get(pod.node, 0) + pod.gpus
    return found


def _indices(pods: Sequence[Pod], room: Room) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Which GPUs on each node: as claims or annotations say, or all of them where the job holds all of them."""
    for node, held in sorted(_per_node(pods).items()):
        here = [pod for pod in pods if pod.node == node]
        said = {index for pod in here for index in pod.indices}
        said |= {index for pod in here for claim in pod.claims for index in _claimed(pod, claim, room)}
        there = room.gpus.get(node, 0)
        if said:
            yield node, tuple(sorted(said))
        elif there and held >= there:
            yield node, tuple(range(there))


def _claimed(pod: Pod, claim: str, room: Room) -> tuple[int, ...]:
    return room.claims.get(f"{pod.namespace}/{claim}", ())
