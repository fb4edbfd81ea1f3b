"""PyTorch flight-recorder dumps of one job: who never came to a collective, and who came and stopped."""

from __future__ import annotations

import io
import json
import pickle
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: A dump is at most a few MiB (2,000 entries by default); a larger file is none.
MAX_BYTES = 256 << 20
_NUMBER = re.compile(r"\d{1,7}")


class FlightError(ValueError):
    """A file that is no dump of a flight recorder; the text says what it is instead."""


@dataclass(frozen=True, slots=True)
class Dump:
    """One rank. By group name: ``enqueued`` and ``completed`` are the last sequence numbers, ``waits`` the oldest
    collective that is not done; ``ranks`` who belongs to it, ``what`` its description. ``last_ns``: newest entry."""

    rank: int
    enqueued: Mapping[str, int]
    completed: Mapping[str, int]
    waits: Mapping[str, tuple[int, str]]
    ranks: Mapping[str, tuple[int, ...]]
    what: Mapping[str, str]
    last_ns: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """What holds the job up. ``absent``: ranks that never joined what others wait for. ``stopped``: joined, and stand
    still. ``group``: description of the group most of them share. ``waiting``: ranks that wait for another."""

    absent: tuple[int, ...] = ()
    stopped: tuple[int, ...] = ()
    group: str = ""
    operation: str = ""
    waiting: tuple[int, ...] = ()

    @property
    def culprits(self) -> tuple[int, ...]:
        return tuple(sorted({*self.absent, *self.stopped}))


class _Plain(pickle.Unpickler):
    """Containers, text and numbers only: a dump holds nothing else, and a pickle that does is not trusted."""

    def find_class(self, module: str, name: str) -> Any:
        raise FlightError(f"the pickle asks for {module}.{name}; a dump of a flight recorder needs no class")


