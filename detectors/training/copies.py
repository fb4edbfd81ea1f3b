"""Silent corruption: replicas of the same bits vote, recomputed steps are compared, the GPU is named."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from detectors.catalogue import Catalogue
from detectors.model import Entity, Event, Evidence, Finding, Fleet, Judged, Need, Severity, Tick
from detectors.rows import cells, started
from detectors.training import memory
from detectors.training.phrases import way_back
from detectors.training.told import LONGEST, SAVES, STEP, Row, by_step, mark, rank_entity, rows, whole

Floats = NDArray[np.float64]
#: Xids that tell of a GPU's memory: its past says something about a wrong result.
MEMORY_CODES = frozenset({"48", "63", "64", "92", "94", "95"})
#: How a rank was found: outvoted, twice wrong in pairs, and its own replay differs.
VOTED, PAIRED, REPLAYED, ONE_OF_TWO = 1.0, 2.0, 3.0, 4.0


@dataclass(slots=True)
class CopyState(memory.RunState):
    """``rank``: cells by (run, rank). ``rank_of``, ``rank_number``, ``rank_host``, ``rank_gpu``: whose it is.
    ``params``, ``grads``, ``batch``, ``shard``: marks of the checksums last told (0 = none) for ``params_step`` and
    ``grads_step``. ``agreed``: times it was in a majority. ``against``: partners that disagreed with it, as bits of
    their numbers mod 52; ``upheld``: recomputations that agreed. ``since``, ``how``, ``wrong_step``, ``votes``,
    ``others``: a level. ``past``: GPUs of which a memory code was heard: ``past_n``, ``past_at``."""

    rank: memory.Marks = cells(0, np.uint64, axis="rank")
    rank_of: memory.Marks = cells(0, np.uint64, axis="rank")
    rank_number: NDArray[np.int64] = cells(-1, np.int64, axis="rank")
    rank_host: NDArray[np.str_] = memory.texts(axis="rank")
    rank_gpu: NDArray[np.str_] = memory.texts(axis="rank")
    params: memory.Marks = cells(0, np.uint64, axis="rank")
    params_step: Floats = cells(-1.0, axis="rank")
    grads: memory.Marks = cells(0, np.uint64, axis="rank")
    batch: memory.Marks = cells(0, np.uint64, axis="rank")
    shard: memory.Marks = cells(0, np.uint64, axis="rank")
    grads_step: Floats = cells(-1.0, axis="rank")
    agreed: Floats = cells(0.0, axis="rank")
    against: memory.Marks = cells(0, np.uint64, axis="rank")
    since: Floats = cells(0.0, axis="rank")
    how: Floats = cells(0.0, axis="rank")
    wrong_step: Floats = cells(-1.0, axis="rank")
    votes: Floats = cells(0.0, axis="rank")
    others: Floats = cells(0.0, axis="rank")
    past: memory.Marks = cells(0, np.uint64, axis="past")
    past_n: Floats = cells(0.0, axis="past")
    past_at: Floats = cells(0.0, axis="past")


@dataclass(frozen=True, slots=True)
class Copies:
    """Thresholds: copies_hold_s, training_forget_s. SDC 2502.12340: loss curves alone do not show it; 2604.00726:
    recompute the last step."""

    catalogue: Catalogue = field(repr=False)
    needs: frozenset[Need] = frozenset({STEP, SAVES, "xid", "mended"})

    @property
    def name(self) -> str:
        return "training/copies"

    def start(self, fleet: Fleet) -> CopyState:
        return started(CopyState, fleet)

    def move(self, state: CopyState, old: Fleet, new: Fleet) -> CopyState:
        return state

    def step(self, state: CopyState, tick: Tick, fleet: Fleet) -> Judged:
        for event in sorted(tick.events, key=lambda e: (e.at, e.seq)):
            if event.namespace == "xid" and event.code in MEMORY_CODES and event.entity.kind == "gpu":
                _remember(state, event)
            elif event.namespace == "mended" and event.mends("silent_data_corruption"):
                _mended(state, event)
        for _, _, some in by_step(rows(tick, STEP, SAVES)):
            at = memory.place(state, some[0])
            for row in some:
                if row.event.namespace == SAVES:
                    memory.saved(state, at, row)
                else:
                    memory.advance(state, at, row)
            ranks = [row for row in some if row.rank >= 0 and not row.layer and not _TOLD.isdisjoint(row.event.attrs)]
            if ranks:
                self._compare(state, ranks)
        memory.forget(state, tick.at, self.catalogue.limit("training_forget_s"), ("rank",))
        held = tick.at - state.since <= self.catalogue.limit("copies_hold_s")
        state.since = np.where(held, state.since, 0.0)
        return Judged(self._findings(state, fleet))

    def _compare(self, state: CopyState, ranks: Sequence[Row]) -> None:
        """What ranks told of one step: first all of it, then one vote a shard and a batch, then the pairs."""
        params: dict[int, tuple[int, Row]] = {}
        batches: dict[int, tuple[int, Row]] = {}
        for row in ranks:
            _cell(state, row)
        for row in ranks:
            attrs, mine = row.event.attrs, _cell(state, row)
            state.shard[mine] = mark(attrs["shard"]) if attrs.get("shard") else 0
            if attrs.get("param_hash") and row.step >= state.params_step[mine]:
                state.params[mine], state.params_step[mine] = mark(attrs["param_hash"]), row.step
                params[int(state.shard[mine])] = (mine, row)
            if attrs.get("grad_hash") and row.step >= state.grads_step[mine]:
                state.grads[mine], state.grads_step[mine] = mark(attrs["grad_hash"]), row.step
                state.batch[mine] = mark(attrs["batch_hash"]) if attrs.get("batch_hash") else 0
                if state.batch[mine]:  # gradients of the same batch must be the same bits
                    batches[int(state.batch[mine])] = (mine, row)
        for mine, row in params.values():
            peers = _peers(state, mine, "params_step")
            self._vote(state, peers, state.params, row, _members(state, mine, row.step))
        for batch, (mine, row) in batches.items():
            peers = _peers(state, mine, "grads_step")
            self._vote(state, peers[state.batch[peers] == batch], state.grads, row, 2)
        for row in ranks:
            if row.event.attrs.get("recompute_hash"):
                self._pair(state, _cell(state, row), row)

    def _vote(self, state: CopyState, peers: NDArray[np.intp], said: memory.Marks, row: Row, members: int) -> None:
        """The majority of ``members`` replicas is right. Ranks that never agreed hold shards, not copies, and have no
        vote."""
        if len(peers) < 2:
            return
        values, counts = np.unique(said[peers], return_counts=True)
        best = int(counts.max())
        if len(values) == 1 or 2 * best > max(len(peers), members):
            right = said[peers] == values[int(counts.argmax())]
            state.agreed[peers[right]] += 1
            for wrong in peers[~right]:
                if best >= 2:
                    _accuse(state, int(wrong), VOTED, row, best, len(peers))
        elif len(peers) == 2 >= members and (state.agreed[peers] > 0).all():
            for one in peers:
                _accuse(state, int(one), ONE_OF_TWO, row, 1, 2)

    def _pair(self, state: CopyState, mine: int, row: Row) -> None:
        """A step of one rank computed again, by itself (its GPU does not repeat itself) or by another (one of both)."""
        attrs = row.event.attrs
        target = whole(attrs.get("recompute_of"), row.rank)
        key = np.uint64(mark(row.run, f"rank:{target}"))
        other = int(np.searchsorted(state.rank, key))
        if other >= len(state.rank) or state.rank[other] != key or state.grads_step[other] != row.step:
            return
        if state.grads[other] == mark(attrs["recompute_hash"]):
            state.agreed[[mine, other]] += 1
            return
        if other == mine:
            _accuse(state, mine, REPLAYED, row, 1, 1)
            return
        for one, partner in ((other, row.rank), (mine, target)):
            state.against[one] |= np.uint64(1 << (partner % 52))
        twice = [one for one in (other, mine) if int(state.against[one]).bit_count() >= 2]
        for one in twice or (other, mine):
            _accuse(state, one, PAIRED if twice else ONE_OF_TWO, row, int(state.against[one]).bit_count(), 2)
        if len(twice) == 1:
            _acquit(state, twice[0])

    # --- what is said ---------------------------------------------------------------------------------------------

    def _findings(self, state: CopyState, fleet: Fleet) -> tuple[Finding, ...]:
        found = {f.key: f for f in (self._finding(state, int(at), fleet) for at in np.flatnonzero(state.since > 0))}
        return tuple(found[key] for key in sorted(found))

    def _finding(self, state: CopyState, at: int, fleet: Fleet) -> Finding:
        run = memory.column(state, state.rank_of[at])
        name, rank = str(state.run_name[run]), int(state.rank_number[at])
        step, how, host = float(state.wrong_step[at]), float(state.how[at]), str(state.rank_host[at])
        entity = _device(state, at, fleet) or rank_entity(fleet.cluster, name, rank, host)
        votes, others = int(state.votes[at]), int(state.others[at])
        said = {
            VOTED: f"holds other bits than {votes} of its {others} replicas",
            PAIRED: f"disagrees with {votes} other ranks about the same batch",
            REPLAYED: "gives another result when it repeats the same step",
            ONE_OF_TWO: "and its partner disagree about the same batch: one of the two is wrong",
        }[how]
        sure = how != ONE_OF_TWO
        where = f" on {host}" if host else ""
        plan = (
            f"Swap {entity if entity.kind == 'gpu' else f'the GPU of rank {rank}'} and check it"
            if sure
            else ("Have a third rank compute the batch again")
        )
        reason = f"{name}: rank {rank}{where} {said}, at step {int(step):,}. {plan}. {way_back(state, run, step)}"
        ref = f"step:{name}/{int(step)}"
        evidence = [Evidence("Checksums that differ", f"rank {rank}, step {int(step):,}", "equal bits", ref=ref)]
        evidence += _history(state, at, entity)
        severity, score = (Severity.CRITICAL, 0.9) if sure else (Severity.WARNING, 0.5)
        since = float(state.since[at])
        return Finding(self.name, "silent_data_corruption", entity, severity, score, since, reason, tuple(evidence))


_TOLD = frozenset({"param_hash", "grad_hash", "recompute_hash"})


def _cell(state: CopyState, row: Row) -> int:
    key = np.uint64(mark(row.run, f"rank:{row.rank}"))
    at = int(np.searchsorted(state.rank, key))
    attrs = row.event.attrs
    host, gpu = (attrs.get("host") or row.event.entity.node)[:LONGEST], attrs.get("gpu", "")[:LONGEST]
    if at == len(state.rank) or state.rank[at] != key:
        memory.grow(state, "rank", np.array([key], np.uint64), {"rank_host": [host], "rank_gpu": [gpu]})
        at = int(np.searchsorted(state.rank, key))
        state.rank_of[at], state.rank_number[at] = mark(row.run), row.rank
    elif (host and state.rank_host[at] != host) or (gpu and state.rank_gpu[at] != gpu):
        state.rank_host = memory.with_text(state.rank_host, at, host)
        state.rank_gpu = memory.with_text(state.rank_gpu, at, gpu)
        state.since[at], state.against[at] = 0.0, 0  # the rank runs elsewhere now
    return at


def _peers(state: CopyState, mine: int, steps: str) -> NDArray[np.intp]:
    """Ranks of the same run and shard that told of the same step, itself among them."""
    told = getattr(state, steps)
    same = (state.rank_of == state.rank_of[mine]) & (told == told[mine]) & (state.shard == state.shard[mine])
    return np.flatnonzero(same)


def _members(state: CopyState, mine: int, step: int) -> int:
    """How many replicas told of this step or of one just before it."""
    same = (state.rank_of == state.rank_of[mine]) & (state.shard == state.shard[mine])
    return int((same & (state.params_step >= step - 8)).sum())


def _accuse(state: CopyState, at: int, how: float, row: Row, votes: int, others: int) -> None:
    """A surer word replaces a weaker one; the first step stays."""
    if state.since[at] > 0 and (how == ONE_OF_TWO or state.how[at] == how):
        return
    if state.since[at] == 0:
        state.since[at], state.wrong_step[at] = row.at, row.step
    state.how[at], state.votes[at], state.others[at] = how, votes, others


def _acquit(state: CopyState, guilty: int) -> None:
    """Whoever disagreed with the rank that was found out, and with nobody else, is right."""
    bit = np.uint64(1 << (int(state.rank_number[guilty]) % 52))
    alone = (state.rank_of == state.rank_of[guilty]) & (state.how == ONE_OF_TWO) & (state.against == bit)
    state.since = np.where(alone, 0.0, state.since)


def _device(state: CopyState, at: int, fleet: Fleet) -> Entity | None:
    """The GPU a rank runs on, by its UUID, else by host and index."""
    gpu, host, axis = str(state.rank_gpu[at]), str(state.rank_host[at]), fleet.axes.get("gpu")
    if axis is None or not gpu:
        return None
    slot = fleet.slots.get(("gpu", gpu))
    if slot is None and host:
        name = f"{host}/gpu{gpu}"
        slot = axis.names.index(name) if name in axis.names else None
    return fleet.entity("gpu", slot) if slot is not None and slot < len(axis) else None


def _remember(state: CopyState, event: Event) -> None:
    key = np.uint64(mark(event.entity.id))
    at = int(np.searchsorted(state.past, key))
    if at == len(state.past) or state.past[at] != key:
        if len(state.past) >= memory.MOST_CELLS:
            return
        memory.grow(state, "past", np.array([key], np.uint64), {})
        at = int(np.searchsorted(state.past, key))
    if event.at > state.past_at[at]:
        state.past_n[at] += 1
        state.past_at[at] = event.at


def _mended(state: CopyState, event: Event) -> None:
    """A person said that a GPU, or its whole node, is mended."""
    host = event.entity.host
    over = (state.rank_host == host) & (state.since > 0) & (state.since <= event.at) if host else np.zeros(0, np.bool_)
    if len(over):
        state.since = np.where(over, 0.0, state.since)
        state.against = np.where(over, np.uint64(0), state.against)


def _history(state: CopyState, at: int, entity: Entity) -> Iterable[Evidence]:
    if entity.kind != "gpu":
        return ()
    past = int(np.searchsorted(state.past, np.uint64(mark(entity.id))))
    known = past < len(state.past) and state.past[past] == mark(entity.id)
    n = int(state.past_n[past]) if known else 0
    return (Evidence("Memory codes heard of this GPU", str(n), "0", ref=f"gpu:{entity.id}", grade="derived"),)
