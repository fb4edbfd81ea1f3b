"""Stack dumps of the ranks of one job (py-spy, gdb, faulthandler): where most stand, and who stands elsewhere."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: Frames from the top that make two stacks the same: deeper ones are the same program anyway.
DEPTH = 12
#: A group with at least this share of the ranks is healthy.
LARGE = 0.34
MAX_LINES = 200_000

_THREAD = re.compile(
    r"^(?:Thread (?:0x)?[0-9A-Fa-f]+ \((?P<state>[a-z+ ]{1,40})\)(?:: \"(?P<name>[^\"\n]{0,80})\")?"
    r"|Thread \d{1,5} \((?:Thread|LWP)[^\n]{0,120}|(?:Current thread|Thread) 0x[0-9a-f]+ \(most recent call first\):)",
    re.ASCII,
)
_PYSPY = re.compile(r"^\s{2,8}(?P<function>[\w.<>\[\] ]{1,120}) \((?P<file>[^()\n]{1,200}?)(?::\d{1,7})?\)$", re.ASCII)
_GDB = re.compile(r"^#\d{1,4}\s+(?:0x[0-9a-f]+ in )?(?P<function>[\w:~<>*&, ]{1,160}?) ?\(", re.ASCII)
_FAULT = re.compile(r'^\s{2}File "(?P<file>[^"\n]{1,200})", line \d{1,7} in (?P<function>[\w<>]{1,120})', re.ASCII)


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks whose main threads stand at the same place; ``stack`` from the top."""

    ranks: tuple[int, ...]
    stack: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stand:
    """Groups, the largest first. ``outliers``: ranks outside the large groups; ``shared``: the smallest parallel group
    that holds all outliers, or ""."""

    groups: tuple[Group, ...]
    outliers: tuple[int, ...]
    shared: str = ""


def looks_like_stacks(head: str) -> bool:
    """Is a text, by its beginning, a dump of stacks?"""
    lines = head.splitlines()[:200]
    return any(map(_THREAD.match, lines)) and any(p.match(line) for line in lines for p in (_PYSPY, _GDB, _FAULT))


def main_stack(text: str) -> tuple[str, ...]:
    """The main thread's frames from the top, as ``function (file)`` without line numbers; () where there is none."""
    stacks: list[tuple[str, list[str]]] = []
    for line in text.splitlines()[:MAX_LINES]:
        thread = _THREAD.match(line)
        if thread:
            stacks.append((thread.groupdict().get("name") or "", []))
        elif stacks and (frame := _frame(line)) and len(stacks[-1][1]) < DEPTH:
            stacks[-1][1].append(frame)
    named = [frames for name, frames in stacks if name == "MainThread" and frames]
    filled = [frames for _, frames in stacks if frames]
    # gdb lists the main thread last, py-spy and faulthandler name it or print it first.
    chosen = named or filled[-1:] if text.startswith("#") or "LWP" in text[:4000] else named or filled
    return tuple(chosen[0]) if chosen else ()


def _frame(line: str) -> str:
    for pattern in (_PYSPY, _FAULT, _GDB):
        found = pattern.match(line)
        if found:
            file = found.groupdict().get("file", "").rsplit("/", 1)[-1]
            return f"{found['function'].strip()} ({file})" if file else found["function"].strip()
    return ""


def compare(stacks: Mapping[int, Sequence[str]], parallel: Mapping[str, Sequence[int]] | None = None) -> Stand:
    """Group ranks by their stacks. ``parallel``: ranks by name of their parallel group, where known."""
    by_stack: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for rank in sorted(stacks):
        by_stack[tuple(stacks[rank][:DEPTH])].append(rank)
    ordered = sorted(by_stack.items(), key=lambda item: (-len(item[1]), item[1]))
    groups = tuple(Group(tuple(ranks), stack) for stack, ranks in ordered)
    least = LARGE * len(stacks)
    outliers = {rank for n, group in enumerate(groups) if n and len(group.ranks) < least for rank in group.ranks}
    shared = [(len(ranks), name) for name, ranks in (parallel or {}).items() if outliers and outliers <= set(ranks)]
    return Stand(groups, tuple(sorted(outliers)), min(shared)[1] if shared else "")
