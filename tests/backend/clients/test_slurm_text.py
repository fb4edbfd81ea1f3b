"""Partitions, reservations and topology, from scontrol and from slurmrestd."""

from __future__ import annotations

import pytest

from backend.clients.slurm import Ran, SlurmCli, SlurmError
from backend.clients.slurm_text import (
    Place,
    Reservation,
    maintenances,
    parse_partitions,
    parse_reservations,
    parse_topology,
    placed,
    read_partitions,
    read_reservations,
)
from backend.clients.slurm_values import RecordError
from backend.facts import NodeFacts
from tests.services.slurm import slurm

RESERVATIONS = """\
ReservationName=fw update StartTime=1796065824 EndTime=1796069424 Duration=01:00:00
   Nodes=gpu-[0003-0004] NodeCnt=2 CoreCnt=64 Features=(null) PartitionName=(null) Flags=MAINT,IGNORE_JOBS,SPEC_NODES
   TRES=cpu=64 Users=root Groups=(null) Accounts=(null) Licenses=(null) State=ACTIVE
ReservationName=class StartTime=1796065824 EndTime=4294967295 Nodes=(null) Flags=FLEX Users=(null) Accounts=bio,chem
"""


def number(value: int) -> dict[str, object]:
    return {"set": True, "infinite": False, "number": value}


def test_reservations_read_alike_from_text_and_rest() -> None:
    first, second = parse_reservations(RESERVATIONS)
    assert first == Reservation("fw update", ("gpu-0003", "gpu-0004"), 1796065824.0, 1796069424.0,
                                frozenset({"MAINT", "IGNORE_JOBS", "SPEC_NODES"}), ("root",))  # fmt: skip
    assert second.end is None and second.nodes == () and second.users == ("bio", "chem") and not second.maintenance
    (same,) = read_reservations(
        {
            "reservations": [
                {
                    "name": "fw update",
                    "node_list": "gpu-[0003-0004]",
                    "start_time": number(1796065824),
                    "end_time": number(1796069424),
                    "flags": ["MAINT", "IGNORE_JOBS", "SPEC_NODES"],
                    "users": "root",
                }
            ]
        }
    )
    assert same == first
    (window,) = maintenances([first, second])
    assert (window.name, window.nodes, window.source) == ("fw update@1796065824", first.nodes, "slurm")
    assert parse_reservations("No reservations in the system\n") == []


def test_partitions_read_alike_from_text_and_rest() -> None:
    (text,) = parse_partitions(
        "PartitionName=train AllowGroups=ALL Default=YES MaxTime=3-00:00:00 Nodes=n[1-2] State=UP"
    )
    old = {"name": "train", "nodes": "n[1-2]", "state": "UP", "flags": ["default"], "max_time_limit": 4320}
    new = {
        "name": "train",
        "nodes": {"configured": "n[1-2]", "total": 2},
        "partition": {"state": ["UP"]},
        "flags": ["DEFAULT"],
        "maximums": {"time": number(4320)},
    }
    assert read_partitions({"partitions": [old, new]}) == [text, text]
    assert (text.name, text.nodes, text.limit_s, text.default) == ("train", ("n1", "n2"), 259_200.0, True)
    with pytest.raises(RecordError, match="no list of partitions"):
        read_partitions({"partitions": None})


def test_a_tree_gives_the_leaf_and_what_is_above_it() -> None:
    text = (
        "SwitchName=spine2 Level=2 LinkSpeed=1 Nodes=n[1-4] Switches=pod[1-2]\n"
        "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-2]\nSwitchName=leaf2 Level=0 Nodes=n[3-4]\n"
        "SwitchName=pod1 Level=1 Nodes=n[1-2] Switches=leaf1\n"
    )
    places = parse_topology(text)
    assert places["n1"] == Place("leaf1", ("pod1", "spine2")) and places["n4"] == Place("leaf2", ("spine2",))


def test_blocks_are_nvlink_domains_and_may_stand_beside_a_tree() -> None:
    text = (
        "SwitchName=s1 Level=0 Nodes=n[1-2]\nBlockName=b1 BlockIndex=0 Nodes=n[1-18] BlockSize=18\n"
        "AggregatedBlock=b[1-2] BlockIndex=2 Nodes=n[1-36] BlockSize=36\n"
    )
    places = parse_topology(text)
    assert places["n1"] == Place("s1", (), "b1") and places["n18"].block == "b1" and "n36" not in places
    node = placed(NodeFacts("n1", labels={"features": "h100"}), places["n1"])
    assert (node.switch, node.clique, node.labels) == ("s1", "b1", {"features": "h100"})
    assert placed(node, None) is node


def test_a_cluster_without_topology_has_an_empty_one() -> None:
    for words in ("scontrol: error: No topology information available", "slurm_load_topo: topology not available"):
        assert SlurmCli(run=lambda *asked, words=words: Ran(1, "", words)).topology() == {}
    with pytest.raises(SlurmError, match="contact"):
        SlurmCli(run=lambda *asked: Ran(1, "", "Unable to contact slurm controller")).topology()


@pytest.mark.services
def test_a_real_tree_and_a_real_maintenance_are_read() -> None:
    tree = "SwitchName=leaf1 Nodes=gpu-0000\nSwitchName=leaf2 Nodes=gpu-0001\nSwitchName=spine Switches=leaf[1-2]\n"
    with slurm(2, more="TopologyPlugin=topology/tree\n", topology=tree) as cluster:
        cli = SlurmCli(str(cluster.conf), 20)
        assert cli.topology() == {"gpu-0000": Place("leaf1", ("spine",)), "gpu-0001": Place("leaf2", ("spine",))}
        named = ("reservationname=fw", "starttime=now", "duration=60", "flags=maint,ignore_jobs", "nodes=gpu-0001")
        cluster.run("scontrol", "create", "reservation", *named, "users=root")
        (window,) = maintenances(cli.reservations())
        assert window.nodes == ("gpu-0001",) and window.end is not None and window.end - window.start == 3600
        (queue,) = cli.partitions()
        assert (queue.name, queue.nodes, queue.default) == ("train", ("gpu-0000", "gpu-0001"), True)
