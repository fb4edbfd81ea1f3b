"""slurmrestd: which version is spoken, tokens that end, what falls to scontrol and the words for it."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path

import pytest

from backend.clients.slurm import Ran, SlurmCli, SlurmError
from backend.clients.slurm_http import Answer, Tokens, expires_at, send_bounded
from backend.clients.slurm_rest import SlurmRest
from tests.fakes.slurmrestd import Slurmrestd
from tests.services.slurm import SlurmCluster, rest, slurm

URL = "http://127.0.0.1:6820"


def jwt(exp: float) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": exp, "sun": "root"}).encode()).decode().rstrip("=")
    return f"eyJhbGciOiJIUzI1NiJ9.{claims}.c2ln"


def by_rest(server: Slurmrestd, tmp_path: Path, cli: SlurmCli | None = None, token: str = "good") -> SlurmRest:
    file = tmp_path / "token"
    file.write_text(f"{token}\n")
    return SlurmRest(URL, Tokens(file, cli.token if cli else None, lambda: 1000.0), "watch", 5.0, cli, server.send)


class Scontrol:
    """The commands, as far as they are needed: what was asked, a token."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.cli = SlurmCli(run=lambda command, env, timeout_s: self.run(tuple(command)))

    def run(self, command: tuple[str, ...]) -> Ran:
        self.asked.append(command)
        return Ran(0, "SLURM_JWT=made\n" if command[1] == "token" else "", "")


@pytest.mark.parametrize(("versions", "spoken"), [((38,), 38), ((40, 41, 42), 42), ((43, 44, 45, 46), 46)])
def test_the_newest_version_that_both_know_is_spoken(versions: tuple[int, ...], spoken: int, tmp_path: Path) -> None:
    server = Slurmrestd(versions)
    asked = by_rest(server, tmp_path)
    assert asked.api() == spoken and asked.version()[:2] == (24, 11)
    assert [n.name for n in asked.nodes()] == ["gpu-0001"] and [a.job for a in asked.jobs()] == ["7"]
    assert all(path.startswith(f"v0.0.{spoken}/") for _, path, _ in server.asked[-2:])


def test_a_server_of_another_kind_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(SlurmError, match="no version") as failed:
        by_rest(Slurmrestd(()), tmp_path).nodes()
    assert failed.value.permanent


def test_a_new_version_of_the_server_is_found_out_again(tmp_path: Path) -> None:
    server = Slurmrestd((40, 42))
    asked = by_rest(server, tmp_path)
    asked.nodes()
    server.versions = (43, 44)
    with pytest.raises(SlurmError, match="no longer knows") as failed:
        asked.nodes()
    assert not failed.value.permanent
    assert asked.nodes() and asked.api() == 44


def test_a_node_is_read_with_its_jobs_and_an_unknown_one_is_permanent(tmp_path: Path) -> None:
    asked = by_rest(Slurmrestd(), tmp_path)
    node = asked.node("gpu-0001")
    assert (node.jobs, node.state, node.model, node.expected_gpus) == (("7",), "idle", "h100", 8)
    assert node.partitions == ("train",) and node.labels["features"] == "h100,ib"
    with pytest.raises(SlurmError, match="no node gpu-9") as unknown:
        asked.node("gpu-9")
    assert unknown.value.permanent
    with pytest.raises(SlurmError, match="not the name"):
        asked.node("gpu-1/../jobs")


# --- writing --------------------------------------------------------------------------------------------------------


def test_a_drain_and_its_undoing_are_posts(tmp_path: Path) -> None:
    server = Slurmrestd()
    asked = by_rest(server, tmp_path)
    assert asked.drain("gpu-0001", "[watchkeeper] x inc=1") == "" and asked.node("gpu-0001").draining is False
    assert asked.node("gpu-0001").drained and asked.node("gpu-0001").reason_owner == "watchkeeper"
    asked.resume("gpu-0001")
    asked.exclude("7", ["gpu-0001", "gpu-0002"])
    writes = [(path, said) for method, path, said in server.asked if method == "POST"]
    assert writes == [
        ("v0.0.42/node/gpu-0001", {"state": ["DRAIN"], "reason": "[watchkeeper] x inc=1"}),
        ("v0.0.42/node/gpu-0001", {"state": ["UNDRAIN"]}),
        ("v0.0.42/job/7", {"excluded_nodes": ["gpu-0001", "gpu-0002"]}),
    ]


def test_what_a_version_cannot_do_goes_by_scontrol_and_is_said(tmp_path: Path) -> None:
    commands = Scontrol()
    old, new = Slurmrestd((38,)), Slurmrestd((42,))
    asked = by_rest(old, tmp_path, commands.cli)
    assert asked.drain("gpu-0001", "[watchkeeper] x inc=1") == (
        "by scontrol, because slurmrestd v0.0.38 (Slurm 22.05) cannot update nodes"
    )
    assert "cannot update nodes" in asked.resume("gpu-0001") and "excluded nodes" in asked.exclude("7", ["gpu-0001"])
    assert "v0.0.42 (Slurm 24.11) cannot requeue jobs" in by_rest(new, tmp_path, commands.cli).requeue("7")
    assert [command[:2] for command in commands.asked] == [("scontrol", "update")] * 3 + [("scontrol", "requeue")]
    assert by_rest(Slurmrestd((45,)), tmp_path).requeue("7") == ""


