"""A slurmdbd in memory that jobs are submitted to, and a ``sacct`` that prints it in any clock's form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from backend.clients.slurm import Ran

#: Columns of sacct before 20.11, and those that later versions added.
OLD = (
    "JobIDRaw", "JobID", "JobName", "User", "Account", "Partition", "State", "ExitCode", "Reason", "Submit",
    "Eligible", "Start", "End", "ElapsedRaw", "Suspended", "TimelimitRaw", "NodeList", "AllocTRES", "ReqTRES",
    "Comment", "WorkDir", "SubmitLine", "DBIndex", "NNodes",
)  # fmt: skip
NEW = (*OLD, "Restarts", "SLUID", "FailedNode", "StdOut", "StdErr")
#: How a sacct prints its times: as we ask, or as a wrapper of the site makes it.
FORMS = ("unix", "iso utc", "iso offset", "iso local")


@dataclass
class Row:
    """One record: slurmdbd has one a job and time of submission. Times in whole unix s. held: it could never begin."""

    job: int
    submit: int
    restart: int
    user: str
    name: str
    nodes: str
    life: int = 0
    start: int = 0
    end: int = 0
    state: str = "PENDING"
    comment: str = ""
    held: bool = False


@dataclass
class Slurmdbd:
    """What the accounting knows at ``now``; while it is ``away``, slurmctld keeps for it what happens."""

    now: int
    rows: list[Row] = field(default_factory=list)
    told: dict[tuple[int, int, int], Row] = field(default_factory=dict)
    columns: tuple[str, ...] = NEW
    form: str = "unix"
    zone: str = "Europe/Berlin"
    away: bool = False

    def settle(self) -> None:
        """slurmdbd is there: it learns all that slurmctld has kept for it."""
        if not self.away:
            self.told = {(r.job, r.life, r.submit): Row(**vars(r)) for r in self.rows}

    def run(self, command: Sequence[str], env: Mapping[str, str], timeout_s: float) -> Ran:
        self.settle()
        if command[0] == "sacctmgr":
            return Ran(0, "watchtest\n" if "cluster" in command else "", "")
        if "--helpformat" in command:
            return Ran(0, " ".join(self.columns) + "\n", "")
        assert env["TZ"] == "UTC" and env["SLURM_TIME_FORMAT"] == "%s"
        asked = dict(zip(command, command[1:], strict=False))
        names = asked["-o"].split(",")
        delimiter = next(word for word in command if word.startswith("--delimiter=")).partition("=")[2]
        found = [row for row in self.told.values() if self._wanted(row, asked)]
        found.sort(key=lambda row: (row.submit, row.job))
        lines = [delimiter.join(self._cells(row)[name] for name in names) for row in found]
        return Ran(0, "".join(f"{line}\n" for line in lines), "")

    def _wanted(self, row: Row, asked: Mapping[str, str]) -> bool:
        if "-j" in asked:
            return str(row.job) in asked["-j"].split(",")
        start, end = (_unix(asked[key]) for key in ("-S", "-E"))
        if "-s" in asked:
            return row.state.startswith(asked["-s"]) and start <= row.end < end
        return not row.held and row.submit < end and (row.end == 0 or row.end >= start)

    def _cells(self, row: Row) -> dict[str, str]:
        cells = dict.fromkeys(NEW, "")
        elapsed = (row.end or self.now) - row.start if row.start else 0
        return cells | {
            "JobIDRaw": str(row.job), "JobID": str(row.job), "JobName": row.name, "User": row.user,
            "State": row.state, "ExitCode": "0:0", "Submit": self.shown(row.submit),
            "Eligible": self.shown(0 if row.held else row.submit),
            "Start": self.shown(row.start), "End": self.shown(row.end), "ElapsedRaw": str(elapsed),
            "TimelimitRaw": "60", "NodeList": row.nodes if row.start else "None assigned", "Comment": row.comment,
            "Restarts": str(row.restart), "SLUID": f"s{row.life}X{row.job}" if "SLUID" in self.columns else "",
            "AllocTRES": "cpu=8,gres/gpu=8,node=1", "NNodes": "1", "Suspended": "00:00:00", "WorkDir": "/home/a",
            "SubmitLine": "sbatch --exclude=n[8-9] job.sh",
        }  # fmt: skip

    def shown(self, at: int) -> str:
        """A time in the form that this sacct prints."""
        if not at:
            return "Unknown"
        if self.form == "unix":
            return str(at)
        zone = UTC if self.form == "iso utc" else ZoneInfo(self.zone)
        moment = datetime.fromtimestamp(at, zone)
        return moment.strftime("%Y-%m-%dT%H:%M:%S%z" if self.form == "iso offset" else "%Y-%m-%dT%H:%M:%S")


def _unix(text: str) -> float:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC).timestamp()
