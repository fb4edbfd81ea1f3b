"""Slurm by slurmrestd, v0.0.38 (22.05) to v0.0.46 (26.11); what a version cannot do goes by scontrol, and is said."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import quote

from backend.clients.slurm import SILENCE, SlurmCli, SlurmError, check_job, check_node, check_reason
from backend.clients.slurm_http import Answer, Send, Tokens, send_bounded
from backend.clients.slurm_records import Job, parse_jobs, read_nodes
from backend.clients.slurm_text import Partition, Place, Reservation, read_partitions, read_reservations
from backend.clients.slurm_values import RecordError, text_of
from backend.facts import AttemptFacts, NodeFacts

#: Versions of the data parser that are tried, newest first (26.11 down to 22.05), and the release each came with.
VERSIONS = tuple(range(46, 37, -1))
RELEASES = {38: "22.05", 39: "23.02", 40: "23.11", 41: "24.05", 42: "24.11", 43: "25.05", 44: "25.11", 45: "26.05"}
#: First versions that can update nodes, set a job's excluded nodes as a list, and requeue.
UPDATES_NODES, EXCLUDES, REQUEUES = 39, 40, 45
#: slurmrestd's words, and Slurm's numbers, for a token that is not good (slurm_errno.h: 1007 protocol authentication).
#: 22.05 only says that something is wrong.
_BAD_TOKEN = re.compile(r"authentication|unauthorized|expired|token|unspecified error", re.IGNORECASE)
_AUTH_ERRORS = frozenset({1007, 1008, 8004, 8005})
#: Slurm's words for a node that it does not know.
_NO_NODE = re.compile(r"invalid node name|node.*not found|unable to query node", re.IGNORECASE)
_RELEASE = re.compile(r"(\d+)\.(\d+)\.(\d+)")
T = TypeVar("T")


class SlurmRest:
    """One Slurm cluster through slurmrestd. Every method raises SlurmError.

    url: ``http://host:6820``, ``https://...``, ``unix:/run/slurmrestd.socket``. user: whom the token is for, "" = as
    the token says. cli: the way for what this slurmrestd cannot do; None = there is none.
    """

    def __init__(
        self,
        url: str,
        tokens: Tokens,
        user: str = "",
        timeout_s: float = 10.0,
        cli: SlurmCli | None = None,
        send: Send = send_bounded,
    ) -> None:
        self._url = url.rstrip("/")
        self._tokens = tokens
        self._user = user
        self._timeout_s = timeout_s
        self._cli = cli
        self._send = send
        self._api = 0
        self._release = ""

    # --- what it is -------------------------------------------------------------------------------------------------

    def api(self) -> int:
        """The newest data parser that both know: 42 for v0.0.42. Asked once, and again when it is gone."""
        for version in () if self._api else VERSIONS:
            answer = self._exchange("GET", f"/slurm/v0.0.{version}/ping" + "/" * (version >= 40), {})
            if answer.status in (404, 405):
                continue
            self._release = text_of(_slurm_of(self._read(answer, "ping")).get("release"))
            self._api = version
            break
        if not self._api:
            raise SlurmError(f"{self._url} speaks no version of Slurm's REST from v0.0.38 on", permanent=True)
        return self._api

    def version(self) -> tuple[int, int, int]:
        """(24, 11, 5), as slurmrestd says of itself."""
        self.api()
        found = _RELEASE.search(self._release)
        if found is None:
            raise SlurmError(f"{self._url} names no release of Slurm", permanent=True)
        return int(found[1]), int(found[2]), int(found[3])

    # --- reads ------------------------------------------------------------------------------------------------------

    def nodes(self) -> list[NodeFacts]:
        """All nodes; ``jobs`` stays empty (see ``slurm_records.holders``)."""
        return self._got("nodes", lambda found: read_nodes(found, self._now()))

    def node(self, name: str) -> NodeFacts:
        """One node with the jobs that hold it; permanent where Slurm knows no such node."""
        check_node(name)
        held = tuple(job.attempt.job for job in self._all_jobs() if job.holds and name in job.attempt.nodes)
        found = self._call("GET", f"node/{quote(name)}", {}, unknown=_NO_NODE)
        nodes = self._parsed(lambda: read_nodes(found, self._now()), "node") if found is not None else []
        if [node.name for node in nodes] != [name]:
            raise SlurmError(f"Slurm knows no node {name}", permanent=True)
        return replace(nodes[0], jobs=held)

    def jobs(self) -> list[AttemptFacts]:
        """All jobs the controller remembers: waiting, running, and ended within MinJobAge (300 s by default)."""
        return [job.attempt for job in self._all_jobs()]

    def job(self, job: str) -> Job | None:
        """One job by its number (of an array task: its own), None where the controller does not know it."""
        check_job(job)
        return next((one for one in self._all_jobs() if one.attempt.job == job), None)

    def reservations(self) -> list[Reservation]:
        return self._got("reservations", read_reservations)

    def partitions(self) -> list[Partition]:
        return self._got("partitions", read_partitions)

    def topology(self) -> Mapping[str, Place]:
        """By scontrol: slurmrestd has no tree. Without it, what nodes say themselves (24.11 and later)."""
        if self._cli is not None:
            return self._cli.topology()
        found = self._call("GET", self._place("nodes"), {}) or {}
        return {str(n.get("name")): place for n in found.get("nodes", []) if (place := _place_of(n)) != Place()}

    def has_accounting(self) -> bool:
        """Whether slurmrestd speaks for slurmdbd, too."""
        answer = self._exchange("GET", f"/slurmdb/v0.0.{self.api()}/config", {})
        return answer.status != 404

    def kept(self, place: str) -> dict[str, Any]:
        """What slurmdbd answers: ``place`` is what stands after /slurmdb/v0.0.NN/."""
        answer = self._exchange("GET", f"/slurmdb/v0.0.{self.api()}/{place}", {})
        return self._read(answer, f"accounting, {place.partition('?')[0]}") or {}

    # --- writes -----------------------------------------------------------------------------------------------------

    def drain(self, name: str, reason: str) -> str:
        """No new work on the node; what runs there goes on. Overwrites any reason: read first."""
        check_node(name)
        check_reason(reason)
        if self.api() >= UPDATES_NODES:
            self._call("POST", f"node/{quote(name)}", {"state": ["DRAIN"], "reason": reason})
            return ""
        cli, why = self._instead("update nodes", UPDATES_NODES)
        return cli.drain(name, reason) or why

    def resume(self, name: str) -> str:
        """Takes the drain away and nothing else: UNDRAIN, unlike RESUME, leaves a node that is down, down."""
        check_node(name)
        if self.api() >= UPDATES_NODES:
            self._call("POST", f"node/{quote(name)}", {"state": ["UNDRAIN"]})
            return ""
        cli, why = self._instead("update nodes", UPDATES_NODES)
        return cli.resume(name) or why

    def requeue(self, job: str) -> str:
        """Ends the job and queues it again. Slurm would also revive a job that ended: read first."""
        check_job(job)
        if self.api() >= REQUEUES:
            self._call("POST", "jobs/requeue", {"jobs": [job]})
            return ""
        cli, why = self._instead("requeue jobs", REQUEUES)
        return cli.requeue(job) or why

    def exclude(self, job: str, nodes: Sequence[str]) -> str:
        """Sets the nodes that a waiting job must not get; replaces the list it had. Refused while the job runs."""
        check_job(job)
        for name in nodes:
            check_node(name)
        if self.api() >= EXCLUDES:
            self._call("POST", f"job/{job}", {"excluded_nodes": list(nodes)})
            return ""
        cli, why = self._instead("change a job's excluded nodes", EXCLUDES)
        return cli.exclude(job, nodes) or why

    def reboots(self) -> bool:
        """Only scontrol reboots nodes: no slurmrestd has a route for it."""
        return self._cli is not None and self._cli.reboots()

    def reboot(self, name: str) -> str:
        if self._cli is None:
            fix = "Set cli = true under [cluster.slurm] where scontrol works."
            raise SlurmError(f"slurmrestd cannot reboot nodes, and scontrol may not be used. {fix}", permanent=True)
        return self._cli.reboot(name) or "by scontrol, because slurmrestd cannot reboot nodes"

    def _instead(self, what: str, since: int) -> tuple[SlurmCli, str]:
        """The commands, for what this slurmrestd cannot do, and the clause that says so."""
        release = RELEASES.get(self.api(), self._release)
        lacks = f"slurmrestd v0.0.{self.api()} (Slurm {release}) cannot {what}"
        if self._cli is None:
            fix = f"Set cli = true under [cluster.slurm] where scontrol works, or use Slurm {RELEASES[since]} or later."
            raise SlurmError(f"{lacks}, and scontrol may not be used here. {fix}", permanent=True)
        return self._cli, f"by scontrol, because {lacks}"

    # --- the wire ---------------------------------------------------------------------------------------------------

    def _now(self) -> float:
        return self._tokens.now()

    def _all_jobs(self) -> list[Job]:
        return self._got("jobs", parse_jobs)

    def _got(self, what: str, parse: Callable[[Any], list[T]]) -> list[T]:
        found = self._call("GET", self._place(what), {})
        return self._parsed(lambda: parse(found), what)

    def _parsed(self, made: Callable[[], list[T]], what: str) -> list[T]:
        try:
            return made()
        except (RecordError, RecursionError) as bad:
            raise SlurmError(f"slurmrestd, {what}: {bad}", permanent=True) from bad

    def _place(self, what: str) -> str:
        return what + "/" * (self.api() >= UPDATES_NODES)

    def _call(
        self, method: str, place: str, body: Mapping[str, Any], unknown: re.Pattern[str] | None = None
    ) -> dict[str, Any] | None:
        """The answer to one request; None where Slurm does not know what is asked for. Tried again once with another
        token where the first was refused."""
        path = f"/slurm/v0.0.{self.api()}/{place}"
        answer = self._exchange(method, path, body)
        if answer.status == 404 and not answer.body.lstrip().startswith(b"{"):
            self._api = 0  # slurmrestd was changed for another version: find out which, next time
            raise SlurmError(f"slurmrestd no longer knows {path}")
        return self._read(answer, place, unknown)

    def _exchange(self, method: str, path: str, body: Mapping[str, Any]) -> Answer:
        for again in (True, False):
            token = self._token()
            answer = self._sent(method, path, body, token)
            if not _refused(answer):
                break
            if not (again and self._tokens.refuse(token)):
                fix = "Renew the token in rest_token_file (scontrol token), or set cli = true to have it renewed."
                raise SlurmError(f"slurmrestd took our token for none ({answer.status}). {fix}")
        return answer

    def _token(self) -> str:
        try:
            return self._tokens.current()
        except OSError as bad:
            raise SlurmError(f"rest_token_file cannot be read: {bad}") from bad

    def _sent(self, method: str, path: str, body: Mapping[str, Any], token: str) -> Answer:
        headers = {"Accept": "application/json"}
        headers |= {"X-SLURM-USER-TOKEN": token} if token else {}
        headers |= {"X-SLURM-USER-NAME": self._user} if self._user and token else {}
        headers |= {"Content-Type": "application/json"} if body else {}
        url = self._url + (":" if self._url.startswith("unix:") else "") + path
        content = json.dumps(body).encode() if body else b""
        try:
            return self._send(method, url, headers, content, self._timeout_s)
        except TimeoutError:
            raise SlurmError(f"slurmrestd: no answer within {self._timeout_s:g} s") from None
        except OSError as bad:
            raise SlurmError(f"slurmrestd at {self._url}: {bad}") from bad

    def _read(self, answer: Answer, what: str, unknown: re.Pattern[str] | None = None) -> dict[str, Any] | None:
        """The document of an answer; its errors raised, also those of a 200, unless it brings what was asked for: a
        slurmrestd that cannot reach slurmdbd answers 502 with all partitions."""
        try:
            found = json.loads(answer.body) if answer.body.strip() else {}
        except (ValueError, RecursionError):
            words = answer.body[:120].decode("utf-8", "replace")
            raise SlurmError(f"slurmrestd, {what}: {answer.status} {words!r}", permanent=answer.status < 500) from None
        errors = (
            [one for one in found.get("errors") or [] if isinstance(one, Mapping)] if isinstance(found, dict) else []
        )
        words = "; ".join(map(_words, errors)) or f"status {answer.status}"
        if unknown is not None and errors and unknown.search(words):
            return None
        brought = any(isinstance(value, list) and value for key, value in _lists(found))
        if (answer.status >= 400 or errors) and not brought:
            raise SlurmError(f"slurmrestd, {what}: {words[:300]}", permanent=SILENCE.search(words) is None)
        return found if isinstance(found, dict) else {}


def _lists(found: Any) -> list[tuple[str, Any]]:
    """What an answer brings, beside its own errors and warnings."""
    return [(key, value) for key, value in found.items() if key not in ("errors", "warnings")] if found else []


def _words(error: Mapping[str, Any]) -> str:
    said = [text_of(error.get(key)) for key in ("description", "error")]
    number = error.get("error_number", error.get("errno"))
    return ": ".join(dict.fromkeys(part for part in said if part)) + (f" ({number})" if number else "")


def _refused(answer: Answer) -> bool:
    """Whether the token was not taken: 401, 403, 511 (24.11), 500 with Slurm's own number (22.05), or a 200 with it."""
    if answer.status in (401, 403, 511):
        return True
    head = answer.body[-20_000:]  # errors stand near the end, and only there it may be small
    if answer.status >= 500 and _BAD_TOKEN.search(head.decode("utf-8", "replace")):
        return True
    return any(f'"error_number": {number}'.encode() in head for number in _AUTH_ERRORS)


def _slurm_of(found: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """What an answer says of Slurm: under meta, as Slurm (22.05) or slurm."""
    meta = (found or {}).get("meta")
    inner = (meta.get("slurm") or meta.get("Slurm")) if isinstance(meta, Mapping) else None
    return inner if isinstance(inner, Mapping) else {}


def _place_of(record: Mapping[str, Any]) -> Place:
    """Of ``topology``: switches from the top to the leaf, as in ``default:spine1:leaf2:node`` (24.11 and later)."""
    parts = [part for part in text_of(record.get("topology")).split(":") if part and part != record.get("name")]
    return Place(leaf=parts[-1], above=tuple(reversed(parts[1:-1]))) if len(parts) > 1 else Place()
