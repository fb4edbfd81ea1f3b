"""Calls of a communicator as its ranks saw them: who never came, who came and stopped, which link or rank is slow.

C4 (2406.04594) parts four syndromes: communication hang and slow, and those of other work; a matrix of source by
destination shows a slow link as a cell, a slow sender as a row, a slow receiver as a column. FT-HSDP (2602.00277) parts
"never joined" from "joined, stopped".
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from detectors.catalogue import Catalogue
from detectors.model import Entity, Evidence, Finding, Fleet, Judged, Need, Severity, Tick
from detectors.rows import cells, started
from detectors.training import memory
from detectors.training.matrix import Syndrome, syndromes
from detectors.training.phrases import plain_number
from detectors.training.told import COLLECTIVE, LONGEST, Row, mark, number, rank_entity, rows, whole

Floats = NDArray[np.float64]
#: Members of a communicator and pairs that are remembered of all runs.
MOST = 100_000
NEVER, STOPPED = 1.0, 2.0


@dataclass(slots=True)
class CollectiveState(memory.RunState):
    """Per member (run, communicator, rank): ``comm``, ``member_of``, ``member_rank``, ``host``: which; ``seq``,
    ``begun``, ``ended``: its newest call, when it came and when that was over (0 = is not); ``length``: usual, s;
    ``period``: usual seconds from call to call; ``late``: how much later than the others it comes, smoothed,
    ``late_usual``: by size; ``calls``; ``size``: members told; ``lag``: how late its rows come. ``stuck``, ``how``:
    since when it is missed; ``slow``: since when it comes late. Per pair (run, source, destination, size): ``pair_of``,
    ``source``, ``target``, ``pair_s``: usual seconds a call, ``pair_n``, ``pair_at``."""

    member: memory.Marks = cells(0, np.uint64, axis="member")
    member_of: memory.Marks = cells(0, np.uint64, axis="member")
    comm: memory.Marks = cells(0, np.uint64, axis="member")
    comm_name: NDArray[np.str_] = memory.texts(axis="member")
    member_rank: NDArray[np.int64] = cells(-1, np.int64, axis="member")
    host: NDArray[np.str_] = memory.texts(axis="member")
    seq: Floats = cells(-1.0, axis="member")
    begun: Floats = cells(0.0, axis="member")
    ended: Floats = cells(0.0, axis="member")
    length: Floats = cells(0.0, axis="member")
    period: Floats = cells(0.0, axis="member")
    late: Floats = cells(0.0, axis="member")
    late_usual: Floats = cells(0.0, axis="member")
    calls: Floats = cells(0.0, axis="member")
    size: Floats = cells(0.0, axis="member")
    lag: Floats = cells(0.0, axis="member")
    stuck: Floats = cells(0.0, axis="member")
    how: Floats = cells(0.0, axis="member")
    slow: Floats = cells(0.0, axis="member")
    pair: memory.Marks = cells(0, np.uint64, axis="pair")
    pair_of: memory.Marks = cells(0, np.uint64, axis="pair")
    source: NDArray[np.int64] = cells(-1, np.int64, axis="pair")
    target: NDArray[np.int64] = cells(-1, np.int64, axis="pair")
    pair_s: Floats = cells(0.0, axis="pair")
    pair_n: Floats = cells(0.0, axis="pair")
    pair_at: Floats = cells(0.0, axis="pair")


@dataclass(frozen=True, slots=True)
class Collectives:
    """Thresholds: all that begin with collective_, and training_forget_s."""

    catalogue: Catalogue = field(repr=False)
    needs: frozenset[Need] = frozenset({COLLECTIVE})

    @property
    def name(self) -> str:
        return "training/collectives"

    def start(self, fleet: Fleet) -> CollectiveState:
        return started(CollectiveState, fleet)

    def move(self, state: CollectiveState, old: Fleet, new: Fleet) -> CollectiveState:
        return state

    def step(self, state: CollectiveState, tick: Tick, fleet: Fleet) -> Judged:
        touched: set[np.uint64] = set()
        for row in rows(tick, COLLECTIVE):
            at = memory.place(state, row)
            state.run_at[at] = max(float(state.run_at[at]), row.at)
            if "src" in row.event.attrs:
                self._transfer(state, row)
            elif row.rank >= 0:
                touched.add(self._call(state, row, tick.at))
        for comm in sorted(touched):
            self._lateness(state, comm, tick.at)
        memory.forget(state, tick.at, self.catalogue.limit("training_forget_s"), ())
        for axis in ("member", "pair"):
            memory.keep(state, axis, np.isin(getattr(state, f"{axis}_of"), state.run))
        self._missing(state, tick.at, fleet)
        return Judged(self._findings(state, fleet))

    # --- what is folded in ----------------------------------------------------------------------------------------

    def _call(self, state: CollectiveState, row: Row, now: float) -> np.uint64:
        attrs = row.event.attrs
        comm = np.uint64(mark(row.run, "comm", attrs.get("comm", "")))
        at = _member(state, row, comm)
        seq, begun, ended = whole(attrs.get("seq")), number(attrs.get("start")), number(attrs.get("end"))
        begun = number(attrs.get("entered")) if "entered" in attrs else begun
        if seq < state.seq[at] or begun is None or not np.isfinite(begun):
            return comm
        if seq > state.seq[at]:
            if state.begun[at] > 0 and begun > state.begun[at]:
                gap = (begun - float(state.begun[at])) / (seq - float(state.seq[at]))
                known = float(state.period[at])
                state.period[at] = gap if known == 0 else known + (min(gap, 3 * known) - known) / 8
            state.seq[at], state.begun[at], state.ended[at] = seq, begun, 0.0
            state.calls[at] += 1
        state.size[at] = max(float(state.size[at]), float(whole(attrs.get("ranks"), 0)))
        state.lag[at] = max(0.95 * float(state.lag[at]), min(max(now - row.at, 0.0), 600.0))
        if ended is not None and np.isfinite(ended) and ended >= begun and state.ended[at] == 0:
            state.ended[at] = ended
            took, known = ended - begun, float(state.length[at])
            state.length[at] = took if known == 0 else known + (min(took, 3 * known) - known) / 8
        return comm

    def _transfer(self, state: CollectiveState, row: Row) -> None:
        attrs = row.event.attrs
        source, target = whole(attrs.get("src")), whole(attrs.get("dst"))
        begun, ended = number(attrs.get("start")), number(attrs.get("end"))
        if source < 0 or target < 0 or begun is None or ended is None or not 0 <= ended - begun < 1e6:
            return
        size = number(attrs.get("bytes"))
        bucket = int(np.log2(size)) if size is not None and size >= 1 and np.isfinite(size) else 0
        key = np.uint64(mark(row.run, "pair", str(source), str(target), str(bucket)) | (bucket & 255))
        at = int(np.searchsorted(state.pair, key))
        if at == len(state.pair) or state.pair[at] != key:
            if len(state.pair) >= MOST:
                return
            memory.grow(state, "pair", np.array([key], np.uint64), {})
            at = int(np.searchsorted(state.pair, key))
            state.pair_of[at], state.source[at], state.target[at] = mark(row.run), source, target
        if row.at < state.pair_at[at]:
            return
        state.pair_at[at] = row.at
        state.pair_n[at] += 1
        weight = max(1.0 / float(state.pair_n[at]), 0.34)
        state.pair_s[at] += weight * ((ended - begun) - state.pair_s[at])

    def _lateness(self, state: CollectiveState, comm: np.uint64, now: float) -> None:
        """A call that all have come to: who lets the others wait (other work slow, and not the transfer)."""
        mine = np.flatnonzero(state.comm == comm)
        seq = state.seq[mine]
        if len(mine) < 3 or (seq != seq[0]).any() or (state.calls[mine] < 2).any():
            return
        late = state.begun[mine] - np.median(state.begun[mine])
        state.late[mine] += 0.5 * (late - state.late[mine])
        limit = self.catalogue.limit
        period = float(np.median(state.period[mine]))
        usual = float(np.median(state.late_usual[mine]))
        bound = max((limit("pace_slow_share") - 1.0) * period, limit("collective_late_times") * usual, 1e-6)
        known = state.calls[mine] >= limit("collective_looks")
        judged = state.calls[mine] >= limit("collective_learn_calls")
        out = (state.late[mine] > bound) & (late > bound) & judged
        if 2 * int(out.sum()) > len(mine):
            out[:] = False
        size = np.where(known & (usual > 0), np.minimum(np.abs(late), 3 * usual), np.abs(late))
        weight = np.maximum(1.0 / np.maximum(state.calls[mine], 1.0), 1.0 / 32.0)
        state.late_usual[mine] += np.where(out, 0.0, weight * (size - state.late_usual[mine]))
        state.slow[mine] = np.where(out, np.where(state.slow[mine] > 0, state.slow[mine], state.begun[mine]), 0.0)

    def _missing(self, state: CollectiveState, now: float, fleet: Fleet) -> None:
        """Who of a communicator is awaited: behind in its calls (never came), or alone without an end (stopped)."""
        limit = self.catalogue.limit
        for comm in np.unique(state.comm):
            mine = np.flatnonzero(state.comm == comm)
            newest = float(state.seq[mine].max())
            there = mine[state.seq[mine] == newest]
            waits = there[state.ended[there] == 0]
            first = float(state.begun[waits].min()) if len(waits) else now
            usual = max(float(np.median(state.length[mine])), float(np.median(state.period[mine])))
            allowed = (
                limit("collective_wait_times") * usual + limit("collective_floor_s") + float(state.lag[mine].max())
            )
            run = memory.column(state, state.member_of[mine[0]])
            ended = run >= 0 and _over(state, run, fleet)
            hangs = bool(len(waits)) and usual > 0 and now - first > allowed and not ended
            how = np.zeros(len(mine))
            if hangs:
                absent = state.seq[mine] < newest
                alone = (state.seq[mine] == newest) & (state.ended[mine] == 0)
                how = np.where(absent, NEVER, np.where(alone & ~absent.any(), STOPPED, 0.0))
            state.how[mine] = how
            state.stuck[mine] = np.where(how > 0, np.where(state.stuck[mine] > 0, state.stuck[mine], first), 0.0)

    # --- what is said ---------------------------------------------------------------------------------------------

    def _findings(self, state: CollectiveState, fleet: Fleet) -> tuple[Finding, ...]:
        found: dict[str, Finding] = {}
        for comm in np.unique(state.comm[state.stuck > 0]):
            for finding in self._hangs(state, np.flatnonzero((state.comm == comm) & (state.stuck > 0)), fleet):
                found.setdefault(finding.key, finding)
        for at in np.flatnonzero(state.slow > 0):
            finding = self._comes_late(state, int(at), fleet)
            found.setdefault(finding.key, finding)
        for run in np.unique(state.pair_of):
            for finding in self._links(state, run, fleet):
                found.setdefault(finding.key, finding)
        return tuple(found[key] for key in sorted(found))

    def _hangs(self, state: CollectiveState, awaited: NDArray[np.intp], fleet: Fleet) -> list[Finding]:
        at = int(awaited[0])
        comm = state.comm == state.comm[at]
        name = str(state.run_name[memory.column(state, state.member_of[at])])
        never = state.how[at] == NEVER
        newest, size = int(state.seq[comm].max()), int(comm.sum())
        few = len(awaited) <= max(1, min(8, size // 2))
        who = ", ".join(str(int(r)) for r in np.sort(state.member_rank[awaited])[:8])
        said = f"never came to call {newest:,}" if never else f"came to call {newest:,} and did not end it"
        which = f" of communicator {state.comm_name[at]}" if state.comm_name[at] else ""
        since = float(state.stuck[awaited].min())
        evidence = (
            Evidence(
                "Ranks awaited", who if few else f"{len(awaited)} of {size}", f"none of {size}", ref=f"step:{name}"
            ),
            Evidence("Newest call", f"{newest:,}{which}", grade="observed"),
        )
        plan = "Collect their stacks and flight recorder before the job is restarted."
        if not few:
            reason = f"{name}: all of {size} ranks wait in call {newest:,}{which}, or most: the transport. {plan}"
            return [self._hang(Entity(fleet.cluster, "run", name, f"run:{name}"), 0.6, since, reason, evidence)]
        found = []
        for one in awaited:
            rank, host = int(state.member_rank[one]), str(state.host[one])
            kind = "other work than communication hangs" if never else "its communication hangs"
            where = f" on {host}" if host else ""
            reason = f"{name}: rank {rank}{where} {said}{which}, where the others wait: {kind}. {plan}"
            found.append(self._hang(rank_entity(fleet.cluster, name, rank, host), 0.8, since, reason, evidence))
        return found

    def _hang(self, entity: Entity, score: float, since: float, reason: str, evidence: tuple[Evidence, ...]) -> Finding:
        return Finding(self.name, "job_hang", entity, Severity.HIGH, score, since, reason, evidence)

    def _comes_late(self, state: CollectiveState, at: int, fleet: Fleet) -> Finding:
        name = str(state.run_name[memory.column(state, state.member_of[at])])
        rank, host, late = int(state.member_rank[at]), str(state.host[at]), float(state.late[at])
        reason = (
            f"{name}: rank {rank}{f' on {host}' if host else ''} comes {plain_number(late)} s after the others to each "
            "call: its own work is slow, not the network."
        )
        evidence = (Evidence("Later than the others", plain_number(late), "0", "s", f"step:{name}", "derived"),)
        entity = rank_entity(fleet.cluster, name, rank, host)
        return Finding(self.name, "job_slow", entity, Severity.WARNING, 0.7, float(state.slow[at]), reason, evidence)

    def _links(self, state: CollectiveState, run: np.uint64, fleet: Fleet) -> list[Finding]:
        mine = np.flatnonzero((state.pair_of == run) & (state.pair_n >= self.catalogue.limit("collective_looks")))
        times = self.catalogue.limit("collective_slow_times")
        sizes = state.pair[mine] & np.uint64(255)
        seen = syndromes(state.source[mine], state.target[mine], state.pair_s[mine], sizes, times)
        name = str(state.run_name[memory.column(state, run)])
        since = float(state.pair_at[mine].max()) if len(mine) else 0.0
        return [self._link(name, one, since, fleet) for one in seen]

    def _link(self, name: str, one: Syndrome, since: float, fleet: Fleet) -> Finding:
        if one.what == "link":
            said = f"transfers from rank {one.source} to rank {one.target} take"
            entity = Entity(
                fleet.cluster, "link", f"{name}/{one.source}-{one.target}", f"link:{one.source}-{one.target}"
            )
        else:
            rank = one.source if one.what == "sender" else one.target
            said = f"all that rank {rank} {'sends takes' if one.what == 'sender' else 'receives takes'}"
            entity = rank_entity(fleet.cluster, name, rank)
        reason = f"{name}: {said} {plain_number(one.times)} times the median of all pairs: the communication is slow."
        evidence = (
            Evidence(f"Slow {one.what}", plain_number(one.times), "1", "times the median", f"step:{name}", "derived"),
        )
        return Finding(self.name, "job_slow", entity, Severity.WARNING, 0.6, since, reason, evidence)


def _member(state: CollectiveState, row: Row, comm: np.uint64) -> int:
    attrs = row.event.attrs
    key = np.uint64(mark(row.run, "comm", attrs.get("comm", ""), str(row.rank)))
    at = int(np.searchsorted(state.member, key))
    host = (attrs.get("host") or row.event.entity.node)[:LONGEST]
    if at == len(state.member) or state.member[at] != key:
        name = attrs.get("comm", "")[:LONGEST]
        memory.grow(state, "member", np.array([key], np.uint64), {"host": [host], "comm_name": [name]})
        at = int(np.searchsorted(state.member, key))
        state.member_of[at], state.comm[at], state.member_rank[at] = mark(row.run), comm, row.rank
    elif host and state.host[at] != host:
        state.host = memory.with_text(state.host, at, host)
    return at


def _over(state: CollectiveState, run: int, fleet: Fleet) -> bool:
    """Whether the job was once among the fleet's and is no more."""
    job = str(state.run_job[run])
    there = bool(job) and job in fleet.jobs
    state.run_seen[run] |= there
    return bool(state.run_seen[run]) and not there
