"""The rules of training logs: the reader of their table, the matcher of one line, and what of one stream came first.

The standard library only, and nothing newer than Python 3.8: the job wrapper carries this file to compute nodes.
"""

from __future__ import annotations

import re
from typing import Any, Iterable, Mapping, NamedTuple, Sequence  # noqa: UP035  (3.8 has no collections.abc generics)

from detectors.joblog.phrases import (
    IGNORED,
    KEPT_CHARS,
    MAX_CHARS,
    by_level_only,
    chains,
    ended,
    in_path,
    in_sample,
    is_code,
    is_key,
    is_loud,
    is_past,
    is_raised,
    is_soft,
    kept,
    quoted,
    step_of,
    told,
    tried_again,
)

#: Levels, from what may be first to what says only that something failed. good and note fail nothing.
LEVELS = ("cause", "surface", "symptom", "echo", "note", "good")
#: Signals that name a class by themselves (Linux numbers).
SIGNALS = {11: "segfault", 7: "shared_memory_exhausted"}
#: Whose a failure is, and whether to run it again, in words for a person.
SAYS = {
    "hardware": "A fault of the machine, not of your code",
    "yours": "Your job, not the machine",
    "platform": "The platform, neither your code nor a broken machine",
    "unknown": "The cause is not in these logs",
}
AGAIN = {
    "yes": "it is safe to resubmit",
    "changed": "resubmit after a change",
    "unknown": "do not resubmit blindly",
}
#: Letters by which literals are looked up in a line.
GRAM = 4
UNKNOWN = "unknown_insufficient_evidence"
CLEAN = "clean_success"
#: What a buffered stdout may still write behind a traceback of stderr (glibc and CPython use 8 KiB blocks).
BUFFER_BYTES = 8192

_BLOCK = re.compile(r"\[\[(\w+)\]\]")
_PAIR = re.compile(r"(\w+) = (.*)")
_LITERAL = re.compile(r"'''(.*?)'''|'([^']*)'")


class RuleError(ValueError):
    """A table of rules that cannot be used; the text says which block and why."""


class LogClass(NamedTuple):
    """One class: where the fault sits, whose it is, how sure its rules are, and what to do."""

    name: str
    component: str
    whose: str
    level: str
    rank: int
    exclude: str
    resubmit: str
    advice: str


class Rule(NamedTuple):
    """One form of message. ``not_after``: levels and classes that make it a consequence when they came before;
    ``clears``: rules of earlier lines that it takes back."""

    name: str
    log_class: str
    pattern: re.Pattern[str]
    literals: tuple[str, ...]
    precedence: int
    level: str
    exclude: str
    component: str
    not_after: tuple[str, ...]
    match: str
    miss: str
    source: str
    clears: tuple[str, ...] = ()


class Hit(NamedTuple):
    """One line that a rule names. ``at``: unix s or None; ``behind``: bytes of the stream up to this line."""

    rule: Rule
    text: str
    line: int = 0
    behind: int = 0
    at: float | None = None
    soft: bool = False
    chained: bool = False
    rank: int | None = None
    host: str = ""
    gpu: int | None = None
    words: Mapping[str, str] = {}

    @property
    def log_class(self) -> str:
        return self.rule.log_class

    @property
    def level(self) -> str:
        return self.rule.level


class Progress(NamedTuple):
    """A sign of life: a training step. ``step``: its number, or -1."""

    behind: int
    step: int
    at: float | None = None


