"""Why a node was taken out, read from its reason: who wrote it, what it is about, which GPU. Pure: text in, facts out.

Every field has people who write by hand, health checks with a prefix of their own, and Slurm with a handful of words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from backend.facts import TAG

#: Prefixes of programs that take nodes out, by the name shown; each as it begins a reason (case does not matter).
WRITERS: tuple[tuple[str, str], ...] = (
    ("watchkeeper", re.escape(TAG)),
    ("nhc", r"nhc\b\s*[:\-]?|\[nhc\]|\(nhc\)|node[ _]?health[ _]?check\b\s*:?"),
    ("sunk", r"sunk[:/]"),
    ("soperator", r"\[?soperator\]?\s*[:/]|\[node_problem\]|\[user_problem\]"),
    ("hc", r"\[hc\]|hc\s*:|health[ _-]?(?:check|agent)\s*(?:failed|:)|\[health[ _-]?check\]"),
    ("npd", r"npd\b\s*[:\-]?|node-problem-detector\b\s*:?"),
    ("nvsentinel", r"\[?nvsentinel\]?\s*:?"),
    ("slinky", r"slurm-operator\b\s*:?|slinky\b\s*[:/]?"),
    ("gcm", r"\[?gcm\]?\s*:"),
    ("chs", r"\[?cluster[- ]health[- ]scanner\]?\s*:?"),
)
#: What slurmctld and slurmd write by themselves, with what it is about (strings of slurmctld, 22.05 and 24.11).
SLURM: tuple[tuple[str, str], ...] = (
    ("not_responding", r"not responding\b"),
    (
        "reboot",
        r"node unexpectedly rebooted\b|reboot (?:asap|requested|issued|complete|timed out)\b|scheduled reboot\b",
    ),
    ("gpu_count", r"gres/gpu\S* count (?:reported lower than configured|too low|changed)|gres/gpu\S* .*less than"),
    ("gres_count", r"gres/\S+ count (?:reported lower than configured|too low|changed)"),
    ("memory_size", r"low realmemory\b|low tmpdisk\b"),
    ("cpu_count", r"low (?:socket\*core|cpus|cpu count|cores)\S*"),
    ("kill_task_failed", r"kill task failed\b"),
    ("prolog", r"prolog error\b|prolog failed\b|prolog failure\b|prolog hung\b|prolog/epilog failure\b"),
    ("prolog", r"batch job complete failure\b|job prolog failed\b|prolog or job env setup failure\b"),
    ("epilog", r"epilog error\b|epilog failed\b|job epilog failed\b"),
    ("duplicate_job", r"duplicate jobid\b"),
    ("launch", r"(?:batch )?launch failure\b|job launch failure\b|unable to launch\b"),
    ("resume_timeout", r"resumetimeout reached\b|suspendtimeout reached\b|resumeprogram\b"),
    ("config", r"node configuration differs\b|appears to have a different slurm\.conf|invalid node configuration\b"),
    ("token", r"munge\b.*(?:decode|credential)|invalid job credential\b"),
)
#: What a reason is about, by words anybody may use; the first that is found. Kinds as in kinds.csv where it has one.
TOPICS: tuple[tuple[str, str], ...] = (
    ("gpu_bus_loss", r"fallen off|fell off|gpus? (?:is |are )?(?:lost|missing)|(?:lost|missing) gpu|xid[\s:=_]*79\b"),
    ("gpu_ecc", r"\becc\b|row[- _]?remap|uncorrectable|retired pages?|\bsbe\b|\bdbe\b|xid[\s:=_]*(?:48|63|64|94|95)\b"),
    ("nvlink", r"nv[- ]?link|nv[- ]?switch|fabric[- _]?manager|xid[\s:=_]*(?:74|14[4-9]|150)\b"),
    ("gsp", r"\bgsp\b|xid[\s:=_]*(?:119|120)\b"),
    ("gpu", r"\bgpus?\d*\b|\bxid\b|nvidia|\bdcgm\b|\bcuda\b|\bamdgpu\b|\bnvml\b|gres/gpu"),
    ("infiniband", r"\bib\d*\b|infiniband|\bmlx\w*|\bhca\b|\broce\b|\befa\b|link[ _-]?(?:down|flap)|\brdma\b"),
    ("network", r"\bnic\b|ethernet|network|\bdns\b|\beth\d|switch port|\bssh\b|unreachable|\bping\b"),
    ("filesystem", r"mount|\bnfs\b|lustre|gpfs|\bweka\b|beegfs|vast\b|file ?system|read[- ]?only|check_fs\w*|stale"),
    ("disk", r"\bdisk|\bssd\b|nvme|\braid\b|smart\b|no space|/tmp\b|scratch"),
    ("memory", r"\bmemory\b|\bdimm\b|\boom\b|\bram\b|\bmce\b|machine check|edac|realmemory"),
    ("power", r"\bpsu\b|power|\bfans?\b|thermal|temperature|overheat|cooling|\bbmc\b|ipmi"),
    ("cpu", r"\bcpus?\b|socket|\bload\b"),
    ("clock", r"\bntp\b|chrony|clock|time skew"),
    ("kill_task_failed", r"kill task failed|unkillable|zombie|\bd[- ]state\b|stuck process"),
    ("prolog", r"prolog"),
    ("epilog", r"epilog"),
    ("not_responding", r"not responding|no response|hung\b|unresponsive"),
    ("reboot", r"reboot|power ?cycle|rebooting"),
    ("maintenance", r"maint(?:enance)?\b|upgrade|update|firmware|bios|driver|kernel|patch|install|re-?image"),
    ("check", r"burn[- ]?in|verify|validation|\btest(?:ing)?\b|nccl|benchmark|undrain"),
    ("repair", r"\brma\b|ticket|vendor|replace|repair|swap|service required|\bcase\s*#?\d|[A-Z]{2,}-\d{2,}"),
)  # fmt: skip
_XID = re.compile(r"\bs?xid[\s:=_#]*(?:error)?[\s:=_#]*(\d{1,3})\b", re.IGNORECASE)
_GPU = re.compile(r"\bgpu[\s:=_#/-]*(?:id|index|idx)?[\s:=_#]*(\d{1,2})\b", re.IGNORECASE)
_INCIDENT = re.compile(r"\binc=(\d+)\b")
_SHORT = re.compile(r"\((\d+)\s*<\s*(\d+)\)")
_STAMP = re.compile(r"\s*\[(?P<user>[^\s@\[\]]+)@(?P<at>[^\]\s]+)\]\s*$")
_COMPILED_WRITERS = tuple((who, re.compile(rf"\s*(?:{pattern})", re.IGNORECASE)) for who, pattern in WRITERS)
_COMPILED_SLURM = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in SLURM)
_COMPILED_TOPICS = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in TOPICS)
#: Accounts that no person signs in with.
_ACCOUNTS = frozenset({"root", "slurm", "slurmuser", "0", ""})


@dataclass(frozen=True, slots=True)
class DrainReason:
    """who: slurm, a program's name (WRITERS), else "person". kind: what it is about (SLURM, TOPICS), "other".

    by: the account that set it. at: when (unix s), None = not said. xid, gpus: codes and indices that it names.
    short: (seen, configured) where something is fewer than it should be. incident: ours, 0 = none. text: without the
    program's prefix and stamp.
    """

    who: str
    kind: str
    text: str
    by: str = ""
    at: float | None = None
    xids: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()
    short: tuple[int, int] | None = None
    incident: int = 0

    @property
    def by_program(self) -> bool:
        """Nobody decided it by hand."""
        return self.who != "person"


def parse_reason(reason: str, by: str = "", at: float | None = None) -> DrainReason | None:
    """What a reason says; None for an empty one. ``by`` and ``at`` are the account and time that Slurm keeps beside it;
    a stamp at its end (``[root@1796065824]``), as scontrol prints it, is taken for them where they are not given."""
    text = " ".join(reason.split())
    stamp = _STAMP.search(text)
    if stamp is not None:
        text, by = text[: stamp.start()], by or stamp["user"]
        at = float(stamp["at"]) if at is None and stamp["at"].isdigit() else at
    if not text or text.lower() in ("none", "(null)", "n/a", "unknown"):
        return None
    who, bare = _writer(text, by)
    kind = _kind(who, bare)
    short = _SHORT.search(bare)
    incident = _INCIDENT.search(bare)
    return DrainReason(
        who=who,
        kind=kind,
        text=bare,
        by=by,
        at=at,
        xids=tuple(dict.fromkeys(int(found) for found in _XID.findall(bare))),
        gpus=tuple(dict.fromkeys(int(found) for found in _GPU.findall(bare))),
        short=(int(short[1]), int(short[2])) if short else None,
        incident=int(incident[1]) if incident and who == "watchkeeper" else 0,
    )


def _writer(text: str, by: str) -> tuple[str, str]:
    """(who, the text without the program's prefix). Slurm's own words come from its own accounts only."""
    for who, pattern in _COMPILED_WRITERS:
        found = pattern.match(text)
        if found is not None:
            return who, text[found.end() :].strip(" :-") or text
    own = any(pattern.match(text) for _, pattern in _COMPILED_SLURM)
    return ("slurm" if own and by.lower() in _ACCOUNTS else "person"), text


def _kind(who: str, text: str) -> str:
    if who == "watchkeeper":
        return text.partition(" ")[0] or "other"
    tables = (_COMPILED_SLURM, _COMPILED_TOPICS)
    for kind, pattern in tables[0]:
        if pattern.match(text):
            return kind
    return next((kind for kind, pattern in tables[1] if pattern.search(text)), "other")
