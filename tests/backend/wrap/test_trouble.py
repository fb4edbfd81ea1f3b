"""Whatever happens to disk, mail and network, the exit code is the command's, in time."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from email import message_from_string
from email.policy import default
from pathlib import Path

import pytest

from tests.backend.wrap import peers
from tests.backend.wrap.wrapped import (
    OOM,
    command,
    environment,
    lines,
    logs,
    python,
    report,
    reports,
    shell,
    start,
    until,
    wrap,
)

FAILS = f"echo '{OOM}' >&2; exit 3"


def unsent(folder: Path) -> list[Path]:
    return sorted(folder.glob("watchkeeper-logs/unsent/*.report.json"))


# --- disk -------------------------------------------------------------------------------------------------------------


def test_a_folder_that_takes_no_log_costs_only_the_place_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    other = tmp_path / "tmp"
    other.mkdir()
    done = shell(tmp_path, FAILS, "--log-dir", "file/logs", env={"TMPDIR": str(other)})
    assert done.code == 3 and b"takes no log" in done.err
    assert len(logs(other)) == 1 and report(other)["class"] == "cuda_oom"


def test_without_any_place_for_a_log_the_report_is_made_from_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with peers.web() as server:
        words = ["--log-dir", "file/logs", "--server", server.url]
        done = shell(tmp_path, "echo step 1 loss 2; " + FAILS, *words, env={"TMPDIR": str(tmp_path / "file" / "tmp")})
    assert done.code == 3 and done.out == b"step 1 loss 2\n" and b"there is no log" in done.err
    ((_, _, told),) = server.got
    assert told["class"] == "cuda_oom" and OOM in told["excerpt"][-1]["text"] and told["log"]["path"] == ""


def test_a_full_disk_costs_only_what_it_did_not_take(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk; it is the wrapper's alone."""
    script = (
        "import os, resource\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.getrlimit(resource.RLIMIT_FSIZE)[1],) * 2)\n"
        "os.write(1, b'step 1 loss 2.0\\n' * 10000)\n"
        f"os.write(2, b'{OOM}\\n')\n"
        "os._exit(3)"
    )
    limited = f'ulimit -S -f 200; exec {sys.executable} -S -m backend.wrap -- {sys.executable} -c "$SCRIPT"'
    done = subprocess.run(
        ["sh", "-c", limited], cwd=tmp_path, env=environment({"SCRIPT": script}), capture_output=True, timeout=60
    )
    assert done.returncode == 3, done.stderr
    assert len(done.stdout) == 160_000 and OOM.encode() in done.stderr
    found = report(tmp_path)
    assert found["class"] == "cuda_oom" and found["log"]["lost_bytes"] > 0 and found["log"]["trouble"]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_a_real_full_disk_too(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = ["unshare", "-Urm", "sh", "-c", 'mount -t tmpfs -o size=64k none small && exec "$@"', "sh"]
    if subprocess.run([*mounted, "true"], cwd=tmp_path, capture_output=True).returncode:
        pytest.skip("this machine mounts no tmpfs in a namespace; as root `unshare -m` does")
    script = f"import os\nfor _ in range(300): os.write(1, b'y' * 999 + b'\\n')\nos.write(2, b'{OOM}\\n')\nos._exit(3)"
    words = [*mounted, *command("--log-dir", "small/logs", "--", sys.executable, "-c", script)]
    with peers.web() as server:
        words[words.index("--log-dir") : words.index("--log-dir")] = ["--server", server.url]
        done = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, timeout=60)
    assert done.returncode == 3 and len(done.stdout) == 300_000, done.stderr
    ((_, _, told),) = server.got
    assert told["log"]["trouble"] == "No space left on device" and told["class"] == "cuda_oom"


