"""Records that Slurm prints as ``Key=value`` text: partitions, reservations, switches and blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from backend.clients.slurm_values import NEVER, RecordError, names_of, number, span_of, text_of, time_of, words_of
from backend.facts import MaintenanceFacts, NodeFacts

#: Flags of a reservation that takes its nodes out of service (man scontrol, RESERVATIONS).
MAINTENANCE = frozenset({"MAINT"})
_PAIR = re.compile(r"(?:^|\s)(?P<key>[A-Za-z][A-Za-z0-9_/:]*)=")


@dataclass(frozen=True, slots=True)
class Partition:
    """A queue: its nodes, whether it takes jobs (UP, DOWN, DRAIN, INACTIVE), its longest job in s (None = no limit)."""

    name: str
    nodes: tuple[str, ...] = ()
    state: str = ""
    default: bool = False
    limit_s: float | None = None


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes kept for a span (unix s; end None = no end) by flags such as MAINT."""

    name: str
    nodes: tuple[str, ...]
    start: float
    end: float | None
    flags: frozenset[str] = frozenset()
    users: tuple[str, ...] = ()

    @property
    def maintenance(self) -> bool:
        return bool(self.flags & MAINTENANCE)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the topology puts a node: its leaf switch, the switches above it up to the top, its block."""

    leaf: str = ""
    above: tuple[str, ...] = ()
    block: str = ""


def records_of(text: str, first: str) -> Iterator[dict[str, str]]:
    """Records of ``scontrol show`` with their keys, one a line or one a paragraph; each begins with ``first``.

    A value goes on to the next ``Key=``; of a key that stands twice the first counts.
    """
    for record in re.split(rf"^(?={re.escape(first)}=)", text, flags=re.MULTILINE):
        if not record.startswith(f"{first}="):
            continue
        found = list(_PAIR.finditer(record))
        ends = [match.start() for match in found[1:]] + [len(record)]
        fields: dict[str, str] = {}
        for match, end in zip(found, ends, strict=True):
            fields.setdefault(match["key"], record[match.end() : end].strip())
        yield fields


# --- partitions -----------------------------------------------------------------------------------------------------


def parse_partitions(text: str) -> list[Partition]:
    """``scontrol -a show partition``, one-line or not. Raises RecordError for a node list that is none."""
    return [
        Partition(
            name=fields["PartitionName"],
            nodes=names_of(fields.get("Nodes")),
            state=text_of(fields.get("State")),
            default=fields.get("Default") == "YES",
            limit_s=span_of(fields.get("MaxTime", "")),
        )
        for fields in records_of(text, "PartitionName")
    ]


def read_partitions(document: Any) -> list[Partition]:
    """Partitions of the REST, v0.0.38 (flat) and later (nested). Raises RecordError."""
    return [_partition(record) for record in _listed(document, "partitions")]


def _partition(record: Mapping[str, Any]) -> Partition:
    nodes, most = record.get("nodes"), _under(record, "maximums").get("time", record.get("max_time_limit"))
    state = _under(record, "partition").get("state", record.get("state"))
    minutes = number(most)
    flags = [word.upper() for word in words_of(record.get("flags"))]
    return Partition(
        name=str(record.get("name") or ""),
        nodes=names_of(nodes.get("configured") if isinstance(nodes, Mapping) else nodes),
        state="+".join(words_of(state)),
        default="DEFAULT" in flags,
        limit_s=minutes * 60.0 if minutes and minutes > 0 else None,
    )


# --- reservations ---------------------------------------------------------------------------------------------------


def parse_reservations(text: str) -> list[Reservation]:
    """``scontrol show reservation``, one-line or not. Raises RecordError."""
    found = []
    for fields in records_of(text, "ReservationName"):
        start, end = time_of(fields.get("StartTime")), time_of(fields.get("EndTime"))
        if start is not None:
            flags = frozenset(word.upper() for word in words_of(fields.get("Flags")))
            users = words_of(fields.get("Users")) + words_of(fields.get("Accounts"))
            nodes = names_of(fields.get("Nodes"))
            found.append(Reservation(fields["ReservationName"], nodes, start, _endless(end), flags, users))
    return found


def read_reservations(document: Any) -> list[Reservation]:
    """Reservations of the REST. Raises RecordError."""
    found = []
    for record in _listed(document, "reservations"):
        start, end = time_of(record.get("start_time")), time_of(record.get("end_time"))
        if start is not None:
            flags = frozenset(word.upper() for word in words_of(record.get("flags")))
            users = words_of(record.get("users")) + words_of(record.get("accounts"))
            nodes = names_of(record.get("node_list"))
            found.append(Reservation(str(record.get("name") or ""), nodes, start, _endless(end), flags, users))
    return found


def _endless(end: float | None) -> float | None:
    return end if end is not None and end < NEVER else None


def maintenances(reservations: list[Reservation]) -> tuple[MaintenanceFacts, ...]:
    """What was announced as maintenance. Its name alone is no identity: a repeated one moves on under its name."""
    return tuple(
        MaintenanceFacts(
            name=f"{one.name}@{one.start:.0f}",
            nodes=one.nodes,
            start=one.start,
            end=one.end,
            text=f"reservation {one.name} ({', '.join(sorted(one.flags))})",
            source="slurm",
        )
        for one in reservations
        if one.maintenance
    )


# --- topology -------------------------------------------------------------------------------------------------------


def parse_topology(text: str) -> dict[str, Place]:
    """Node to place, of ``scontrol show topology``: topology/tree (SwitchName, Level, Nodes, Switches) and
    topology/block (BlockName, Nodes); several topologies one after the other. What is not told stays empty."""
    places: dict[str, Place] = {}
    switches = sorted(records_of(text, "SwitchName"), key=lambda fields: _level(fields))
    for fields in switches:
        name, level = fields["SwitchName"], _level(fields)
        for node in names_of(fields.get("Nodes")):
            known = places.get(node, Place())
            if level == 0:
                places[node] = replace(known, leaf=known.leaf or name)
            else:
                places[node] = replace(known, above=tuple(dict.fromkeys((*known.above, name))))
    for fields in records_of(text, "BlockName"):
        for node in names_of(fields.get("Nodes")):
            places[node] = replace(places.get(node, Place()), block=fields["BlockName"])
    return places


def _level(fields: Mapping[str, str]) -> int:
    """0 for a leaf. Versions that print no Level: a switch of switches stands above."""
    said = fields.get("Level", "")
    return int(said) if said.isdigit() else int("Switches" in fields)


def placed(node: NodeFacts, place: Place | None) -> NodeFacts:
    """The node with its leaf, and its block as its NVLink domain."""
    if place is None:
        return node
    labels = dict(node.labels)
    if place.above:
        labels["switches"] = ",".join(place.above)
    return replace(node, switch=place.leaf or node.switch, clique=place.block or node.clique, labels=labels)


# --- JSON -----------------------------------------------------------------------------------------------------------


def _listed(document: Any, name: str) -> list[Mapping[str, Any]]:
    records = document.get(name) if isinstance(document, Mapping) else None
    if not isinstance(records, list) or not all(isinstance(record, Mapping) for record in records):
        raise RecordError(f"no list of {name} in the answer")
    return records


def _under(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    inner = record.get(name)
    return inner if isinstance(inner, Mapping) else {}
