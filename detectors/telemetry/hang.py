"""A job that stands still and says nothing: its GPUs spin or idle for longer than its own longest pause."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from detectors.catalogue import Catalogue
from detectors.columns import column, measures
from detectors.model import (
    Axis,
    BoolArray,
    Entity,
    Evidence,
    Finding,
    Fleet,
    FloatArray,
    Judged,
    MetricKey,
    Need,
    Severity,
    Tick,
)
from detectors.rows import cells, fit, moved, started
from detectors.telemetry.jobs import TRAFFIC, Jobs, job_entity, jobs_of, mark_of, traffic
from detectors.telemetry.moving import MOVING, moved_bytes
from detectors.wording import counted, number

POWER, BUSY, MEMORY, TENSOR, DRAM, LINKS = range(6)
METRICS: tuple[MetricKey, ...] = (
    ("gpu", "power_w"),
    ("gpu", "utilisation_pct"),
    ("gpu", "fb_used_mib"),
    ("gpu", "tensor_active_ratio"),
    ("gpu", "dram_active_ratio"),
)
#: What must stand still with the power, where it is known.
STILL = ((LINKS, "links"), (TENSOR, "tensor"), (DRAM, "dram"))
#: One family alone: told, not acted on.
SPIN_SCORE, IDLE_SCORE, SAVE_SCORE = 0.7, 0.5, 0.5
IDLES, SPINS, SAVES = 1.0, 2.0, 3.0
#: What a member does while its job stands still.
SILENT, ASLEEP = 1, 2


@dataclass(slots=True)
class HangState:
    """Per GPU row; what belongs to a job stands in each of its rows. ``mark``: whose it is (jobs.mark_of, 0 = none).
    ``power``, ``links``, ``tensor``, ``dram``, ``memory``: usual level of the job at work (median of its
    GPUs; 0 = none yet).
    ``worked_s``: how long it was seen at work. ``low_at``, ``spin_at``: since when it pauses, and spins (0 = it does
    not). ``pauses``: how many ended; ``longest``, ``spun``: the longest of them and the longest spin, s. ``seen_at``:
    last look. ``quiet_at``: since when it spins and its nodes move nothing, ``hush``: the longest such time that ended,
    s. ``saves``: how many pauses in which they read or wrote have ended, ``usual_s`` how long those took; ``moves``:
    1 = they do in this pause. ``kind``: 0 runs, 1 idles, 2 spins, 3 reads or writes for too long. ``since``,
    ``now_w``, ``gpus``: of that. ``odd``: 1 = the row was silent then, 2 = idle while the others spun."""

    mark: NDArray[np.uint32] = cells(0, np.uint32)
    power: NDArray[np.float64] = cells()
    links: NDArray[np.float64] = cells()
    tensor: NDArray[np.float64] = cells()
    dram: NDArray[np.float64] = cells()
    memory: NDArray[np.float64] = cells()
    worked_s: NDArray[np.float64] = cells()
    low_at: NDArray[np.float64] = cells()
    spin_at: NDArray[np.float64] = cells()
    pauses: NDArray[np.float64] = cells()
    longest: NDArray[np.float64] = cells()
    spun: NDArray[np.float64] = cells()
    seen_at: NDArray[np.float64] = cells()
    quiet_at: NDArray[np.float64] = cells()
    hush: NDArray[np.float64] = cells()
    saves: NDArray[np.float64] = cells()
    usual_s: NDArray[np.float64] = cells()
    moves: NDArray[np.float64] = cells()
    kind: NDArray[np.float64] = cells()
    since: NDArray[np.float64] = cells()
    now_w: NDArray[np.float64] = cells()
    gpus: NDArray[np.float64] = cells()
    odd: NDArray[np.int8] = cells(0, np.int8)


#: What belongs to the job and not to the row.
SHARED = tuple(f.name for f in fields(HangState) if f.name not in ("mark", "odd"))


@dataclass(frozen=True, slots=True)
class Hang:
    """Thresholds: all that begin with hang_. GPUs that wait in a collective spin: fully used by the driver's word,
    far below their working power, with nothing on the links. A job is measured against its own past; one whose nodes
    read and write nothing meanwhile saves nothing either, and is told sooner."""

    catalogue: Catalogue = field(repr=False)
    needs: frozenset[Need] = field(default=frozenset({*METRICS, *TRAFFIC, *MOVING}))

    @property
    def name(self) -> str:
        return "telemetry/hang"

    def start(self, fleet: Fleet) -> HangState:
        return started(HangState, fleet)

    def step(self, state: HangState, tick: Tick, fleet: Fleet) -> Judged:
        axis = fleet.axes.get("gpu")
        if axis is None:
            return Judged()
        fit(state, fleet)
        if measures(tick, METRICS[:BUSY]):
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                self._judge(state, tick, axis, fleet)
        return Judged(self._findings(state, axis, fleet))

    def move(self, state: HangState, old: Fleet, new: Fleet) -> HangState:
        return moved(state, old, new)

    def _judge(self, state: HangState, tick: Tick, axis: Axis, fleet: Fleet) -> None:
        """Fold one telemetry tick in; all arrays, no loop over rows."""
        n, jobs = len(axis), jobs_of(axis, fleet)
        mine = np.zeros(n, np.uint32)
        mine[jobs.slots] = jobs.each(jobs.marks)
        other = state.mark != mine
        for name in SHARED:
            getattr(state, name)[other] = 0.0
        state.odd[other] = 0
        state.mark = mine
        columns = np.stack([*(column(tick, key, n) for key in METRICS), traffic(tick, n)])[:, jobs.slots]
        told = jobs.share(~np.isnan(columns[POWER]))
        middle, _ = jobs.middle(columns, int(self.catalogue.limit("hang_exact_members")))
        own = {name: jobs.most(getattr(state, name)) for name in SHARED}
        enough = (told >= self.catalogue.limit("hang_told_share")) & ~np.isnan(middle[POWER])
        fresh = enough & (tick.at > own["seen_at"])
        moved = jobs.most(moved_bytes(tick, fleet)[axis.node_of])
        after = self._after(own, middle, moved, jobs.sizes, tick.at)
        for name in SHARED:
            getattr(state, name)[jobs.slots] = jobs.each(np.where(fresh, after[name], own[name]))
        self._mark_odd(state, columns, jobs, after["kind"], fresh)

    def _after(
        self,
        own: dict[str, NDArray[np.float64]],
        middle: FloatArray,
        moved: NDArray[np.float64],
        sizes: NDArray[np.int64],
        at: float,
    ) -> dict[str, NDArray[np.float64]]:
        """What each job is known to do after this look; every array float64[jobs]. moved: bytes a second of the node
        that reads and writes most, -1 = no node says."""
        limit, new = self.catalogue.limit, dict(own)
        power, busy, memory = (middle[row].astype(np.float64) for row in (POWER, BUSY, MEMORY))
        elapsed = np.where(own["seen_at"] > 0, np.clip(at - own["seen_at"], 0.0, limit("hang_gap_s")), 0.0)
        low = self._low(own, middle)
        ended = memory < limit("hang_memory_share") * own["memory"]  # or it begins anew inside its allocation
        ripe = ~ended & (own["worked_s"] >= limit("hang_worked_s"))
        paused, spins = low & ripe, low & ripe & (busy >= limit("hang_spin_pct"))
        over = (own["low_at"] > 0) & ~paused & ~ended
        new["pauses"] = own["pauses"] + over
        new["longest"] = np.where(over, np.maximum(own["longest"], at - own["low_at"]), own["longest"])
        spun = (own["spin_at"] > 0) & ~spins & ~ended
        new["spun"] = np.where(spun, np.maximum(own["spun"], at - own["spin_at"]), own["spun"])
        new["low_at"] = np.where(paused, np.where(own["low_at"] > 0, own["low_at"], at), 0.0)
        new["spin_at"] = np.where(spins, np.where(own["spin_at"] > 0, own["spin_at"], at), 0.0)
        moving = moved >= limit("hang_moving_bytes_s")
        quiet = spins & (moved >= 0) & ~moving
        new["quiet_at"] = np.where(quiet, np.where(own["quiet_at"] > 0, own["quiet_at"], at), 0.0)
        hushed = (own["quiet_at"] > 0) & ~quiet & ~ended
        new["hush"] = np.where(hushed, np.maximum(own["hush"], at - own["quiet_at"]), own["hush"])
        for name in ("longest", "spun", "hush"):
            new[name] = np.minimum(new[name], limit("hang_longest_s"))
        self._learn_saves(new, own, over, paused & moving, at)
        new["kind"] = self._kind(new, own, moving, sizes, at)
        begun = np.where(new["kind"] == SPINS, new["spin_at"], new["low_at"])
        new["since"] = np.where(new["kind"] > 0, np.where(own["kind"] > 0, own["since"], begun), 0.0)
        new["now_w"] = np.where(new["kind"] > 0, power, 0.0)
        self._learn(new, own, middle, low, elapsed)
        new["worked_s"] = np.where(ended, 0.0, new["worked_s"])
        new["seen_at"] = np.full(len(own["seen_at"]), at)
        return new

    def _low(self, own: dict[str, NDArray[np.float64]], middle: FloatArray) -> BoolArray:
        """Far below its power at work, and nothing moves: where links, tensor cores or memory tell, they must
        say so too (a phase that generates text draws little, and reads its memory all the time)."""
        limit = self.catalogue.limit
        low: BoolArray = middle[POWER] < limit("hang_power_share") * own["power"]
        for row, name in STILL:
            tells = (own[name] > 0) & ~np.isnan(middle[row])
            low &= ~tells | (middle[row] < limit("hang_still_share") * own[name])
        return low

    def _kind(
        self,
        new: dict[str, NDArray[np.float64]],
        own: dict[str, NDArray[np.float64]],
        moving: BoolArray,
        sizes: NDArray[np.int64],
        at: float,
    ) -> NDArray[np.float64]:
        """SPINS, IDLES, SAVES for longer than its own past explains; 0 = none of them. Where nothing is read or written
        it needs less time to tell."""
        limit = self.catalogue.limit
        known = own["pauses"] >= limit("hang_pauses")
        least = np.where(known, limit("hang_spin_s"), limit("hang_unknown_s"))
        longest = limit("hang_times")
        spin = np.maximum(least, longest * own["spun"])
        idle = np.maximum(limit("hang_idle_s"), longest * own["longest"])
        lasts = np.where(new["low_at"] > 0, at - new["low_at"], 0.0)
        spun = np.where(new["spin_at"] > 0, at - new["spin_at"], 0.0)
        still = np.where(new["quiet_at"] > 0, at - new["quiet_at"], 0.0)
        spins = ~moving & (spun >= spin)
        spins |= still >= np.maximum(limit("hang_quiet_s"), longest * own["hush"])
        spins &= sizes >= limit("hang_spin_gpus")
        idles = ~moving & (sizes >= limit("hang_idle_gpus")) & (lasts >= idle)
        saves = moving & (own["saves"] >= limit("hang_saves"))
        saves &= lasts >= np.maximum(limit("hang_save_s"), limit("hang_save_times") * own["usual_s"])
        held = np.where((own["kind"] > 0) & (lasts > 0), own["kind"], 0.0)
        return np.where(spins, SPINS, np.where(idles, IDLES, np.where(saves, SAVES, held)))

    def _learn_saves(
        self,
        new: dict[str, NDArray[np.float64]],
        own: dict[str, NDArray[np.float64]],
        over: BoolArray,
        moves: BoolArray,
        at: float,
    ) -> None:
        """How long a pause takes in which nodes read or write; those that took too long are kept out."""
        ended = over & (own["moves"] > 0) & (own["kind"] != SAVES)
        took, first = at - own["low_at"], own["saves"] == 0
        share = self.catalogue.limit("hang_save_share")
        usual = np.where(first, took, own["usual_s"] + share * (took - own["usual_s"]))
        new["usual_s"] = np.where(ended, usual, own["usual_s"])
        new["saves"] = own["saves"] + ended
        new["moves"] = np.where(new["low_at"] > 0, np.maximum(own["moves"], moves), 0.0)

    def _learn(self, new: dict[str, NDArray[np.float64]], own: dict[str, NDArray[np.float64]], middle: FloatArray,
               low: BoolArray, elapsed: NDArray[np.float64]) -> None:  # fmt: skip
        """Levels at work follow the job: up at once, down slowly, not at all while it pauses."""
        fade = 1.0 - np.exp(-elapsed / self.catalogue.limit("hang_memory_s"))
        for row, name in ((POWER, "power"), (MEMORY, "memory"), *STILL):
            value = middle[row].astype(np.float64)
            value = np.where(own[name] > 0, np.minimum(value, 3.0 * own[name]), value)  # one look is at most a doubling
            step = np.where(value > own[name], 0.5, fade)
            follows = own[name] + step * (value - own[name])
            new[name] = np.where(low | ~np.isfinite(value), own[name], np.where(own[name] > 0, follows, value))
        grew = new["power"] > self.catalogue.limit("hang_grown") * own["power"]
        works = ~low & (middle[BUSY] >= self.catalogue.limit("hang_working_pct"))
        new["worked_s"] = np.where(grew, 0.0, own["worked_s"] + np.where(works, elapsed, 0.0))

    def _mark_odd(
        self, state: HangState, columns: FloatArray, jobs: Jobs, kind: NDArray[np.float64], fresh: BoolArray
    ) -> None:
        """Members that do otherwise than the rest while the job stands still, and how many GPUs it has."""
        spins, looked = jobs.each(kind == SPINS), jobs.each(fresh)
        silent = np.isnan(columns[POWER]) & np.isnan(columns[BUSY])
        asleep = spins & (columns[BUSY] < self.catalogue.limit("hang_asleep_pct"))
        odd = np.where(silent, SILENT, np.where(asleep, ASLEEP, 0)).astype(np.int8)
        state.odd[jobs.slots] = np.where(looked, np.where(jobs.each(kind > 0), odd, 0), state.odd[jobs.slots])
        state.gpus[jobs.slots] = np.where(looked, jobs.each(jobs.sizes), state.gpus[jobs.slots])

    # --- what is said -----------------------------------------------------------------------------------------------

    def _findings(self, state: HangState, axis: Axis, fleet: Fleet) -> tuple[Finding, ...]:
        rows = np.flatnonzero((state.kind > 0) & axis.live & (axis.job_of >= 0))
        found = []
        for code in np.unique(axis.job_of[rows]):
            mine = rows[axis.job_of[rows] == code]
            mine = mine[state.mark[mine] == mark_of(fleet.jobs[code])]
            if len(mine):
                found.append(self._finding(state, mine, int(code), axis, fleet))
        return tuple(sorted(found, key=lambda f: f.key))

    def _finding(self, state: HangState, rows: NDArray[np.intp], code: int, axis: Axis, fleet: Fleet) -> Finding:
        row, entity = int(rows[0]), job_entity(fleet, code)
        if state.kind[row] == SAVES:
            return self._save_finding(state, row, entity)
        spins, before = bool(state.kind[row] == SPINS), number(float(state.power[row]))
        gpus, now_w = counted(int(state.gpus[row]), "GPU"), number(float(state.now_w[row]))
        names = {what: sorted(axis.names[r] for r in rows[state.odd[rows] == what]) for what in (SILENT, ASLEEP)}
        does = "wait for each other" if spins else "do nothing"
        longest = number(float(state.spun[row] if spins else state.longest[row]))
        suspects = names[ASLEEP] or names[SILENT]
        named = (
            f" {_listed(suspects)} {'do' if len(suspects) > 1 else 'does'} otherwise."
            if _few(suspects, state, row)
            else ""
        )
        evidence = [
            Evidence("power, middle of its GPUs", now_w, before, "W", "metric:gpu/power_w", "derived"),
            Evidence("its longest pause of this sort before", longest, unit="s", grade="derived"),
        ]
        for what, word in ((SILENT, "silent"), (ASLEEP, "idle")):
            evidence += (
                [Evidence(f"{word} GPUs", _listed(names[what]), "none", grade="inferred")] if names[what] else []
            )
        return Finding(
            detector=self.name,
            kind="job_hang",
            entity=entity,
            severity=Severity.HIGH if spins else Severity.WARNING,
            score=SPIN_SCORE if spins else IDLE_SCORE,
            since=float(state.since[row]),
            reason=f"{entity} stands still: its {gpus} {does}, at {now_w} W against {before} W at work.{named}",
            evidence=tuple(evidence),
        )

    def _save_finding(self, state: HangState, row: int, entity: Entity) -> Finding:
        """A save, or a load, that takes much longer than those before."""
        took, usual = (number(float(v)) for v in (state.seen_at[row] - state.since[row], state.usual_s[row]))
        return Finding(
            detector=self.name,
            kind="checkpoint_slow",
            entity=entity,
            severity=Severity.WARNING,
            score=SAVE_SCORE,
            since=float(state.since[row]),
            reason=f"{entity} waits for a checkpoint for {took} s already; usual are {usual} s: its storage is slow.",
            evidence=(
                Evidence("pause in which its nodes read or write", took, usual, "s", "metric:gpu/power_w", "derived"),
            ),
        )


def _few(names: list[str], state: HangState, row: int) -> bool:
    return 0 < len(names) <= max(1.0, 0.25 * float(state.gpus[row]))


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 8:,} more" if len(names) > 8 else ""
    return f"{', '.join(names[:8])}{more}"
