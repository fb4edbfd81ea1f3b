"""Many quiet incidents in one message at one hour: the digest of a route."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from backend.model.incidents import Incident
from backend.tidings import MessageFacts
from detectors.model import Severity

#: A digest lists this many; the rest is counted, and stands on the page.
LISTED = 40


def digest_of(number: int, route: str, like: MessageFacts, incidents: Sequence[Incident]) -> MessageFacts:
    """The digest of ``incidents`` (one at least), loudest first. ``like``: a message of one of them, for address and
    time; ``number`` makes its id."""
    rows = sorted(incidents, key=lambda row: (-Severity.of(row.severity), row.opened_at, row.id or 0))
    count = len(rows)
    kinds = Counter(row.kind.replace("_", " ") for row in rows)
    most = ", ".join(f"{n:,} {kind}" if n > 1 else kind for kind, n in kinds.most_common(3))
    open_ = sum(row.state != "resolved" for row in rows)
    name = f"{like.cluster}-digest-{number}"
    return replace(
        like,
        id=name,
        thread=name,
        kind="digest",
        incident=0,
        severity=Severity.of(rows[0].severity),
        headline=f"{count:,} alert{'' if count == 1 else 's'} gathered: {most}.",
        why=f"Nobody was woken for these. {open_:,} of {count:,} are still open.",
        facts=(("Route", route), ("Open", f"{open_:,} of {count:,}")),
        evidence=tuple(f"{row.severity}: {row.headline}" for row in rows[:LISTED])
        + ((f"{count - LISTED:,} more on the Alerts page",) if count > LISTED else ()),
        advice="",
        url=like.url.rpartition("/incidents/")[0] + "/alerts" if like.url else "",
        subject=f"{count:,} quiet alert{'' if count == 1 else 's'} of {like.cluster}",
        node="",
        job="",
        fault="",
        decision=0,
        moments=(),
        curves=(),
    )