def test_an_stdout_that_takes_nothing_costs_nothing_else(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        process = start(tmp_path, "--", "sh", "-c", "echo lost; echo kept >&2; exit 4", stdout=full)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 4 and err == b"kept\n"
    assert sorted(logs(tmp_path)[0].read_bytes().split()) == [b"kept", b"lost"]


def test_a_report_that_finds_no_disk_is_sent_all_the_same(tmp_path: Path) -> None:
    with peers.web() as server:
        done = shell(tmp_path, "rm -rf watchkeeper-logs; touch watchkeeper-logs; " + FAILS, "--server", server.url)
    assert done.code == 3 and len(server.got) == 1


def test_a_folder_that_is_gone_costs_nothing(tmp_path: Path) -> None:
    away, here = tmp_path / "away", tmp_path / "here"
    here.mkdir()
    done = shell(here, f"rmdir {here}; {FAILS}", "--log-dir", str(away))
    assert done.code == 3 and b"report failed" not in done.err and report(away)["class"] == "cuda_oom"


def test_where_a_run_cannot_be_watched_it_is_run_all_the_same(tmp_path: Path) -> None:
    limited = f'ulimit -n 4; exec {sys.executable} -S -m backend.wrap -- sh -c "echo ran; exit 5"'
    made = subprocess.run(["sh", "-c", limited], cwd=tmp_path, env=environment(), capture_output=True, timeout=60)
    broken = "import signal, sys; del signal.sigwaitinfo; from backend.wrap.wrap import main; main(sys.argv[1:])"
    words = [sys.executable, "-S", "-c", broken, "sh", "-c", "echo ran; exit 5"]
    other = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, timeout=60)
    assert (other.returncode, other.stdout) == (5, b"ran\n") and b"sh runs unwatched" in other.stderr
    assert made.returncode in (1, 5)  # 1: the interpreter itself found too few


# --- server -----------------------------------------------------------------------------------------------------------


def test_the_server_gets_the_report_with_the_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("wk_secret\n")
    with peers.web() as server:
        done = shell(tmp_path, FAILS, "--server", server.url + "/?cluster=a", "--token-file", "token")
    assert done.code == 3 and not unsent(tmp_path)
    ((path, headers, told),) = server.got
    assert path == "/api/v1/ingest/wrap?cluster=a" and headers["Authorization"] == "Bearer wk_secret"
    assert told["class"] == "cuda_oom" and "wk_secret" not in str(report(tmp_path))
    assert report(tmp_path)["told"] == {"server": "taken"}


def test_an_end_that_is_well_is_told_to_the_server_in_short_and_to_nobody_else(tmp_path: Path) -> None:
    with peers.web() as server, peers.mail() as (smtp, mails):
        words = ["--server", server.url, "--email", "a@example.com", "--smtp", smtp, "--slack", server.url]
        assert shell(tmp_path, "echo fine", *words).code == 0
        ((path, _, told),) = server.got
        assert path == "/api/v1/ingest/wrap" and told["exit_code"] == 0 and not told["excerpt"] and not mails
        assert shell(tmp_path, "echo fine", *words, "--always").code == 0
    assert len(mails) == 1 and len(server.got) == 3


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_server_that_cannot_now_is_asked_again(tmp_path: Path, status: int) -> None:
    with peers.web(answers=[status, status, 200]) as server:
        assert shell(tmp_path, FAILS, "--server", server.url).code == 3
    assert len(server.got) == 3 and not unsent(tmp_path)


@pytest.mark.parametrize("status", [401, 403, 404, 422])
def test_a_server_that_will_not_is_not_asked_again_and_the_report_is_kept(tmp_path: Path, status: int) -> None:
    with peers.web(answers=[status]) as server:
        done = shell(tmp_path, FAILS, "--server", server.url)
    assert done.code == 3 and len(server.got) == 1 and len(unsent(tmp_path)) == 1
    assert f"server: {status} as told; it is kept in".encode() in done.err


def test_a_server_that_is_down_or_slow_costs_no_more_than_the_patience(tmp_path: Path) -> None:
    assert shell(tmp_path, FAILS, "--server", "http://127.0.0.1:1", "--patience", "1").took_s < 6
    with peers.web(wait_s=20.0) as server:
        done = shell(tmp_path, FAILS, "--server", server.url, "--patience", "1")
    with peers.silent() as deaf:
        again = shell(tmp_path, FAILS, "--server", f"http://{deaf}", "--patience", "1")
    assert done.code == again.code == 3 and max(done.took_s, again.took_s) < 8
    assert len(unsent(tmp_path)) == 3


