"""classify: what failed first in the logs of a job, whose fault it is, and what to do."""

from __future__ import annotations

import argparse
import bz2
import gzip
import lzma
import os
import re
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import orjson

from detectors.joblog.ends import end_of, error_file_lines
from detectors.joblog.flight import MAX_BYTES, Dump, FlightError, Held, dump_of, held, load
from detectors.joblog.names import rank_of
from detectors.joblog.phrases import kept
from detectors.joblog.reading import LogReader, Rules, Sheet
from detectors.joblog.rules import CLEAN
from detectors.joblog.stacks import Stand, compare, looks_like_stacks, main_stack
from detectors.joblog.verdict import Quote, Verdict, held_up, judge
from detectors.packaged import log_rules

if TYPE_CHECKING:
    from backend.commands.recalling import Memory

#: Read at a time.
CHUNK_BYTES = 1 << 20
#: From which a dump is told from a log.
HEAD_BYTES = 1 << 16
#: Logs of one job that are read; a folder with more says so.
MAX_LOGS = 20_000
#: Files in a job's folder that are no logs.
NO_LOGS = re.compile(
    r"\.(?:pt|pth|bin|ckpt|safetensors|npy|npz|pkl|parquet|arrow|h5|hdf5|tar|zip|whl|so|pyc|py|ipynb|png|jpg|svg|pdf|"
    r"onnx|idx|sqlite|db|ya?ml|toml|cfg|ini|distcp|metadata|report\.json|model|[ct]sv|sh|c|cpp|cu)$",
    re.IGNORECASE,
)
#: What cannot be read of one file.
UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError)


def classify(arguments: argparse.Namespace) -> int:
    """Exit code: 0 done, 1 where a path could not be read."""
    rules = Rules.of(log_rules())
    memory: Memory | None = None
    if arguments.model:
        from backend.commands import recalling  # takes longer to load than a log to read

        try:
            memory = recalling.Memory.of(arguments)
        except (OSError, ValueError) as error:
            print(f"watchkeeper classify: --model {arguments.model}: {error}", file=sys.stderr)
            return 1
    end = end_of(arguments.state, arguments.exit_code)
    code = 0
    for path in arguments.paths:
        heard = heard_of(rules, path, excerpts=memory is not None)
        for words in heard.trouble:
            print(f"watchkeeper classify: {kept(words)}", file=sys.stderr)
        if not (heard.sheets or heard.dumps or heard.stacks):
            code = 1
            continue
        sheets = heard.sheets
        verdict = held_up(judge(rules.table, sheets, end), sheets, *heard.standing())
        if memory is not None:
            verdict = memory.recall(verdict, sheets, rules.table.classes)
        more = memory.told if memory is not None else {}
        if arguments.json:
            print(orjson.dumps(as_json(path, verdict) | more).decode())
        else:
            print("\n".join((*as_text(path, verdict, sheets), *alike_lines(more))))
    return code


@dataclass(slots=True)
class Heard:
    """Everything under one path. ``trouble``: what could not be read, in words that say how to mend it."""

    sheets: list[Sheet] = field(default_factory=list)
    dumps: list[Dump] = field(default_factory=list)
    stacks: dict[int, tuple[str, ...]] = field(default_factory=dict)
    trouble: list[str] = field(default_factory=list)
    excerpts: bool = False

    def standing(self) -> tuple[Held | None, Stand | None]:
        """Who holds the job up by its dumps, and who stands elsewhere by its stacks."""
        parallel = {
            f"{dump.what.get(name, '')} {name}".strip(): ranks
            for dump in self.dumps
            for name, ranks in dump.ranks.items()
        }
        return (
            held(self.dumps) if len(self.dumps) > 1 else None,
            compare(self.stacks, parallel) if len(self.stacks) > 2 else None,
        )


def heard_of(rules: Rules, path: str, *, excerpts: bool = False) -> Heard:
    """All logs, flight-recorder dumps and stack dumps under a path; ``excerpts``: keep the telling lines of logs."""
    heard = Heard(excerpts=excerpts)
    if path == "-":
        heard.sheets.append(read(rules, "-", sys.stdin.buffer, excerpt=excerpts))
        return heard
    files = list(logs_in(Path(path)))
    if len(files) > MAX_LOGS:
        heard.trouble.append(f"{path} holds over {MAX_LOGS:,} logs; only the first are read. Give one job's folder.")
    for number, file in enumerate(files[:MAX_LOGS]):
        try:
            _hear(rules, heard, file, number)
        except (*UNREADABLE, FlightError) as error:
            heard.trouble.append(f"{file} cannot be read: {error}")
    if not files:
        heard.trouble.append(f"{path} is no log and holds none" if Path(path).exists() else f"{path} does not exist")
    return heard


