"""Lines of slurmctld, slurmd and slurmstepd as events: nodes lost and back, prologs and epilogs, requeues, daemons.

Pure: a line in, events out. Message texts are those of Slurm 22.05 to 25.11. Following the file is another room's.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from backend.clients.hostlist import HostlistError, expand
from backend.facts import RawEvent

#: Longest text of an event.
MOST_TEXT = 500
#: Most nodes that one line may name and be told of each.
MOST_NODES = 4096
_NODE = r"(?P<nodes>[A-Za-z0-9_][\w.,\[\]-]*)"
_JOB = r"JobId=\S+"
#: (code, message). ``nodes`` of a message are the nodes it is about; other groups become attrs. The first that fits.
MESSAGES: tuple[tuple[str, str], ...] = (
    ("node_down", rf"Nodes? {_NODE} not responding, setting DOWN"),
    ("node_not_responding", rf"Nodes? {_NODE} not responding"),
    ("node_back", rf"Node {_NODE} now responding"),
    ("node_back", rf"(?i:front end )?node {_NODE} returned to service"),
    ("node_rebooted", rf"Node {_NODE} unexpectedly rebooted"),
    ("node_rebooted", rf"Node {_NODE} rebooted \d+ secs ago"),
    ("prolog_failed", rf"Prolog or job env setup failure on node {_NODE}"),
    ("prolog_failed", rf"Prolog (?:failed|failure|hung) on (?:node|host) {_NODE}"),
    ("prolog_failed", rf"Prolog/Epilog failure on nodes {_NODE}"),
    ("prolog_failed", r"\[?job (?P<job>\d+)\]? prolog failed(?: status=(?P<status>\S+))?"),
    ("prolog_failed", r"Prolog launch failure|Error running slurm prolog|Job prolog failed|TaskProlog failed"),
    ("prolog_failed", r"prolog_slurmctld .*(?:exit status (?!0:0)(?P<status>\d+:\d+)|failed due to timing out)"),
    ("epilog_failed", rf"epilog error on {_NODE}, draining the node"),
    ("epilog_failed", rf"epilog error {_JOB} Node={_NODE}(?: Err=(?P<status>.*))?"),
    ("epilog_failed", rf"Epilog failure on host {_NODE}"),
    ("epilog_failed", r"\[?job (?P<job>\d+)\]? epilog failed(?: status=(?P<status>\S+))?"),
    ("epilog_failed", r"Job epilog failed|TaskEpilog failed|epilog_slurmctld .*(?:timed out|exit status (?!0:0)\d)"),
    ("job_lost_node", rf"(?i:requeue) (?i:job) {_JOB} due to failure of node {_NODE}"),
    ("job_lost_node", rf"Killing {_JOB} on (?:failed|DOWN) nodes? {_NODE}"),
    ("job_lost_node", r"(?i:requeue)\b.*due to node failure"),
    ("job_requeued", rf"requeue {_JOB} per (?P<by>user/system) request"),
    ("job_requeued", rf"preempted {_JOB} has been requeued"),
    ("job_held", r"(?:repeated requeue failures|requeue-hold exit|launch failed requeued held)"),
    ("gpu_count", r"(?P<what>gres/gpu\S*) count (?:reported lower than configured|too low) \((?P<short>\d+ < \d+)\)"),
    ("node_invalid", rf"Setting node {_NODE} (?:state )?to INVAL with reason:? ?(?P<reason>.*)"),
    ("node_invalid", rf"_slurm_rpc_node_registration node={_NODE}: (?P<reason>.*)"),
    ("node_invalid", rf"Node {_NODE} (?:has low|appears to have a different slurm\.conf)"),
    ("node_reason", rf"update_node: node {_NODE} reason set to: (?P<reason>.*)"),
    ("node_state", rf"update_node: node {_NODE} state set to (?P<state>\S+)"),
    ("node_state", rf"drain_nodes: node {_NODE} state set to (?P<state>\S+)"),
    ("node_reboot_asked", rf"(?:reboot request queued for|Issuing reboot request for|: reboot) nodes {_NODE}"),
    (
        "kill_task_failed",
        r"(?i:unkillable (?:after|process|stepd))|Kill task failed|may indicate an unkillable process",
    ),
    ("oom", r"OOM failure|Out Of Memory \(OOM\)|[Dd]etected \d+ oom[-_ ]kill|exceeded memory limit"),
    ("time_limit", rf"Time limit exhausted for {_JOB}|CANCELLED AT \S+ DUE TO TIME LIMIT"),
    ("duplicate_job", r"Duplicate jobid on nodes?|Apparent duplicate JobId"),
    (
        "launch_failed",
        r"Could not launch job|batch launch failure|task \d+ launch failed|Can not create job credential",
    ),
    ("controller_lost", r"(?i:unable to contact slurm controller)|Unable to register:"),
    ("controller_took_over", r"not responding, BackupController\S* .* taking over|Running as primary controller"),
    ("auth_failed", r"Munge decode failed|Protocol authentication error|has authentication error"),
    ("clock", r"clock of the file system and this computer|[Ee]xpired credential|Rewound credential"),
    ("accounting_lost", r"slurmdbd: (?:Unable|Issue|agent queue)|DBD_\w+ failure|slurmdbd agent (?:queue|thread)"),
    ("daemon_started", r"(?P<daemon>slurm\w+) version (?P<version>\S+) started"),
    ("daemon_stopping", r"Terminate signal \(SIGINT or SIGTERM\) received|slurm\w* (?:daemon )?shutdown"),
)
_COMPILED = tuple((code, re.compile(pattern)) for code, pattern in MESSAGES)
#: One of these stands in every message above: most lines of a log are done with after it.
_WORTH = re.compile(
    r"respond|returned to service|reboot|[Pp]rolog|[Ee]pilog|equeue|Killing|INVAL|count |node_registration|"
    r"state set to|reason set to|nkillable|Kill task|OOM|oom|memory limit|TIME LIMIT|Time limit|uplicate|launch|"
    r"credential|"
    r"slurm controller|register|primary controller|taking over|decode failed|authentication error|clock|slurmdbd|DBD_|"
    r" started|Terminate signal|shutdown|has low|slurm\.conf"
)
_HEAD = re.compile(
    r"^\s*(?:\[(?P<stamp>[^\]]*\d[^\]]*)\]\s*)?(?:(?P<daemon>slurm\w+)(?:\[\d+\])?:\s+)?"
    r"(?:\[(?P<step>\d+(?:[_+]\d+)?)\.[\w+]+\]\s*)?(?P<level>fatal|error|debug\d?|info|verbose)?:?\s*"
)
_IDS = re.compile(
    r"(?:JobId=|StepId=|[Jj]ob ?[Ii][Dd][= ]|\bJOB |\bSTEP |\[job |\bjob )(?P<id>\d+(?:[_+]\d+)?(?:\(\d+\))?)"
)


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line as a follower hands it over: when (unix s), whose log, the text with or without its stamp.

    daemon: slurmctld, slurmdbd, slurmd, slurmstepd; "" = not known. Lines of the first two are about no machine of
    theirs: the head node is no node of the cluster.
    """

    at: float
    host: str
    text: str
    daemon: str = ""


