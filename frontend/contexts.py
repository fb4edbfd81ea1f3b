"""One frozen dataclass per page: what its template may use, each field with its meaning."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Theme = Literal["", "light", "dark"]


@dataclass(frozen=True, slots=True)
class Chip:
    glyph: str  #: class of the drawn glyph: a state, a severity, ``you``, ``done`` ...
    word: str  #: what it says beside the glyph


@dataclass(frozen=True, slots=True)
class Link:
    text: str  #: what people read
    href: str  #: where it leads; empty = plain text


@dataclass(frozen=True, slots=True)
class Place:
    name: str  #: word in the rail
    href: str  #: its page
    current: bool  #: the reader is there
    badge: str = ""  #: short count beside it, ``5`` or ``1 dark``
    waiting: str = ""  #: how many of them wait for a decision; empty = none
    waits: str = ""  #: for whom, for a screen reader


@dataclass(frozen=True, slots=True)
class Told:
    good: bool  #: the request was carried out
    text: str  #: what happened, or why nothing happened
    details: tuple[str, ...] = ()  #: one line a reason, for example every guard that refuses


@dataclass(frozen=True, slots=True)
class Frame:
    title: str  #: name of the page in the browser's tab
    crumb: tuple[Link, ...]  #: where the page stands
    path: str  #: this page's own address with its query: what a refresh fetches
    places: tuple[Place, ...]  #: the rail; only pages that exist
    as_of: datetime  #: when the server read what it shows, aware UTC
    cluster: Link  #: the cluster shown
    clusters: tuple[Link, ...]  #: the others, where there are several
    simulated: bool  #: nothing here is a real machine
    size: str  #: ``384 GPUs on 48 nodes``
    mode: str  #: observe, propose or act
    mode_means: str  #: what the mode lets happen
    stopped: str  #: who threw the kill switch and when; empty while it is off
    person: str  #: who is signed in; empty = nobody
    role: str  #: viewer, operator, approver or admin
    csrf: str  #: token that each form carries; empty = no form may be sent
    theme: Theme  #: chosen by cookie; empty = as the system
    sign_in: str  #: address of the sign-in page that leads back here
    feed: int  #: number of the newest change it may show; the live stream goes on after it
    json_href: str = ""  #: the same facts as JSON; empty = none
    told: Told | None = None  #: answer to the form that was just sent


@dataclass(frozen=True, slots=True)
class Twin:
    columns: tuple[str, ...]  #: heads; one that starts with ``#`` holds numbers
    rows: tuple[tuple[str | Chip, ...], ...]  #: cells in order of the heads
    csv_href: str  #: the same rows as CSV


@dataclass(frozen=True, slots=True)
class Figure:
    id: str  #: element id; parts of the figure derive theirs from it
    url: str  #: JSON for Plotly; theme and width are added by the page
    size: str  #: class of its height: fig-s, fig-m, fig-xl, or empty where its content sets it
    label: str  #: what a person who cannot see it should know
    caption: str  #: one sentence below it
    twin: Twin  #: the accessible reading
    absent: Told | None = None  #: why there is nothing to draw
    zoom: str = ""  #: page that shows one rack alone: where a click on the map leads


@dataclass(frozen=True, slots=True)
class Count:
    state: str  #: glyph and class
    word: str  #: what is counted
    count: str  #: how many
    href: str  #: the same page filtered to it
    current: bool  #: the filter is on


@dataclass(frozen=True, slots=True)
class Ring:
    state: str  #: worst state inside the ring: its glyph
    text: str  #: ``812 gpu-0412 GPU 3``
    href: str  #: the incident


@dataclass(frozen=True, slots=True)
class Dark:
    name: str  #: ``slurm is silent since 02:58.``
    blind: str  #: what nobody can see until it returns
    href: str  #: the sources


@dataclass(frozen=True, slots=True)
class Seen:
    grade: str  #: observed, derived or inferred
    text: str  #: a few words


@dataclass(frozen=True, slots=True)
class Right:
    allowed: bool  #: may this reader press?
    why: str  #: their role, and who can; empty when allowed
    href: str = ""  #: where to sign in, where that would help


@dataclass(frozen=True, slots=True)
class Ask:
    incident: int  #: number of the incident
    href: str  #: its page
    severity: Chip  #: how loud
    note: str  #: number, age, owner
    headline: str  #: what broke
    why: str  #: why we think so
    seen: tuple[Seen, ...]  #: the strongest evidence
    pairs: tuple[tuple[str, str], ...]  #: Proposed, Will touch, Guards
    acknowledge: str  #: where the Acknowledge form goes; empty = somebody has it
    approve: Right  #: may this reader approve?
    operate: Right  #: may this reader acknowledge?


@dataclass(frozen=True, slots=True)
class IncidentRow:
    id: int  #: number
    href: str  #: its page
    severity: Chip  #: how loud
    headline: str  #: what broke
    sub: str  #: what is being done about it
    state: Chip  #: waiting, acknowledged, mitigated, resolved
    node: str  #: where
    job: str  #: whose work it hits
    open_for: str  #: how long it is or was open
    since: str  #: when it opened


@dataclass(frozen=True, slots=True)
class RunRow:
    run: str  #: name of the run, else of the job
    job: str  #: its job now
    gpus: str  #: how many it holds
    nodes: str  #: on how many nodes
    state: Chip  #: running, or hit by an incident
    since: str  #: when this attempt started
    href: str = ""  #: the page of its run


@dataclass(frozen=True, slots=True)
class DeedRow:
    text: str  #: what was asked of the cluster
    chip: Chip  #: what came of it
    by: str  #: who decided
    when: str  #: time of its last change
    note: str = ""  #: outcome or error in words
    href: str = ""  #: its incident


@dataclass(frozen=True, slots=True)
class Now:
    frame: Frame  #: rail, bar, foot
    answer: str  #: is the fleet fine, and what waits?
    healthy: str  #: ``380 of 384``
    lede: str  #: the rest of the sentence after it
    dark: tuple[Dark, ...]  #: sources that are silent
    asks: tuple[Ask, ...]  #: what waits for a person, worst first
    more_asks: int  #: how many more wait than are shown
    rows: tuple[IncidentRow, ...]  #: open incidents that nobody needs to decide about
    open_count: int  #: all that are open
    last_closed: str  #: when the last one closed, for a calm page
    counts: tuple[Count, ...]  #: GPUs by state
    map: Figure  #: the rack map
    rings: tuple[Ring, ...]  #: open incidents on the map
    day: Figure  #: healthy GPUs in the last 24 h
    runs: tuple[RunRow, ...]  #: largest running jobs
    more_runs: int  #: how many more run
    deeds: tuple[DeedRow, ...]  #: what was done in the last 24 h


@dataclass(frozen=True, slots=True)
class DeviceRow:
    name: str  #: node or GPU
    state: Chip  #: its state
    why: str  #: a sentence
    job: str  #: who works there; ``none``
    rack: str  #: where it stands
    since: str  #: how long
    incident: Link  #: its incident; text ``none`` where there is none
    href: str = ""  #: its node's page


@dataclass(frozen=True, slots=True)
class Fleet:
    frame: Frame  #: rail, bar, foot
    answer: str  #: how many are not healthy, and what to do
    lede: str  #: what they are
    counts: tuple[Count, ...]  #: filter chips
    map: Figure  #: the rack map
    map_means: str  #: what a cell, a row and a block are
    cluster: str  #: the page of racks, leaves and odd ones out
    rings: tuple[Ring, ...]  #: open incidents on the map
    rows: tuple[DeviceRow, ...]  #: not healthy, worst first
    more_rows: int  #: how many more there are than shown
    csv_href: str  #: all of them
    filtered: str  #: word of the state shown; empty = all


@dataclass(frozen=True, slots=True)
class Incidents:
    frame: Frame  #: rail, bar, foot
    answer: str  #: how many are open, and how many wait
    lede: str  #: the oldest, the loudest
    filters: tuple[Count, ...]  #: open, waiting, resolved, all
    rows: tuple[IncidentRow, ...]  #: as filtered
    older: str  #: address of the next page; empty = none
    empty: str  #: what an empty list means here


@dataclass(frozen=True, slots=True)
class Hypothesis:
    name: str  #: which fault of which thing
    reason: str  #: for and against, in one sentence
    score: str  #: 0.00 to 1.00; not a percentage


@dataclass(frozen=True, slots=True)
class GuardRow:
    glyph: str  #: pass, you or failed
    text: str  #: what it holds against
    value: str  #: measured against limit
    loud: bool  #: it stops or asks: stands first, tinted


@dataclass(frozen=True, slots=True)
class Approval:
    action: str  #: where the Approve form goes
    reject: str  #: where the Reject form goes
    button: str  #: verb and object: ``Approve drain and requeue``
    title: str  #: the dialog's question
    confirm: str  #: the verb again, on the dialog's button
    touches: tuple[Chip, ...]  #: what it touches, one line each
    type_this: str  #: name to type where more than one node is touched; empty = none


@dataclass(frozen=True, slots=True)
class DecisionPanel:
    title: str  #: Proposed, Approved, Done by itself ...
    chip: Chip | None  #: whose turn it is
    sentence: str  #: the decision in one sentence
    steps: tuple[str, ...]  #: the plan in order
    blast: tuple[tuple[str, str], ...]  #: three counts with their words, zero included
    note: str  #: what else changes, GPUs that restart
    approval: Approval | None  #: buttons and dialog; None = nothing waits
    right: Right  #: may this reader press?
    deeds: tuple[DeedRow, ...]  #: orders that came of it
    guards_head: str  #: ``Guards: 7 hold, 1 asks for you``
    guards: tuple[GuardRow, ...]  #: every guard, also those that hold
    advice: tuple[str, ...]  #: what only a person can do
    undo: str  #: how it is taken back


@dataclass(frozen=True, slots=True)
class EvidenceRow:
    what: str  #: what was looked at
    code: str  #: the raw line, where it is one
    grade: str  #: observed, derived or inferred
    seen: str  #: its value
    expected: str  #: what would have been normal
    detector: str  #: who says so


@dataclass(frozen=True, slots=True)
class Line:
    when: str  #: time, UTC
    who: str  #: person, or empty for Watchkeeper
    text: str  #: what happened
    chip: Chip  #: what kind of thing


@dataclass(frozen=True, slots=True)
class Option:
    value: str  #: what the form sends
    text: str  #: what people read


@dataclass(frozen=True, slots=True)
class Labelling:
    action: str  #: where the form goes
    said: tuple[tuple[str, str], ...]  #: the last word of each person, and who said it when
    kinds: tuple[Option, ...]  #: kinds of faults that it may have been
    classes: tuple[Option, ...]  #: what a job's own logs may have shown


@dataclass(frozen=True, slots=True)
class Alike:
    cause: str  #: what a person said that it was
    where: str  #: ``incident 812`` or ``job 4711``
    href: str  #: its page; empty = it has none
    line: str  #: its most telling line
    cosine: str  #: 0.00 to 1.00, how much the logs share


@dataclass(frozen=True, slots=True)
class Incident:
    frame: Frame  #: rail, bar, foot
    answer: str  #: what broke and what helps
    severity: Chip  #: how loud
    facts: tuple[tuple[str, str], ...]  #: label and value: Open, Owner, Dark
    hypotheses: tuple[Hypothesis, ...]  #: ranked causes
    panel: DecisionPanel | None  #: None = nothing was decided yet
    operate: Right  #: may this reader acknowledge, note, resolve?
    acknowledge: str  #: where that form goes; empty = somebody has it, or it is closed
    resolve: str  #: where that form goes; empty = it is closed
    note_action: str  #: where a note goes
    notes: tuple[Line, ...]  #: what people wrote
    lanes: Figure  #: the evidence on one time axis
    span: str  #: the time it covers
    evidence: tuple[EvidenceRow, ...]  #: what we saw
    victims: str  #: who folded under it; empty = nobody
    victim_names: tuple[str, ...]  #: their names
    before: tuple[DeedRow, ...]  #: what changed before it
    history: Link  #: the page of its node; empty = it has none
    alike: str  #: how often this was seen before
    similar: tuple[Alike, ...]  #: past failures that its job's logs resemble
    labelling: Labelling  #: was this right, and what was it really?
    timeline: tuple[Line, ...]  #: everything that happened, oldest first
    run: Link = Link("", "")  #: the page of its job's run; empty = it hit no job
    heard: tuple[DeedRow, ...] = ()  #: who was told of it, by which channel
    unheard: str = ""  #: why nobody is told of it; empty = somebody is
    cost: tuple[str, ...] = ()  #: what it costs so far, with what that rests on; empty = nothing stands still for it
    markdown: str = ""  #: its page as Markdown
    packet: Link = Link("", "")  #: what its maker needs for a return; empty = it is about no part


@dataclass(frozen=True, slots=True)
class Tile:
    label: str  #: what it is
    value: str  #: number or word
    unit: str  #: its unit
    note: str  #: interval, n, or what it means


@dataclass(frozen=True, slots=True)
class PulseRow:
    name: str  #: loop, source or detector
    state: Chip  #: fresh, silent, on time, late, failing
    last: str  #: age of the last success
    every: str  #: how often it should beat
    took: str  #: how long its last turn took
    errors: str  #: how many failed
    error: str  #: the last one, in words


@dataclass(frozen=True, slots=True)
class Switch:
    on: bool  #: no order is sent
    text: str  #: who, since when, what it means
    action: str  #: where its form goes
    right: Right  #: may this reader throw it?


@dataclass(frozen=True, slots=True)
class System:
    frame: Frame  #: rail, bar, foot
    answer: str  #: can Watchkeeper be trusted now?
    lede: str  #: loops and telemetry in numbers
    tiles: tuple[Tile, ...]  #: mode, switch, messages, dropped
    sources: tuple[PulseRow, ...]  #: where its eyes are
    age: Figure  #: age of each source's newest row
    loops: tuple[PulseRow, ...]  #: its heart
    detectors: tuple[PulseRow, ...]  #: judges that raised
    learnt: str  #: how good what people taught it is, with its n; or what is missing
    switch: Switch  #: the kill switch


@dataclass(frozen=True, slots=True)
class SignIn:
    frame: Frame  #: rail, bar, foot
    answer: str  #: what signing in is for
    action: str  #: where the form goes
    to: str  #: where to go after
    name: str  #: what was typed
    error: str  #: why the last try failed; empty = no try yet
    csrf: str  #: what the form must carry
    issuer: str  #: who else may vouch for somebody; empty = nobody


@dataclass(frozen=True, slots=True)
class Problem:
    frame: Frame  #: rail, bar, foot
    answer: str  #: what went wrong
    lede: str  #: what to do now
    back: Link  #: a page that works
