"""Context of the page Exclusions."""

from __future__ import annotations

from dataclasses import dataclass

from frontend.contexts import Chip, Frame, Link
from frontend.contexts_acting import Form, Tab


@dataclass(frozen=True, slots=True)
class Kept:
    id: str  #: of its row and forms
    node: Link  #: which node
    chip: Chip  #: whether it binds
    whose: str  #: whose work alone; empty = everybody's
    reason: str  #: why
    grounds: tuple[str, ...]  #: how sure, by what, and what was changed since
    incident: Link | None  #: what it came of
    by: str  #: who keeps it
    since: str  #: since when
    until: str  #: when it ends by itself, and in how long
    extend: str  #: where the Extend form goes; empty = this reader may not
    lift: str  #: where the Lift form goes; empty = this reader may not
    hours: str  #: what stands in the Extend form


@dataclass(frozen=True, slots=True)
class Over:
    node: Link  #: which node
    reason: str  #: why it was kept out
    incident: Link | None  #: what it came of
    by: str  #: who kept it
    span: str  #: for how long
    how: str  #: how it ended, and when
    proof: Chip  #: did it prove right?
    why: str  #: by what that is known


@dataclass(frozen=True, slots=True)
class ExclusionsPage:
    frame: Frame  #: rail, bar, foot
    answer: str  #: how many nodes are kept from work
    lede: str  #: whom it binds, and how schedulers ask
    tabs: tuple[Tab, ...]  #: what holds, what is proposed, what ended
    kept: tuple[Kept, ...]  #: what holds, or is proposed
    over: tuple[Over, ...]  #: what ended
    absent: tuple[str, str]  #: what it means that there is none
    csv: str  #: the same as CSV
    hostlist: str  #: what sbatch --exclude gets
    make: Form | None  #: the form of a new one
