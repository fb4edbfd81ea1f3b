"""Which attempt a record speaks of, and what is known of it after several sources spoke. Facts in, facts out.

A live squeue record, a row of sacct, a pushed row and a pod tell the same attempt in different words, in any order,
some without its number. Two starts within SAME_S are one attempt, unless its source has counted on; so is the same
number with nothing against it.
An id that its scheduler gives anew begins a new life, whose restarts count from 0 again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Protocol

from backend.facts import AttemptFacts

#: States in which a job waits and holds no nodes (``man squeue``, JOB STATE CODES).
WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
#: States in which it is over.
OVER = frozenset(
    ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE")
    + ("OUT_OF_MEMORY", "LAUNCH_FAILED", "REVOKED", "RECONFIG_FAIL")
)
#: Schedulers round times to seconds, some up and some down.
SAME_S = 2.0
#: An id that is submitted again this long after its last attempt ended is somebody else's; within it, the scheduler has
#: not raised its restart count yet (Slurm forgets a job MinJobAge, 300 s, after its end, and cannot requeue it then).
REUSE_S = 1800.0

#: Told by each source or by none: what one leaves out, another may have said.
_FILLED = tuple(
    one.name
    for one in fields(AttemptFacts)
    if one.name not in ("job", "restart", "life", "state", "end", "nodes", "source")
)


Key = tuple[str, int, int]


class Keyed(Protocol):
    """Whatever belongs to an attempt."""

    @property
    def job(self) -> str: ...
    @property
    def life(self) -> int: ...
    @property
    def restart(self) -> int: ...


def key_of(one: Keyed) -> Key:
    return (one.job, one.life, one.restart)


def fold(known: Iterable[AttemptFacts], told: Iterable[AttemptFacts], now: float) -> list[AttemptFacts]:
    """What is known of each attempt that was told, or ended by it, in order of job, life and restart. ``known`` holds
    all attempts of these jobs; a later one of a life ends the earlier ones."""
    of_job: defaultdict[str, dict[Key, AttemptFacts]] = defaultdict(dict)
    for one in known:
        of_job[one.job][key_of(one)] = one
    touched: dict[Key, AttemptFacts] = {}
    for attempt in sorted(told, key=_order):
        mine = of_job[attempt.job]
        before = find(list(mine.values()), attempt)
        fresh = merged(before, attempt, now)
        fresh = fresh if before is not None else numbered(list(mine.values()), fresh)
        mine[key_of(fresh)] = touched[key_of(fresh)] = fresh
    for job in sorted({key[0] for key in touched}):
        line = in_line(of_job[job].values())
        for earlier, later in zip(line, line[1:], strict=False):
            if earlier.state not in OVER and earlier.end is None:
                touched[key_of(earlier)] = _requeued(earlier, later, now)
    return [touched[key] for key in sorted(touched)]


def in_line(attempts: Iterable[AttemptFacts]) -> list[AttemptFacts]:
    """The attempts of one job as they began, oldest first; what waits stands behind the others of its life. Numbers do
    not tell: one that nobody told was given as the attempts were met."""
    known = list(attempts)
    last: dict[int, float] = {}
    newest: dict[int, int] = {}
    for one in known:
        newest[one.life] = max(newest.get(one.life, 0), one.restart)
        last[one.life] = max(last.get(one.life, 0.0), one.start or 0.0)

    def place(one: AttemptFacts) -> tuple[float, bool, int, int]:
        waits = one.start is None and one.restart == newest[one.life]  # a lower number waits no more
        at = one.start if one.start is not None else (waits and last[one.life]) or _time(one) or 0.0
        return (at, waits, one.life, one.restart)

    return sorted(known, key=place)


def _order(attempt: AttemptFacts) -> tuple[str, float, int]:
    at = next((at for at in (attempt.start, attempt.submit, attempt.end) if at is not None), 0.0)
    return (attempt.job, at, attempt.restart)


def _requeued(earlier: AttemptFacts, later: AttemptFacts, now: float) -> AttemptFacts:
    """An attempt that gave way to ``later``; it ended when that was submitted, began, or at the latest now. How one
    ended whose id was given to another job nobody knows."""
    after = earlier.start or earlier.submit or 0.0
    marks = [at for at in (later.submit, later.start) if at is not None and at >= after]
    return replace(earlier, state="REQUEUED" if earlier.life == later.life else "UNKNOWN", end=min([now, *marks]))


def close(one: float | None, other: float | None) -> bool:
    """Both are told, and the same but for rounding."""
    return one is not None and other is not None and abs(one - other) <= SAME_S


def apart(one: float | None, other: float | None) -> bool:
    """Both are told, and not the same."""
    return one is not None and other is not None and abs(one - other) > SAME_S


def over(attempt: AttemptFacts) -> bool:
    """It will not run again under this number."""
    return attempt.state in OVER or (attempt.state in WAITING and attempt.start is not None and attempt.end is not None)


def find(known: Sequence[AttemptFacts], told: AttemptFacts) -> AttemptFacts | None:
    """The attempt among those of its job that ``told`` speaks of; None where it is a new one."""
    tests = (_same_unit, _same_start, _same_submit, _same_number, _not_numbered_yet)
    newest_first = list(reversed(in_line(known)))
    return next((one for same in tests for one in newest_first if same(one, told)), None)


def _same_unit(known: AttemptFacts, told: AttemptFacts) -> bool:
    """The scheduler's own id says so; one that stays with a job through its restarts needs the number, too."""
    named = bool(told.unit) and known.unit == told.unit
    return (
        named and not apart(known.start, told.start) and told.restart in (-1, known.restart) and not _began(known, told)
    )


