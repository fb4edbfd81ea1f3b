"""Where a job writes: every symbol of a pattern, against what a real Slurm made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.clients.slurm import SlurmCli
from backend.clients.slurm_outputs import Writer, expand_pattern, files_of_step, outputs_of
from backend.facts import AttemptFacts
from tests.services.slurm import SlurmCluster

ONE = Writer("42", user="ada", name="llm", node="gpu-0001.site.org")
TASK = Writer("1207", user="ada", name="sweep", array="1200", task_id="7", node="gpu-0001")
#: What sbatch of Slurm 22.05 made of a pattern, for job 42 of user ada named llm on gpu-0001.
SEEN = {
    "%x-%j-%4j-%N-%t-%A-%n-%s-%J-%u": "llm-42-0042-gpu-0001-0-42-0-batch-42-ada",
    "%a-%A-%8a": "4294967294-42-4294967294",
    "%%j-%5N-%12j-%3x-%4J": "%j-gpu-0001-0000000042-llm-0042",
    "\\%j-%x": "%j-%x",
    "%0j-%00j-%z-%": "42-42-%z-%",
}


@pytest.mark.parametrize("pattern", SEEN)
def test_every_symbol_becomes_what_slurm_makes_of_it(pattern: str) -> None:
    assert expand_pattern(pattern, ONE) == SEEN[pattern]


def test_a_task_of_an_array_has_two_numbers() -> None:
    assert expand_pattern("arr-%A-%a-%4a-%j-%2A-%b", TASK) == "arr-1200-7-0007-1207-1200-7"


def test_a_batch_job_writes_where_it_was_told_else_in_its_folder() -> None:
    assert outputs_of(ONE, "", "", "/home/ada") == ("/home/ada/slurm-42.out",)
    assert outputs_of(TASK, "", "", "/home/ada") == ("/home/ada/slurm-1200_7.out",)
    assert outputs_of(ONE, "logs/%j.out", "/x/%j.err", "/home/ada") == ("/home/ada/logs/42.out", "/x/42.err")
    assert outputs_of(ONE, "/x/%j.out", "/x/%j.out", "") == ("/x/42.out",)
    assert outputs_of(ONE, "/dev/null", "", "/home/ada") == ()
    assert outputs_of(ONE, "relative", "", "") == ()


def test_a_step_writes_one_file_a_task_or_a_node_where_its_pattern_tells_them_apart() -> None:
    step, nodes = Writer("42", step="0"), ["a.site", "b.site"]
    assert files_of_step("/x/%j_%t.log", step, nodes, 4, "/") == tuple(f"/x/42_{i}.log" for i in range(4))
    assert files_of_step("/x/%N-%n", step, nodes, 4, "/") == ("/x/a-0", "/x/b-1")
    assert files_of_step("/x/%J", step, nodes, 4, "/") == ("/x/42.0",)
    assert files_of_step("%t/%N", step, nodes, 4, "/w") == ("/w/0/a", "/w/1/a", "/w/2/b", "/w/3/b")


@pytest.mark.services
def test_a_real_slurm_writes_where_we_look(cluster: SlurmCluster) -> None:
    cli = SlurmCli(str(cluster.conf), 20)
    folder = cluster.folder / "log"
    asked = [f"{folder}/o-%x-%j-%4j-%t-%A-%n-%s-%J-%u.out", f"{folder}/p-%%-%12j-%a.out", "q-%j.out"]
    named = ["sbatch", "--parsable", f"--chdir={folder}", "--wrap=true"]
    jobs = [cluster.run(*named, "-J", "llm", f"--output={out}").strip() for out in asked]
    tasks = cluster.run(*named, "--array=3,11", f"--output={folder}/r-%A-%a-%4a-%j").strip()

    def ended() -> list[AttemptFacts]:
        mine = [a for a in cli.jobs() if a.job in jobs or a.array.startswith(f"{tasks}_")]
        return [a for a in mine if a.state == "COMPLETED"]

    cluster.wait("five ended jobs", lambda: len(ended()) == 5)
    for attempt in ended():
        (path,) = attempt.outputs
        assert Path(path).exists(), path
