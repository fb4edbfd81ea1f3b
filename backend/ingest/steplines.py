"""Step lines in ordinary logs: what torchtitan, Megatron-LM, NeMo, DeepSpeed, HF Trainer and nanoGPT print of a step.

One reading serves all: a number of a step and signals by their names. Lines of another kind are taught by one example
in which the numbers are marked, as in ``Schritt {step=120}: Verlust {loss=3.21} ({step_time_ms=512} ms)``.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from backend.facts import PrintedFacts, StepFacts
from detectors.training.signals import Signals

#: Jobs and streams that are remembered, and characters of a line that are looked at.
MOST_STREAMS, MAX_LINE = 4_096, 4_000
_NUMBER = r"[-+]?(?:\d[\d,]*(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|NaN|inf|Infinity)\b"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_STEP = re.compile(
    r"(?<![\w/-])(?:global[_ ]step|iteration|iter|steps?)['\"]?(?:\s*[:=]\s*|\s+)['\"]?(\d[\d,]*)(?![\d.]*[.\w%])", re.I
)
#: How far a progress bar is: HF Trainer prints its numbers behind one.
_BAR = re.compile(r"\|\s*(\d+)/(\d+)\s*\[")
_BRACED = re.compile(r"\{\s*['\"](?:[\w/]+)['\"]\s*:")
_MARK = re.compile(r"\{([A-Za-z_][\w/]*)=([^{}]*)\}")
_DIGITS = re.compile(r"\d+(?:\.\d+)?")
#: What lines call a signal, beside its spellings in the table.
_SPOKEN = {
    "time": "step_time_s",
    "iter time": "step_time_s",
    "iteration time": "step_time_s",
    "time per step": "step_time_s",
    "number of nan iterations": "nonfinite",
    "train loss": "loss",
    "val loss": "val_loss",
}
#: Signals that lines tell; others have names that are words of any log.
_OF_LINES = ("loss", "val_loss", "grad_norm", "lr", "step_time_s", "tokens", "loss_scale", "nonfinite", "reward", "kl")
#: What a line must tell beside its step, to be one.
_ENOUGH = frozenset({"loss", "val_loss", "grad_norm", "step_time_s"})


@dataclass(frozen=True, slots=True)
class Said:
    """One step line: ``step`` None where it names none, as HF Trainer's; ``bar``: how far the bar before it is."""

    step: int | None
    values: Mapping[str, float]
    bar: int | None = None


@dataclass(frozen=True, slots=True)
class Patterns:
    """How lines are read: ``named`` finds a signal and its number; ``taught`` are whole lines by example."""

    names: Mapping[str, str]
    named: re.Pattern[str]
    taught: tuple[re.Pattern[str], ...] = ()

    @classmethod
    def of(cls, signals: Signals, examples: Sequence[str] = ()) -> Patterns:
        """Raises ValueError that says what is wrong with an example."""
        names = dict(_SPOKEN)
        for name in _OF_LINES:
            names |= {spelt.replace("_", " "): name for spelt in (name, *signals.by_name[name].spellings)}
        names = {re.sub(r"[_/.\-\s]+", " ", spelt.lower()): name for spelt, name in names.items()}
        spelt = "|".join(re.escape(n).replace(r"\ ", r"[ _/.\-]") for n in sorted(names, key=len, reverse=True))
        named = re.compile(
            rf"(?<![\w/.\-])(?<![A-Za-z] )({spelt})(?:\s*\((ms|s|sec)\)|\s+in\s+(s|ms))?['\"]?"
            rf"(?:\s*[:=]\s*|\s+)['\"\[]?({_NUMBER})\s*(ms|s)?(?![\w%])",
            re.IGNORECASE,
        )
        return cls(names, named, tuple(map(taught, examples)))

    def read(self, line: str) -> Said | None:
        """What a line tells of a step; None where it is no step line. The same for the same line."""
        line = _COLOURS.sub("", line[:MAX_LINE])
        for pattern in self.taught:
            if found := pattern.search(line):
                return _taught(found.groupdict())
        if "loss" not in line and "iter" not in line and "step" not in line:
            return None
        step, bar = _STEP.search(line), _BAR.search(line)
        values: dict[str, float] = {}
        for name, unit, unit_in, number, unit_after in self.named.findall(line):
            signal = self.names[re.sub(r"[_/.\-\s]+", " ", name.lower())]
            value = _float(number)
            if signal == "step_time_s":
                value *= 1e-3 if "ms" in (unit.lower(), unit_in.lower(), unit_after.lower()) else 1.0
            values.setdefault(signal, value)
        if not _ENOUGH & values.keys():
            return None
        if step is not None:
            return Said(int(step[1].replace(",", "")), values, int(bar[1]) if bar else None)
        return Said(None, values, int(bar[1]) if bar else None) if _BRACED.search(line) else None