def _same_start(known: AttemptFacts, told: AttemptFacts) -> bool:
    return close(known.start, told.start) and not _strangers(known, told) and not _counted_on(known, told)


def _counted_on(known: AttemptFacts, told: AttemptFacts) -> bool:
    """``told`` is a later restart by its own source, of a job that died as soon as it began. A higher number alone does
    not say so: ``known`` may have been numbered here."""
    if told.restart <= known.restart or known.source != told.source:
        return False
    ended = over(known) and known.end is not None and told.start is not None and told.start >= known.end - SAME_S
    return ended or bool(known.unit and known.unit == told.unit)


def _same_submit(known: AttemptFacts, told: AttemptFacts) -> bool:
    """A record without a number: the accounting has one a job and time of submission."""
    if told.restart >= 0 or not close(known.submit, told.submit) or _strangers(known, told):
        return False
    return not apart(known.start, told.start)


def _same_number(known: AttemptFacts, told: AttemptFacts) -> bool:
    """The same number, or none, and no time that speaks against it."""
    if (told.restart >= 0 and known.restart != told.restart) or _strangers(known, told):
        return False
    if apart(known.start, told.start):
        moved = not over(known) and close(known.submit, told.submit)  # it was still booting its nodes
        return moved and told.restart >= 0
    if apart(known.submit, told.submit):
        return told.restart >= 0 and known.start is None and not over(known) and not _before(told, known)
    if over(known) and known.start is None and told.start is not None:
        return close(known.submit, told.submit)
    return told.restart >= 0 or not over(known)


def _not_numbered_yet(known: AttemptFacts, told: AttemptFacts) -> bool:
    """We counted on before its scheduler did: the attempt has a higher number here than it is told with."""
    ahead = 0 <= told.restart < known.restart and close(known.submit, told.submit)
    return ahead and not over(known) and not apart(known.start, told.start) and not _strangers(known, told)


def _began(known: AttemptFacts, told: AttemptFacts) -> bool:
    """``told`` waits anew after ``known`` had begun."""
    return told.state in WAITING and told.start is None and known.start is not None and apart(known.submit, told.submit)


def _before(told: AttemptFacts, known: AttemptFacts) -> bool:
    """``told`` was over before ``known`` was submitted."""
    return told.end is not None and known.submit is not None and told.end < known.submit - SAME_S


def _strangers(known: AttemptFacts, told: AttemptFacts) -> bool:
    """Different people's jobs, or different things of the same source."""
    if known.user and told.user and known.user != told.user:
        return True
    units = known.unit and told.unit and known.unit != told.unit
    return bool(units) and known.source == told.source and known.restart == told.restart


def numbered(known: Sequence[AttemptFacts], told: AttemptFacts) -> AttemptFacts:
    """A new attempt with its life and its number among those of its job that are known."""
    if not known:
        return replace(told, restart=max(told.restart, 0))
    life = _life(known, told)
    mine = [one for one in known if one.life == life]
    if not mine:
        return replace(told, life=life, restart=max(told.restart, 0))
    taken = {one.restart for one in mine}
    if told.restart >= 0 and told.restart not in taken:
        return replace(told, life=life)
    return replace(told, life=life, restart=_free(mine, told))


