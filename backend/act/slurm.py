"""The hand on Slurm: drains, resumes, requeues and reboots, each read before and after, never over another's drain.

Between our last read and Slurm's answer to the call another owner may act: Slurm has no conditional update. That
window is one command wide; each Outcome carries an upper bound of it as ``window_ms`` (about 30 ms on an idle
controller). The read after the call tells who stands in the reason then, so a clash is seen, and it is never undone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime

from backend.act.base import ActionError, owner_of, unable
from backend.clients.hostlist import render
from backend.clients.slurm import SlurmError
from backend.clients.slurm_records import Job, holders
from backend.clients.slurm_surface import Slurm
from backend.clock import Clock
from backend.facts import SCHEDULES, NodeFacts, OrderFacts, Outcome, Verb

#: Reasons that Slurm itself writes on a node that went down: a state, nobody's decision (man slurm.conf).
SLURMS_OWN = ("not responding", "node unexpectedly rebooted")
#: How often it is asked whether nodes can be rebooted, s.
ASK_AGAIN_S = 600.0
#: Boot times closer than this are of one boot, s.
SAME_BOOT_S = 60.0
_INCIDENT = re.compile(r"\binc=(\d+)\b")


class SlurmBackend:
    """A ClusterBackend over Slurm, by its commands or slurmrestd. Keeps no memory: state and witness tell what was
    done."""

    def __init__(self, cli: Slurm, clock: Clock) -> None:
        self._cli = cli
        self._clock = clock
        self._asked: datetime | None = None
        self._reboots = False

    @property
    def name(self) -> str:
        return "slurm"

    @property
    def can(self) -> frozenset[Verb]:
        """Reboots only where slurm.conf names a RebootProgram; asked again now and then."""
        now = self._clock.now()
        if self._asked is None or abs((now - self._asked).total_seconds()) > ASK_AGAIN_S:
            self._asked = now
            with suppress(SlurmError):  # a controller that does not answer keeps what was known
                self._reboots = self._cli.reboots()
        return SCHEDULES | {Verb.REBOOT} if self._reboots else SCHEDULES

    def inventory(self) -> Sequence[NodeFacts]:
        with _asking():
            held = holders(self._cli.jobs())
            return [replace(n, jobs=held.get(n.name, ())) for n in self._cli.nodes()]

    def read(self, node: str) -> NodeFacts:
        with _asking():
            return self._cli.node(node)

    def witness(self, order: OrderFacts) -> dict[str, str]:
        """drain, resume: the drain and its reason. requeue: restart count, state and start of the job."""
        if order.verb is Verb.REQUEUE:
            attempt = self._job(order).attempt
            return {"restart": str(attempt.restart), "state": attempt.state, "start": f"{attempt.start or 0:.0f}"}
        node = self.read(order.node)
        return {
            "drain": str("DRAIN" in node.flags).lower(),
            "reason": node.reason,
            "boot_at": f"{node.boot_at or 0:.0f}",
        }

    def perform(self, order: OrderFacts) -> Outcome:
        match order.verb:
            case Verb.DRAIN:
                return self._drain(order)
            case Verb.RESUME:
                return self._resume(order)
            case Verb.REQUEUE:
                return self._requeue(order)
            case Verb.REBOOT:
                return self._reboot(order)
            case _:
                raise unable(self.name, order.verb)

    def settle(self, order: OrderFacts) -> Outcome | None:
        if order.verb is Verb.REQUEUE:
            return self._settle_requeue(order)
        node = self.read(order.node)
        if order.verb is Verb.REBOOT:
            return _settle_reboot(node, order)
        mine = _meant(node, order)
        drains = "DRAIN" in node.flags
        if drains and not mine:
            raise ActionError(f"{_holder(node)}; whether our {order.verb} came first, nothing can tell", permanent=True)
        if order.verb is Verb.DRAIN:
            return Outcome(True, f"{_after(node)} Read after a restart: the drain had been sent.") if drains else None
        return None if drains else Outcome(True, f"{node.name} is not drained. Read after a restart.")

    # --- drain and resume -------------------------------------------------------------------------------------------

    def _drain(self, order: OrderFacts) -> Outcome:
        if owner_of(order.reason) != "watchkeeper":
            raise ActionError(f"a drain without our tag could never be lifted: {order.reason!r}", permanent=True)
        at = self._clock.now()
        before = self.read(order.node)
        _refuse_foreign(before)
        if "DRAIN" in before.flags and _meant(before, order):
            return Outcome(False, f"{_after(before)} It was already so.", {"reason": before.reason})
        with _asking():
            way = self._cli.drain(order.node, order.reason)
        window = self._window(at)
        after = self.read(order.node)
        if "DRAIN" not in after.flags:
            raise ActionError(f"Slurm took the drain of {order.node}, but does not show it")
        if after.reason != order.reason:
            raise ActionError(f"{_holder(after)}, in the same moment as ours; left as it is", permanent=True)
        return Outcome(True, _after(after), {"reason": after.reason, "window_ms": window} | _by(way))

    def _resume(self, order: OrderFacts) -> Outcome:
        at = self._clock.now()
        before = self.read(order.node)
        if "DRAIN" not in before.flags:
            return Outcome(False, f"{order.node} is not drained. It was already so.")
        if not _meant(before, order):
            raise ActionError(f"{_holder(before)}; Watchkeeper lifts only its own drain", permanent=True)
        way = ""
        try:
            way = self._cli.resume(order.node)
        except SlurmError as refused:
            if "DRAIN" in self.read(order.node).flags:  # else somebody was faster: "Invalid node state"
                raise ActionError(str(refused), permanent=refused.permanent) from refused
        window = self._window(at)
        after = self.read(order.node)
        if "DRAIN" in after.flags:
            if _ours(after):
                raise ActionError(f"Slurm took the resume of {order.node}, but still shows the drain")
            raise ActionError(f"{_holder(after)}, in the same moment as our resume; left as it is", permanent=True)
        works = f"but Slurm calls it {after.state}: {after.reason or 'no reason'}" if after.out else "and takes work"
        return Outcome(True, f"{order.node} is no longer drained, {works}.", {"window_ms": window} | _by(way))

    # --- reboot -----------------------------------------------------------------------------------------------------

    def _reboot(self, order: OrderFacts) -> Outcome:
        at = self._clock.now()
        before = self.read(order.node)
        if _booted_since(before, order):
            return Outcome(False, f"{order.node} has been rebooted since this was asked for. It was already so.")
        if _reboots_now(before):
            return Outcome(False, f"{order.node} is being rebooted already.", {"state": before.state})
        if "DRAIN" not in before.flags or not _ours(before):
            raise ActionError(f"{_holder(before)}; Watchkeeper reboots only what it drained", permanent=True)
        if before.jobs:
            raise ActionError(f"job {', '.join(before.jobs)} still runs on {order.node}; it is not rebooted")
        with _asking():
            way = self._cli.reboot(order.node)
        told = {"window_ms": self._window(at), "boot_at": f"{before.boot_at or 0:.0f}"}
        return Outcome(True, f"{order.node} restarts by Slurm's RebootProgram and stays drained.", told | _by(way))

    # --- requeue ----------------------------------------------------------------------------------------------------

    def _requeue(self, order: OrderFacts) -> Outcome:
        at = self._clock.now()
        known = _known_restart(order)
        with _asking():
            job = self._cli.job(order.job)
        if job is None:
            return Outcome(False, f"Job {order.job} has ended and Slurm forgot it. Nothing is left to requeue.")
        idle = self._nothing_to_requeue(order, job, known)
        if idle is not None:
            return idle
        _refuse_requeue(job, order.exclude)
        with _asking():
            way = self._cli.requeue(order.job)
        window = self._window(at)
        avoids = self._avoid(order, job)
        after = self._job(order).attempt
        if after.restart <= known:
            raise ActionError(f"Slurm took the requeue of job {order.job}, but its restart count stays {after.restart}")
        told = {"restart": str(after.restart), "state": after.state, "window_ms": window}
        return Outcome(True, f"Job {order.job} is queued again{avoids}.", told | _by(way))

    def _nothing_to_requeue(self, order: OrderFacts, job: Job, known: int) -> Outcome | None:
        """The outcome where the job needs no requeue any more; None where it does. Never revives an ended job."""
        attempt = job.attempt
        restarted = attempt.restart > known
        told = {"restart": str(attempt.restart), "state": attempt.state}
        if job.waits or (restarted and attempt.state == "COMPLETING"):
            lacking = set(order.exclude) - set(attempt.excluded)
            avoids = self._avoid(order, job) if lacking else ""
            return Outcome(bool(lacking), f"Job {order.job} was already queued again{avoids}.", told)
        if restarted:
            return Outcome(False, f"Job {order.job} restarted before this; it runs on {render(attempt.nodes)}.", told)
        if not job.holds or attempt.state == "COMPLETING":
            return Outcome(False, f"Job {order.job} has ended ({attempt.state}). Nothing is left to requeue.", told)
        if order.node and order.node not in attempt.nodes:
            return Outcome(False, f"Job {order.job} does not run on {order.node} any more. It goes on.", told)
        return None

    def _avoid(self, order: OrderFacts, job: Job) -> str:
        """Adds the order's nodes to those the waiting job avoids; says so, or why not: the requeue itself stands."""
        wanted = [*job.attempt.excluded, *order.exclude]
        if not order.exclude:
            return ""
        try:
            self._cli.exclude(order.job, wanted)
        except SlurmError as refused:
            return f", but Slurm would not let it avoid {render(order.exclude)} ({refused})"
        return f" and will not get {render(order.exclude)}"

    def _settle_requeue(self, order: OrderFacts) -> Outcome | None:
        known = _known_restart(order)
        attempt = self._job(order).attempt
        if attempt.restart <= known:
            return None
        lacking = set(order.exclude) - set(attempt.excluded)
        avoids = f" It may still get {render(lacking)}." if lacking else ""
        told = {"restart": str(attempt.restart), "state": attempt.state}
        return Outcome(True, f"Job {order.job} was queued again before the restart of Watchkeeper.{avoids}", told)

    def _job(self, order: OrderFacts) -> Job:
        with _asking():
            job = self._cli.job(order.job)
        if job is None:
            raise ActionError(f"Slurm knows no job {order.job}: it ended long ago, or never was", permanent=True)
        return job

    def _window(self, since: datetime) -> str:
        return f"{(self._clock.now() - since).total_seconds() * 1000:.0f}"


