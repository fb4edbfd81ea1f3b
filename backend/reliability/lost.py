"""Lost time in GPU-hours and money: by cause, node, rack, switch, team, firmware; and what was held but stood idle."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from backend.facts import VersionFacts
from backend.reliability.account import Account, Accounts
from backend.reliability.cost import gpu_hours, gpus, name_of
from backend.reliability.exclusions import outage_spans
from backend.reliability.outcomes import failed_nodes
from backend.reliability.parts import Bounds, Part, exactly
from backend.reliability.spans import Spans, length, spans, within

Dimension = Literal["cause", "node", "rack", "switch", "team", "user", "firmware", "driver", "model", "partition"]
DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)

#: What a loss is counted under where nobody knows it.
NOT_KNOWN = "not known"
#: Parts in which an attempt holds its GPUs and nothing is computed, read or written: it waits for something.
IDLE: tuple[Part, ...] = ("startup", "hang", "teardown")


@dataclass(frozen=True, slots=True)
class Loss:
    """What one failure took: steps since the save, hang, and the way back of the next attempt. nodes: the culprit,
    else ()."""

    account: Account
    gpu_hours: Bounds
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lost:
    """The losses of one value of a dimension. money: GPU-hours times the price, None without one."""

    name: str
    failures: int
    gpu_hours: Bounds
    money: Bounds | None


def losses(accounts: Accounts, *, infra_only: bool = False) -> list[Loss]:
    """One row a failed attempt, in the order of the runs."""
    found: list[Loss] = []
    for run in accounts.runs:
        for lane in run.lanes:
            for account, following in zip(lane, (*lane[1:], None), strict=True):
                if account.failed and (account.verdict.infra is True or not infra_only):
                    found.append(Loss(account, _taken(account, following), culprits(account)))
    return found


def _taken(account: Account, following: Account | None) -> Bounds:
    taken = gpu_hours(account.parts["lost_since_checkpoint"] + account.parts["hang"], account)
    if following is None:
        return taken
    return taken + gpu_hours(following.parts["startup"] + following.parts["load"], following)


def culprits(account: Account) -> tuple[str, ...]:
    """The nodes whose fault ended an attempt: by its cause, by its record, or the only one it had."""
    cause = account.verdict.cause
    if account.verdict.infra is not True:
        return ()
    if cause is not None and cause.nodes:
        return cause.nodes[:1]
    return failed_nodes(account.attempt) or (account.attempt.nodes if len(account.attempt.nodes) == 1 else ())


def lost(accounts: Accounts, by: Dimension, price: float | None = None, *, infra_only: bool = False) -> list[Lost]:
    """Losses by a dimension, the dearest first. ``price``: money a GPU-hour. The parts of a machine (node, rack,
    switch, firmware ...) are those of the culprit; where several values share a loss each gets its part of it."""
    naming = _naming(accounts, by)
    sums: defaultdict[str, tuple[int, Bounds]] = defaultdict(lambda: (0, exactly(0.0)))
    for loss in losses(accounts, infra_only=infra_only):
        names = list(dict.fromkeys(naming(loss))) or [NOT_KNOWN]
        for name in names:
            count, so_far = sums[name]
            sums[name] = (count + 1, so_far + _times(loss.gpu_hours, 1 / len(names)))
    rows = [
        Lost(name, count, hours, _times(hours, price) if price is not None else None)
        for name, (count, hours) in sums.items()
    ]
    return sorted(rows, key=lambda row: (-row.gpu_hours.middle, row.name))


def _naming(accounts: Accounts, by: Dimension) -> Callable[[Loss], Sequence[str]]:
    if by == "cause":
        return lambda loss: (name_of(loss.account),)
    if by == "team":
        return lambda loss: (loss.account.attempt.account or loss.account.attempt.user or NOT_KNOWN,)
    if by == "user":
        return lambda loss: (loss.account.attempt.user or NOT_KNOWN,)
    if by == "partition":
        return lambda loss: (loss.account.attempt.partition or NOT_KNOWN,)
    if by == "node":
        return lambda loss: loss.nodes
    if by in ("firmware", "driver"):
        return _by_version(accounts.history.versions, by)
    places = {node.name: str(getattr(node, by)) or NOT_KNOWN for node in accounts.history.nodes}
    return lambda loss: [places.get(node, NOT_KNOWN) for node in _or_common(loss, places)]


def _or_common(loss: Loss, places: Mapping[str, str]) -> Sequence[str]:
    """The culprit; of one that is not known any node of the job, where all of them stand in one place."""
    if loss.nodes:
        return loss.nodes
    common = {places.get(node, NOT_KNOWN) for node in loss.account.attempt.nodes}
    return loss.account.attempt.nodes[:1] if loss.account.verdict.infra and len(common) == 1 else ()


def _by_version(versions: Sequence[VersionFacts], item: str) -> Callable[[Loss], Sequence[str]]:
    ran = version_at(versions, item)
    return lambda loss: [ran(node, loss.account.attempt.end or math.inf) or NOT_KNOWN for node in loss.nodes]


def version_at(versions: Sequence[VersionFacts], item: str) -> Callable[[str, float], str]:
    """What ``item`` a node ran at a time, "" = not known; of several devices their distinct values, joined."""
    told: defaultdict[str, list[VersionFacts]] = defaultdict(list)
    for version in sorted(versions, key=lambda v: v.at):
        if version.item == item and not version.job:
            told[version.node].append(version)

    def ran(node: str, at: float) -> str:
        now = {v.device: v.value for v in told.get(node, ()) if v.at <= at}
        now = now or {v.device: v.value for v in told.get(node, ())[:1]}
        return " + ".join(sorted(set(now.values())))

    return ran


def _times(bounds: Bounds, by: float) -> Bounds:
    return Bounds(bounds.low * by, bounds.high * by)


@dataclass(frozen=True, slots=True)
class Usage:
    """GPU-hours of a fleet over the span. capacity = held + free + out, as far as what was held is known exactly.

    held: by attempts; out: by nodes that were out; free: the rest. parts: of what was held. idle: held while an
    attempt waited for something (startup, hang, teardown); dark: held by attempts whose inside nobody told.
    asleep: held while telemetry said that the node did nothing, None = nobody asked it.
    """

    capacity: float
    held: float
    out: float
    free: float
    parts: Mapping[str, Bounds]
    idle: Bounds
    dark: float
    asleep: float | None


def usage(
    accounts: Accounts, gpus_per_node: int = 8, idle: Mapping[str, Sequence[tuple[float, float]]] | None = None
) -> Usage:
    """``gpus_per_node``: of nodes whose inventory does not say. ``idle``: spans (unix s) in which telemetry saw a node
    do nothing, by node."""
    history = accounts.history
    size = {node.name: len(node.gpus) or node.expected_gpus or gpus_per_node for node in history.nodes}
    for account in accounts.attempts:
        for node in account.attempt.nodes:
            size.setdefault(node, account.attempt.gpus_per_node or gpus_per_node)
    capacity = sum(size.values()) * accounts.span_s / 3600
    out = math.fsum(
        length(within(spans(gone), history.start, history.end)) / 3600 * size[node]
        for node, gone in outage_spans(history.outages)
        if node in size
    )
    ran = [account for account in accounts.attempts if account.window is not None]
    parts: defaultdict[str, Bounds] = defaultdict(lambda: exactly(0.0))
    for account in ran:
        for part, seconds in account.parts.items():
            parts[part] = parts[part] + gpu_hours(seconds, account)
    known = [account for account in ran if account.told is not None]
    waiting = exactly(0.0)
    for account in known:
        for name in IDLE:
            waiting = waiting + gpu_hours(account.parts[name], account)
    held = math.fsum(account.wall_s * gpus(account) for account in ran) / 3600
    return Usage(
        capacity=capacity,
        held=held,
        out=out,
        free=max(0.0, capacity - held - out),
        parts=dict(parts),
        idle=waiting,
        dark=math.fsum(a.wall_s * gpus(a) for a in ran if a.told is None) / 3600,
        asleep=None if idle is None else _asleep(ran, {node: spans(told) for node, told in idle.items()}),
    )


def _asleep(ran: Sequence[Account], idle: Mapping[str, Spans]) -> float:
    found = 0.0
    for account in ran:
        assert account.window is not None
        for node in account.attempt.nodes:
            if node in idle:
                cut = within(idle[node], account.window.begin, account.window.end)
                found += length(cut) * account.attempt.gpus_per_node / 3600
    return found
