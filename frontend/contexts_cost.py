"""Contexts of the pages about what failures cost: runs, one run, reliability, storage, the planner, the report."""

from __future__ import annotations

from dataclasses import dataclass

from frontend.contexts import Chip, Count, Figure, Frame, Link, Right
from frontend.contexts_cluster import Range

Cell = str | Chip | Link


@dataclass(frozen=True, slots=True)
class Measure:
    label: str  #: what it is
    value: str  #: number or word
    unit: str  #: its unit
    note: str  #: interval and n
    href: str  #: where it is defined


@dataclass(frozen=True, slots=True)
class Table:
    id: str  #: of its panel
    title: str  #: what it lists
    note: str  #: what that means, in one sentence; empty = none
    heads: tuple[str, ...]  #: ``#`` before a column of numbers, ``~`` before one that narrow pages drop
    rows: tuple[tuple[Cell, ...], ...]  #: in order of the heads
    empty: tuple[str, str]  #: what it means that there are none
    more: Link | None = None  #: where the rest is
    size: str = ""  #: columns that it takes: c-7, c-5; empty = all


@dataclass(frozen=True, slots=True)
class Plot:
    title: str  #: what it shows
    note: str  #: key or sentence above it
    figure: Figure  #: it
    href: str  #: where its numbers are defined


@dataclass(frozen=True, slots=True)
class RunsPage:
    frame: Frame  #: rail, bar, foot
    answer: str  #: which run needs a look
    lede: str  #: what the list holds, and how it is counted
    filters: tuple[Count, ...]  #: by state
    table: Table  #: what moved last first


@dataclass(frozen=True, slots=True)
class Why:
    title: str  #: ``Why attempt 7 stopped``
    text: str  #: the verdict
    pairs: tuple[tuple[str, Cell], ...]  #: cause, node, lost, next
    loud: bool  #: it is the infrastructure's


@dataclass(frozen=True, slots=True)
class Labelling:
    action: str  #: where the form goes
    jobs: tuple[tuple[str, str], ...]  #: job and what is said of it, the newest first
    said: tuple[tuple[str, str], ...]  #: the last word of each person, and who said it when, the newest first
    causes: tuple[str, ...]  #: classes and kinds that may be named
    right: Right  #: may this reader say?


@dataclass(frozen=True, slots=True)
class RunPage:
    frame: Frame  #: rail, bar, foot
    answer: str  #: hardware or my code, and its ETTR
    state: Chip  #: of the newest attempt
    facts: tuple[tuple[str, Cell], ...]  #: job, size, user, begun
    why: Why  #: the last failure
    losses: Plot  #: waterfall
    attempts: Plot  #: on one time axis
    training: tuple[Plot, ...]  #: its curves, its ranks, its layers, its sampler
    sliding: Plot  #: ETTR of each past hour
    table: Table  #: attempts with their verdicts
    advice: Table  #: how often to save, as measured
    more: tuple[Table, ...]  #: Q + R + U, and by role
    labelling: Labelling  #: was it right?


@dataclass(frozen=True, slots=True)
class ReliabilityPage:
    frame: Frame  #: rail, bar, foot
    answer: str  #: better or worse, and what stands out
    lede: str  #: numbers behind it
    ranges: tuple[Range, ...]  #: how far back
    measures: tuple[Measure, ...]  #: three to five
    plots: tuple[Plot, ...]  #: two a row: 7 and 5 columns
    lemons: Table  #: nodes that stand out
    tables: tuple[Table, ...]  #: components, loops, differences, risk, chains, exclusions
    note: str  #: what was left out
    links: tuple[Link, ...]  #: weekly report, storage, planner, definitions


@dataclass(frozen=True, slots=True)
class StoragePage:
    frame: Frame  #: rail, bar, foot
    answer: str  #: do saves cost too much?
    lede: str  #: what it rests on
    ranges: tuple[Range, ...]  #: how far back
    measures: tuple[Measure, ...]  #: saves, loads
    plots: tuple[Plot, ...]  #: time that saves block, by run
    tables: tuple[Table, ...]  #: advice by run


@dataclass(frozen=True, slots=True)
class Field:
    name: str  #: of the form
    label: str  #: what it asks
    value: str  #: as it stands in the address
    unit: str  #: of the value
    hint: str  #: what is taken where it is empty, and whence
    kind: str = "number"  #: number or checkbox


@dataclass(frozen=True, slots=True)
class PlannerPage:
    frame: Frame  #: rail, bar, foot
    answer: str  #: the ETTR to expect
    lede: str  #: what it rests on
    action: str  #: where the form goes
    fields: tuple[Field, ...]  #: the plan
    error: str  #: why it cannot be; empty = it can
    measures: tuple[Measure, ...]  #: ETTR, failures, interval, spares
    plots: tuple[Plot, ...]  #: by size, by interval
    jobs: str  #: jobs to choose from, one a line
    choice: Table  #: which of them to run


@dataclass(frozen=True, slots=True)
class ReportPage:
    frame: Frame  #: rail, bar, foot
    answer: str  #: its headline
    why: str  #: what cost most
    facts: tuple[tuple[str, str], ...]  #: label and value
    most: tuple[str, ...]  #: causes, the dearest first
    advice: str  #: what to do
    span: str  #: the days that it tells of


@dataclass(frozen=True, slots=True)
class Definition:
    id: str  #: the anchor
    name: str  #: the word
    text: str  #: what it means
    formula: str  #: how it is counted; empty = by words alone


@dataclass(frozen=True, slots=True)
class DefinitionsPage:
    frame: Frame  #: rail, bar, foot
    answer: str  #: what the page is
    words: tuple[Definition, ...]  #: in order of the name