@contextmanager
def _asking() -> Iterator[None]:
    """Slurm's errors, as this border names them."""
    try:
        yield
    except SlurmError as failed:
        raise ActionError(str(failed), permanent=failed.permanent) from failed


def _by(way: str) -> dict[str, str]:
    """By which other way a call went, and why, where it did."""
    return {"way": way} if way else {}


def _reboots_now(node: NodeFacts) -> bool:
    return any(flag.startswith("REBOOT") for flag in node.flags)


def _booted_since(node: NodeFacts, order: OrderFacts) -> bool:
    """By the boot times that slurmd tells; counted back from the uptime, they may differ by some seconds."""
    before = float(order.witness.get("boot_at") or 0)
    return bool(before and node.boot_at and node.boot_at > before + SAME_BOOT_S)


def _settle_reboot(node: NodeFacts, order: OrderFacts) -> Outcome | None:
    """A newer boot, or a reboot under way, proves that it was sent. Where no boot time is told, nothing can."""
    if _booted_since(node, order) or _reboots_now(node) or "reboot" in node.reason.lower():
        return Outcome(True, f"{node.name} was rebooted, or is about to be. Read after a restart.")
    if not node.boot_at or not float(order.witness.get("boot_at") or 0):
        raise ActionError(f"Slurm does not tell when {node.name} booted; nothing can tell", permanent=True)
    return None


