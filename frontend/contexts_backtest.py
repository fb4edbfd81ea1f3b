"""Context of the page that tries another rule set on the past."""

from __future__ import annotations

from dataclasses import dataclass

from frontend.contexts import Frame
from frontend.contexts_acting import Form, Tab
from frontend.contexts_cost import Table


@dataclass(frozen=True, slots=True)
class Going:
    title: str  #: what runs
    text: str  #: what it is at
    percent: int  #: how much is done


@dataclass(frozen=True, slots=True)
class BacktestPage:
    frame: Frame  #: rail, bar, foot
    answer: str  #: what came of it, in one sentence
    lede: str  #: what was tried, and what that leaves out
    tabs: tuple[Tab, ...]  #: the list, and this one
    going: Going | None  #: how far it is; None = nothing runs here
    tables: tuple[Table, ...]  #: both sides, differences; or the list
    forms: tuple[Form, ...]  #: begin, or cancel, adopt, withdraw
