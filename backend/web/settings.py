"""Settings: the configuration in force, the rules and numbers that decide, and the parts about people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, Response
from jinja2 import Environment
from sqlmodel import Session

from backend import trial
from backend.auth import allows
from backend.settings_acting import Policy
from backend.settings_shown import Shown, shown
from backend.store import findings
from backend.web.base import Visit, frame, page, visit
from frontend.contexts import Chip, Link, Right, Told
from frontend.contexts_acting import Form, Once, SettingsPage, Tab
from frontend.contexts_cost import Table
from frontend.words import count, kind_words

#: Parts of Settings: path, name, and the role that it needs.
PARTS = (
    ("/settings", "Configuration", "viewer"),
    ("/settings/rules", "Rules & thresholds", "viewer"),
    ("/settings/people", "People", "admin"),
    ("/settings/tokens", "Tokens", "admin"),
    ("/settings/audit", "Audit", "admin"),
    ("/settings/account", "Your account", "vendor"),
)
#: How far back the findings of what runs in shadow are counted.
SHADOW_DAYS = 7
Seen = Annotated[Visit, Depends(visit)]


def router(pages: Environment) -> APIRouter:
    found = APIRouter()

    @found.get("/settings")
    def configuration(seen: Seen, show: str = "set") -> Response:
        with seen.parts.store.read() as session:
            return page(seen, pages, of_configuration(session, seen, show))

    @found.get("/settings/rules")
    def rules(seen: Seen) -> Response:
        with seen.parts.store.read() as session:
            return page(seen, pages, of_rules(session, seen))

    return found


def part(
    session: Session,
    seen: Visit,
    path: str,
    answer: str,
    lede: str,
    tables: Sequence[Table] = (),
    forms: Sequence[Form] = (),
    *,
    json_href: str = "",
    told: Told | None = None,
    once: Once | None = None,
    filters: Sequence[Tab] = (),
    query: dict[str, str] | None = None,
    locked: Right | None = None,
) -> SettingsPage:
    """One part of Settings in its frame."""
    name = next(text for one, text, _ in PARTS if one == path)
    crumb = (Link("Settings", seen.link("/settings") if path != "/settings" else ""), Link(name, ""))
    return SettingsPage(
        frame=frame(session, seen, f"{name} · Settings", crumb, json_href, told, seen.link(path, **(query or {}))),
        answer=answer,
        lede=lede,
        tabs=tuple(Tab(text, seen.link(one), one == path) for one, text, _ in PARTS),
        filters=tuple(filters),
        once=once,
        tables=tuple(tables),
        forms=tuple(forms),
        locked=locked,
    )


def closed(seen: Visit, path: str, why: str, make: Callable[[Session], SettingsPage]) -> SettingsPage:
    """A part that needs a role, or why it is closed to this reader."""
    with seen.parts.store.read() as session:
        need = next(role for one, _, role in PARTS if one == path)
        if seen.signed_in and allows(seen.person, need) and not (need == "admin" and seen.person.clusters):
            return make(session)
        return part(session, seen, path, why, "", locked=seen.right(need, "look at this part"))


# --- the configuration ------------------------------------------------------------------------------------------------


def of_configuration(session: Session, seen: Visit, show: str) -> SettingsPage:
    rows = [row for row in shown(seen.parts.settings) if _of_cluster(row, seen)]
    set_here = [row for row in rows if row.ours]
    everything = show == "all"
    listed = rows if everything else set_here
    sections = list(dict.fromkeys(_section(row) for row in listed))
    files = sorted(
        {row.origin.rpartition(":")[0] or row.origin for row in set_here if not row.origin.startswith("env")}
    )
    held = [row for row in rows if row.secret and row.value != "not set"]
    filters = (
        Tab(f"{len(set_here)} set here", seen.link("/settings"), not everything),
        Tab(f"all {len(rows)} keys", seen.link("/settings", show="all"), everything),
    )
    told = f"They come from {', '.join(files)}" if files else "No file is read: every key has its default"
    return part(
        session,
        seen,
        "/settings",
        f"{count(len(set_here), 'key')} of {len(rows)} {'is' if len(set_here) == 1 else 'are'} set here; "
        f"the mode is {seen.watch.rules.mode}.",
        f"{told}. {count(len(held), 'secret')} {'is' if len(held) == 1 else 'are'} set and not shown. A change of the "
        "configuration is a change of its file and a new start; watchkeeper doctor says what is wrong with it.",
        [_table(name, [row for row in listed if _section(row) == name]) for name in sections]
        or [Table("none", "Nothing is set here", "", (), (), ("Every key has its default.", "See all keys above."))],
        json_href=seen.link("/api/v1/settings"),
        filters=filters,
        query={"show": "all"} if everything else {},
    )


def _of_cluster(row: Shown, seen: Visit) -> bool:
    """Who is limited to clusters does not see how others are reached."""
    if not row.key.startswith("cluster["):
        return True
    place = int(row.key[len("cluster[") :].partition("]")[0])
    return seen.person.sees_cluster(seen.parts.settings.cluster[place].name)


def _section(row: Shown) -> str:
    return row.key.rpartition(".")[0].partition(".")[0] or "general"


def _table(name: str, rows: Sequence[Shown]) -> Table:
    made = tuple((row.key, _value(row), row.origin, row.meaning) for row in rows)
    identity = "part-" + "".join(letter if letter.isalnum() else "-" for letter in name)
    return Table(identity, name.capitalize(), "", ("Key", "=Value", "~Set by", "~=Meaning"), made, ("", ""))


def _value(row: Shown) -> str | Chip:
    return Chip("lock", row.value) if row.secret else row.value


# --- rules and thresholds --------------------------------------------------------------------------------------------


def of_rules(session: Session, seen: Visit) -> SettingsPage:
    limits, thresholds = seen.watch.rules.limits, seen.watch.catalogue.thresholds
    changed = [one for one in thresholds.values() if one.source == "site"]
    wrong = trial.wrong_with(seen.watch)
    rules = limits.rules
    said = f"{count(len(rules), 'rule')} of this site" if rules else "No rule of this site"
    flaw = f" {count(len(wrong), 'mistake')}: {wrong[0]}." if wrong else ""
    return part(
        session,
        seen,
        "/settings/rules",
        f"{said}; {len(changed)} of {len(thresholds)} thresholds differ from the default.",
        f"Guards run when a plan is made, at the click, and once more in the claim.{flaw} "
        "watchkeeper policy explain says what a rule would do.",
        (_rules(seen), _shadows(session, seen), _guards(seen), _thresholds(seen), _kinds(seen)),
        json_href=seen.link("/api/v1/policy"),
    )


def _rules(seen: Visit) -> Table:
    rows = tuple(
        (
            rule.name,
            ", ".join(rule.kinds) or "all kinds",
            " > ".join(rule.ladder) or f"exclude {rule.exclude}",
            Chip("info", "shadow") if rule.shadow else Chip("ok", "in force"),
        )
        for rule in seen.watch.rules.limits.rules
    )
    heads = ("Rule", "~Kinds", "=Ladder", "!State")
    empty = ("This site has no rule of its own.", "Each kind has its ladder, below; [[policy.rule]] replaces one.")
    return Table("rules", "Rules of this site", "The first that fits replaces a kind's ladder.", heads, rows, empty)


def _shadows(session: Session, seen: Visit) -> Table:
    """Rules and detectors that only say what they would do."""
    rules = [rule.name for rule in seen.watch.rules.limits.rules if rule.shadow]
    rows = tuple((name, "rule", "its plan is told in the decision, and never carried out") for name in rules)
    rows += tuple(_shadow(session, seen, name) for name in seen.watch.rules.shadow)
    empty = (
        "Nothing runs in shadow.",
        "A rule with shadow = true says what it would have done, and does nothing; [[cluster]] shadow names detectors "
        "and kinds whose findings are only shown.",
    )
    return Table("shadow", "In shadow", "", ("Name", "What", "=What it does"), rows, empty)


def _shadow(session: Session, seen: Visit, name: str) -> tuple[str, str, str]:
    """A detector or kind in shadow, and what it would have said of late."""
    since = seen.now - timedelta(days=SHADOW_DAYS)
    number, newest = findings.shadowed(session, seen.watch.cluster, name, since)
    said = f"{count(number, 'finding')} in {SHADOW_DAYS} days"
    last = f"; the newest: {newest.reason}" if newest is not None else ""
    return name, "kind" if name in seen.watch.catalogue.kinds else "detector", f"{said}{last}"


def _guards(seen: Visit) -> Table:
    limits = asdict(seen.watch.rules.limits)
    origins = {row.key: row.origin for row in shown(seen.parts.settings)}
    rows = tuple(
        (name, _number(limits[name]), origins.get(f"policy.{name}", "default"), found.description or "")
        for name, found in Policy.model_fields.items()
        if name in limits and name != "rules"
    )
    return Table("guards", "Numbers of the guards", "", ("Name", "#Value", "~Set by", "=Meaning"), rows, ("", ""))


def _thresholds(seen: Visit) -> Table:
    base = seen.parts.catalogue.thresholds
    rows = tuple(
        (
            name,
            f"{one.value:g} {one.unit}",
            f"this site; else {base[name].value:g}" if one.source == "site" and name in base else "default",
            base[name].source if name in base else one.source,
        )
        for name, one in sorted(seen.watch.catalogue.thresholds.items(), key=lambda pair: pair[1].source != "site")
    )
    note = "[[cluster]] thresholds sets one by name; what this site set stands first."
    return Table(
        "thresholds", "Thresholds of the detectors", note, ("Name", "#Value", "~Set by", "~=Source"), rows, ("", "")
    )


def _kinds(seen: Visit) -> Table:
    rows = tuple(
        (kind_words(kind.kind), Chip(kind.severity.word, kind.severity.word), " > ".join(kind.ladder), kind.exclude)
        for kind in seen.watch.catalogue.kinds.values()
    )
    heads = ("Kind", "!Severity", "=Ladder", "~Excludes")
    return Table("kinds", "What is done about each kind of fault", "", heads, rows, ("", ""))


def _number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return ", ".join(map(str, value)) or "none" if isinstance(value, tuple | list) else str(value)