def _hear(rules: Rules, heard: Heard, file: Path, number: int) -> None:
    """One file as what it is. Raises what UNREADABLE lists, and FlightError."""
    with opened(file) as stream:
        head = stream.read(HEAD_BYTES)
        rank = rank_of(str(file))
        if head[:1] == b"\x80" or (head[:1] == b"{" and b'"pg_config"' in head):
            heard.dumps.append(dump_of(load(head + stream.read(MAX_BYTES)), number if rank is None else rank))
        elif looks_like_stacks(head.decode("utf-8", "replace")):
            stack = main_stack((head + stream.read(CHUNK_BYTES)).decode("utf-8", "replace"))
            heard.stacks[number if rank is None else rank] = stack
        else:
            heard.sheets.append(read(rules, str(file), stream, head, excerpt=heard.excerpts))


def logs_in(path: Path) -> Iterator[Path]:
    """The file itself, or every log in the folder, by name; hidden files and files of other kinds are left out."""
    if not path.is_dir():
        if path.exists():
            yield path
        return
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            file = Path(folder, name)
            if not name.startswith(".") and not NO_LOGS.search(name) and file.is_file():
                yield file


def opened(path: Path) -> BinaryIO:
    """The file, unpacked by what its first bytes say. Raises OSError."""
    if not path.is_file():  # a pipe has no head that could be read twice
        return path.open("rb")
    with path.open("rb") as file:
        head = file.read(6)
    if head.startswith(b"\x1f\x8b"):
        return cast(BinaryIO, gzip.open(path))
    if head.startswith(b"BZh"):
        return cast(BinaryIO, bz2.open(path))
    if head.startswith(b"\xfd7zXZ\0"):
        return cast(BinaryIO, lzma.open(path))
    return path.open("rb")


def read(rules: Rules, name: str, stream: BinaryIO, head: bytes = b"", *, excerpt: bool = False) -> Sheet:
    """Fold one stream, of which ``head`` was read before, into its sheet. Raises what UNREADABLE lists."""
    reader = LogReader(rules, name, excerpt=excerpt)
    if Path(name).name.startswith("error") and name.endswith(".json"):
        head = "\n".join(error_file_lines(head + stream.read(CHUNK_BYTES))).encode()
    reader.feed(head)
    while chunk := stream.read(CHUNK_BYTES):
        reader.feed(chunk)
    return reader.close()


def as_json(path: str, verdict: Verdict) -> dict[str, Any]:
    """The object of the contract (DESIGN section 6)."""
    who, first = verdict.culprit, verdict.first
    return {
        "path": path,
        "class": verdict.log_class,
        "confidence": verdict.confidence,
        "component": verdict.component,
        "culprit": {"node": who.node or None, "rank": who.rank, "gpu": who.gpu} if who else None,
        "xids": list(verdict.xids),
        "exclude_node": verdict.exclude_node,
        "first_cause": {"file": first.file, "line": first.line, "text": first.text} if first else None,
        "evidence": [
            {"what": q.what, "value": q.text, "ref": f"{q.file}:{q.line}" if q.file else "", "grade": "observed"}
            for q in verdict.evidence
        ],
        "suggestion": verdict.sentence,
        "alternates": list(verdict.alternates),
    }


def as_text(path: str, verdict: Verdict, sheets: Sequence[Sheet]) -> Iterator[str]:
    """A few lines for a tired person: the sentence first, then what it rests on."""
    many = f" ({len(sheets):,} logs)" if len(sheets) > 1 else ""
    yield f"{kept(path)}{many}: {verdict.log_class}, {verdict.confidence:.0%} sure"
    yield f"  {verdict.sentence}"
    if verdict.log_class == CLEAN:
        return
    for quote in verdict.evidence:
        yield f"  {_where(quote)}{quote.text}"
    if verdict.xids:
        yield f"  Xid {', '.join(map(str, verdict.xids))}"
    if verdict.victims:
        yield f"  {verdict.victims:,} other ranks show only what followed"
    if verdict.alternates:
        yield f"  could also be: {', '.join(verdict.alternates)}"


def alike_lines(told: Mapping[str, Any]) -> Iterator[str]:
    """Past failures that resemble this one, one a line."""
    for one in told.get("similar", ()):
        cause = one["cause"].replace("_", " ")
        yield f"  resembles {kept(one['ref'])} ({cause}, {one['cosine']:.2f}): {kept(one['line'])}"


def _where(quote: Quote) -> str:
    return f"{quote.what}, {kept(quote.file)}:{quote.line}: " if quote.file else f"{quote.what}: "
