"""The run is the command's own: exit codes, signals, streams."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from backend.wrap.child import Child
from tests.backend.wrap.wrapped import lines, log, logs, python, report, shell, start, until, wrap

#: Says READY, then names every signal that it gets; TERM ends it with 7 after the third.
LISTENER = """
import os, signal, sys
got = []
def heard(number, frame):
    got.append(signal.Signals(number).name)
    os.write(1, (got[-1] + "\\n").encode())
    if number == signal.SIGTERM and got.count("SIGTERM") == 3:
        os._exit(7)
for name in "HUP INT QUIT TERM USR1 USR2 CONT WINCH".split():
    signal.signal(getattr(signal, "SIG" + name), heard)
signal.signal(signal.SIGRTMIN + 3, lambda number, frame: os.write(1, b"RT3\\n"))
os.write(1, b"READY\\n")
while True:
    signal.pause()
"""


@pytest.mark.parametrize("code", [0, 1, 2, 3, 63, 64, 125, 126, 127, 128, 129, 137, 143, 200, 254, 255])
def test_the_exit_code_is_the_commands(tmp_path: Path, code: int) -> None:
    done = shell(tmp_path, f"exit {code}")
    assert (done.code, done.out, done.err) == (code, b"", b"")


def test_every_status_of_a_process_is_a_code_of_a_shell() -> None:
    child = Child(["true"])
    for code in range(256):
        child.status = code << 8
        assert (child.code, child.signal) == (code, 0)
    for number in range(1, 65):
        for core in (0, 128):
            child.status = number | core
            assert (child.code, child.signal) == (128 + number, number)


@pytest.mark.parametrize(
    "name", ["HUP", "INT", "QUIT", "ILL", "ABRT", "FPE", "KILL", "SEGV", "PIPE", "TERM", "USR1", "BUS", "SYS", "XCPU"]
)
def test_an_end_by_a_signal_is_128_and_its_number(tmp_path: Path, name: str) -> None:
    number = int(getattr(signal, f"SIG{name}"))
    done = shell(tmp_path, f"ulimit -c 0; echo before; kill -{name} $$; sleep 5")
    assert done.code == 128 + number and done.out == b"before\n"
    assert report(tmp_path)["signal"] == number


def test_what_is_not_there_is_127_and_what_cannot_be_run_is_126(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x")
    assert wrap(tmp_path, "--", "no-such-command").code == 127
    assert wrap(tmp_path, "--", "./no/such/file").code == 127
    assert wrap(tmp_path, "--", "./data").code == 126
    assert wrap(tmp_path, "--", str(tmp_path)).code == 126
    assert wrap(tmp_path, "--", "").code == 127


def test_a_script_that_names_no_interpreter_is_the_shells(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo ran $1; exit 9\n")
    script.chmod(0o755)
    done = wrap(tmp_path, "--", "./script", "it")
    assert (done.code, done.out) == (9, b"ran it\n")


def test_words_that_cannot_be_read_are_2_and_nothing_runs(tmp_path: Path) -> None:
    for words in (["--nonsense", "--", "true"], ["--"], [], ["--name"], ["--patience", "long", "true"]):
        done = wrap(tmp_path, *words)
        assert done.code == 2 and b"usage: watchkeeper wrap" in done.err and not done.out
    assert not logs(tmp_path)
    assert b"usage: watchkeeper wrap" in wrap(tmp_path, "--help").out


def test_stdout_and_stderr_stay_apart_and_meet_in_the_log(tmp_path: Path) -> None:
    done = shell(tmp_path, "echo one; echo two >&2; echo three; echo four >&2; exit 1")
    assert (done.out, done.err) == (b"one\nthree\n", b"two\nfour\n")
    assert sorted(log(tmp_path).split()) == [b"four", b"one", b"three", b"two"]
    assert {row["stream"] for row in report(tmp_path)["tail"]} == {"stdout", "stderr"}


def test_output_is_live(tmp_path: Path) -> None:
    process = start(tmp_path, "--", "sh", "-c", "echo first; read line; echo $line", stdin=subprocess.PIPE)
    assert next(lines(process)) == b"first\n"  # while it waits for us
    until(lambda: log(tmp_path) == b"first\n")
    assert process.stdin is not None
    out, _ = process.communicate(b"second\n", timeout=20)
    assert out == b"second\n" and process.returncode == 0


def test_the_log_is_there_before_the_command(tmp_path: Path) -> None:
    assert (
        shell(tmp_path, 'set -- watchkeeper-logs/*/*.log; test -f $1 && test -z "$(cat watchkeeper-logs/*/*.log)"').code
        == 0
    )


def test_any_bytes_pass_unchanged(tmp_path: Path) -> None:
    script = (
        "import os; os.write(1, bytes(range(256)) * 4000); os.write(2, b'\\xff\\xfe\\0no end'); raise SystemExit(1)"
    )
    done = python(tmp_path, script)
    assert done.out == bytes(range(256)) * 4000 and done.err == b"\xff\xfe\0no end" and done.code == 1
    assert len(log(tmp_path)) in (1_024_000 + 9, 1_024_000 + 10)
    assert report(tmp_path)["exit_code"] == 1


def test_a_line_of_100_mb_passes_and_is_reported_in_bounds(tmp_path: Path) -> None:
    script = (
        f"import os; [os.write(1, b'x' * 1000000) for _ in range(100)]; os.write(2, b'\\n{'y' * 9}\\n'); os._exit(1)"
    )
    done = python(tmp_path, script)
    assert len(done.out) == 100_000_000 and done.code == 1
    found = report(tmp_path)
    assert found["log"]["bytes"] >= 100_000_000 and len(str(found)) < 400_000


def test_the_lines_of_two_streams_are_whole_in_the_log(tmp_path: Path) -> None:
    script = (
        "import os, threading\n"
        "def say(fd, mark):\n"
        "    for n in range(3000):\n"
        "        for part in (mark, b'-' * 50, mark + b'\\n'): os.write(fd, part)\n"
        "both = [threading.Thread(target=say, args=a) for a in ((1, b'OUT'), (2, b'ERR'))]\n"
        "[t.start() for t in both]; [t.join() for t in both]\n"
    )
    done = python(tmp_path, script)
    whole = {b"OUT" + b"-" * 50 + b"OUT", b"ERR" + b"-" * 50 + b"ERR"}
    assert done.out.count(b"\n") == 3000 and set(done.out.split(b"\n")) - {b""} <= whole
    found = log(tmp_path).split(b"\n")
    assert sum(line in whole for line in found) >= 0.99 * 6000
    assert len(b"".join(found)) == 6000 * 56


@pytest.mark.parametrize("name", ["HUP", "INT", "QUIT", "USR1", "USR2", "CONT", "WINCH"])
def test_signals_are_handed_on_and_the_second_one_too(tmp_path: Path, name: str) -> None:
    process = start(tmp_path, "--", sys.executable, "-c", LISTENER)
    said = lines(process)
    assert next(said) == b"READY\n"
    for _ in range(2):
        process.send_signal(getattr(signal, f"SIG{name}"))
        assert next(said) == f"SIG{name}\n".encode()
    for _ in range(3):
        process.send_signal(signal.SIGTERM)
        assert next(said) == b"SIGTERM\n"
    assert process.wait(20) == 7
    process.communicate()
    told = [row["signal"] for row in report(tmp_path)["signals"]]
    assert told == ([f"SIG{name}"] * 2 if name not in ("CONT", "WINCH") else []) + ["SIGTERM"] * 3


def test_real_time_signals_are_handed_on(tmp_path: Path) -> None:
    process = start(tmp_path, "--", sys.executable, "-c", LISTENER)
    said = lines(process)
    assert next(said) == b"READY\n"
    process.send_signal(signal.SIGRTMIN + 3)
    assert next(said) == b"RT3\n"
    process.send_signal(signal.SIGTERM)
    process.kill()
    process.communicate()


def test_a_signal_at_any_moment_of_the_start_is_not_lost(tmp_path: Path) -> None:
    for delay_ms in (0, 20, 40, 60, 80, 100, 140, 200):
        process = start(tmp_path, "--", "sleep", "20")
        time.sleep(delay_ms / 1000)  # not to wait for something: the moment is what is tried
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) in (143, -15)  # -15: before the wrapper was one
        process.communicate()


def test_what_is_ignored_stays_ignored_by_the_command(tmp_path: Path) -> None:
    process = start(
        tmp_path,
        "--",
        "sh",
        "-c",
        "echo up; sleep 1; echo on",
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    said = lines(process)
    assert next(said) == b"up\n"
    process.send_signal(signal.SIGHUP)
    assert next(said) == b"on\n" and process.wait(20) == 0
    process.communicate()


def test_the_command_finds_signals_as_a_shell_leaves_them(tmp_path: Path) -> None:
    script = "grep -E 'SigBlk|SigIgn' /proc/self/status"
    bare = subprocess.run(["sh", "-c", script], capture_output=True, check=True).stdout
    assert shell(tmp_path, script).out == bare


def test_a_reader_that_goes_away_ends_the_writer_as_without_us(tmp_path: Path) -> None:
    process = start(tmp_path, "--", "yes")
    assert next(lines(process)) == b"y\n"
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(20) == 128 + signal.SIGPIPE
    assert process.stderr is not None
    process.stderr.close()


def test_standard_streams_that_are_closed_harm_nothing(tmp_path: Path) -> None:
    def close() -> None:
        for fd in (0, 1, 2):
            os.close(fd)

    process = start(tmp_path, "--", "sh", "-c", "echo out; echo err >&2; exit 5", preexec_fn=close)
    assert process.wait(20) == 5
    process.communicate()
    assert sorted(log(tmp_path).split()) == [b"err", b"out"]


def test_a_daemon_left_behind_neither_holds_the_end_up_nor_loses_its_output(tmp_path: Path) -> None:
    done_at = tmp_path / "out"
    with done_at.open("wb") as out:
        began = time.monotonic()
        process = start(
            tmp_path, "--", "sh", "-c", "(sleep 2; echo late; echo later >&2) & echo now; exit 3", stdout=out
        )
        assert process.wait(20) == 3 and time.monotonic() - began < 1.9
    until(lambda: done_at.read_bytes() == b"now\nlate\n")
    until(lambda: b"later\n" in log(tmp_path) and b"late\n" in log(tmp_path))
    process.communicate()


def test_a_very_fast_end_loses_nothing(tmp_path: Path) -> None:
    for _ in range(10):
        assert wrap(tmp_path, "--", "echo", "quick").out == b"quick\n"


def test_the_environment_and_the_folder_are_the_commands(tmp_path: Path) -> None:
    done = shell(tmp_path, "pwd; echo $A", env={"A": "b c"})
    assert done.out == f"{tmp_path}\nb c\n".encode()


def test_stopping_and_going_on_is_handed_on(tmp_path: Path) -> None:
    # A group of its own, whose parent is in the same session: the kernel stops no orphaned group.
    process = start(tmp_path, "--", "sh", "-c", "echo $$; exec sleep 30", process_group=0)
    child = int(next(lines(process)))

    def state(pid: int) -> str:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

    process.send_signal(signal.SIGTSTP)
    until(lambda: state(child) == "T" and state(process.pid) == "T")
    process.send_signal(signal.SIGCONT)
    until(lambda: state(child) == "S" and state(process.pid) == "S")
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 143
    process.communicate()


def test_as_process_1_others_children_are_reaped(tmp_path: Path) -> None:
    if subprocess.run(["unshare", "-Urpf", "true"], capture_output=True).returncode:
        pytest.skip("this machine makes no process namespace; as root `unshare -pf` does")
    words = [
        sys.executable,
        "-S",
        "-m",
        "backend.wrap",
        "--",
        "sh",
        "-c",
        "(sh -c 'sleep 0.2 & exit' &); sleep 0.6; exit 4",
    ]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": os.fspath(Path(__file__).parents[3])}
    done = subprocess.run(["unshare", "-Urpf", *words], cwd=tmp_path, env=env, capture_output=True, timeout=30)
    assert done.returncode == 4


def test_in_a_terminal_the_command_sees_one(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    process = start(
        tmp_path, "--", "sh", "-c", "test -t 1 && test ! -t 2 && stty size <&1; printf 'a\\tb\\n'", stdout=theirs
    )
    os.close(theirs)
    assert process.wait(20) == 0
    found = os.read(ours, 1000)
    os.close(ours)
    process.communicate()
    assert found == b"0 0\r\na\tb\r\n" and log(tmp_path) == b"0 0\na\tb\n"


def test_no_pty_gives_pipes_also_in_a_terminal(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    process = start(tmp_path, "--no-pty", "--", "sh", "-c", "test ! -t 1", stdout=theirs)
    os.close(theirs)
    assert process.wait(20) == 0
    os.close(ours)
    process.communicate()