def _ours(node: NodeFacts) -> bool:
    return owner_of(node.reason) == "watchkeeper"


def _meant(node: NodeFacts, order: OrderFacts) -> bool:
    """Does the node carry the drain that this order's reason names? That is the incident which asked for the drain; a
    resume may come from one that inherited the node since."""
    on_node, named = _INCIDENT.search(node.reason), _INCIDENT.search(order.reason)
    return _ours(node) and on_node is not None and named is not None and on_node[1] == named[1]


def _holder(node: NodeFacts) -> str:
    """Who took the node out and why, as the start of a sentence."""
    word = "drained" if node.flags & {"DRAIN", "FAIL"} else node.state
    return f"{node.name} is {word} by {node.reason_owner or 'someone'} ({node.reason or 'no reason given'})"


def _refuse_foreign(node: NodeFacts) -> None:
    """A drain would overwrite another's reason, and our resume would then lift another's drain: neither may be."""
    if _ours(node):
        return
    decided = node.state in ("down", "error") and node.reason and not node.reason.lower().startswith(SLURMS_OWN)
    if node.flags & {"DRAIN", "FAIL"} or decided:
        raise ActionError(f"{_holder(node)}; Watchkeeper leaves it alone", permanent=True)


def _after(node: NodeFacts) -> str:
    """A drained node in one sentence."""
    if node.drained:
        return f"{node.name} is drained; nothing runs there."
    runs = f"job {', '.join(node.jobs)} still runs there" if node.jobs else "its last work is ending"
    return f"{node.name} takes no new work; {runs}."


def _known_restart(order: OrderFacts) -> int:
    text = order.witness.get("restart", "")
    if not text.isdigit():
        raise ActionError(f"no restart count of job {order.job} was kept before the call", permanent=True)
    return int(text)


def _refuse_requeue(job: Job, exclude: Sequence[str]) -> None:
    name = job.attempt.job
    insisted = set(exclude) & set(job.required)
    if insisted:
        fix = "Ask its owner to submit it without --nodelist."
        raise ActionError(
            f"Job {name} insists on {render(insisted)}; queued again, it would wait for ever. {fix}", permanent=True
        )
    if not job.batch:
        fix = "Ask its owner to end it and start it again."
        raise ActionError(f"Job {name} is interactive, and Slurm requeues only batch jobs. {fix}", permanent=True)
    if not job.may_requeue:
        fix = f"Allow it with `scontrol update JobId={name} Requeue=1`, then approve again."
        raise ActionError(f"Job {name} was submitted as not to be requeued. {fix}", permanent=True)
