"""How each mishap strikes, lingers and is mended."""

from __future__ import annotations

import random
from collections.abc import Callable

from backend.simulate import faults, lines
from backend.simulate.faults import Fault, Kind, Planned
from backend.simulate.scheduler import Job
from backend.simulate.site import Card
from backend.simulate.state import World

#: Who looks after what nobody attended to; a foreign owner in the eyes of Watchkeeper.
ADMINISTRATOR = "mira"

LINES: dict[Kind, Callable[[Card, random.Random], list[str]]] = {
    Kind.BUS: lines.bus_loss,
    Kind.MEMORY: lines.memory_error,
    Kind.LINK: lines.link_error,
    Kind.SCRIPT: lines.page_fault,
}
LAST_CODE = {Kind.MEMORY: 94, Kind.LINK: 149, Kind.SCRIPT: 43}


def strike(world: World, planned: Planned) -> bool:
    """Let a planned mishap happen; False when there is nothing fit to be struck, so that it is put off."""
    dice = faults.dice_of(world.site.seed, planned.number)
    if planned.kind is Kind.EXPORTER:
        return _strike_exporter(world, planned, dice)
    waiting = [fault for fault in world.faults if fault.kind in faults.NEEDS_REPAIR]
    if planned.kind in faults.NEEDS_REPAIR and len(waiting) >= faults.BROKEN_AT_ONCE:
        return False
    job = _victim(world, planned, dice)
    if job is None:
        return False
    broken = {fault.node for fault in world.faults}
    node = dice.choice([n for n in job.nodes if n not in broken])
    card = world.card(world.site.machines[_row(world, node)].cards[dice.randrange(8)].row)
    _hit(world, planned, job, card, dice)
    return True


def _victim(world: World, planned: Planned, dice: random.Random) -> Job | None:
    fit = world.victims()
    wanted = [job for job in fit if planned.run >= 0 and job.run == world.site.runs[planned.run].name]
    pool = wanted or fit
    return dice.choice(pool) if pool else None


def _hit(world: World, planned: Planned, job: Job, card: Card, dice: random.Random) -> None:
    kind = planned.kind
    if kind in LINES:
        for line in LINES[kind](card, dice):
            world.say(card.node, line)
    world.last_xid[card.row] = LAST_CODE.get(kind, world.last_xid[card.row])
    if kind is Kind.MEMORY:
        world.dbe[card.row] += 1
        world.remapped[card.row] += 1
    if kind in faults.NEEDS_REPAIR:
        patience = dice.uniform(*faults.PATIENCE_S)
        world.faults.append(Fault(planned.number, kind, card.node, card.row, world.world_s, world.world_s + patience))
    if kind in faults.STALLS:
        job.stalled_at = world.world_s
    elif kind in faults.KILLS:
        world.scheduler.finish(job, "FAILED", world.now, world.world_s, wait_s=8.0)


def _strike_exporter(world: World, planned: Planned, dice: random.Random) -> bool:
    broken = {fault.node for fault in world.faults}
    up = [m.name for m in world.site.machines if world.scheduler.hosts[m.name].up and m.name not in broken]
    spare = [n for n in up if world.scheduler.job_on(n) is None]
    node = dice.choice(spare if planned.run == faults.SPARE and spare else up)
    over_at = world.world_s + dice.uniform(*faults.EXPORTER_DOWN_S)
    world.faults.append(Fault(planned.number, Kind.EXPORTER, node, -1, world.world_s, over_at, next_at=over_at))
    return True


def tend(world: World, fault: Fault) -> bool:
    """One step in the life of a mishap that has happened; False when it is over."""
    if fault.kind is Kind.EXPORTER:
        return world.world_s < fault.next_at
    if fault.phase == "active":
        _wait_for_a_drain(world, fault)
    elif fault.phase == "repair" and world.world_s >= fault.next_at:
        world.scheduler.hosts[fault.node].up = False
        fault.phase, fault.next_at = "boot", world.world_s + faults.BOOT_S
    elif fault.phase == "boot" and world.world_s >= fault.next_at:
        _boot(world, fault.node)
        return False
    return True


def _wait_for_a_drain(world: World, fault: Fault) -> None:
    if world.scheduler.drained(fault.node, world.world_s):
        dice = random.Random(f"repair/{world.site.seed}/{fault.number}")
        fault.phase, fault.next_at = "repair", world.world_s + dice.uniform(*faults.REPAIR_S)
    elif world.world_s >= fault.attended_at and not world.scheduler.hosts[fault.node].drain:
        world.scheduler.drain(fault.node, f"card {fault.card % 8} looks bad, on my list", ADMINISTRATOR)
        job = world.scheduler.job_on(fault.node)
        if job is not None and job.stalled_at is not None:
            world.scheduler.requeue(job, world.now, world.world_s, exclude=[fault.node])


def _boot(world: World, node: str) -> None:
    """The node is back, mended: counters start anew, the administrator takes her own drain off."""
    host = world.scheduler.hosts[node]
    host.up, host.boot_at = True, world.now
    for line in lines.boot(world.dice(f"boot/{node}")):
        world.say(node, line)
    rows = [card.row for card in world.site.machines[_row(world, node)].cards]
    for counter in (world.last_xid, world.dbe, world.replays, world.link_bytes):
        counter[rows] = 0.0
    world.interrupts[_row(world, node)] = 0.0
    if host.reason_by == ADMINISTRATOR:
        world.scheduler.resume(node)


def watchdog(world: World) -> None:
    """A stalled job is aborted by its own communication library in the end, and tries again wherever it may."""
    for job in list(world.scheduler.jobs.values()):
        if job.stalled_at is not None and world.world_s >= job.stalled_at + faults.WATCHDOG_S:
            world.scheduler.requeue(job, world.now, world.world_s)
    lost = {fault.node for fault in world.faults if fault.kind in faults.STALLS}
    for job in world.scheduler.jobs.values():
        if job.runs and job.stalled_at is None and job.warm_at <= world.world_s and lost.intersection(job.nodes):
            job.stalled_at = world.world_s


def _row(world: World, node: str) -> int:
    return next(machine.row for machine in world.site.machines if machine.name == node)
