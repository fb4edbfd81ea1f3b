"""What the Alerts page shows, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

from frontend.contexts import Chip, Frame, Link, Right, Tile
from frontend.contexts_cost import Table


@dataclass(frozen=True, slots=True)
class DeadLetter:
    id: int  #: number of the delivery
    what: Link  #: the message, and where it leads
    channel: str  #: what did not take it
    when: str  #: age
    error: str  #: what the channel answered
    action: str  #: where the form goes


@dataclass(frozen=True, slots=True)
class SilenceRow:
    id: int  #: its number
    chip: Chip  #: silence or maintenance; holds now, or will
    what: str  #: what it matches
    comment: str  #: why
    by: str  #: whose it is
    span: str  #: from when to when
    action: str  #: where the form that ends it goes


@dataclass(frozen=True, slots=True)
class Input:
    name: str  #: of the field
    label: str  #: above it
    hint: str  #: below it
    value: str = ""  #: what is in it
    kind: str = "text"  #: text, number, select
    choices: tuple[str, ...] = ()  #: of a select


@dataclass(frozen=True, slots=True)
class Word:
    route: str  #: name of the route
    chip: Chip  #: takes it, or not
    why: str  #: in words
    where: str  #: channels and recipients
    when: str  #: at once, after 30 s, in the digest
    then: str  #: what follows while nobody acknowledges


@dataclass(frozen=True, slots=True)
class Preview:
    action: str  #: address of the page: the form is a GET
    inputs: tuple[Input, ...]  #: kind, severity, node, job
    answer: str  #: one sentence; empty: nothing was asked
    seen: str  #: the alert as routing sees it
    words: tuple[Word, ...]  #: what each route says
    error: str = ""  #: what is wrong with the question


@dataclass(frozen=True, slots=True)
class AlertsPage:
    frame: Frame  #: rail, bar, foot
    answer: str  #: one line
    lede: str  #: what waits and what is held
    tiles: tuple[Tile, ...]  #: sent, waiting, given up, held back
    dead: tuple[DeadLetter, ...]  #: what was given up
    silences: tuple[SilenceRow, ...]  #: those that hold, and those to come
    right: Right  #: may this reader silence and send again?
    silence_action: str  #: where the form goes
    silence_inputs: tuple[Input, ...]  #: its fields
    preview: Preview  #: who would be told
    log: Table  #: what was sent
    groups: Table  #: what is open
    held: Table  #: what nobody is told of