def _float(text: str) -> float:
    return float(text.replace(",", ""))


def taught(example: str) -> re.Pattern[str]:
    """The pattern of lines like ``example``, in which numbers are marked as ``{name=number}``; one is the step. Other
    numbers may differ. Raises ValueError that says what is missing."""
    names = [name for name, _ in _MARK.findall(example)]
    if "step" not in names or len(names) < 2:
        raise ValueError(f"{example[:80]!r} marks {', '.join(names) or 'nothing'}: mark the step and a signal, as in "
                         "step {step=12} loss {loss=3.4}")  # fmt: skip
    if len(set(names)) < len(names):
        raise ValueError(f"{example[:80]!r} marks a name twice")
    parts, at = [], 0
    for mark in _MARK.finditer(example):
        parts += [_like(example[at : mark.start()]), f"(?P<{mark[1].replace('/', '__')}>{_NUMBER})"]
        at = mark.end()
    return re.compile("".join([*parts, _like(example[at:])]).strip())


def _like(text: str) -> str:
    """A pattern of texts that differ in their numbers and spaces alone."""
    words = [_DIGITS.split(word) for word in re.split(r"\s+", text)]
    return r"\s*".join(r"\d+(?:\.\d+)?".join(map(re.escape, word)) for word in words)


def _taught(found: Mapping[str, str | None]) -> Said | None:
    values = {name.replace("__", "/"): _float(text) for name, text in found.items() if text is not None}
    step = values.pop("step")
    for name in [name for name in values if name.endswith("_ms")]:
        values[f"{name[:-3]}_s"] = values.pop(name) / 1000
    return Said(int(step), values) if step == step and abs(step) < 2**53 else None


@dataclass(slots=True)
class StepLines:
    """Step lines of all jobs. ``told``: jobs that push their steps themselves, whose lines would tell them twice.
    ``bars``: the newest step of each stream; ``counted``: how far its progress bar is since."""

    patterns: Patterns
    told: OrderedDict[str, None] = field(default_factory=OrderedDict)
    bars: OrderedDict[tuple[str, str], int] = field(default_factory=OrderedDict)
    counted: OrderedDict[tuple[str, str], int] = field(default_factory=OrderedDict)

    def pushed(self, jobs: Iterable[str]) -> None:
        for job in jobs:
            self.told[job] = None
            self.told.move_to_end(job)
        while len(self.told) > MOST_STREAMS:
            self.told.popitem(last=False)

    def take(self, lines: Iterable[PrintedFacts]) -> tuple[StepFacts, ...]:
        """The steps that these lines tell, in their order."""
        found = []
        for line in lines:
            if line.job in self.told:
                continue
            row = self.step_of(line.text, line.at, line.job, line.stream)
            found += [row] if row is not None else []
        return tuple(found)

    def heard(self, chunk: bytes, at: float, job: str, stream: str) -> tuple[StepFacts, ...]:
        """The steps of a piece of a log that is followed, ``at`` the time of its reading (unix s). A line that the
        piece cuts in two is read from its whole half alone."""
        texts = chunk.decode(errors="replace").replace("\r", "\n").split("\n")
        return self.take(PrintedFacts(at, job, stream, text) for text in texts)

    def step_of(self, text: str, at: float, job: str, stream: str = "", run: str = "") -> StepFacts | None:
        """The step of one line; a line that names none counts on from the one before it in its stream."""
        key = (job or run, stream)
        said = self.patterns.read(text)
        if said is None:
            if "|" in text and (bar := _BAR.search(text)):
                self.counted[key] = int(bar[1])
                while len(self.counted) > MOST_STREAMS:
                    self.counted.popitem(last=False)
            return None
        step = said.step
        if step is None:
            step = said.bar if said.bar is not None else self.counted.pop(key, self.bars.get(key, -1) + 1)
        self._remember(key, max(step, 0))
        values = dict(said.values)
        host, _, rest = stream.rpartition("/")
        rank = rest.removeprefix("rank_")
        loss, norm, length, tokens = (values.pop(n, None) for n in ("loss", "grad_norm", "step_time_s", "tokens"))
        who = int(rank) if rank.isdecimal() else None
        attrs: dict[str, float | str] = dict(values)
        if host:
            attrs["host"] = host
        return StepFacts(at, run, job, max(step, 0), loss, norm, length, tokens, who, attrs=attrs)

    def _remember(self, key: tuple[str, str], step: int) -> None:
        self.bars[key] = step
        self.bars.move_to_end(key)
        while len(self.bars) > MOST_STREAMS:
            self.bars.popitem(last=False)
