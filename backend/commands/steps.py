"""steps: files that trainers leave, as rows of steps: printed, or sent to a server."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

import requests

from backend.commands.ask import AskError, detail_of, token_in
from backend.facts import StepFacts
from backend.ingest.base import SourceError
from backend.ingest.step_files import Reader, row_of
from backend.ingest.steplines import Patterns
from detectors.training.signals import load

ROWS_A_POST = 5_000
TIMEOUT_S = 60.0


def steps(arguments: argparse.Namespace) -> int:
    """Exit code 0 done, 1 could not: what was sent before stays, and sending it again counts as known."""
    signals = load()
    try:
        patterns = Patterns.of(signals, arguments.teach)
        reader = Reader(signals, patterns, arguments.run, arguments.job, timeless)
        rows = chain.from_iterable(reader.read(path) for path in arguments.paths)
        count = send(arguments, rows) if arguments.server else show(rows)
    except (SourceError, AskError, OSError, ValueError) as error:
        print(f"watchkeeper: {error}", file=sys.stderr)
        return 1
    if not count:
        print("watchkeeper: no step was found in these files", file=sys.stderr)
    return 0 if count else 1


def timeless(path: Path) -> None:
    print(f"{path} tells no times: its rows stand a second apart, up to when it was last written.", file=sys.stderr)


def show(rows: Iterator[StepFacts]) -> int:
    count = 0
    for row in rows:
        sys.stdout.write(row_of(row).decode())
        count += 1
    return count


def send(arguments: argparse.Namespace, rows: Iterator[StepFacts]) -> int:
    """How many rows were sent. Raises AskError where the server takes them not."""
    headers = {"Content-Type": "application/x-ndjson"}
    if arguments.token_file is not None:
        headers["Authorization"] = f"Bearer {token_in(arguments.token_file)}"
    url = f"{arguments.server.rstrip('/')}/api/v1/ingest/steps"
    params = {"cluster": arguments.cluster} if arguments.cluster else {}
    count = known = refused = 0
    while held := list(islice(rows, ROWS_A_POST)):
        body = b"".join(map(row_of, held))
        try:
            answer = requests.post(url, body, headers=headers, params=params, timeout=TIMEOUT_S)
        except requests.RequestException as error:
            raise AskError(f"no answer from {arguments.server} ({type(error).__name__}); is it running?") from error
        if not answer.ok:
            raise AskError(f"{arguments.server} says {answer.status_code}: {detail_of(answer)}")
        told = answer.json()
        count, known, refused = count + len(held), known + told["duplicates"], refused + len(told["rejected"])
    print(f"{count} steps sent; {known} known, {refused} refused.")
    return count
