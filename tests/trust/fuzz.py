"""`make fuzz`: schemathesis over the whole OpenAPI of the demo, with a token that may write; 0 failures is the bar."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.trust.replicas import LISTENS, ROOT, answers

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "ignored_auth",
)
#: Streams that never end by themselves.
ENDLESS = "/live|/changes"
START_S = 90.0


@contextmanager
def demo(folder: Path) -> Iterator[str]:
    """The address of a demo of its own, stopped by its pid."""
    log = folder / "log"
    command = [sys.executable, "-m", "backend.cli", "demo", "--port", "0", "--folder", str(folder / "demo")]
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + START_S
        while not ((found := LISTENS.search(log.read_text())) and answers(found.group(1))):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the demo did not start:\n{log.read_text()}")
            time.sleep(0.2)
        yield found.group(1)
    finally:
        process.terminate()
        process.wait(30)


def token(folder: Path) -> str:
    """A token that may do all that a token may."""
    config = folder / "watchkeeper.toml"
    config.write_text(f'[store]\nfolder = "{folder / "demo"}"\n', encoding="utf-8")
    words = ["tokens", "add", "fuzz", "--scope", "approve", "--config", str(config)]
    made = subprocess.run(
        [sys.executable, "-m", "backend.cli", *words], cwd=ROOT, check=True, capture_output=True, text=True, timeout=60
    )
    return made.stdout.split()[-1]


def main(words: Sequence[str]) -> int:
    """``words`` go to schemathesis: --seed 7, --max-examples 500."""
    with tempfile.TemporaryDirectory() as name, demo(Path(name)) as url:
        command = [
            *("schemathesis", "run", f"{url}/openapi.json", "--checks", ",".join(CHECKS)),
            *("--phases", "examples,coverage,fuzzing,stateful", "--exclude-path-regex", ENDLESS),
            *("--request-timeout", "20", "--suppress-health-check", "all", "--warnings", "off", "--no-color"),
            *("-H", f"Authorization: Bearer {token(Path(name))}", *(words or ("-n", "50", "--seed", "1"))),
        ]
        environment = {**os.environ, "SCHEMATHESIS_HOOKS": "tests.trust.fuzz_hooks", "PYTHONPATH": str(ROOT)}
        program = Path(sys.executable).parent / command[0]
        if not program.exists():
            print("schemathesis is not installed: pip install -e '.[fuzz]'", file=sys.stderr)
            return 2
        return subprocess.run([str(program), *command[1:]], cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