def test_without_scontrol_the_fix_is_named(tmp_path: Path) -> None:
    with pytest.raises(SlurmError, match="cannot update nodes.*cli = true.*23.02") as failed:
        by_rest(Slurmrestd((38,)), tmp_path).drain("gpu-0001", "[watchkeeper] x")
    assert failed.value.permanent


# --- tokens ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("refusal", [38, 42, 43])
def test_a_token_that_was_renewed_in_its_file_is_taken_at_once(refusal: int, tmp_path: Path) -> None:
    server = Slurmrestd(refusal=refusal)
    asked = by_rest(server, tmp_path)
    asked.api()
    server.tokens = {"newer"}
    with pytest.raises(SlurmError, match="rest_token_file") as failed:
        asked.jobs()
    assert not failed.value.permanent
    (tmp_path / "token").write_text("newer\n")
    assert asked.jobs()


@pytest.mark.parametrize("refusal", [38, 42, 43])
def test_a_token_that_ended_is_renewed_by_scontrol(refusal: int, tmp_path: Path) -> None:
    server, commands = Slurmrestd(tokens={"made"}, refusal=refusal), Scontrol()
    asked = by_rest(server, tmp_path, commands.cli, token="ended")
    assert asked.jobs() and asked.jobs()
    assert [command[:2] for command in commands.asked] == [("scontrol", "token")]


def test_a_token_that_will_end_soon_is_not_used(tmp_path: Path) -> None:
    assert expires_at(jwt(1030.0)) == 1030.0 and expires_at("no.jwt") is None and expires_at("a.b.c") is None
    server, commands = Slurmrestd(tokens={"made"}), Scontrol()
    assert by_rest(server, tmp_path, commands.cli, token=jwt(1030.0)).jobs()
    long = jwt(5000.0)
    server.tokens = {long}
    assert by_rest(server, tmp_path, None, token=f"SLURM_JWT={long}").jobs()


def test_a_token_file_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    asked = SlurmRest(URL, Tokens(tmp_path / "gone", None, time.time), "watch", send=Slurmrestd().send)
    with pytest.raises(SlurmError, match="rest_token_file.*gone"):
        asked.nodes()


# --- failures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "permanent", "words"),
    [
        (Answer(500, b'{"errors":[{"description":"Unable to contact slurm controller"}]}'), False, "Unable to contact"),
        (
            Answer(200, b'{"jobs":[],"errors":[{"error":"Access/permission denied","error_number":2002}]}'),
            True,
            "denied",
        ),
        (Answer(502, b"<html>Bad Gateway</html>"), False, "502"),
        (Answer(200, b"{"), True, "200"),
        (Answer(200, b'{"jobs": 3}'), True, "no list of jobs"),
        (Answer(200, b"[" * 3000), True, "jobs"),
    ],
)
def test_an_answer_that_is_none_is_an_error(answer: Answer, permanent: bool, words: str, tmp_path: Path) -> None:
    asked = by_rest(Slurmrestd(failing={"jobs": answer}), tmp_path)
    with pytest.raises(SlurmError, match=words) as failed:
        asked.jobs()
    assert failed.value.permanent is permanent


@pytest.mark.parametrize("problem", [TimeoutError(), ConnectionRefusedError("refused"), OSError("no route")])
def test_silence_may_pass(problem: OSError, tmp_path: Path) -> None:
    def silent(*asked: object) -> Answer:
        raise problem

    with pytest.raises(SlurmError, match="slurmrestd") as failed:
        SlurmRest(URL, Tokens(None, None, time.time), send=silent).nodes()
    assert not failed.value.permanent


def test_a_unix_socket_that_is_not_there_is_silence(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        send_bounded("GET", f"unix:{tmp_path}/sock:/slurm/v0.0.42/ping/", {}, b"", 2.0)


# --- the real thing -------------------------------------------------------------------------------------------------


@pytest.mark.services
def test_a_real_slurmrestd_and_scontrol_say_the_same(tmp_path: Path) -> None:
    with slurm(2) as cluster, rest(cluster) as url:
        _same(cluster, url, tmp_path / "token")


def _same(cluster: SlurmCluster, url: str, file: Path) -> None:
    cli = SlurmCli(str(cluster.conf), 20)
    file.write_text(cli.token(600))
    asked = SlurmRest(url, Tokens(file, cli.token, time.time), "root", 20, cli)
    job = cluster.submit("-N2", "--gres=gpu:3", "-J", "llm")
    cluster.wait("running job", lambda: any(a.state == "RUNNING" for a in cli.jobs()))
    assert asked.version() == cli.version() and asked.jobs() == cli.jobs()
    mine, theirs = asked.nodes(), cli.nodes()
    assert [(n.name, n.state, n.flags, n.model, n.partitions, n.boot_at, n.labels) for n in mine] == [
        (n.name, n.state, n.flags, n.model, n.partitions, n.boot_at, n.labels) for n in theirs
    ]
    assert asked.node("gpu-0000").jobs == (job,)
    assert "by scontrol" in asked.drain("gpu-0001", "[watchkeeper] x inc=1")
    assert asked.node("gpu-0001").draining and asked.node("gpu-0001").reason_owner == "watchkeeper"
    file.write_text("eyJhbGciOiJIUzI1NiJ9.e30.bad")
    assert len(asked.nodes()) == 2
