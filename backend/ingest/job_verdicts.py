"""What jobs printed becomes a verdict once they ended: one event a failed attempt, in the words of ``classify``."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from backend.facts import AttemptFacts, Batch, RawEvent, StepFacts
from backend.ingest.joblogs import JobFile
from backend.ingest.steplines import StepLines
from backend.security.redact import redact
from detectors.joblog.ends import end_of
from detectors.joblog.learned import Likeness, Model
from detectors.joblog.outcome import NAMESPACE, RESEMBLANCE
from detectors.joblog.reading import LogReader, Room, Rules, Sheet
from detectors.joblog.recall import excerpt_of_job, recalled
from detectors.joblog.rules import CLEAN
from detectors.joblog.verdict import Verdict, judge

#: Logs that are read at the same time; of a larger job the first ranks that print are heard.
MOST_READERS = 4_096
#: Hits that all of them hold together, about 1 KB each; beyond it each keeps its first few.
MOST_HITS = 50_000
#: What each of them may hold back to tell encoding and wrapping from, in bytes: of many small logs all is held.
HEAD = 8_192
#: Attempts whose end was judged, remembered so that they are not judged at every read.
MOST_TOLD = 20_000
#: The restart of lines that were pushed: they name their job, and belong to the attempt that ends next.
PUSHED = -1
#: A line of a log as it stands in an event, in characters.
MOST_TEXT = 400
#: Steps read from logs that wait to be taken in.
MOST_STEPPED = 100_000
_RANK = re.compile(r"(?<![a-z])rank[_.-]?(\d{1,6})(?!\d)", re.IGNORECASE)
#: Ends that are nobody's fault, unless the logs of an attempt that did not complete name a fault of the machine: what
#: hangs on broken hardware is ended by its limit or by its owner.
WELL = frozenset({"COMPLETED", "PREEMPTED", "CANCELLED", "TIMEOUT", "DEADLINE", "REVOKED"})


def unreported(attempt: AttemptFacts) -> Sequence[Sheet]:
    """Default for ``Verdicts.reported``: no wrapper told of it."""
    return ()


@dataclass(slots=True)
class Verdicts:
    """A Listener of job logs: one reader a log while its attempt runs.

    files: a source follows the logs that attempts name, and tells when it read them to their end; others are judged
    here as soon as they ended. What was printed before this process began to listen is not heard again: such a log is
    read from there on, and a verdict on it says so. reported: what job wrappers told of an attempt. learned: what
    people said of past failures, asked only where no rule names the cause. lines: reads their step lines.
    """

    rules: Rules
    files: bool = False
    reported: Callable[[AttemptFacts], Sequence[Sheet]] = unreported
    readers: dict[tuple[str, int, str], LogReader] = field(default_factory=dict)
    partly: set[tuple[str, int]] = field(default_factory=set)
    told: OrderedDict[tuple[str, int, float], None] = field(default_factory=OrderedDict)
    unsaved: list[RawEvent] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    unheard: int = 0
    room: Room = field(default_factory=lambda: Room(MOST_HITS))
    learned: Model | None = None
    lines: StepLines | None = None
    stepped: list[StepFacts] = field(default_factory=list)

    def steps(self, batch: Batch) -> tuple[StepFacts, ...]:
        """Steps that jobs printed: in lines that were pushed with ``batch``, and in logs followed since the last call.
        None of a job that pushes its steps itself."""
        if self.lines is None:
            return ()
        with self.lock:
            self.lines.pushed({row.job for row in batch.steps if row.job})
            found = [row for row in self.stepped if row.job not in self.lines.told]
            self.stepped.clear()
            return (*found, *self.lines.take(batch.printed))

    def take(self, batch: Batch, now: float) -> tuple[RawEvent, ...]:
        """Hear the lines that were pushed, and judge the attempts that ended, each once. ``now`` in unix s."""
        pushed: dict[tuple[str, str], list[str]] = {}
        for line in batch.printed:
            stamp = datetime.fromtimestamp(line.at, UTC).isoformat(timespec="milliseconds")
            pushed.setdefault((line.job, line.stream), []).append(f"{stamp} {line.text}\n")
        for (job, stream), lines in pushed.items():
            self.hear(JobFile(job, PUSHED, stream), "".join(lines).encode(errors="replace"), "", now)
        found: list[RawEvent] = []
        for attempt in batch.attempts:
            if attempt.end is None or self._is_told(attempt) or (self.files and attempt.outputs):
                continue
            found += self.ended(attempt, (), now)
        with self.lock:
            self.unsaved += found
            return tuple(self.unsaved)

    def saved(self, events: Sequence[RawEvent]) -> None:
        """These stand in the store; what is not told so comes with the next ``take`` again."""
        with self.lock:
            self.unsaved = [event for event in self.unsaved if event not in events]

    def _is_told(self, attempt: AttemptFacts) -> bool:
        """Marks it told, and says whether it was. A scheduler names ended jobs again and again."""
        key = (attempt.job, attempt.restart, attempt.start or 0.0)
        known = key in self.told
        self.told[key] = None
        self.told.move_to_end(key)
        if len(self.told) > MOST_TOLD:
            self.told.popitem(last=False)
        return known

    def hear(self, file: JobFile, chunk: bytes, place: str, now: float) -> Sequence[RawEvent]:
        """Fold one chunk in; nothing is told before the attempt ended, because the first cause may come last."""
        with self.lock:
            self._hear(file, chunk, place)
            if self.lines is not None and file.restart != PUSHED and len(self.stepped) < MOST_STEPPED:
                self.stepped += self.lines.heard(chunk, now, file.job, f"/{_rank_of(file.path)}")
        return ()

    def _hear(self, file: JobFile, chunk: bytes, place: str) -> None:
        key = (file.job, file.restart, file.path)
        reader = self.readers.get(key)
        if reader is None:
            if len(self.readers) >= MOST_READERS:
                self.unheard += 1
                return
            reader = self.readers[key] = LogReader(self.rules, file.path, excerpt=True, head=HEAD, room=self.room)
            if place.rpartition(":")[2] not in ("0", ""):
                self.partly.add(key[:2])
        reader.feed(chunk)

    def ended(self, attempt: AttemptFacts, files: Sequence[JobFile], now: float) -> Sequence[RawEvent]:
        """The verdict on an attempt, from its logs and its end state; none on one that ended well."""
        with self.lock:
            mine = [key for key in self.readers if key[0] == attempt.job and key[1] in (attempt.restart, PUSHED)]
            sheets = [self.readers.pop(key).close() for key in sorted(mine)]
            partly = (attempt.job, attempt.restart) in self.partly
            self.partly.discard((attempt.job, attempt.restart))
        sheets += self.reported(attempt)
        event = verdict_event(self.rules, attempt, sheets, now, partly=partly, learned=self.learned)
        return (event,) if event is not None else ()


def _rank_of(path: str) -> str:
    """``rank_3`` where the name of a log says it."""
    found = _RANK.search(path)
    return f"rank_{found[1]}" if found else path


def verdict_event(
    rules: Rules,
    attempt: AttemptFacts,
    sheets: Sequence[Sheet],
    now: float,
    *,
    partly: bool = False,
    learned: Model | None = None,
) -> RawEvent | None:
    """What the logs of one ended attempt come to, stamped with its end; None where it ended well or was ended by
    somebody, and where neither logs nor state say anything. ``learned`` is asked where no rule names the cause."""
    state = attempt.state.upper().split(" ")[0]
    verdict = judge(rules.table, sheets, end_of(state, attempt.exit_code, attempt.signal))
    if verdict.log_class == CLEAN or (state in WELL and (verdict.whose != "hardware" or state == "COMPLETED")):
        return None
    excerpt = redact(excerpt_of_job(sheets, verdict))  # it is kept
    verdict, alike = recalled(verdict, excerpt, learned, rules.table.classes)
    who = verdict.culprit
    node = who.node if who is not None and who.node in attempt.nodes else _short(who.node if who else "", attempt)
    at = attempt.end if attempt.end is not None else now
    return RawEvent(
        at=min(at, now),
        host=node,
        namespace=NAMESPACE,
        code=verdict.log_class,
        text=verdict.sentence,
        dedupe=f"verdict {attempt.job}/{attempt.restart} {attempt.start or 0:.0f}",
        job=attempt.job,
        attrs=_attrs(attempt, verdict, state, partly=partly) | _learnt(excerpt, alike, learned),
    )


def _learnt(excerpt: str, alike: Likeness | None, learned: Model | None) -> dict[str, str]:
    found = {"excerpt": excerpt} if excerpt else {}
    if alike is not None and learned is not None:
        found |= {"by": RESEMBLANCE, "alike": str(alike.alike), "model": str(learned.version)}
    return found


def _short(name: str, attempt: AttemptFacts) -> str:
    """The node of the attempt that a log calls by its short or its full name; "" for a name that is none of them."""
    short = name.partition(".")[0]
    return next((node for node in attempt.nodes if short and node.partition(".")[0] == short), "")


def _attrs(attempt: AttemptFacts, verdict: Verdict, state: str, *, partly: bool) -> dict[str, str]:
    who, first = verdict.culprit, verdict.first
    told = {
        "job": attempt.job,
        "restart": str(attempt.restart),
        "run": attempt.run or attempt.name,
        "user": attempt.user,
        "started": f"{attempt.start:.3f}" if attempt.start is not None else "",
        "state": state,
        "whose": verdict.whose,
        "exclude": "yes" if verdict.exclude_node else "no",
        "confidence": f"{verdict.confidence:.2f}",
        "component": verdict.component,
        "rank": str(who.rank) if who is not None and who.rank is not None else "",
        "gpu": str(who.gpu) if who is not None and who.gpu is not None else "",
        "first": first.text[:MOST_TEXT] if first is not None else "",
        "file": first.file if first is not None else "",
        "line": str(first.line) if first is not None and first.line else "",
        "xids": " ".join(str(code) for code in verdict.xids),
        "alternates": " ".join(verdict.alternates),
        "partly": "yes" if partly else "",
    }
    return {name: text for name, text in told.items() if text}
