"""What a launcher should do with a job now: let it run, start it again, wait or stop; on which nodes not, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from backend.decide.recovery import Restart

Action = Literal["run", "restart", "wait", "stop", "done"]

#: Failures in a row by the same cause, or by none that is known, after which trying again helps nobody. ByteRobust
#: (arXiv 2509.16293) stops to localise where a restart met the same failure again; a scheduler's own habit is three.
TRIES = 3
#: States of an attempt that waits, that runs, and that ended as its owner wanted.
WAITS = frozenset({"PENDING", "CONFIGURING"})
RUNS = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "STAGE_OUT"})
WANTED = frozenset({"COMPLETED", "CANCELLED", "DEADLINE", "TIMEOUT", "REVOKED"})
#: What many jobs share: while it is broken, other nodes help nobody.
SHARED = frozenset({"cluster", "switch", "mount", "fs", "link"})


@dataclass(frozen=True, slots=True)
class Trouble:
    """An incident that matters to the job. ``shared``: other nodes would meet it, too; ``live``: it is not over."""

    incident: int
    kind: str
    headline: str
    shared: bool
    live: bool


@dataclass(frozen=True, slots=True)
class Known:
    """What advice rests on. state: of its newest attempt, "" = not known. whose: of the verdict on its logs (hardware,
    yours, platform, none, unknown, "" = no verdict); resubmit: that verdict's word (yes, changed ...). in_a_row:
    attempts that failed one after the other, up to the newest. breaker: why everything
    stands still, "" = it does not."""

    state: str
    whose: str
    said: str
    resubmit: str
    in_a_row: int
    troubles: tuple[Trouble, ...]
    breaker: str
    restart: Restart | None
    out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Advised:
    action: Action
    sentence: str
    why: tuple[str, ...]


def advise(known: Known) -> Advised:
    """The first that holds, most certain first; every reason is told, the deciding one first."""
    machines = [t for t in known.troubles if not t.shared]
    shared = [t for t in known.troubles if t.shared and t.live]
    why = [f"{t.headline} (incident {t.incident})" for t in known.troubles]
    why += [known.said] if known.said else []
    if known.state in RUNS:
        return Advised("run", "It runs. Let it run.", tuple(why))
    if known.state in WANTED:
        return Advised("done", f"It ended as {known.state}; nothing failed.", tuple(why))
    if known.breaker:
        return Advised("wait", "Wait: so much broke at once that nobody should start anything.", (known.breaker, *why))
    if shared:
        return Advised("wait", f"Wait: {_small(shared[0].headline)} Other nodes would meet it, too.", tuple(why))
    if known.state in WAITS:
        return Advised("wait", "It waits in the queue already; only its nodes to avoid may change.", tuple(why))
    if known.whose == "yours" and not machines:
        return Advised("stop", "Stop: its own code or settings failed, and would again.", tuple(why))
    if known.in_a_row >= TRIES and not machines:
        tries = f"{known.in_a_row} attempts in a row failed, and no machine is known to be at fault."
        return Advised("stop", "Stop: trying again did not help. Somebody should look.", (tries, *why))
    if known.resubmit == "changed" and not machines:
        return Advised("stop", "Stop: it would fail again unless something is changed.", tuple(why))
    where = f" Leave out {', '.join(known.out[:3])}{' and more' if known.out[3:] else ''}." if known.out else ""
    begin = f" {known.restart.text}" if known.restart is not None else ""
    doubt = "" if machines or known.whose in ("hardware", "platform") else " Why it failed is not known."
    return Advised("restart", f"Start it again now.{where}{begin}{doubt}", tuple(why))


def _small(text: str) -> str:
    return text if text[:2].isupper() else text[:1].lower() + text[1:]