class Table:
    """Rules and classes, indexed by literal."""

    def __init__(self, rules: Sequence[Rule], classes: Mapping[str, LogClass]) -> None:
        self.rules = tuple(rules)
        self.classes = dict(classes)
        self._of: dict[str, list[int]] = {}
        for number, rule in enumerate(self.rules):
            for literal in rule.literals:
                self._of.setdefault(literal, []).append(number)
        self.literals = tuple(self._of)
        self._grams, self._short = _indexed(self.literals)

    def literals_in(self, line: str) -> list[str]:
        """The literals that stand in a line, found by a few letters of each: a look at each would take 30 times as
        long."""
        grams = {line[at : at + GRAM] for at in range(len(line) - GRAM + 1)}
        maybe = [s for gram in grams & self._grams.keys() for s in self._grams[gram]]
        return [s for s in (*self._short, *maybe) if s in line]

    def best(self, line: str, which: Iterable[int] | None = None) -> tuple[Rule, re.Match[str]] | None:
        """The rule that says most about a line. ``which``: indices into ``literals`` of those known to stand in it."""
        line = line[:MAX_CHARS]
        said = [self.literals[n] for n in which] if which is not None else self.literals_in(line)
        numbers = {number for literal in said for number in self._of[literal]}
        found: tuple[Rule, re.Match[str]] | None = None
        for number in sorted(numbers):
            rule = self.rules[number]
            if found is None or rule.precedence > found[0].precedence:
                match = rule.pattern.search(line)
                if match:
                    found = (rule, match)
        return found

    def hit(self, text: str, which: Iterable[int] | None = None, **place: Any) -> Hit | None:
        """The line as a hit, or None where no rule names it or it is quoted program text. ``place``: fields of Hit."""
        found = None if is_code(text) else self.best(text, which)
        if found is None:
            return None
        rule, match = found
        if in_sample(text, match.start()) or is_key(text, match.end()) or in_path(text, *match.span()):
            return None
        words = {key: value.strip()[:KEPT_CHARS] for key, value in match.groupdict().items() if value}
        loud = is_loud(text)
        soft = not loud and (is_soft(text) or is_past(text, match.start()))
        if rule.exclude != "no" and not loud:
            soft = soft and not by_level_only(text, match.start())
            soft = soft or told(text[:MAX_CHARS], match.start(), match.end())
        return Hit(rule=rule, text=kept(text), soft=soft, words=words, **place)