def slurm_events(line: LogLine) -> tuple[RawEvent, ...]:
    """Events of one line: one for each node that it is about, else one for the host whose log it is; () for the rest.

    The same line read twice gives the same dedupe. An attr ``told_by`` says whose log it was, where that is not the
    node's own: such an event is no sign of life of the node.
    """
    if _WORTH.search(line.text) is None:
        return ()
    head = _HEAD.match(line.text)
    body = (line.text[head.end() :] if head else line.text).strip()
    for code, pattern in _COMPILED:
        found = pattern.search(body)
        if found is not None:
            return tuple(_event(line, node, code, body, found.groupdict(), head) for node in _nodes(line, found))
    return ()


def _nodes(line: LogLine, found: re.Match[str]) -> list[str]:
    """The nodes that a message names; where it names none that can be read, the host of a slurmd's log, else ""."""
    named = (found.groupdict().get("nodes") or "").rstrip(".,:")
    try:
        nodes = expand(named)[:MOST_NODES] if named else []
    except HostlistError:
        nodes = []
    return nodes or ["" if line.daemon in ("slurmctld", "slurmdbd") else line.host]


def _event(
    line: LogLine, node: str, code: str, body: str, groups: Mapping[str, str | None], head: re.Match[str] | None
) -> RawEvent:
    job = groups.get("job") or _job(body) or _raw((head["step"] if head else "") or "")
    attrs = {name: value.strip() for name, value in groups.items() if value and name not in ("nodes", "job")}
    level = (head["level"] or "") if head else ""
    attrs |= {"source": "slurm_log", "level": level or "info"} | ({"told_by": line.host} if line.host != node else {})
    mark = hashlib.blake2b(f"{line.at:.3f} {body}".encode("utf-8", "replace"), digest_size=12).hexdigest()
    dedupe = f"slurm log {node} {code} {mark}"
    return RawEvent(line.at, node, "slurm", code, body[:MOST_TEXT], dedupe, job=job, attrs=attrs)


def _job(body: str) -> str:
    found = _IDS.search(body)
    return _raw(found["id"]) if found else ""


def _raw(text: str) -> str:
    """5 of ``2_1(5)``; 3 of ``3+0(3)``; an id without the raw one in brackets stays as it is."""
    inner = re.search(r"\((\d+)\)$", text)
    return inner[1] if inner else text