def test_what_could_not_be_sent_is_sent_by_the_next_that_can(tmp_path: Path) -> None:
    shell(tmp_path, FAILS, "--server", "http://127.0.0.1:1", "--patience", "0.5")
    with peers.web() as server:
        shell(tmp_path, FAILS, "--server", server.url)
    assert len(server.got) == 2 and not unsent(tmp_path)


@pytest.mark.parametrize("url", ["ftp://x", "http://", "nonsense://", "http://[", "http://127.0.0.1:99999", "x y"])
def test_an_address_that_is_none_is_said(tmp_path: Path, url: str) -> None:
    done = shell(tmp_path, FAILS, "--server", url, "--patience", "2")
    assert done.code == 3 and b"watchkeeper wrap: server: " in done.err and b"report failed" not in done.err


def test_a_token_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    done = shell(tmp_path, FAILS, "--server", "http://127.0.0.1:1", "--token-file", "nowhere")
    assert done.code == 3 and b"token file nowhere cannot be read" in done.err


# --- mail and Slack ---------------------------------------------------------------------------------------------------


def test_a_person_reads_what_failed_and_where(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("learning rate 3e-4\n")
    env = {
        "SLURM_JOB_ID": "41207",
        "SLURM_JOB_NAME": "pretrain",
        "SLURMD_NODENAME": "gpu-0412",
        "RANK": "3",
        "WORLD_SIZE": "8",
    }
    with peers.mail() as (smtp, taken):
        words = ["--email", "a@example.com,b@example.com", "--smtp", smtp, "--artifacts", "*.txt"]
        assert shell(tmp_path, FAILS, *words, env=env).code == 3
    (text,) = taken
    mail = message_from_string(text, policy=default)
    assert mail["Subject"] == "[watchkeeper] pretrain (job 41207): cuda oom, rank 3 on gpu-0412"
    assert mail["To"] == "a@example.com, b@example.com"
    body = mail.get_body()
    assert body is not None
    said = body.get_content()
    assert OOM in said and "exit code 3" in said and said.startswith("Your job, not the machine: cuda oom")
    (attached,) = mail.iter_attachments()
    assert attached.get_filename() == "notes.txt" and "learning rate" in attached.get_content()


def test_one_rank_of_an_attempt_writes(tmp_path: Path) -> None:
    with peers.mail() as (smtp, taken):
        for rank in (2, 0, 1):
            env = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "RANK": str(rank), "WORLD_SIZE": "3"}
            shell(tmp_path, FAILS, "--email", "a@example.com", "--smtp", smtp, env=env)
    assert len(taken) == 1 and "rank 2" in taken[0] and len(reports(tmp_path)) == 3


def test_nothing_of_a_name_becomes_a_header(tmp_path: Path) -> None:
    with peers.mail() as (smtp, taken):
        words = ["--email", "a@example.com", "--smtp", smtp, "--name", "x\nBcc: evil@example.com\n=?utf-8?q?y?="]
        assert shell(tmp_path, FAILS, *words).code == 3
    mail = message_from_string(taken[0], policy=default)
    assert mail["Bcc"] is None and "evil" in mail["Subject"]


def test_a_mail_server_that_hangs_or_refuses_is_said_in_time(tmp_path: Path) -> None:
    with peers.silent() as smtp:
        done = shell(tmp_path, FAILS, "--email", "a@example.com", "--smtp", smtp, "--patience", "1")
    assert done.code == 3 and done.took_s < 8 and b"watchkeeper wrap: mail: " in done.err
    with peers.mail(refuse="550 nobody here") as (smtp, taken):
        done = shell(tmp_path, FAILS, "--email", "a@example.com", "--smtp", smtp)
    assert done.code == 3 and not taken and b"nobody here" in done.err


def test_a_mail_server_that_hangs_keeps_the_report_from_nobody_else(tmp_path: Path) -> None:
    with peers.silent() as smtp, peers.web() as server:
        words = ["--email", "a@example.com", "--smtp", smtp, "--server", server.url, "--slack", server.url + "/hook"]
        done = shell(tmp_path, FAILS, *words, "--patience", "2")
    assert done.code == 3 and {path for path, _, _ in server.got} == {"/hook", "/api/v1/ingest/wrap"}
    slack = next(body for path, _, body in server.got if path == "/hook")
    assert "cuda oom" in slack["text"] and OOM in slack["text"]