def _free(mine: Sequence[AttemptFacts], told: AttemptFacts) -> int:
    """The number of an attempt by its time: one that nobody has between those before it and after it, else a new one.
    A scheduler that was seen to count on has told of attempts that only the accounting knows."""
    at, taken = _time(told), {one.restart for one in mine}
    earlier = [one.restart for one in mine if at is None or (when := _time(one)) is None or when <= at]
    later = [one.restart for one in mine if one.restart not in earlier]
    between = range(max(earlier, default=-1) + 1, min(later, default=0))
    return min((number for number in between if number not in taken), default=max(taken) + 1)


def _life(known: Sequence[AttemptFacts], told: AttemptFacts) -> int:
    """The life that a new attempt belongs to: the one of its time, the one after it, or one of its own."""
    at = _time(told)
    line = in_line(known)
    earlier = [one for one in line if at is None or (when := _time(one)) is None or when <= at + SAME_S]
    later = [one for one in line if one not in earlier]
    if earlier and not _anew([one for one in earlier if one.life == earlier[-1].life], told):
        return earlier[-1].life
    if later and _leads(told, [one for one in line if one.life == later[0].life]):
        return later[0].life
    lives = [one.life for one in line]
    return max(lives) + 1 if earlier else min(lives) - 1


def _leads(told: AttemptFacts, mine: Sequence[AttemptFacts]) -> bool:
    """``told`` is an attempt before those of a life that are known: soon before, and with a lower number."""
    if any(_strangers(one, told) for one in mine) or told.restart >= min(one.restart for one in mine):
        return False
    first = min((one.submit or one.start or 0.0 for one in mine), default=0.0)
    return told.restart >= 0 or (told.end is not None and first - told.end <= REUSE_S)


def _anew(mine: Sequence[AttemptFacts], told: AttemptFacts) -> bool:
    """Whether the id was given to somebody else since ``mine``, the attempts of a life before ``told``. Attempts that
    nobody told may lie between where its number leaves room for them."""
    if any(one.user and told.user and one.user != told.user for one in mine):
        return True
    highest = max(one.restart for one in mine)
    if told.restart > highest + 1:
        return False
    units = any(one.unit and told.unit and one.unit != told.unit and one.source == told.source for one in mine)
    if units and 0 <= told.restart <= highest:
        return True
    if not all(over(one) for one in mine) or told.submit is None:
        return False
    return told.submit > max(one.end or one.start or one.submit or 0.0 for one in mine) + REUSE_S


def _time(attempt: AttemptFacts) -> float | None:
    return next((at for at in (attempt.start, attempt.submit, attempt.eligible, attempt.end) if at is not None), None)


def merged(known: AttemptFacts | None, told: AttemptFacts, now: float) -> AttemptFacts:
    """What is known after ``told``. What it leaves out stays; an end is only where it is over, and never after now:
    schedulers also print when a job will have to end."""
    nodes = tuple(sorted(set(told.nodes)))
    if known is None:
        return replace(told, nodes=nodes, end=_end(told, None, now), state=told.state)
    more = {
        name: value for name in _FILLED if (value := getattr(told, name)) not in (None, "", ()) and name != "source"
    }
    for name in ("submit", "eligible", "start"):
        if close(getattr(known, name), getattr(told, name)):
            more.pop(name, None)  # the same moment, rounded in two ways
    for name in ("gpus_per_node", "asks_nodes"):
        if not getattr(told, name):
            more.pop(name, None)
    if over(known) and told.state not in OVER and (known.state in OVER or not over(told)):
        return replace(known, **{name: value for name, value in more.items() if not getattr(known, name)})
    if told.state in WAITING and told.start is None and known.start is not None:
        more.pop("submit", None)
        return replace(known, **more, state="REQUEUED", end=min(now, told.end or now), nodes=nodes or known.nodes)
    end = _end(told, known, now)
    return replace(known, **more, state=told.state, end=end, nodes=nodes or known.nodes)


def _end(told: AttemptFacts, known: AttemptFacts | None, now: float) -> float | None:
    if told.state not in OVER:
        return told.end if told.state in WAITING | {"UNKNOWN"} else None
    if known is not None and known.state in OVER and close(known.end, told.end):
        return known.end
    before = known.end if known is not None and known.state in OVER | {"UNKNOWN"} else None
    end = told.end if told.end is not None else before
    return min(end, now) if end is not None else now
