"""Contexts of the pages about the cluster over time: a node, a device, the whole; each field with its meaning."""

from __future__ import annotations

from dataclasses import dataclass

from frontend.contexts import Chip, Figure, Frame, Link


@dataclass(frozen=True, slots=True)
class Range:
    text: str  #: ``7 days``
    href: str  #: the same page over it
    current: bool  #: it is shown


@dataclass(frozen=True, slots=True)
class VersionRow:
    item: str  #: driver, kernel, VBIOS of a card
    value: str  #: what runs
    source: str  #: by whose word
    since: str  #: since when it is known
    odd: str  #: how many of its kind run what instead; empty = it runs what its kind runs


@dataclass(frozen=True, slots=True)
class SeatRow:
    device: Link  #: its id, and its own page
    where: str  #: index and address, or node and index
    span: str  #: from when to when
    model: str  #: what it is


@dataclass(frozen=True, slots=True)
class CheckRow:
    name: str  #: which check, and with whom
    chip: Chip  #: passed, failed, not known
    text: str  #: what it said
    when: str  #: time, UTC
    occasion: str  #: before a return, or a sweep
    incident: Link  #: what was opened for it; text empty = nothing


@dataclass(frozen=True, slots=True)
class NodePage:
    frame: Frame  #: rail, bar, foot
    answer: str  #: may work go there, with the first reason
    course: str  #: what it went through, in a sentence
    verdict: tuple[Link, ...]  #: every reason for the answer; those of incidents lead there
    facts: tuple[tuple[str, str], ...]  #: rack, leaf, NVLink domain, model, boot
    ranges: tuple[Range, ...]  #: how far back
    lanes: Figure  #: jobs, incidents, exclusions, outages, changes on one time axis
    span: str  #: the time it covers
    versions: tuple[VersionRow, ...]  #: what it runs
    cards: tuple[SeatRow, ...]  #: which GPUs sat in it, newest first
    cables: tuple[tuple[str, str], ...]  #: port and leaf, mount and server
    runs: tuple[Link, ...] = ()  #: the runs of its last jobs, the newest first
    checks: tuple[CheckRow, ...] = ()  #: what checks found of it, the newest first


@dataclass(frozen=True, slots=True)
class DevicePage:
    frame: Frame  #: rail, bar, foot
    answer: str  #: where it sits, and what it went through
    facts: tuple[tuple[str, str], ...]  #: model, address, first seen
    ranges: tuple[Range, ...]  #: how far back
    lanes: Figure  #: places, jobs, incidents, exclusions, outages, changes
    span: str  #: the time it covers
    seats: tuple[SeatRow, ...]  #: where it sat, newest first


@dataclass(frozen=True, slots=True)
class OddRow:
    item: str  #: driver, kernel ...
    value: str  #: what few run
    who: tuple[Link, ...]  #: they, and their pages; the first few
    more: str  #: how many more; empty = none
    others: str  #: ``511 of 512 run 575.51.03``
    group: str  #: their kind
    source: str  #: by whose word


@dataclass(frozen=True, slots=True)
class PartRow:
    name: str  #: rack, leaf, domain or server
    nodes: str  #: how many are in it
    out: str  #: how many of them are out
    hosts: str  #: as a hostlist
    note: str  #: rails of a leaf


@dataclass(frozen=True, slots=True)
class PartTable:
    id: str  #: kind, for the table's id
    title: str  #: Racks, Leaves, NVLink domains ...
    known: str  #: ``48 of 48 nodes placed``
    rows: tuple[PartRow, ...]  #: the largest first
    more: int  #: how many more there are


@dataclass(frozen=True, slots=True)
class ChangeRow:
    what: str  #: driver of gpu-021
    now: str  #: what it is
    before: str  #: what it was
    who: str  #: by whom, or whose word
    when: str  #: how long ago
    href: str  #: the node's page; empty = the whole cluster


@dataclass(frozen=True, slots=True)
class ClusterPage:
    frame: Frame  #: rail, bar, foot
    answer: str  #: who differs, and how much of the topology is known
    lede: str  #: what that is worth
    odd: tuple[OddRow, ...]  #: rarest first
    compared: str  #: how many items of how many kinds were compared
    parts: tuple[PartTable, ...]  #: topology by kind
    unknown: tuple[str, ...]  #: kinds of which nothing is known
    changes: tuple[ChangeRow, ...]  #: newest first
