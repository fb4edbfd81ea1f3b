"""What the doctor says of logs: what may be read, and which group or right mends what may not."""

from __future__ import annotations

import grp
import os
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from backend.doctor import logs
from backend.doctor.checks import checks_of
from backend.doctor.line import State
from backend.ingest.loki import LokiSource
from backend.settings import Cluster, Logs, Settings, Slurm
from detectors.catalogue import load
from tests.backend.ingest.test_loki import AT, KERNEL, XID, Server, reader

Answer = tuple[bytes, str, int | None] | OSError


def test_files_that_may_be_read_are_counted(tmp_path: Path) -> None:
    (tmp_path / "kern.log").touch()
    (line,) = logs.files("main logs", f"{tmp_path}/*.log", "ada")
    assert line.state is State.OK and "1 files may be read" in line.what


def test_no_file_yet_is_a_warning_and_a_pattern_that_is_none_a_failure(tmp_path: Path) -> None:
    (line,) = logs.files("main logs", f"{tmp_path}/*.log", "ada")
    assert line.state is State.WARNING and "no such file yet" in line.what
    (wrong,) = logs.files("main logs", "relative", "ada")
    assert wrong.state is State.FAILED


def test_the_group_that_opens_a_file_is_named(tmp_path: Path) -> None:
    log = tmp_path / "kern.log"
    log.touch()
    log.chmod(0o640)
    adm = next((one for one in grp.getgrall() if one.gr_gid and one.gr_name in ("adm", "staff", "users")), None)
    if adm is None or os.geteuid():
        pytest.skip("needs another group and the right to give a file to it")
    os.chown(log, 0, adm.gr_gid)
    (line,) = logs.files("main logs", str(log), "ada", lambda path, mode: False)
    assert line.state is State.FAILED and f"usermod -aG {adm.gr_name} ada" in line.fix
    log.chmod(stat.S_IRUSR)
    (alone,) = logs.files("main logs", str(log), "ada", lambda path, mode: False)
    assert f"setfacl -m u:ada:r {log}" in alone.fix


def test_the_ring_is_tried_and_its_right_is_named(tmp_path: Path) -> None:
    (tmp_path / "kmsg").write_text("6,1,1,-;x")
    assert [line.state for line in logs.kmsg("main logs", str(tmp_path / "kmsg"))] == [State.OK]
    (line,) = logs.kmsg("main logs", str(tmp_path / "none"))
    assert line.state is State.FAILED and "CAP_SYSLOG" in line.fix


@pytest.mark.parametrize(
    ("answer", "state", "fix"),
    [
        ((b'{"MESSAGE":"x"}\n', "", 0), State.OK, ""),
        ((b"", "", 0), State.WARNING, "usermod -aG systemd-journal ada"),
        ((b"", "Hint: You are currently not seeing messages from other users", 0), State.FAILED, "systemd-journal ada"),
        (
            (b"", "No journal files were opened due to insufficient permissions.", 1),
            State.FAILED,
            "systemd-journal ada",
        ),
        ((b"", "", None), State.FAILED, "by hand"),
        (FileNotFoundError(2, "x"), State.FAILED, "journal = false"),
        (PermissionError(13, "Permission denied"), State.FAILED, "by hand"),
    ],
)
def test_the_journal_is_asked_for_one_entry(answer: Answer, state: State, fix: str) -> None:
    def run(command: Sequence[str], timeout_s: float, most_bytes: int) -> tuple[bytes, str, int | None]:
        if isinstance(answer, OSError):
            raise answer
        return answer

    (line,) = logs.journal("main journal", run, "", "ada", 5.0)
    assert line.state is state and fix in line.fix


def test_each_query_of_loki_is_asked() -> None:
    server = Server()
    server.lines.append((int(AT * 1e9), KERNEL, XID))
    lines = list(logs.loki("main loki", reader(server), ("{a}", "{b}")))
    assert [line.state for line in lines] == [State.WARNING, State.WARNING]  # the line is old
    server.refuse = (401, b"no org id", {})
    (line,) = logs.loki("main loki", reader(server), ())
    assert line.state is State.FAILED and "401" in line.what and "secret" not in line.what
    assert LokiSource.__doc__


def test_as_root_the_logs_of_jobs_are_a_warning() -> None:
    assert [line.state for uid in (0, 1000) for line in logs.job_logs("x", uid)] == [State.WARNING, State.OK]


def test_every_stream_of_the_settings_has_its_check() -> None:
    read = Logs(files=("/var/log/*.log", "/dev/kmsg"), journal=True, loki_url="http://127.0.0.1:1")
    clusters = (Cluster(name="a", logs=read, slurm=Slurm(cli=False)), Cluster(name="b"))
    names = [check.name for check in checks_of(Settings(cluster=clusters), load())]
    assert {"a logs /var/log/*.log", "a logs /dev/kmsg", "a journal", "a loki", "a job logs", "b logs"} <= set(names)
    assert "b job logs" not in names
