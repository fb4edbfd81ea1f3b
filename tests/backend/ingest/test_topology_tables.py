"""Topology from tables and from ibnetdiscover: what is told is taken, the rest is said row by row."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.ingest.base import SourceError
from backend.ingest.infiniband import cables_of, infiniband_batch, parse
from backend.ingest.topology_csv import csv_batch

T = 1_772_366_400.0

FABRIC = """\
#
# Topology file: generated on Mon Mar  2 10:00:00 2026
#
vendid=0x2c9
devid=0xd2f2
sysimgguid=0xb83fd20300aa0001
switchguid=0xb83fd20300aa0001(b83fd20300aa0001)
Switch\t65 "S-b83fd20300aa0001"\t\t# "MF0;leaf01:MQM9700/U1" enhanced port 0 lid 2 lmc 0
[1]\t"H-00000000000000a0"[1](a0) \t\t# "gpu-0001 mlx5_0" lid 5 4xNDR
[2]\t"H-00000000000000b0"[1](b0) \t\t# "gpu-0002 mlx5_0" lid 6 4xNDR
[65]\t"H-00000000000000ff"[1](ff) \t\t# "Mellanox Technologies Aggregation Node" lid 9 4xNDR

vendid=0x2c9
Switch\t65 "S-b83fd20300aa0002"\t\t# "Quantum Mellanox Technologies" base port 0 lid 3 lmc 0
[1]\t"H-00000000000000a1"[1](a1) \t\t# "gpu-0001 mlx5_1" lid 7 4xNDR

vendid=0x2c9
caguid=0xff
Ca\t1 "H-00000000000000ff"\t\t# "Mellanox Technologies Aggregation Node"
[1](ff) \t"S-b83fd20300aa0001"[65]\t\t# lid 9 lmc 0 "MF0;leaf01:MQM9700/U1" lid 2 4xNDR

caguid=0xa0
Ca\t1 "H-00000000000000a0"\t\t# "gpu-0001 mlx5_0"
[1](a0) \t"S-b83fd20300aa0001"[1]\t\t# lid 5 lmc 0 "MF0;leaf01:MQM9700/U1" lid 2 4xNDR

Ca\t1 "H-00000000000000b0"\t\t# "gpu-0002 mlx5_0"
[1](b0) \t"S-b83fd20300aa0001"[2]\t\t# lid 6 lmc 0 "MF0;leaf01:MQM9700/U1" lid 2 4xNDR

Ca\t1 "H-00000000000000a1"\t\t# "gpu-0001 mlx5_1"
[1](a1) \t"S-b83fd20300aa0002"[1]\t\t# lid 7 lmc 0 "Quantum Mellanox Technologies" lid 3 4xNDR

Ca\t1 "H-00000000000000b1"\t\t# "gpu-0002 mlx5_1"
[1](b1) \t"S-b83fd20300aa0002"[2]\t\t# lid 8 lmc 0 "Quantum Mellanox Technologies" lid 3 4xNDR

Ca\t2 "H-00000000000000c0"\t\t# "MT4129 ConnectX7   Mellanox Technologies"
[1](c0) \t"S-b83fd20300aa0002"[3]\t\t# lid 10
"""


def test_ports_of_hosts_are_tied_to_leaves_and_rails() -> None:
    found = [(c.node, c.port, c.peer, c.peer_port, c.rail) for c in cables_of(parse(FABRIC))]
    assert found == [
        ("gpu-0001", "mlx5_0/1", "leaf01", "1", "mlx5_0"),
        ("gpu-0002", "mlx5_0/1", "leaf01", "2", "mlx5_0"),
        ("gpu-0001", "mlx5_1/1", "S-b83fd20300aa0002", "1", "mlx5_1"),
        ("gpu-0002", "mlx5_1/1", "S-b83fd20300aa0002", "2", "mlx5_1"),
    ]
    batch = infiniband_batch(FABRIC.encode(), T)
    assert {n.name for n in batch.nodes} == {"gpu-0001", "gpu-0002"} and not any(n.switch for n in batch.nodes)


def test_one_adapter_a_node_is_a_leaf_and_no_rail() -> None:
    one = "\n".join(f'Ca 1 "H-{i:x}" # "n{i} HCA-1"\n[1]({i:x}) "S-1"[{i}] # lid {i}\n' for i in range(1, 4))
    batch = infiniband_batch(f'Switch 40 "S-1" # "spine-a"\n\n{one}'.encode(), T)
    assert {(n.name, n.switch) for n in batch.nodes} == {(f"n{i}", "spine-a") for i in range(1, 4)}
    assert {c.rail for c in batch.cables} == {""}


@given(st.text(max_size=400) | st.lists(st.sampled_from(FABRIC.splitlines()), max_size=40).map("\n".join))
@settings(max_examples=60, deadline=None)
def test_any_text_is_parsed(text: str) -> None:
    cables_of(parse(text))


def test_what_is_no_print_of_ibnetdiscover_is_refused_with_the_mend() -> None:
    with pytest.raises(SourceError, match="ibnetdiscover"):
        infiniband_batch(b"hello", T)


# --- tables ----------------------------------------------------------------------------------------------------------


def test_a_table_places_nodes_partitions_rails_and_mounts() -> None:
    table = (
        "Host;Rack;Leaf;NVLink domain;Partition;rail0;rail_1;fs;colour\n"
        "gpu-[0001-0002];r1;leaf1;nvl-7;train;leaf1;leaf2;/scratch=lustre1;red\n"
        ";;;;;;;;\n"
        "gpu-0003;r2;;;;;;;\n"
    )
    batch, rejects = csv_batch(table.encode(), T)
    assert not rejects
    assert [(n.name, n.rack, n.switch, n.clique, n.partitions) for n in batch.nodes] == [
        ("gpu-0001", "r1", "leaf1", "nvl-7", ("train",)),
        ("gpu-0002", "r1", "leaf1", "nvl-7", ("train",)),
        ("gpu-0003", "r2", "", "", ()),
    ]
    assert [(c.port, c.peer, c.kind, c.rail) for c in batch.cables if c.node == "gpu-0002"] == [
        ("rail0", "leaf1", "ib", "0"),
        ("rail1", "leaf2", "ib", "1"),
        ("/scratch", "lustre1", "fs", ""),
    ]


def test_bad_lines_are_named_and_the_good_kept() -> None:
    table = "node,rack\nn1,r1\nn1,r2\nn[1-,r1\n-rf,r1\nn2," + "x" * 300 + "\nn3,r3\n"
    batch, rejects = csv_batch(table.encode(), T)
    assert [n.name for n in batch.nodes] == ["n1", "n3"] and [r.row for r in rejects] == [2, 3, 4, 5]
    assert batch.dropped == {"rows that could not be read": 4}


@pytest.mark.parametrize("table", [b"", b"a,b\n1,2\n", b"\xff\xfe", b"rack\nr1\n"])
def test_a_table_without_nodes_is_refused(table: bytes) -> None:
    with pytest.raises(SourceError, match="node"):
        csv_batch(table, T)


@given(st.text(max_size=300))
@settings(max_examples=60, deadline=None)
def test_any_table_is_read_or_refused(text: str) -> None:
    batch, _ = csv_batch(f"node,rack\n{text}".encode(errors="replace"), T)
    assert all(node.name for node in batch.nodes)
