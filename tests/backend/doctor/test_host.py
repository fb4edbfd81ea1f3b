"""What the machine gives: told without changing it."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.doctor import host
from backend.doctor.line import Line, State
from backend.settings import Server
from tests.backend.clients.test_promql import says, served

NFS = "36 25 0:32 / {place} rw,relatime shared:1 - nfs4 filer:/export rw\n"


def only(lines: Iterator[Line]) -> Line:
    (line,) = lines
    return line


def test_a_folder_that_is_not_there_is_told_and_not_made(tmp_path: Path) -> None:
    line = only(host.folder(tmp_path / "a" / "b"))
    assert line.state in (State.OK, State.WARNING) and "will be made" in line.what
    assert list(tmp_path.iterdir()) == []


def test_a_network_file_system_is_refused_with_the_fix(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("25 1 8:1 / / rw - ext4 /dev/sda1 rw\n" + NFS.format(place=tmp_path))
    line = only(host.folder(tmp_path / "state", mounts))
    assert line.state is State.FAILED and "nfs4" in line.what and "local disk" in line.fix


def test_a_folder_that_may_not_be_written_is_failed(tmp_path: Path) -> None:
    """/proc takes no files from anybody, root included."""
    line = only(host.folder(Path("/proc/1")))
    assert line.state is State.FAILED and "right to write" in line.fix


def test_a_port_is_free_or_ours_or_somebody_elses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        number = free.getsockname()[1]
        taken = only(host.port(Server(port=number)))
    assert taken.state is State.FAILED and "stop what listens there" in taken.fix
    assert only(host.port(Server(port=number))).state is State.OK
    with served(says(b'{"status": "ok"}')) as url:
        ours = only(host.port(Server(port=int(url.rpartition(":")[2]))))
    assert ours.state is State.OK and "already" in ours.what
    with served(says(b"<html>something else</html>")) as url:
        assert only(host.port(Server(port=int(url.rpartition(":")[2])))).state is State.FAILED


def test_an_address_that_is_not_ours_is_failed() -> None:
    assert only(host.port(Server(host="192.0.2.1", port=0))).state is State.FAILED


def test_few_open_files_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 4096))
    _, files = host.process()
    assert files.state is State.WARNING and "256" in files.what and "LimitNOFILE" in files.fix


@pytest.mark.parametrize(("kernel", "state"), [(True, State.OK), (False, State.WARNING), (None, State.WARNING)])
def test_a_clock_that_nothing_sets_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, kernel: bool | None, state: State
) -> None:
    assert host.synchronised() in (True, False, None)
    monkeypatch.setattr(host, "synchronised", lambda: kernel)
    line = only(host.clock())
    assert line.state is state and "UTC" in line.what
