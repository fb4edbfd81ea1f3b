"""Options in the command line of sbatch, salloc or srun as Slurm's accounting keeps it (SubmitLine)."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

#: Short options with a value that are read here, by their long names (man sbatch).
SHORT = {
    "A": "account", "a": "array", "d": "dependency", "D": "chdir", "e": "error", "J": "job-name", "o": "output",
    "p": "partition", "t": "time", "w": "nodelist", "x": "exclude",
}  # fmt: skip
#: Options that stand alone, or take a value with "=" only (man sbatch, salloc and srun).
_ALONE_SHORT = frozenset("hHIkKlOQsuvVWXZE")
_ALONE = frozenset({
    "contiguous", "disable-status", "exact", "exclusive", "external", "get-user-env", "help", "hold", "ignore-pbs",
    "immediate", "interactive", "kill-command", "label", "multi-prog", "no-bell", "no-kill", "no-requeue", "no-shell",
    "overcommit", "overlap", "oversubscribe", "parsable", "preserve-env", "propagate", "pty", "quiet", "reboot",
    "requeue", "share", "spread-job", "stepmgr", "test-only", "unbuffered", "usage", "use-min-nodes", "verbose",
    "version", "wait", "whole",
})  # fmt: skip


def options_of(line: str) -> dict[str, str]:
    """Long names and values of the options that stand before the script; the last of one name counts. What the script
    itself is given is not Slurm's. A command of ``--wrap`` may stand there without its quotes: behind it only
    ``--name=value`` is taken."""
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    found: dict[str, str] = {}
    place, bare = 1, False
    while place < len(words):
        word = words[place]
        place += 1
        if word == "--" or (not word.startswith("-") and "wrap" not in found):
            break
        bare = bare or not word.startswith("-")
        if bare and not (word.startswith("--") and "=" in word):
            continue
        place += _take(word, words[place : place + 1], found)
    return found


def _take(word: str, after: Sequence[str], found: dict[str, str]) -> int:
    """Read one option into ``found``; how many of the words after it belong to it."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        if equals or name in _ALONE or not after:
            found[name] = value
            return 0
        found[name] = after[0]
        return 1
    letter, value = word[1:2], word[2:]
    name = SHORT.get(letter, letter)
    if value or letter in _ALONE_SHORT or not after:
        found[name] = value.removeprefix("=") if letter in SHORT else value
        return 0
    found[name] = after[0]
    return 1