def _indexed(literals: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Literals by the group of letters in them that fewest others have, and those that are too short for one."""
    common: dict[str, int] = {}
    for literal in literals:
        for gram in _grams_of(literal):
            common[gram] = common.get(gram, 0) + 1
    index: dict[str, list[str]] = {}
    for literal in literals:
        if len(literal) >= GRAM:
            index.setdefault(min(_grams_of(literal), key=lambda gram: (common[gram], gram)), []).append(literal)
    return index, [literal for literal in literals if len(literal) < GRAM]


def _grams_of(literal: str) -> set[str]:
    return {literal[at : at + GRAM] for at in range(len(literal) - GRAM + 1)}


def read_table(text: str) -> Table:
    """The table in joblog_rules.toml, which is TOML with nothing but literal strings and lists of them on one line.

    Raises RuleError naming the block that cannot be used.
    """
    classes: dict[str, LogClass] = {}
    rules: list[Rule] = []
    for kind, fields in _blocks(text):
        try:
            if kind == "class":
                classes[fields["name"]] = LogClass(**{**fields, "rank": int(fields["rank"])})
            elif kind == "rule":
                rules.append(_rule(fields, classes))
            else:
                raise RuleError("is neither class nor rule")
        except (KeyError, TypeError, ValueError, re.error) as error:
            raise RuleError(f"{kind} {fields.get('name', 'without a name')}: {error}") from error
    return Table(rules, classes)


def _blocks(text: str) -> list[tuple[str, dict[str, Any]]]:
    blocks: list[tuple[str, dict[str, Any]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        block, pair = _BLOCK.match(line), _PAIR.match(line)
        if block:
            blocks.append((block[1], {}))
        elif pair and blocks:
            blocks[-1][1][pair[1]] = _value(pair[2], number)
        elif line.strip() and not line.startswith("#"):
            raise RuleError(f"line {number}: {line[:80]!r} is no key = 'value'")
    return blocks


def _value(text: str, number: int) -> Any:
    strings = ["".join(found) for found in _LITERAL.findall(text)]
    if text.startswith("[") and text.endswith("]"):
        return tuple(strings)
    if len(strings) != 1 or not text.startswith("'"):
        raise RuleError(f"line {number}: a literal string in single quotes is expected")
    return strings[0]


def _rule(fields: Mapping[str, Any], classes: Mapping[str, LogClass]) -> Rule:
    log_class = classes[fields["class"]]
    level = fields.get("level", log_class.level)
    if level not in LEVELS:
        raise ValueError(f"level {level!r} is none of {', '.join(LEVELS)}")
    if not fields["literals"] or not all(fields["literals"]):
        raise ValueError("it needs at least one literal")
    return Rule(
        name=fields["name"],
        log_class=log_class.name,
        pattern=re.compile(fields["pattern"], re.ASCII),
        literals=fields["literals"],
        precedence=int(fields["precedence"]),
        level=level,
        exclude=fields.get("exclude", log_class.exclude),
        component=fields.get("component", log_class.component),
        not_after=tuple(fields.get("not_after", "").split()),
        match=fields["match"],
        miss=fields["miss"],
        source=fields["source"],
        clears=tuple(fields.get("clears", "").split()),
    )


#: Hardware: a little later work may be that of other GPUs and does not clear it.
HARD = frozenset({"ecc_uncorrectable", "gpu_fallen_off_bus", "nvlink_error", "gsp_error", "gpu_hardware_other"})
#: A job that works for this long after such a line, in steps that wait for each other, lost no GPU (s).
SURVIVED_S = 60.0
#: What ends a job before its first step, or was tried again until it went well.
BEFORE_STEPS = frozenset({"rendezvous_failure", "port_in_use", "unschedulable_resources", "container_start_failure"})
#: Whoever ends a job from outside gives it time to go on for a while.
FROM_OUTSIDE = frozenset({"preempted_or_cancelled", "time_limit", "node_fail"})
#: What makes a hit of a level a consequence when it came before in the same stream.
_FOLLOWS = {"symptom": ("cause", "surface"), "echo": ("cause", "surface", "symptom")}


def went_on(hit: Hit, progress: Sequence[Progress], ended_well: int | None, quiet: bool = False) -> bool:
    """Did the work go on behind this line? ``ended_well``: bytes up to the line that says the job is done, or None.

    Two steps are asked for, and more text than a buffer may hold back or a later time; or one step behind a line that
    says it was handled. ``quiet``: nothing failed behind the last step; then two steps also clear what was only
    reported: an exception may stand before older steps that a buffer held back, a report may not.
    """
    if ended_well is not None and ended_well > hit.behind:
        return hit.level != "note"
    if hit.level == "note":
        return False
    before = max((p.step for p in progress if p.behind <= hit.behind), default=-1)
    after = [p for p in progress if p.behind > hit.behind and (p.step < 0 or p.step > before)]
    if len(after) < (1 if hit.soft else 2):
        return False
    if hit.log_class in HARD and hit.level == "cause" and not hit.soft:
        much_later = hit.at is not None and any(p.at is not None and p.at > hit.at + SURVIVED_S for p in after[4:])
        return len(after) > 4 and (much_later or after[-1].behind - hit.behind > 4 * BUFFER_BYTES)
    if before < 0 and hit.log_class in BEFORE_STEPS:
        return True
    later = hit.at is not None and any(p.at is not None and p.at > hit.at + 1.0 for p in after[1:])
    reported = quiet and hit.log_class not in FROM_OUTSIDE and not is_raised(hit.text) and not is_loud(hit.text)
    steps = {p.step for p in after}
    reported = reported and (len(steps) > 1 or -1 in steps)
    return hit.soft or later or reported or after[-1].behind - hit.behind > BUFFER_BYTES


def standing(hits: Sequence[Hit], progress: Sequence[Progress] = (), ended_well: int | None = None) -> list[Hit]:
    """Hits of one stream in its order, without what the work survived and what only followed from an earlier one."""
    cleared = {name: number for number, hit in enumerate(hits) for name in hit.rule.clears}
    last = max((p.behind for p in progress), default=0)
    quiet = not any(hit.behind > last and hit.level not in ("good", "note") and not hit.soft for hit in hits)
    alive = [
        hit
        for number, hit in enumerate(hits)
        if hit.level != "good" and number >= cleared.get(hit.rule.name, 0)
        if not went_on(hit, progress, ended_well, quiet)
    ]
    left: list[Hit] = []
    seen: set[str] = set()
    for hit in alive:
        follows = set(hit.rule.not_after) | set(_FOLLOWS.get(hit.level, ()))
        if not follows & seen:
            left.append(hit)
        if hit.level not in ("note", "echo") and not hit.soft:
            seen.update((hit.level, hit.log_class))
    return _unchained(left)


def _unchained(hits: Sequence[Hit]) -> list[Hit]:
    """Of tracebacks that were chained the one that says most stands for all; it takes the place of the first."""
    left: list[Hit] = []
    for hit in hits:
        if hit.chained and left and left[-1].level != "echo":
            if hit.rule.precedence > left[-1].rule.precedence:
                left[-1] = hit
        else:
            left.append(hit)
    return left


def tier(hit: Hit) -> int:
    """0 for hardware, then causes, surfaces, symptoms, notes, echoes; what is only told stands behind what is said."""
    if hit.level == "cause":
        return 2 if hit.soft else 0 if hit.log_class in HARD else 1
    return {"surface": 3, "symptom": 5, "note": 7, "echo": 8}[hit.level] + (
        1 if hit.soft and hit.level != "echo" else 0
    )


def first_of(hits: Sequence[Hit]) -> Hit | None:
    """The first cause among standing hits of one stream: the earliest of the best tier; of weak words the strongest."""
    if not hits:
        return None
    best = min(map(tier, hits))
    mine = [hit for hit in hits if tier(hit) == best]
    strong = [hit for hit in mine if hit.rule.precedence >= 30] if best >= 3 else mine
    first = (strong or mine)[0]
    return next((hit for hit in mine if finer(first, hit)), first) if best == 0 else first


def finer(first: Hit, hit: Hit) -> bool:
    """Does ``hit`` name the fault that ``first`` calls a fault of the GPU without a finer class?"""
    if first.log_class != "gpu_hardware_other" or hit.log_class in ("gpu_hardware_other", "ecc_row_remap_pending"):
        return False
    near = first.at is None or hit.at is None or abs(hit.at - first.at) <= SURVIVED_S
    return hit.log_class in HARD and hit.level == "cause" and not hit.soft and near and first.host == hit.host


class Reading(NamedTuple):
    """What lines of one stream say. ``done``: characters up to the last line that says it ended well, or None."""

    hits: Sequence[Hit]
    progress: Sequence[Progress]
    done: int | None

    def first(self) -> Hit | None:
        """The first cause, nothing else being known; None where none is named."""
        return first_of(standing(self.hits, self.progress, self.done))


def classify_lines(table: Table, lines: Sequence[str]) -> Hit | None:
    """The first cause in a few decoded lines of one stream, nothing else being known; None where none is named."""
    return read_lines(table, lines).first()


def read_lines(table: Table, lines: Sequence[str], behinds: Sequence[int] = ()) -> Reading:
    """Decoded lines of one stream, in order. Linear in them. ``behinds``: characters of the stream up to the end of
    each line, where lines between them were left out; hits number the lines from 1 as given."""
    hits: list[Hit] = []
    progress: list[Progress] = []
    done: int | None = None
    behind, chained, ignored, before = 0, False, False, ""
    for number, line in enumerate(lines, 1):
        behind = behinds[number - 1] if behinds else behind + len(line) + 1
        hit = None if quoted(before, line) else table.hit(line, line=number, behind=behind)
        if hit is not None and IGNORED not in line:
            named = hit.level in ("cause", "surface", "symptom")
            soft = hit.soft or (ignored and named) or tried_again("\n".join(lines[number : number + 2]))
            hits.append(hit._replace(chained=chained and named, soft=soft))
            chained, ignored = chained and not named, ignored and not named
        elif chains(line):
            chained = True
        elif IGNORED in line:
            ignored = True
        elif ended(line):
            done = behind
        else:
            step = step_of(line)
            if step is not None:
                progress.append(Progress(behind, step))
        before = line
    return Reading(hits, progress, done)


def sure_of(hit: Hit) -> float:
    """How sure a rule is, 0 to 1: how exactly it names its failure, less for words that were only told."""
    base = {"cause": 0.9, "surface": 0.75, "symptom": 0.7, "note": 0.8, "echo": 0.5}[hit.level]
    return max(0.3, min(0.99, base + (hit.rule.precedence - 50) / 400 - (0.25 if hit.soft else 0.0)))
