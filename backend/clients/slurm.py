"""Slurm by its commands: nodes, jobs, drain, resume, requeue; no shell, bounded time, checked arguments."""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from time import monotonic, time
from typing import TypeVar

from backend.clients.hostlist import is_host, render
from backend.clients.slurm_records import Job, RecordError, parse_jobs, parse_nodes
from backend.clients.slurm_text import (
    Partition,
    Place,
    Reservation,
    parse_partitions,
    parse_reservations,
    parse_topology,
)
from backend.facts import AttemptFacts, NodeFacts

T = TypeVar("T")

#: Longest drain reason we write, in characters.
MAX_REASON = 200
_JOB = re.compile(r"[0-9]{1,10}(?:_[0-9]{1,10}|\+[0-9]{1,5})?")
_VERSION = re.compile(r"slurm\S* (\d+)\.(\d+)\.?(\d*)")
#: Most that one command may print; a job of ``squeue --json`` takes some 5 kB.
MOST_BYTES = 536_870_912
#: Words of a controller that did not answer; everything else is an answer, and it is no.
SILENCE = re.compile(
    r"unable to contact|timed out|timeout|connection refused|connection reset|connect failure|communication|"
    r"resource temporarily unavailable|zero bytes|in standby|try again|rate limit",
    re.IGNORECASE,
)
#: Words of a cluster without a topology (topology/default, topology/flat).
_FLAT = re.compile(r"no topology|topology.*not|TopologyPlugin", re.IGNORECASE)
#: Settings of a user's shell that would change what the commands print.
_MEDDLING = re.compile(r"(?:SQUEUE|SINFO|SCONTROL|SACCT|SACCTMGR|SLURM)_\w+")


class SlurmError(Exception):
    """Slurm refused, did not answer, or said something unreadable. ``permanent``: asking again cannot help."""

    def __init__(self, message: str, *, permanent: bool = False) -> None:
        super().__init__(message)
        self.permanent = permanent


@dataclass(frozen=True, slots=True)
class Ran:
    """What one command left behind."""

    code: int
    out: str
    err: str


#: (command, environment, timeout in s) -> Ran; raises TimeoutError when killed, OSError when it cannot start.
Run = Callable[[Sequence[str], Mapping[str, str], float], Ran]


def run_bounded(command: Sequence[str], env: Mapping[str, str], timeout_s: float, most_bytes: int = MOST_BYTES) -> Ran:
    """Runs one command without a shell; kills it and its children after ``timeout_s`` and raises TimeoutError, or when
    it prints more than ``most_bytes`` and raises OSError."""
    process = subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    with process:
        try:
            out, err = _printed(process, monotonic() + timeout_s, most_bytes)
        except OSError:  # TimeoutError is one
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return Ran(process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))


def _printed(process: subprocess.Popen[bytes], until: float, most_bytes: int) -> tuple[bytearray, bytearray]:
    """Both outputs of a process that ended by itself. ``until``: monotonic s. Raises TimeoutError, OSError."""
    out, err = bytearray(), bytearray()
    with selectors.DefaultSelector() as open_ends:
        for pipe, into in ((process.stdout, out), (process.stderr, err)):
            assert pipe is not None
            open_ends.register(pipe, selectors.EVENT_READ, into)
        while open_ends.get_map():
            ready = open_ends.select(max(0.0, until - monotonic()))
            if not ready:
                raise TimeoutError
            for end, _ in ready:
                chunk = os.read(end.fd, 1_048_576)
                end.data.extend(chunk)
                if len(end.data) > most_bytes:
                    raise OSError(f"it printed more than {most_bytes:,} bytes")
                if not chunk:
                    open_ends.unregister(end.fileobj)
    try:
        process.wait(max(0.0, until - monotonic()))
    except subprocess.TimeoutExpired:
        raise TimeoutError from None
    return out, err


