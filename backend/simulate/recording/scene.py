"""The stage on which trouble is planned: whom it can strike at a moment, and how it leaves lines, effects and truth."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from backend.simulate.recording.codes import dressed
from backend.simulate.recording.effects import Effect
from backend.simulate.recording.plant import Card, Node, Plant, Port
from backend.simulate.recording.timetable import Timetable
from backend.simulate.recording.work import Attempt, Run

CONTROLLER = "slurm-ctl1"


@dataclass(frozen=True, slots=True)
class Sight:
    """One thing that shows a fault, by ``how``.

    line: a log line stands exactly there; at: a row or a job's own line does. gpu, node, site: the next scrape of that
    exporter of ``node``; busy: the same while its job steps; coupled: the same in the next whole tick. row: the next
    training row of ``run``; step: the row of the first step that began in a whole tick; saved: its next finished save.
    """

    how: str
    after: float
    node: int = -1
    run: str = ""


@dataclass(slots=True)
class Fault:
    """One row of truth in the making; ``end`` unix s."""

    kind: str
    variant: str
    entity: str
    start: float
    end: float
    exclude: bool
    exclude_ok: bool
    first_xid: float | None = None
    job: str | None = None
    run: str | None = None
    nodes: tuple[str, ...] = ()
    sights: list[Sight] = field(default_factory=list)


@dataclass(slots=True)
class Dip:
    """What trouble does to a run's losses between two times. ``what``: spike, climb, nan, waves, logits, router,
    policy, stale or replica."""

    run: str
    what: str
    start: float
    end: float
    size: float = 1.0
    rank: int = -1


class Unfit(Exception):
    """Nothing on this stage can be struck this way now."""


@dataclass(slots=True)
class Scene:
    """``dice`` are those of the trouble being planned; ``tense`` maps node rows to when they are quiet again."""

    site: Plant
    table: Timetable
    start: float
    end: float
    dice: random.Random
    effects: list[Effect] = field(default_factory=list)
    lines: list[tuple[float, str, str, str, float | None]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    dips: list[Dip] = field(default_factory=list)
    relabels: list[tuple[int, float, float, dict[str, str]]] = field(default_factory=list)
    twins: list[tuple[int, float, float]] = field(default_factory=list)
    boots: list[tuple[int, float]] = field(default_factory=list)
    tense: dict[int, float] = field(default_factory=dict)

    # --- choosing --------------------------------------------------------------------------------------------------

    def attempt(self, now: float, vendor: str = "", for_s: float = 240.0, full: bool = False) -> Attempt:
        """An attempt that steps now and has been left alone; ``full``: one of its nodes has the optional metrics on.

        Raises Unfit.
        """
        fit = [
            one
            for one in self.table.stepping(now, for_s)
            if (not vendor or one.run.vendor == vendor)
            and (not full or any(self.site.nodes[row].full for row in one.nodes))
            and all(self.tense.get(row, 0.0) <= now for row in one.nodes)
        ]
        if not fit:
            raise Unfit(f"no {vendor} job steps undisturbed")
        return self.dice.choice(fit)

    def card(self, now: float, vendor: str = "nvidia", full: bool = False) -> tuple[Attempt, Card]:
        """A card of a stepping job, on a node with the optional metrics where ``full``. Raises Unfit."""
        attempt = self.attempt(now, vendor, full=full)
        rows = [row for row in attempt.nodes if self.site.nodes[row].full or not full]
        return attempt, self.dice.choice(self.site.nodes[self.dice.choice(rows)].cards)

    def node(self, now: float) -> tuple[Attempt, Node]:
        attempt = self.attempt(now)
        return attempt, self.site.nodes[self.dice.choice(attempt.nodes)]

    def spare(self, now: float) -> Node:
        """A node without work that has been left alone. Raises Unfit."""
        fit = [row for row in self.table.spare(now) if self.tense.get(row, 0.0) <= now]
        if not fit:
            raise Unfit("no node is spare")
        return self.site.nodes[self.dice.choice(fit)]

    def port(self, now: float) -> tuple[Attempt, Node, Port]:
        attempt, node = self.node(now)
        return attempt, node, self.dice.choice(node.ports)

    # --- saying ----------------------------------------------------------------------------------------------------

    def say(self, at: float, host: str, source: str, line: str, heard_at: float | None = None) -> Sight:
        """One log line; ``heard_at`` where it arrived at another time than it says."""
        if self.start <= at <= self.end or heard_at is not None:
            self.lines.append((round(at, 3), host, source, line, heard_at))
        return Sight("line", round(at, 3))

    def kernel(self, at: float, node: Node, lines: Iterable[str], gap_s: float = 0.05) -> list[Sight]:
        return [self.say(at + i * gap_s, node.name, "kernel", dressed(node, at, line)) for i, line in enumerate(lines)]

    def slurm(self, at: float, text: str) -> Sight:
        stamp = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
        return self.say(at, CONTROLLER, "slurmctld", f"[{stamp}] {text}")

    def cry(self, attempt: Attempt, at: float, lines: Sequence[str], rank: int = 0) -> Sight:
        """Lines of one rank's own log."""
        for i, line in enumerate(lines):
            attempt.said.append((round(at + 0.01 * i, 3), rank, line))
        return Sight("at", round(at, 3))

    def act(
        self, channel: str, rows: Sequence[int], start: float, end: float, size: float = 1.0, ramp: float = 0.0
    ) -> None:
        self.effects.append(Effect(channel, tuple(rows), start, end, size, ramp))

    def rank(self, attempt: Attempt, node: int, card: int = 0) -> int:
        return attempt.nodes.index(node) * self.site.cards_a_node + card if node in attempt.nodes else 0

    # --- truth -----------------------------------------------------------------------------------------------------

    def fault(
        self, kind: str, variant: str, entity: str, start: float, end: float, exclude: bool,
        attempt: Attempt | None = None, exclude_ok: bool | None = None, run: Run | None = None,
    ) -> Fault:  # fmt: skip
        """A row of truth; nodes of its attempt are its victims and are left alone until some minutes after it."""
        made = Fault(kind, variant, entity, round(start, 3), round(min(end, self.end), 3), exclude,
                     exclude if exclude_ok is None else exclude_ok)  # fmt: skip
        if attempt is not None:
            made.job, made.run = attempt.job, attempt.run.name
            made.nodes = tuple(self.site.nodes[row].name for row in attempt.nodes)
            self.tense.update({row: max(self.tense.get(row, 0.0), end + 900.0) for row in attempt.nodes})
        elif run is not None:
            made.run = run.name
        self.faults.append(made)
        return made

    def left(self, now: float) -> float:
        """Seconds of the recording after ``now``."""
        return max(self.end - now, 1.0)
