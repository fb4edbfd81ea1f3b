"""The command line of the wrapper, read by hand: argparse would cost more than all that happens before the child."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # importing typing costs more than reading these words
if TYPE_CHECKING:
    from typing import Mapping, NoReturn, Sequence

USAGE = """\
usage: watchkeeper wrap [OPTION...] -- CMD [ARG...]

Runs CMD as if it stood there alone: its output, signals and exit code are its own (126: cannot be run, 127: not found,
128 + N: ended by signal N). What it prints is kept in a log; when it fails, a report says what failed first.

  --name NAME          what the run is called (default: SLURM_JOB_NAME, else the command)
  --job ID             the scheduler's id of the job (default: from Slurm, PBS, LSF, Kubernetes, torchrun)
  --log-dir DIR        where logs and reports are kept (default: watchkeeper-logs)
  --server URL         send the report to this server
  --token-file FILE    token for it (watchkeeper tokens add NAME --scope ingest)
  --email ADDRESS      mail the report there when CMD fails; may be repeated
  --smtp HOST:PORT     mail server (default: localhost:25)
  --smtp-user NAME     account there, signed in with --smtp-password-file FILE, over a proven connection only
  --smtp-tls HOW       proven, tls (from the first byte; port 465), or try (default: proven with an account, else try)
  --sender ADDRESS     whom the mail is from (default: watchkeeper@ this host)
  --slack URL          tell this Slack webhook when CMD fails; file:PATH reads it from a file
  --artifacts GLOB     add these text files to the report, as far as they fit; may be repeated
  --artifact-bytes N   room for them (default: 262144)
  --patience SECONDS   longest time for all of this after CMD ended (default: 15)
  --always             mail and Slack also when CMD ends well
  --no-pty             CMD gets pipes even where this runs in a terminal
  --help               this text

Each option is also read from the environment: WATCHKEEPER_WRAP_SERVER, WATCHKEEPER_WRAP_TOKEN_FILE and so on.
"""
#: Options with a value, and those that are there or not; --email and --artifacts may come several times.
VALUES = (
    ("name", ""),
    ("job", ""),
    ("log-dir", "watchkeeper-logs"),
    ("server", ""),
    ("token-file", ""),
    ("email", ""),
    ("smtp", "localhost:25"),
    ("smtp-user", ""),
    ("smtp-password-file", ""),
    ("smtp-tls", ""),
    ("sender", ""),
    ("slack", ""),
    ("artifacts", ""),
    ("artifact-bytes", "262144"),
    ("patience", "15"),
)
TLS = ("proven", "tls", "try")
FLAGS = ("always", "no-pty")
MANY = ("email", "artifacts")
ENVIRONMENT = "WATCHKEEPER_WRAP_"
#: Longest patience, in seconds: schedulers kill what lingers.
MOST_PATIENCE_S = 3600.0


class WordError(ValueError):
    """A command line that cannot be read; the text says why."""


class Options:
    """What was asked for."""

    def __init__(self, said: Mapping[str, list[str]], command: Sequence[str]) -> None:
        self.command = list(command)
        self.name = said["name"][-1]
        self.job = said["job"][-1]
        self.log_dir = said["log-dir"][-1]
        self.server = said["server"][-1]
        self.token_file = said["token-file"][-1]
        self.email = [one for word in said["email"] for one in word.replace(",", " ").split()]
        self.smtp = said["smtp"][-1]
        self.smtp_user, self.smtp_password_file = said["smtp-user"][-1], said["smtp-password-file"][-1]
        self.smtp_tls = said["smtp-tls"][-1] or ("proven" if self.smtp_user else "try")
        if self.smtp_tls not in TLS or (self.smtp_user and self.smtp_tls == "try"):
            raise WordError("--smtp-tls is proven, tls or try; with --smtp-user it is proven or tls")
        if bool(self.smtp_user) != bool(self.smtp_password_file):
            raise WordError("--smtp-user and --smtp-password-file belong together")
        self.sender = said["sender"][-1]
        self.slack = said["slack"][-1]
        self.artifacts = [word for word in said["artifacts"] if word]
        self.artifact_bytes = int(_number(said["artifact-bytes"][-1], "artifact-bytes", 2.0**40))
        self.patience_s = _number(said["patience"][-1], "patience", MOST_PATIENCE_S)
        self.always = bool(said["always"])
        self.no_pty = bool(said["no-pty"])

    @property
    def tells(self) -> bool:
        """Whether somebody is to hear of an end that was well."""
        return bool(self.server) or self.always


def read(words: Sequence[str], environment: Mapping[str, str]) -> Options:
    """Raises WordError for words that cannot be understood. ``--help`` is for the caller."""
    given = {name: [environment.get(_variable(name)) or default] for name, default in VALUES}
    for name in FLAGS:
        given[name] = ["yes"] if environment.get(_variable(name), "0") not in ("", "0", "no", "false") else []
    fresh: set[str] = set()
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        name, equals, value = words[at][2:].partition("=")
        if not words[at].startswith("--") or name not in given:
            raise WordError("there is no option " + words[at])
        if name in FLAGS:
            given[name] = ["yes"]
        else:
            if not equals:
                at += 1
                if at >= len(words):
                    raise WordError("--" + name + " needs a value")
                value = words[at]
            given[name] = [*given[name], value] if name in MANY and name in fresh else [value]
            fresh.add(name)
        at += 1
    command = words[at + 1 :] if at < len(words) and words[at] == "--" else words[at:]
    if not command:
        raise WordError("no command is given; write it behind --")
    return Options(given, command)


def _variable(name: str) -> str:
    return ENVIRONMENT + name.upper().replace("-", "_")


def _number(text: str, name: str, most: float) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found <= most:
        raise WordError(f"--{name}: {text!r} is no number from 0 to {most:.0f}")
    return found


def said(text: str) -> None:
    """One line of the wrapper's own, on stderr, so that nobody takes it for the child's."""
    try:
        os.write(2, ("watchkeeper wrap: " + text + "\n").encode("utf-8", "replace"))
    except OSError:
        pass


def leave(code: int, text: str) -> NoReturn:
    """Say something and go."""
    (sys.stdout if code == 0 else sys.stderr).write(text)
    raise SystemExit(code)
