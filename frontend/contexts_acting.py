"""Contexts of the pages about who may do what and what is done: Settings and Actions."""

from __future__ import annotations

from dataclasses import dataclass

from frontend.contexts import Chip, DeedRow, Frame, GuardRow, Link, Option, Right, Switch
from frontend.contexts_cost import Table


@dataclass(frozen=True, slots=True)
class Input:
    name: str  #: what the form sends it as
    label: str  #: what people read
    hint: str = ""  #: how to fill it in
    kind: str = "text"  #: text, password, number, select or area
    options: tuple[Option, ...] = ()  #: of a select
    needed: bool = False  #: the form is not sent without it
    value: str = ""  #: what stands in it
    complete: str = "off"  #: what a browser may fill in (autocomplete)


@dataclass(frozen=True, slots=True)
class Form:
    id: str  #: of its panel and, with a suffix, of its inputs
    title: str  #: what it does
    note: str  #: what happens then
    action: str  #: where it goes
    button: str  #: the verb again
    inputs: tuple[Input, ...] = ()  #: what is asked
    right: Right = Right(True, "")  #: may this reader send it?
    primary: bool = False  #: the one thing to press here
    size: str = "c-5"  #: columns that its panel takes


@dataclass(frozen=True, slots=True)
class Tab:
    text: str  #: name of the part
    href: str  #: where it is
    current: bool  #: the reader is there


@dataclass(frozen=True, slots=True)
class Once:
    title: str  #: what it is
    text: str  #: the secret itself; it is never shown again
    note: str  #: how it is used


@dataclass(frozen=True, slots=True)
class SettingsPage:
    frame: Frame  #: rail, bar, foot
    answer: str  #: what holds here, in one sentence
    lede: str  #: what to know about this part
    tabs: tuple[Tab, ...]  #: the parts of Settings
    filters: tuple[Tab, ...]  #: all of it, or what this site set
    once: Once | None  #: a token that was just made
    tables: tuple[Table, ...]  #: what there is
    forms: tuple[Form, ...]  #: what may be changed here
    locked: Right | None = None  #: why this part is closed to its reader


@dataclass(frozen=True, slots=True)
class Waiting:
    id: int  #: of the decision
    incident: Link  #: what it is about
    severity: Chip  #: how loud
    chip: Chip  #: whose turn it is
    sentence: str  #: the plan in one sentence
    steps: tuple[str, ...]  #: in order
    touches: tuple[Chip, ...]  #: what it touches, one line each
    guards_head: str  #: how many hold, ask, refuse
    guards: tuple[GuardRow, ...]  #: each guard, what stops or asks first
    costs: tuple[str, ...]  #: the ways on with what each costs; restart step; spares
    persons: str  #: who approved so far and who has to as well; empty = one person suffices
    approve: str  #: where the Approve form goes
    reject: str  #: where the Reject form goes
    button: str  #: verb and object
    type_this: str  #: what has to be typed where more than one node is touched; empty = none
    right: Right  #: may this reader press?


@dataclass(frozen=True, slots=True)
class Going:
    deed: DeedRow  #: what was asked, what came of it
    cancel: str  #: where the Cancel form goes; empty = it can no longer be cancelled
    undo: str  #: where the Undo form goes; empty = there is nothing to undo


@dataclass(frozen=True, slots=True)
class Breaker:
    chip: Chip  #: closed or tripped
    text: str  #: why it was tripped, and what that means
    action: str  #: where its form goes; empty = it is closed
    right: Right  #: may this reader reset it?


@dataclass(frozen=True, slots=True)
class ActionsPage:
    frame: Frame  #: rail, bar, foot
    answer: str  #: what waits for whom
    lede: str  #: mode and what it lets happen
    filters: tuple[Tab, ...]  #: what is listed
    waiting: tuple[Waiting, ...]  #: plans that wait for a person
    none_waits: tuple[str, str]  #: what it means that none does
    going: tuple[Going, ...]  #: orders under way
    uncertain: tuple[Going, ...]  #: orders of which nobody knows whether they ran
    done: tuple[Going, ...]  #: those that ended
    older: str  #: where the rest is; empty = that was all
    breaker: Breaker  #: the breaker and its reset
    switch: Switch  #: the kill switch
    right: Right  #: may this reader cancel and undo?


@dataclass(frozen=True, slots=True)
class HardwarePage:
    frame: Frame  #: rail, bar, foot
    answer: str  #: how many faults are open on how many nodes
    lede: str  #: what is left out
    tables: tuple[Table, ...]  #: faults, codes, checks
