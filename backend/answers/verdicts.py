"""May work go to this node? The frozen snapshot behind every verdict, and the answers drawn from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from sqlmodel import Session

from backend.answers.exclusions import BINDING
from backend.answers.exclusions import live as live_rows
from backend.clients import hostlist
from backend.facts import Rung, Verb
from backend.model.actions import Decision, Exclusion
from backend.model.incidents import Incident
from backend.store import actions, incidents
from backend.store import cluster as cluster_rows
from detectors.model import Severity

Word = Literal["ok", "suspect", "exclude", "unknown"]

#: Incidents that say "we cannot see", which is not "something is wrong".
DARKNESS = frozenset({"telemetry_dark", "telemetry_frozen"})
#: Entities of work, not of machines: a user's bug is no reason against a node.
OF_WORK = frozenset({"job", "run", "rank"})
#: A question that names no job: only what keeps everybody away counts.
NOBODY: frozenset[str] = frozenset()
#: A node that nothing was heard of for this long is not "ok": four telemetry intervals of the default 15 s.
FRESH_S = 60.0


@dataclass(frozen=True, slots=True)
class Hold:
    """One reason to keep new work from a node. ``origin`` "proposed" stands for a plan nobody has approved.

    ``scope``: whose work it keeps away, as in job:41207 or account:nlp; empty = everybody's.
    """

    origin: str
    reason: str
    owner: str = ""
    until: datetime | None = None
    scope: str = ""

    @property
    def binds(self) -> bool:
        return self.origin in BINDING


@dataclass(frozen=True, slots=True)
class Trouble:
    """One live incident that touches a node; ``score`` 0..1 of the hypothesis about it."""

    incident: int
    kind: str
    headline: str
    score: float
    severity: Severity


@dataclass(frozen=True, slots=True)
class Sight:
    """What is known of a node apart from trouble: when it was last heard of, and whether its scheduler uses it."""

    heard_at: datetime
    out: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """Everything verdicts of one cluster need, as of ``at``. Never changes; make a new one.

    ``listed``: the exclusions and plans as rows. ``stale``: when it was read, where it is judged later than that
    because the database does not answer. ``fine``: the nodes of which nothing but good is known; ``scoped``: whether
    any hold keeps away the work of some only.
    """

    cluster: str
    at: datetime
    nodes: Mapping[str, Sight]
    holds: Mapping[str, tuple[Hold, ...]]
    troubles: Mapping[str, tuple[Trouble, ...]]
    dark: Mapping[str, str]
    fresh_s: float = FRESH_S
    listed: tuple[Mapping[str, Any], ...] = ()
    stale: datetime | None = None
    fine: frozenset[str] = field(init=False)
    scoped: bool = field(init=False)

    def __post_init__(self) -> None:
        since = self.at - timedelta(seconds=self.fresh_s)
        seen = {name for name, sight in self.nodes.items() if sight.heard_at >= since and not sight.out}
        fine = seen.difference(self.holds, self.troubles, self.dark)
        object.__setattr__(self, "fine", frozenset(() if self.stale else fine))
        object.__setattr__(self, "scoped", any(h.scope for holds in self.holds.values() for h in holds))

    @property
    def as_of(self) -> datetime:
        """When it was true."""
        return self.stale or self.at

    def later(self, now: datetime) -> Snapshot:
        """The same, judged at ``now``, because nothing newer can be read: what was not heard of since is unknown, and
        what ran out since holds no longer."""
        at = max(now, self.at)
        listed = tuple(row for row in self.listed if row["until"] is None or row["until"] > at)
        return replace(self, at=at, stale=self.as_of, listed=listed)


@dataclass(frozen=True, slots=True)
class Verdict:
    """``score`` is None where nothing is known. ``until``: when the last binding exclusion ends by itself."""

    node: str
    verdict: Word
    binding: bool
    score: float | None
    reasons: tuple[str, ...]
    incidents: tuple[int, ...]
    until: datetime | None
    as_of: datetime


@dataclass(frozen=True, slots=True)
class Answer:
    """Which of the asked nodes to leave out.

    exclude: under a binding exclusion. avoid: advice only (an unapproved proposal, or suspect). unknown: not seen, so
    not vouched for. ``hostlist`` folds exclude, with advice also avoid; ``binding`` is True where it holds binding
    nodes only, and at least one.
    """

    exclude: tuple[str, ...]
    avoid: tuple[str, ...]
    unknown: tuple[str, ...]
    hostlist: str
    binding: bool
    reasons: Mapping[str, tuple[str, ...]]
    as_of: datetime


# --- taking the snapshot --------------------------------------------------------------------------------------------


def snapshot(session: Session, cluster: str, now: datetime, fresh_s: float = FRESH_S) -> Snapshot:
    """Read all of it in one session, so that the parts agree with each other."""
    live = incidents.live_real(session, cluster)
    proposals, held = actions.standing(session, cluster), actions.live_exclusions(session, cluster, now)
    planned = {node: plan for plan in reversed(proposals) for node in kept_from(plan)}
    return Snapshot(
        cluster=cluster,
        at=now,
        nodes={row.name: _sight(row) for row in cluster_rows.sights(session, cluster)},
        holds=_holds(held, proposals),
        troubles=_troubles(live),
        dark={row.node: row.headline for row in live if row.kind in DARKNESS and row.node},
        fresh_s=fresh_s,
        listed=tuple(live_rows(session, held, planned)),
    )


def _sight(row: cluster_rows.Seen) -> Sight:
    words = [word for word in (row.state, *row.flags) if word.lower() in ("down", "error", "drain", "fail")]
    if not words:
        return Sight(row.last_seen)
    owner = f" by {row.reason_owner}" if row.reason_owner else ""
    because = f": {row.reason}" if row.reason else ""
    return Sight(row.last_seen, f"Its scheduler has it out ({' '.join(words).lower()}{owner}){because}")


def _holds(exclusions: Iterable[Exclusion], decisions: Iterable[Decision]) -> dict[str, tuple[Hold, ...]]:
    found: defaultdict[str, list[Hold]] = defaultdict(list)
    for row in exclusions:
        found[row.node].append(Hold(row.origin, row.reason, row.owner, row.until, row.scope))
    for decision in decisions:
        for node in dict.fromkeys(kept_from(decision)):
            found[node].append(Hold("proposed", decision.sentence))
    return {node: tuple(holds) for node, holds in found.items()}


def kept_from(decision: Decision) -> list[str]:
    """Nodes that a plan would keep new work from: it excludes or drains them."""
    steps = decision.plan
    return [str(s["node"]) for s in steps if s["node"] and (s["rung"] == Rung.EXCLUDE or s["verb"] == Verb.DRAIN)]


def _troubles(live: Iterable[Incident]) -> dict[str, tuple[Trouble, ...]]:
    """Live incidents by the nodes their cause sits on. Folded victims are not to blame, and are left out."""
    found: defaultdict[str, list[Trouble]] = defaultdict(list)
    for row in live:
        if row.kind in DARKNESS or row.entity_kind in OF_WORK or row.id is None:
            continue
        scores = _scores(row)
        for node in dict.fromkeys((row.node, *scores)):
            if node:
                score = scores.get(node, 0.0)
                found[node].append(Trouble(row.id, row.kind, row.headline, score, Severity.of(row.severity)))
    return {node: tuple(troubles) for node, troubles in found.items()}


def _scores(row: Incident) -> dict[str, float]:
    """The best hypothesis about each node, of those about machines."""
    best: dict[str, float] = {}
    for hypothesis in row.hypotheses:
        node = str(hypothesis.get("node") or "")
        if node and hypothesis.get("entity_kind") not in OF_WORK:
            best[node] = max(best.get(node, 0.0), float(hypothesis.get("score") or 0.0))
    return best


# --- drawing answers ------------------------------------------------------------------------------------------------


def verdict(seen: Snapshot, node: str, scopes: frozenset[str] = NOBODY) -> Verdict:
    """The word on one node, for work of these ``scopes``. A name that was never seen, or not lately, is ``unknown``,
    never ``ok``."""
    if node in seen.fine:
        return Verdict(node, "ok", False, 0.0, (), (), None, seen.as_of)
    sight, troubles = seen.nodes.get(node), seen.troubles.get(node, ())
    live = [hold for hold in seen.holds.get(node, ()) if hold.until is None or hold.until > seen.at]
    holds = [hold for hold in live if not hold.scope or hold.scope in scopes]
    binding = [hold for hold in holds if hold.binds]
    unseen = _unseen(seen, node, sight)
    reasons = [_said(hold) for hold in (*binding, *(h for h in holds if not h.binds))]
    reasons += [f"{t.headline} (incident {t.incident}, {t.severity.word})" for t in troubles]
    reasons += [sight.out] if sight is not None and sight.out else []
    reasons += [unseen] if unseen else []
    reasons += [_said(hold) for hold in live if hold.scope and hold.scope not in scopes]
    reasons += [f"The database does not answer; last read {_moment(seen.stale)}."] if seen.stale else []
    word: Word = "ok"
    if holds:
        word = "exclude"
    elif troubles or (sight is not None and sight.out):
        word = "suspect"
    elif unseen:
        word = "unknown"
    score = max((t.score for t in troubles), default=0.0)
    return Verdict(
        node=node,
        verdict=word,
        binding=bool(binding),
        score=None if word == "unknown" else 1.0 if binding else round(score, 3),
        reasons=tuple(dict.fromkeys(reasons)),
        incidents=tuple(t.incident for t in troubles),
        until=max((h.until for h in binding if h.until is not None), default=None),
        as_of=seen.as_of,
    )


def _said(hold: Hold) -> str:
    if hold.origin == "proposed":
        return f"Proposed, not approved: {hold.reason}"
    whom = f" for {hold.scope.replace(':', ' ', 1)} only" if hold.scope else ""
    return f"Excluded by {hold.owner or hold.origin}{whom}: {hold.reason}"


def _unseen(seen: Snapshot, node: str, sight: Sight | None) -> str:
    """Why nothing good can be said of a node; empty where it was seen fresh."""
    if sight is None:
        return f"No node {node} is known in cluster {seen.cluster}."
    if node in seen.dark:
        return f"{seen.dark[node]} It cannot be judged."
    if (seen.at - sight.heard_at).total_seconds() > seen.fresh_s:
        return f"Nothing was heard of it since {_moment(sight.heard_at)}."
    return ""


def _moment(at: datetime | None) -> str:
    """A time as a reason tells it: the same words until something is heard again, so that the answer stays the same."""
    return at.strftime("%Y-%m-%d %H:%M:%S UTC") if at is not None else "never"


def query(seen: Snapshot, nodes: Iterable[str], *, advisory: bool = False, scopes: frozenset[str] = NOBODY) -> Answer:
    """What to leave out of ``nodes``; with ``advisory`` the hostlist also names what we would only advise against."""
    fine = seen.fine
    return drawn(seen, [verdict(seen, node, scopes) for node in dict.fromkeys(nodes) if node not in fine], advisory)


def drawn(seen: Snapshot, asked: Sequence[Verdict], advisory: bool) -> Answer:
    """As ``query``, from the verdicts of the asked nodes that are not fine, each once."""
    exclude = tuple(v.node for v in asked if v.binding)
    avoid = tuple(v.node for v in asked if not v.binding and v.verdict in ("exclude", "suspect"))
    listed = (*exclude, *avoid) if advisory else exclude
    return Answer(
        exclude=exclude,
        avoid=avoid,
        unknown=tuple(v.node for v in asked if v.verdict == "unknown"),
        hostlist=hostlist.render(listed),
        binding=bool(exclude) and len(listed) == len(exclude),
        reasons={v.node: v.reasons for v in asked if v.verdict != "ok" or (v.reasons and not seen.stale)},
        as_of=seen.as_of,
    )