class SlurmCli:
    """One Slurm cluster through scontrol, sinfo and squeue. Every method raises SlurmError.

    conf: SLURM_CONF, "" for the system's. timeout_s: longest wait for one command. now: unix s, stamps what is read.
    """

    def __init__(
        self,
        conf: str = "",
        timeout_s: float = 10.0,
        run: Run = run_bounded,
        now: Callable[[], float] = time,
    ) -> None:
        self._conf = conf
        self._timeout_s = timeout_s
        self._run = run
        self._now = now

    def version(self) -> tuple[int, int, int]:
        """(22, 5, 8) for slurm-wlm 22.05.8."""
        said = self._ask("sinfo", "-V")
        found = _VERSION.search(said)
        if found is None:
            raise SlurmError(f"sinfo -V printed {said[:80]!r}, no version", permanent=True)
        return int(found[1]), int(found[2]), int(found[3] or 0)

    def settings(self) -> dict[str, str]:
        """What the controller runs with, by key: ``SlurmUser`` -> ``slurm(64030)``."""
        rows = (line.partition("=") for line in self._ask("scontrol", "show", "config").splitlines())
        return {key.strip(): value.strip() for key, sign, value in rows if sign}

    def admin_level(self, user: str) -> str:
        """What the accounting grants: None, Operator or Administrator; "" where it knows no such user."""
        return self._ask("sacctmgr", "-n", "-P", "show", "user", f"name={user}", "format=AdminLevel").strip()

    def nodes(self) -> list[NodeFacts]:
        """All nodes, hidden ones too; ``jobs`` stays empty (see ``slurm_records.holders``)."""
        at = self._now()
        return self._nodes(self._ask("scontrol", "-a", "-o", "show", "node"), at)

    def node(self, name: str) -> NodeFacts:
        """One node with the jobs that hold it; permanent where Slurm knows no such node."""
        check_node(name)
        held = self._ask("squeue", "-h", "-a", "-t", "R,CG,CF,S,ST", "-w", name, "-o", "%A").split()
        at = self._now()  # the node itself last: whoever acts on it next has the newest reason
        found = self._nodes(self._ask("scontrol", "-a", "-o", "show", "node", name), at)
        if [n.name for n in found] != [name]:
            raise SlurmError(f"Slurm knows no node {name}", permanent=True)
        return replace(found[0], jobs=tuple(dict.fromkeys(j for j in held if j.isdigit())))

    def jobs(self) -> list[AttemptFacts]:
        """All jobs the controller remembers: waiting, running, and ended within MinJobAge (300 s by default)."""
        return [job.attempt for job in self._jobs()]

    def job(self, job: str) -> Job | None:
        """One job by its number (of an array task: its own), None where the controller does not know it."""
        check_job(job)
        return next((j for j in self._jobs() if j.attempt.job == job), None)

    def reservations(self) -> list[Reservation]:
        """All reservations, past ones that are still listed too."""
        return self._text("show reservation", parse_reservations, "scontrol", "-a", "-o", "show", "reservation")

    def partitions(self) -> list[Partition]:
        return self._text("show partition", parse_partitions, "scontrol", "-a", "-o", "show", "partition")

    def topology(self) -> dict[str, Place]:
        """Where each node hangs; empty where Slurm was told of no topology."""
        try:
            return self._text("show topology", parse_topology, "scontrol", "show", "topology")
        except SlurmError as error:
            if _FLAT.search(str(error)):
                return {}
            raise

    def drain(self, name: str, reason: str) -> str:
        """No new work on the node; what runs there goes on. Overwrites any reason: read first."""
        check_node(name)
        check_reason(reason)
        self._ask("scontrol", "update", f"NodeName={name}", "State=DRAIN", f"Reason={reason}")
        return ""

    def resume(self, name: str) -> str:
        """Takes the drain away and nothing else: UNDRAIN, unlike RESUME, leaves a node that is down, down."""
        check_node(name)
        self._ask("scontrol", "update", f"NodeName={name}", "State=UNDRAIN")
        return ""

    def requeue(self, job: str) -> str:
        """Ends the job and queues it again. Slurm would also revive a job that ended: read first."""
        check_job(job)
        self._ask("scontrol", "requeue", job)
        return ""

    def exclude(self, job: str, nodes: Sequence[str]) -> str:
        """Sets the nodes that a waiting job must not get; replaces the list it had. Refused while the job runs."""
        check_job(job)
        for name in nodes:
            check_node(name)
        self._ask("scontrol", "update", f"JobId={job}", f"ExcNodeList={render(nodes)}")
        return ""

    def note(self, job: str, text: str) -> None:
        """Writes our word into the AdminComment of a job, where scontrol and sacct show it to its owner. Needs an
        operator of Slurm. Raises SlurmError."""
        check_job(job)
        plain = "".join(c for c in text if c.isprintable() and c not in "'\"`")
        self._ask("scontrol", "update", f"JobId={job}", f"AdminComment={plain}")

    def reboots(self) -> bool:
        """Whether slurm.conf names a RebootProgram."""
        return self.settings().get("RebootProgram", "(null)") not in ("", "(null)")

    def reboot(self, name: str) -> str:
        """Restarts a node once it is idle. Neither ASAP nor nextstate: both would end the drain when it is up again,
        before anybody has looked at it (man scontrol, reboot)."""
        check_node(name)
        self._ask("scontrol", "reboot", name)
        return ""

    def token(self, lifespan_s: int, user: str = "") -> str:
        """A new JWT for slurmrestd. Needs auth/jwt at the controller; for another user, root or SlurmUser."""
        for_user = (f"username={user}",) if user else ()
        said = self._ask("scontrol", "token", f"lifespan={lifespan_s}", *for_user)
        name, sign, token = said.strip().partition("=")
        if name != "SLURM_JWT" or not sign or not token:
            raise SlurmError("scontrol token printed no token", permanent=True)
        return token

    def now(self) -> float:
        """Unix s, by the clock that stamps what is read."""
        return self._now()

    def ask(self, *command: str, timeout_s: float = 0.0) -> str:
        """Standard output of a command that only reads. timeout_s: 0 = as for every command."""
        return self._ask(*command, timeout_s=timeout_s)

    def _text(self, what: str, parse: Callable[[str], T], *command: str) -> T:
        """What ``parse`` makes of a command's output. Raises SlurmError where it makes nothing of it."""
        text = self._ask(*command)
        try:
            return parse(text)
        except RecordError as bad:
            raise SlurmError(f"scontrol {what}: {bad}", permanent=True) from bad

    def _nodes(self, text: str, at: float) -> list[NodeFacts]:
        try:
            return parse_nodes(text, at)
        except RecordError as bad:
            raise SlurmError(f"scontrol show node: {bad}", permanent=True) from bad

    def _jobs(self) -> list[Job]:
        text = self._ask("squeue", "-a", "-t", "all", "--json")
        try:
            return parse_jobs(json.loads(text))
        except (ValueError, RecursionError) as bad:  # RecordError and JSONDecodeError are ValueErrors
            fix = "squeue --json needs Slurm 22.05 or later with its JSON serializer plugin"
            raise SlurmError(f"squeue --json: {bad}; {fix}", permanent=True) from bad

    def _ask(self, *command: str, timeout_s: float = 0.0) -> str:
        """Standard output of one command."""
        said, timeout_s = " ".join(command[:3]), timeout_s or self._timeout_s
        try:
            ran = self._run(command, self._env(), timeout_s)
        except TimeoutError:
            raise SlurmError(f"{said}: no answer within {timeout_s:g} s") from None
        except FileNotFoundError:
            fix = "install Slurm's client commands here (Debian: slurm-client) or take [cluster.slurm] out"
            raise SlurmError(f"{command[0]} is not installed; {fix}", permanent=True) from None
        except OSError as bad:
            raise SlurmError(f"{said}: {bad}") from bad
        if ran.code != 0:
            words = " ".join((ran.err.strip() or ran.out.strip() or f"exit code {ran.code}").split())[:300]
            raise SlurmError(f"{said}: {words}", permanent=SILENCE.search(words) is None)
        return ran.out

    def _env(self) -> dict[str, str]:
        env = {k: v for k, v in os.environ.items() if k == "SLURM_CONF" or not _MEDDLING.fullmatch(k)}
        env |= {"LC_ALL": "C", "TZ": "UTC", "SLURM_TIME_FORMAT": "%s"}
        return env | ({"SLURM_CONF": self._conf} if self._conf else {})


def check_node(name: str) -> None:
    if not is_host(name) or name.upper() == "ALL":  # scontrol would take ALL for every node
        raise SlurmError(f"{name[:40]!r} is not the name of one node", permanent=True)


def check_reason(reason: str) -> None:
    """Raises SlurmError where it is no printable line of a length that Slurm keeps."""
    if not reason or len(reason) > MAX_REASON or not reason.isprintable():
        raise SlurmError(f"drain reason must be 1 to {MAX_REASON} printable characters", permanent=True)


def check_job(job: str) -> None:
    if _JOB.fullmatch(job) is None:
        raise SlurmError(f"{job[:40]!r} is not a job number", permanent=True)
