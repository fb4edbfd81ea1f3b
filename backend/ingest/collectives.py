"""Calls of communicators as their ranks saw them: rows of our own, NCCL Inspector, NCCL RAS, PyTorch's flight recorder.

Each becomes one fact with the attributes that ``detectors/training/told.py`` names. Forms of other tools are read as
their documentation gives them; what a form does not tell (the rank of a flight recorder's file) is said beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

import orjson
from pydantic import BeforeValidator, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from backend.facts import Batch
from backend.ingest.base import SourceError
from backend.ingest.rows import (
    MAX_AHEAD_S,
    MAX_ROWS,
    MaybeMoment,
    Moment,
    Name,
    Reject,
    Rejects,
    Row,
    loaded,
    problem_of,
)
from backend.ingest.steps import MAX_COUNT, Amount, Member, Whole
from backend.reported import ToldFacts
from detectors.training.told import COLLECTIVE

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BETWEEN = re.compile(r"(\d+)\s*(?:->|<-)\s*(\d+)")
#: Bytes of one element, by the start of its name in PyTorch.
_BYTES = {"Double": 8, "Long": 8, "Float8": 1, "Float": 4, "Int": 4, "Half": 2, "BFloat16": 2, "Short": 2}


def _comm(value: object) -> object:
    return value if isinstance(value, str) else str(value) if isinstance(value, int) else value


class CollectiveRow(Row):
    """One call as one rank saw it. ``ts`` is when it was told; ``end`` null: it is not done. ``src``, ``dst``: ranks of
    one transfer. ``seq`` numbers the calls of a communicator, ``ranks`` is how many belong to it."""

    ts: Moment
    run: Name = ""
    job: Name = ""
    comm: Annotated[Name, BeforeValidator(_comm)] = ""
    op: Name = ""
    seq: Annotated[Whole, Field(ge=0, le=MAX_COUNT)] = 0
    rank: Member = None
    ranks: Member = None
    host: Name = ""
    gpu: Annotated[Name, BeforeValidator(_comm)] = ""
    src: Member = None
    dst: Member = None
    bytes: Amount = None
    start: MaybeMoment = None
    end: MaybeMoment = None
    entered: MaybeMoment = None

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if not self.run and not self.job:
            raise PydanticCustomError("whose", "needs run or job")
        if self.rank is None and self.src is None:
            raise PydanticCustomError("rank", "needs rank, or src and dst")
        if self.start is not None and self.end is not None and self.end < self.start:
            raise PydanticCustomError("order", "ends before it starts")
        return self


@dataclass(frozen=True, slots=True)
class Whose:
    """What the address of a push says of all its rows, where they do not say it themselves."""

    run: str = ""
    job: str = ""
    rank: int | None = None
    host: str = ""

    def fill(self, row: Mapping[str, Any]) -> dict[str, Any]:
        own = {"run": self.run, "job": self.job, "rank": self.rank, "host": self.host}
        return {
            **{k: v for k, v in own.items() if v not in ("", None)},
            **{k: v for k, v in row.items() if v is not None},
        }


def collectives_batch(body: bytes, now: float, whose: Whose) -> tuple[Batch, tuple[Reject, ...]]:
    """Rows of a JSON array, of JSON lines, or one document of a tool. ``now`` in unix s.

    Raises SourceError(permanent=True) where nothing can be read of the body at all.
    """
    rejects = Rejects()
    found: list[ToldFacts] = []
    for place, document in _documents(body, rejects):
        for row in _rows(document, now):
            if len(found) >= MAX_ROWS:
                raise SourceError(f"The body tells over {MAX_ROWS:,} calls; send less at once.", permanent=True)
            try:
                one = CollectiveRow.model_validate(whose.fill(row))
            except ValidationError as error:
                rejects.add(place, *problem_of(error))
                continue
            if max(one.ts, one.end or 0.0) > now + MAX_AHEAD_S:
                rejects.add(place, "ts", "lies in the future: is the clock of its host right?")
                continue
            found.append(facts_of(one))
    return Batch("collectives", now, now, told=tuple(found)), tuple(rejects.told)


def _documents(body: bytes, rejects: Rejects) -> Iterator[tuple[int, Any]]:
    if not body.strip():
        raise SourceError("The body is empty. Send a JSON array or one JSON object a line.", permanent=True)
    try:
        whole, _ = loaded(body)
    except orjson.JSONDecodeError:
        for place, line in enumerate(body.split(b"\n")):
            if line.strip():
                try:
                    yield place, loaded(line)[0]
                except orjson.JSONDecodeError as error:
                    rejects.add(place, "row", f"is not JSON: {error}")
        return
    yield from enumerate(whole if isinstance(whole, list) else [whole])


def facts_of(row: CollectiveRow) -> ToldFacts:
    said: dict[str, object] = {
        "comm": row.comm, "seq": row.seq, "ranks": row.ranks, "gpu": row.gpu or None, "src": row.src, "dst": row.dst,
        "bytes": row.bytes, "start": row.start, "end": row.end, "entered": row.entered,
    }  # fmt: skip
    attrs = {
        name: value if isinstance(value, str) else repr(value) for name, value in said.items() if value is not None
    }
    rank = row.rank if row.rank is not None else row.src
    return ToldFacts(row.ts, COLLECTIVE, operation(row.op), row.run, row.job, rank, row.host, attrs)


def operation(name: str) -> str:
    """``all_reduce`` for AllReduce, nccl:all_reduce, ALL_REDUCE and _all_reduce_base; ``send`` for nccl:send 0->1."""
    plain = name.rpartition(":")[2].split(" ")[0]
    plain = _CAMEL.sub("_", plain).lower().strip("_").removeprefix("nccl_")
    plain = plain.removesuffix("_base").removesuffix("_coalesced").strip("_")
    joined = {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter",
              "alltoall": "all_to_all", "sendrecv": "send_recv"}  # fmt: skip
    return joined.get(plain, plain)[:64] or "call"


# --- forms of tools -------------------------------------------------------------------------------------------------


def _rows(document: Any, now: float) -> Iterator[Mapping[str, Any]]:
    """The calls that one document tells, whatever tool wrote it."""
    if not isinstance(document, dict):
        yield {"row": "no object"}
    elif isinstance(document.get("entries"), list):
        yield from _flight(document, now)
    elif isinstance(document.get("communicators"), list):
        for comm in document["communicators"]:
            if isinstance(comm, dict):
                yield from _ras(comm, _number(document.get("timestamp")) or now, document)
    elif isinstance(document.get("coll_perf"), dict) or isinstance(document.get("p2p_perf"), dict):
        yield from _inspector(document, now)
    else:
        yield document


def _inspector(document: Mapping[str, Any], now: float) -> Iterator[dict[str, Any]]:
    """NCCL Inspector: header (communicator, rank), metadata (host, time of the dump) and one call with its length."""
    header, about = _dict(document.get("header")), _dict(document.get("metadata"))
    told = _number(about.get("dump_timestamp_us"))
    at = told / 1e6 if told is not None else now
    for part, kind in (("coll_perf", "coll"), ("p2p_perf", "p2p")):
        call = _dict(document.get(part))
        if not call:
            continue
        length = _number(call.get(f"{kind}_exec_time_us"))
        times = {} if length is None else {"start": at - length / 1e6, "end": at}
        peer = call.get("peer", call.get(f"{kind}_peer"))
        yield {
            "ts": at, "comm": header.get("id"), "rank": header.get("rank"), "ranks": header.get("n_ranks"),
            "host": about.get("hostname"), "op": call.get(kind), "seq": call.get(f"{kind}_sn"),
            "bytes": call.get(f"{kind}_msg_size_bytes"), "run": document.get("run"), "job": document.get("job"),
            **times,
            **({"src": header.get("rank"), "dst": peer} if peer is not None else {}),
        }  # fmt: skip


def _ras(comm: Mapping[str, Any], at: float, whole: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """NCCL RAS: how many calls of each kind every rank has begun. Those ahead of the others wait in theirs."""
    ranks = (
        [one for one in comm.get("ranks", ()) if isinstance(one, dict)] if isinstance(comm.get("ranks"), list) else []
    )
    counts = [_dict(one.get("collective_counts", one.get("collectiveCounts"))) for one in ranks]
    for op in sorted({name for told in counts for name in told}):
        begun = [_number(told.get(op)) for told in counts]
        known = [n for n in begun if n is not None]
        if not known or max(known) == 0:
            continue
        for one, n in zip(ranks, begun, strict=True):
            waits = n == max(known) > min(known)
            yield {
                "ts": at, "comm": f"{comm.get('hash', comm.get('id', ''))}", "op": op, "seq": int(n or 0),
                "rank": one.get("rank"), "ranks": comm.get("size", comm.get("n_ranks", len(ranks))),
                "host": one.get("host"), "start": at, "end": None if waits else at, "run": whole.get("run"),
                "job": whole.get("job"), "gpu": one.get("nvml_dev", one.get("cuda_dev")),
            }  # fmt: skip


def _flight(document: Mapping[str, Any], now: float) -> Iterator[dict[str, Any]]:
    """PyTorch's flight recorder as JSON: one call an entry; a call that has not completed has no end."""
    sizes = {str(k): _dict(v) for k, v in _dict(document.get("pg_config")).items()}
    for entry in document["entries"]:
        if not isinstance(entry, dict):
            continue
        group = entry.get("process_group")
        comm = str(entry.get("pg_id", "")) if not isinstance(group, list) else ":".join(str(part) for part in group)
        created, began = (_ns(entry.get(name)) for name in ("time_created_ns", "time_discovered_started_ns"))
        ended, length = _ns(entry.get("time_discovered_completed_ns")), _number(entry.get("duration_ms"))
        if length is not None and ended is not None:
            began = ended - length / 1e3
        name = str(entry.get("profiling_name", ""))
        p2p = _BETWEEN.search(name)
        done = ended if entry.get("state") == "completed" else None
        ranks = sizes.get(str(entry.get("pg_id", "")), {}).get("ranks")
        seq = entry.get("p2p_seq_id") if entry.get("is_p2p") else entry.get("collective_seq_id", entry.get("seq_id"))
        yield {
            "ts": done or began or created or now, "comm": comm, "op": name, "rank": document.get("rank"),
            "seq": seq, "start": began or created, "entered": created, "end": done, "bytes": _size(entry),
            "host": document.get("host"),
            "run": document.get("run"), "job": document.get("job"),
            "ranks": len(ranks) if isinstance(ranks, list) else None,
            **({"src": int(p2p[1]), "dst": int(p2p[2])} if p2p else {}),
        }  # fmt: skip


def _size(entry: Mapping[str, Any]) -> float | None:
    shapes, kinds = entry.get("input_sizes"), entry.get("input_dtypes")
    if not isinstance(shapes, list) or not isinstance(kinds, list):
        return None
    total = 0.0
    for shape, kind in zip(shapes, kinds, strict=False):
        each = next((size for start, size in _BYTES.items() if str(kind).startswith(start)), 4)
        count = 1.0
        for n in shape if isinstance(shape, list) else ():
            count *= _number(n) or 0.0
        total += each * count
    return total


def _dict(found: object) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}


def _number(found: object) -> float | None:
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return float(found) if abs(found) < 1e300 else None


def _ns(found: object) -> float | None:
    number = _number(found)
    return number / 1e9 if number is not None and number > 0 else None
