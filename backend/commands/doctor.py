"""doctor: every configured connection and right, one line each, with the fix."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict

from backend.doctor.checks import diagnose
from backend.doctor.line import Line, State

GLYPHS = {State.OK: "✓", State.WARNING: "▲", State.FAILED: "✗", State.OFF: "–"}
#: For terminals that cannot show the others.
PLAIN = {State.OK: "+", State.WARNING: "!", State.FAILED: "x", State.OFF: "-"}


def doctor(arguments: argparse.Namespace) -> int:
    """Exit code 0 where nothing failed, else 1."""
    lines = diagnose(arguments.config, os.environ)
    well = all(line.state is not State.FAILED for line in lines)
    if arguments.json:
        print(json.dumps({"ok": well, "checks": [asdict(line) for line in lines]}, ensure_ascii=False, indent=2))
    else:
        print(report(lines, sys.stdout.encoding or "ascii"))
    return 0 if well else 1


def report(lines: Sequence[Line], encoding: str) -> str:
    """A line for each check, and one that counts them."""
    try:
        "".join(GLYPHS.values()).encode(encoding)
        glyphs = GLYPHS
    except UnicodeEncodeError:
        glyphs = PLAIN
    wide = max(len(line.check) for line in lines)
    rows = [
        f"{glyphs[line.state]} {line.state:10}  {line.check:{wide}}  {line.what}{f'. {line.fix}' if line.fix else ''}"
        for line in lines
    ]
    counts = [f"{sum(line.state is state for line in lines)} {state}" for state in State]
    text = "\n".join([*rows, ", ".join(counts)])
    return text.encode(encoding, "replace").decode(encoding)
