"""Where a Slurm job writes: the patterns of --output and --error turned into paths (man sbatch, filename pattern)."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass

#: What Slurm takes where nothing was said (man sbatch, --output).
DEFAULT, DEFAULT_ARRAY = "slurm-%j.out", "slurm-%A_%a.out"
#: Widest zero padding that Slurm honours (man sbatch: between 0 and 10).
MOST_WIDTH = 10
#: Most files that one pattern may stand for.
MOST_FILES = 4096
#: What Slurm prints for the task of a job that is no array (NO_VAL).
NO_TASK = "4294967294"
_SYMBOL = re.compile(r"%([0-9]*)(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Writer:
    """One process that writes, in the words of the patterns.

    job: raw id. array: id of the array, "" = none. task_id: index in the array, "" = none. node: short host name.
    node_number, task: place of the node in the job, and rank. step: "batch" or a number.
    """

    job: str
    user: str = ""
    name: str = ""
    array: str = ""
    task_id: str = ""
    node: str = ""
    node_number: int = 0
    task: int = 0
    step: str = "batch"


def expand_pattern(pattern: str, writer: Writer) -> str:
    """The path of a pattern. A backslash anywhere means: take it as it is, without the backslashes."""
    if "\\" in pattern:
        return pattern.replace("\\", "")
    return _SYMBOL.sub(lambda found: _symbol(found, writer), pattern)


def _symbol(found: re.Match[str], writer: Writer) -> str:
    width, letter = found[1], found[2]
    if letter == "%":
        return "%" if not width else found[0]
    value = _value(letter, writer)
    if value is None:
        return found[0]
    return value.zfill(min(int(width or 0), MOST_WIDTH)) if value.isdigit() else value


def _value(letter: str, writer: Writer) -> str | None:
    """What one symbol stands for; None for a letter that is no symbol."""
    values = {
        "j": writer.job,
        "J": writer.job if writer.step == "batch" else f"{writer.job}.{writer.step}",
        "A": writer.array or writer.job,
        "a": writer.task_id or NO_TASK,
        "b": str(int(writer.task_id or NO_TASK) % 10),
        "N": writer.node.partition(".")[0],
        "n": str(writer.node_number),
        "s": writer.step,
        "t": str(writer.task),
        "u": writer.user,
        "x": writer.name,
    }
    return values.get(letter)


def outputs_of(writer: Writer, stdout: str, stderr: str, folder: str) -> tuple[str, ...]:
    """The log files of a batch job, each once: StdOut, then StdErr where it has its own. ``folder``: its WorkDir."""
    out = stdout or (DEFAULT_ARRAY if writer.task_id else DEFAULT)
    paths = [_placed(expand_pattern(p, writer), folder) for p in (out, stderr or out)]
    return tuple(dict.fromkeys(p for p in paths if p and p != "/dev/null"))


def files_of_step(pattern: str, writer: Writer, nodes: Sequence[str], tasks: int, folder: str) -> tuple[str, ...]:
    """The files of a step that srun started: one a node (%N, %n) or a task (%t) where the pattern tells them apart.

    Tasks are dealt to nodes in blocks, as srun does by default. At most MOST_FILES are named.
    """
    per_task, per_node = _has(pattern, "t"), _has(pattern, "Nn")
    hosts = list(nodes) or [""]
    count = max(tasks, len(hosts)) if per_task else (len(hosts) if per_node else 1)
    found: dict[str, None] = {}
    for i in range(min(count, MOST_FILES)):
        place = i * len(hosts) // count
        one = Writer(
            writer.job, writer.user, writer.name, writer.array, writer.task_id, hosts[place], place, i, writer.step
        )
        found[_placed(expand_pattern(pattern, one), folder)] = None
    return tuple(path for path in found if path and path != "/dev/null")


def _has(pattern: str, letters: str) -> bool:
    return "\\" not in pattern and any(found[2] in letters for found in _SYMBOL.finditer(pattern))


def _placed(path: str, folder: str) -> str:
    """Absolute, or "" where the folder that it is relative to is not known."""
    whole = posixpath.join(folder, path) if path else ""
    return posixpath.normpath(whole) if whole.startswith("/") else ""