def test_the_webhook_may_stand_in_a_file(tmp_path: Path) -> None:
    with peers.web() as server:
        (tmp_path / "hook").write_text(server.url + "/secret\n")
        assert shell(tmp_path, FAILS, "--slack", "file:hook").code == 3
    assert [path for path, _, _ in server.got] == ["/secret"] and "/secret" not in str(report(tmp_path))


@pytest.mark.parametrize("name", ["TERM", "INT"])
def test_a_signal_while_mail_is_sent_ends_it_with_the_commands_code(tmp_path: Path, name: str) -> None:
    with peers.silent() as smtp:
        words = ["--email", "a@example.com", "--smtp", smtp, "--server", f"http://{smtp}", "--patience", "60"]
        process = start(tmp_path, *words, "--", "sh", "-c", FAILS)
        until(lambda: reports(tmp_path) and unsent(tmp_path))
        began = time.monotonic()
        process.send_signal(getattr(signal, f"SIG{name}"))
        assert process.wait(20) == 3 and time.monotonic() - began < 5
        process.communicate()
    assert report(tmp_path)["class"] == "cuda_oom" and len(unsent(tmp_path)) == 1


def test_being_told_to_end_reaches_the_command_first_and_the_report_says_so(tmp_path: Path) -> None:
    script = "import signal, sys; signal.signal(15, lambda *_: sys.exit(9)); print('up', flush=True); signal.pause()"
    process = start(tmp_path, "--", sys.executable, "-c", script)
    assert next(lines(process)) == b"up\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 9
    process.communicate()
    found = report(tmp_path)
    assert found["asked_to_end"] and found["class"] == "preempted_or_cancelled"


def test_a_report_that_breaks_costs_the_report(tmp_path: Path) -> None:
    """Without a table of rules there is no class, and still the command's exit code."""
    broken = tmp_path / "broken"
    (broken / "detectors" / "joblog").mkdir(parents=True)
    for name in ("detectors/__init__.py", "detectors/joblog/__init__.py", "detectors/joblog/rules.py"):
        (broken / name).write_text("raise RuntimeError('broken')\n" if name.endswith("rules.py") else "")
    done = wrap(
        tmp_path, "--", "sh", "-c", FAILS, env={"PYTHONPATH": f"{broken}:{os.fspath(Path(__file__).parents[3])}"}
    )
    assert done.code == 3 and b"the report failed: RuntimeError: broken" in done.err


def test_memory_stays_small_whatever_is_printed(tmp_path: Path) -> None:
    script = "import os; [os.write(1, b'step 1 loss 2.0 ' * 60 + b'\\n') for _ in range(200000)]; os._exit(1)"
    measure = (
        "import resource, subprocess, sys\n"
        f"words = [sys.executable, '-S', '-m', 'backend.wrap', '--', sys.executable, '-c', {script!r}]\n"
        "code = subprocess.call(words, stdout=subprocess.DEVNULL)\n"
        "print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    done = python(tmp_path, measure, "--log-dir", "outer")
    code, kib = map(int, done.out.split())
    assert code == 1 and kib < 120_000


@pytest.mark.parametrize("trap", ["a link", "open to all"])
def test_a_spare_folder_that_others_prepared_takes_no_log(tmp_path: Path, trap: str) -> None:
    (tmp_path / "file").write_text("x")
    spare, elsewhere = tmp_path / "tmp" / f"watchkeeper-logs-{os.getuid()}", tmp_path / "elsewhere"
    spare.parent.mkdir()
    elsewhere.mkdir()
    if trap == "a link":
        spare.symlink_to(elsewhere)
    else:
        spare.mkdir()
        spare.chmod(0o777)
    done = shell(tmp_path, FAILS, "--log-dir", "file/logs", env={"TMPDIR": str(spare.parent)})
    assert done.code == 3 and b"there is no log" in done.err
    assert list(elsewhere.iterdir()) == [] and list(spare.iterdir()) == []