def load(raw: bytes) -> Mapping[str, Any]:
    """A dump as it was written, pickle or JSON. Raises FlightError."""
    if len(raw) > MAX_BYTES:
        raise FlightError(f"{len(raw):,} bytes are too many for a dump")
    try:
        found = json.loads(raw) if raw.lstrip()[:1] == b"{" else _Plain(io.BytesIO(raw)).load()
    except FlightError:
        raise
    except (
        pickle.UnpicklingError,
        ValueError,
        EOFError,
        KeyError,
        IndexError,
        TypeError,
        AttributeError,
        MemoryError,
        OverflowError,
        RecursionError,
    ) as error:
        raise FlightError(f"neither a pickle nor JSON of a flight recorder: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("entries"), list):
        raise FlightError("it has no entries")
    return found


def dump_of(found: Mapping[str, Any], rank: int) -> Dump:
    """What the dump of one rank comes to; entries of unknown shape are left out."""
    enqueued: dict[str, int] = {}
    completed: dict[str, int] = {}
    waits: dict[str, tuple[int, str]] = {}
    names: dict[str, str] = {}
    last_ns = 0
    for entry in found["entries"]:
        if not isinstance(entry, dict) or entry.get("is_p2p"):
            continue
        group, seq = _group(entry), entry.get("collective_seq_id")
        if not group or not isinstance(seq, int):
            continue
        names[str(entry.get("pg_id"))] = group
        enqueued[group] = max(seq, enqueued.get(group, 0))
        created = entry.get("time_created_ns")
        last_ns = max(last_ns, created if isinstance(created, int) else 0)
        if entry.get("state") == "completed" or entry.get("retired"):
            completed[group] = max(seq, completed.get(group, 0))
        elif group not in waits or seq < waits[group][0]:
            waits[group] = (seq, str(entry.get("profiling_name", "")))
    _status(found.get("pg_status"), names, enqueued, completed)
    ranks, what = _config(found.get("pg_config"))
    return Dump(rank, enqueued, completed, waits, ranks, what, last_ns)


def _group(entry: Mapping[str, Any]) -> str:
    group = entry.get("process_group")
    return str(group[0]) if isinstance(group, list | tuple) and group else str(entry.get("pg_id", ""))


def _status(status: Any, names: Mapping[str, str], enqueued: dict[str, int], completed: dict[str, int]) -> None:
    """The recorder's own counters know more than its ring of entries."""
    for key, counters in status.items() if isinstance(status, dict) else ():
        group = names.get(str(key))
        if group is None or not isinstance(counters, dict):
            continue
        for word, into in (("last_enqueued_collective", enqueued), ("last_completed_collective", completed)):
            value = counters.get(word)
            if isinstance(value, int):
                into[group] = max(value, into.get(group, 0))


def _config(config: Any) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    ranks: dict[str, tuple[int, ...]] = {}
    what: dict[str, str] = {}
    for key, group in config.items() if isinstance(config, dict) else ():
        if isinstance(group, dict):
            ranks[str(key)] = tuple(int(n) for n in _NUMBER.findall(str(group.get("ranks", ""))[:4_000_000]))
            what[str(key)] = str(group.get("desc", ""))
    return ranks, what


@dataclass(slots=True)
class _Waits:
    """Who waits for whom: edges from a rank to those that did not join, with the group and the operation."""

    on: dict[int, set[int]] = field(default_factory=dict)
    why: dict[int, Counter[tuple[str, str]]] = field(default_factory=dict)

    def add(self, rank: int, other: int, group: str, operation: str) -> None:
        self.on.setdefault(rank, set()).add(other)
        self.why.setdefault(other, Counter())[(group, operation)] += 1


def held(dumps: Sequence[Dump]) -> Held:
    """What holds these ranks up.

    A rank waits for the members of a group that have not enqueued the collective it stands in. Those who are waited
    for and wait for nobody never came; a member without a dump counts as absent. Those who stand in collectives that
    others of their groups finished came, and stopped.
    """
    by_rank = {dump.rank: dump for dump in dumps}
    waits = _edges(by_rank)
    wanted = {other for others in waits.on.values() for other in others}
    absent = {rank for rank in wanted if not (waits.on.get(rank, set()) - {rank})} or _loop(waits, wanted)
    absent |= _quiet(by_rank, absent)
    stopped = _stopped(by_rank) - absent
    why = Counter[tuple[str, str]]()
    for rank in absent:
        why += waits.why.get(rank, Counter())
    group, operation = why.most_common(1)[0][0] if why else ("", "")
    return Held(
        tuple(sorted(absent)),
        tuple(sorted(stopped)),
        group,
        operation,
        tuple(sorted(rank for rank in waits.on if rank not in absent)),
    )


def _edges(by_rank: Mapping[int, Dump]) -> _Waits:
    waits = _Waits()
    for rank, dump in sorted(by_rank.items()):
        for group, (seq, operation) in dump.waits.items():
            for other in dump.ranks.get(group, ()):
                there = by_rank.get(other)
                if other != rank and (there is None or there.enqueued.get(group, 0) < seq):
                    waits.add(rank, other, dump.what.get(group, group), operation)
    return waits


def _loop(waits: _Waits, wanted: set[int]) -> set[int]:
    """Everybody waits for somebody: the ranks that most others wait for stand at the head of the queue."""
    counts = Counter(other for others in waits.on.values() for other in others if other in wanted)
    most = max(counts.values(), default=0)
    return {rank for rank, count in counts.items() if count == most}


def _quiet(by_rank: Mapping[int, Dump], absent: set[int]) -> set[int]:
    """Ranks that stand in no collective at all although their peers do."""
    quiet = {rank for rank, dump in by_rank.items() if not dump.waits and rank not in absent}
    return quiet if absent and len(quiet) <= max(1, len(by_rank) // 4) else set()


def _stopped(by_rank: Mapping[int, Dump]) -> set[int]:
    """Ranks whose device stands still in collectives that other members of the group finished.

    A collective ends for all its members at about the same time, but each learns of it when its watchdog looks, so
    one group that lags proves nothing: at least two must, and half of those the rank stands in.
    """
    furthest: dict[str, int] = {}
    for dump in by_rank.values():
        for group, seq in dump.completed.items():
            furthest[group] = max(seq, furthest.get(group, 0))
    found = set()
    for rank, dump in by_rank.items():
        behind = sum(seq <= furthest.get(group, 0) for group, (seq, _) in dump.waits.items())
        if behind >= 2 and 2 * behind >= len(dump.waits):
            found.add(rank)
    return found if 2 * len(found) < len(by_rank) else set()


def ranks_of(world: Iterable[int]) -> str:
    """``rank 3``, ``ranks 3, 9 and 14``: for people."""
    words = [str(rank) for rank in sorted(world)]
    return "ranks " + " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else f"rank {''.join(words)}"
